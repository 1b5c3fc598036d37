"""One length and one method as a row of the document, and the budget's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..runner import Measurement
from ..sample import STAGE
from .arms import IMPORT, MEMCPY, HandoffArm

BUDGET_RATIO, BUDGET_SHORT, BUDGET_LONG = 1.5, 512, 32768


def row_of(
    live: int,
    capacity: int,
    method: str,
    words: str,
    run: Measurement,
    arm: HandoffArm | None,
    need: int,
    bound: int,
    copy_ns: list[int],
) -> dict[str, Any]:
    """What came out, or why nothing did: `status` is measured, refused, invalid or not run."""
    samples = samples_of(run, method)
    medians = {name: int(np.median(values)) for name, values in samples.items()}
    problems = [r.problem for r in run.records if r.arm == method and not r.valid]
    status, reason = "measured", ""
    if method in run.withdrawn:
        status, reason = "refused", run.withdrawn[method]
    elif problems:
        status, reason = "invalid", str(problems[0])
    elif need > bound:
        status, reason = "not run", f"needs {need / 2**30:.2f} GiB, the bound is {bound / 2**30:.2f} GiB"
    elif not samples:
        status, reason = "not run", "no method fits into the bound" if run.rounds_planned == 0 else "interrupted"
    if status != "measured":
        medians = {}
    facts = [fact.to_dict() for fact in arm.facts[-len(samples.get(STAGE, ())) :]] if arm and samples else []
    ratio = medians[STAGE] / float(np.median(copy_ns)) if STAGE in medians and copy_ns and method != MEMCPY else None
    return {
        "live": live,
        "capacity": capacity,
        "method": method,
        "words": words,
        "status": status,
        "reason": reason,
        "medians_ns": medians,
        "ratio_to_memcpy": ratio,
        "facts": _worst(facts),
        "facts_per_sample": facts,
        "samples_ns": samples,
    }


def _worst(facts: Sequence[Mapping[str, int]]) -> dict[str, int] | None:
    """Of all samples: the most bytes, the fewest arrays in place."""
    if not facts:
        return None
    pick = {name: min if name.startswith(("at_producer", "kept")) else max for name in facts[0]}
    return {name: choose(fact[name] for fact in facts) for name, choose in pick.items()}


def samples_of(run: Measurement, arm: str) -> dict[str, list[int]]:
    """Valid samples by interval, in the order of the rounds."""
    found: dict[str, list[int]] = {}
    for record in run.records:
        if record.arm == arm and record.valid:
            for name, value in record.intervals.items():
                found.setdefault(name, []).append(value)
    return found


def budget_of(samples: Mapping[int, Mapping[str, Sequence[int]]]) -> dict[str, Any]:
    """Whether handing over per-layer MLX-owned backings costs the same at every length: at most 1.5 x from 512 to 32768
    rows, by the medians of the import alone and of import and first update together. `met` is None when a length has
    no samples (length -> interval -> nanoseconds)."""
    answer: dict[str, Any] = {
        "what": f"MLX-owned per layer: median at {BUDGET_LONG} rows over median at {BUDGET_SHORT}",
        "limit": BUDGET_RATIO,
        "import_ratio": None,
        "stage_ratio": None,
        "met": None,
        "samples_ns": {str(live): {name: list(values) for name, values in s.items()} for live, s in samples.items()},
    }
    short, long = (samples.get(live, {}) for live in (BUDGET_SHORT, BUDGET_LONG))
    if STAGE in short and STAGE in long:
        for key, name in (("import_ratio", IMPORT), ("stage_ratio", STAGE)):
            answer[key] = float(np.median(long[name]) / np.median(short[name]))
        answer["met"] = max(answer["import_ratio"], answer["stage_ratio"]) <= BUDGET_RATIO
    return answer
