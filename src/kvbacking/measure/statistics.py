"""Paired statistics of one arm against the control. Negative differences are savings."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.99
RESAMPLES = 10_000
_CHUNK_ELEMENTS = 1 << 21  # resampled indices held at once (16 MiB)

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Observed values of one interval of one arm; percentiles are nearest-rank, so each one really happened."""

    count: int
    min_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """arm minus control, paired per round."""

    rounds: int
    median_ns: float
    low_ns: float
    high_ns: float
    relative: float | None  # median difference over the control's median; None when that is zero
    wilcoxon_p: float


def summarise(values_ns: Sequence[int]) -> Summary:
    """Raises ValueError without values."""
    if not values_ns:
        raise ValueError("no values to summarise")
    values = np.asarray(values_ns, dtype=np.int64)
    p50, p90, p99 = (int(v) for v in np.percentile(values, (50, 90, 99), method="inverted_cdf"))
    return Summary(
        count=len(values), min_ns=int(values.min()), p50_ns=p50, p90_ns=p90, p99_ns=p99, max_ns=int(values.max())
    )


def derived_seed(seed: int, *labels: str) -> tuple[int, int]:
    """A generator seed per comparison, so that adding an arm does not change the numbers of another."""
    return seed, zlib.crc32("/".join(labels).encode())


def bootstrap_median(
    differences: FloatArray,
    *,
    seed: int | tuple[int, ...],
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the median of `differences` (shape (n,))."""
    n = len(differences)
    rng = np.random.default_rng(seed)
    medians = np.empty(resamples, dtype=np.float64)
    step = max(1, _CHUNK_ELEMENTS // n)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        rows = differences[rng.integers(0, n, size=(stop - start, n), dtype=np.int32)]
        medians[start:stop] = np.median(rows, axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, (tail, 1.0 - tail))
    return float(low), float(high)


def wilcoxon_p(differences: FloatArray) -> float:
    """Two-sided Wilcoxon signed-rank p-value; 1.0 when no difference is non-zero."""
    if not np.any(differences):
        return 1.0
    from .lazy import require

    stats = require("scipy.stats")
    # "approx" on purpose: the exact distribution is defined without ties and zeros, and timers produce both.
    return float(stats.wilcoxon(differences, zero_method="pratt", method="approx").pvalue)


def paired_difference(
    arm_ns: Sequence[int],
    control_ns: Sequence[int],
    *,
    seed: int | tuple[int, ...],
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> PairedDifference:
    """`arm_ns[i]` and `control_ns[i]` come from the same round. Raises ValueError unless both have the same length."""
    if len(arm_ns) != len(control_ns) or not arm_ns:
        raise ValueError(f"pairs need equal, non-zero counts: {len(arm_ns)} and {len(control_ns)}")
    control = np.asarray(control_ns, dtype=np.float64)
    differences = np.asarray(arm_ns, dtype=np.float64) - control
    low, high = bootstrap_median(differences, seed=seed, confidence=confidence, resamples=resamples)
    median = float(np.median(differences))
    base = float(np.median(control))
    return PairedDifference(
        rounds=len(differences),
        median_ns=median,
        low_ns=low,
        high_ns=high,
        relative=median / base if base else None,
        wilcoxon_p=wilcoxon_p(differences),
    )
