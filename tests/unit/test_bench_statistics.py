"""The statistics against what is known in closed form, and the schedule."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kvbacking.measure.decision import decide, noise_floor
from kvbacking.measure.schedule import randomised_blocks
from kvbacking.measure.statistics import (
    PairedDifference,
    bootstrap_median,
    derived_seed,
    paired_difference,
    summarise,
    wilcoxon_p,
)


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for index in range(400):
        low, high = bootstrap_median(rng.normal(3.0, 1.0, size=60), seed=index, confidence=0.9, resamples=500)
        covered += low <= 3.0 <= high
    assert 0.85 <= covered / 400 <= 0.95


def test_the_interval_agrees_with_scipy() -> None:
    from scipy import stats

    data = np.random.default_rng(1).lognormal(size=80)
    ours = bootstrap_median(data, seed=3, resamples=20_000)
    theirs = stats.bootstrap(
        (data,), np.median, confidence_level=0.99, n_resamples=20_000, method="percentile", rng=np.random.default_rng(4)
    ).confidence_interval
    assert ours == pytest.approx((theirs.low, theirs.high), rel=0.03)


def test_the_same_seed_gives_the_same_interval_and_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(2).normal(size=50)
    first = bootstrap_median(data, seed=9, resamples=1000)
    assert bootstrap_median(data, seed=9, resamples=1000) == first
    assert bootstrap_median(data, seed=10, resamples=1000) != first
    monkeypatch.setattr("kvbacking.measure.statistics._CHUNK_ELEMENTS", 64)
    chunked = bootstrap_median(data, seed=9, resamples=1000)
    assert chunked == pytest.approx(first, abs=0.2)


def test_seeds_differ_by_comparison_and_not_by_run() -> None:
    assert derived_seed(1, "raw", "stage") == derived_seed(1, "raw", "stage")
    assert (
        len({derived_seed(1, "raw", "stage"), derived_seed(1, "raw", "copy"), derived_seed(1, "surface", "stage")}) == 3
    )


def test_percentiles_are_observed_values() -> None:
    values = [5, 1, 9, 7, 3, 100, 2, 8, 6, 4]
    summary = summarise(values)
    assert (summary.count, summary.min_ns, summary.max_ns) == (10, 1, 100)
    assert {summary.p50_ns, summary.p90_ns, summary.p99_ns} <= set(values)
    assert (summary.p50_ns, summary.p90_ns, summary.p99_ns) == (5, 9, 100)
    with pytest.raises(ValueError, match="no values"):
        summarise([])


def test_pairs_are_subtracted_per_round_and_not_sorted() -> None:
    control = [100, 200, 300, 400]
    result = paired_difference([110, 210, 310, 410], control, seed=0, resamples=200)
    assert (result.median_ns, result.low_ns, result.high_ns) == (10.0, 10.0, 10.0)
    assert result.relative == pytest.approx(10 / 250)
    with pytest.raises(ValueError, match="4 and 3"):
        paired_difference(control, control[:3], seed=0)


def test_wilcoxon_at_its_ends() -> None:
    assert wilcoxon_p(np.zeros(30)) == 1.0
    assert wilcoxon_p(np.full(30, -1.0)) < 1e-6
    assert wilcoxon_p(np.array([-1.0, 1.0] * 30)) > 0.9


def _difference(low: float, high: float, *, p: float = 1e-6, rounds: int = 100) -> PairedDifference:
    return PairedDifference(
        rounds=rounds, median_ns=(low + high) / 2, low_ns=low, high_ns=high, relative=None, wilcoxon_p=p
    )


@pytest.mark.parametrize(
    ("low", "high", "floor", "p", "word"),
    [
        (-30, -20, (-5, 5), 1e-6, "saving shown"),
        (-30, -4, (-5, 5), 1e-6, "no saving shown"),  # beyond zero, not beyond the floor
        (-30, -6, (-1, 7), 1e-6, "no saving shown"),  # the sign of an A/A difference means nothing
        (-30, 1, (-1, 1), 1e-6, "no saving shown"),
        (-30, -20, (-5, 5), 0.5, "no saving shown"),  # the cross-check does not agree
        (20, 30, (-5, 5), 1e-6, "slower"),
        (4, 30, (-5, 5), 1e-6, "no saving shown"),
        (20, 30, (-5, 5), 0.5, "no saving shown"),
        (0, 0, (0, 0), 1.0, "no saving shown"),
        (-5, 0, (0, 0), 1e-6, "no saving shown"),
    ],
)
def test_the_rule(low: float, high: float, floor: tuple[float, float], p: float, word: str) -> None:
    decision = decide("raw", "stage", _difference(low, high, p=p), _difference(*floor, p=0.5))
    assert decision.word == word
    assert decision.floor_ns == max(abs(floor[0]), abs(floor[1]))
    assert decision.reasons


def test_nothing_is_scored_without_a_floor_or_with_an_objection() -> None:
    good, same = _difference(-30, -20), _difference(-1, 1)
    assert decide("raw", "stage", good, None).word == "unscored"
    assert decide("raw", "stage", None, same).word == "unscored"
    assert decide("raw", "stage", good, same, objections=["a noisy host"]).reasons == ("a noisy host",)
    assert decide("raw", "stage", _difference(-30, -20, rounds=19), same).word == "unscored"
    assert noise_floor(_difference(-9, 2)) == 9


def test_blocks_hold_every_arm_once_and_positions_balance() -> None:
    names = ("a", "b", "c", "d")
    blocks = list(randomised_blocks(names, 2000, seed=3))
    assert all(sorted(block) == list(names) for block in blocks)
    for name in names:
        counts = Counter(block.index(name) for block in blocks)
        assert all(400 < counts[position] < 600 for position in range(4))
    assert list(randomised_blocks(names, 50, seed=3)) == blocks[:50]
    assert list(randomised_blocks(names, 50, seed=4)) != blocks[:50]
    with pytest.raises(ValueError, match="differ"):
        randomised_blocks(("a", "a"), 5, seed=0)
    with pytest.raises(ValueError, match="at least 1"):
        randomised_blocks(names, 0, seed=0)


def test_a_missing_library_is_named_with_its_extra() -> None:
    from kvbacking.measure.lazy import require

    with pytest.raises(ImportError, match=r"no_such_library: pip install 'kvbacking\[bench\]'"):
        require("no_such_library.part")
