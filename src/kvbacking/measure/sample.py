"""What one run of one arm yields, and what an arm is. Nothing here knows Core ML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

PathName = Literal["backing", "copy", "framework"]

# Names of intervals, in nanoseconds. An arm may add its own; the decision looks at STAGE and END_TO_END.
PREDICTION = "prediction"  # the framework call alone
VERIFICATION = "verification"  # checks on the returned bytes
COPY = "copy"  # packing into memory the caller keeps
RELEASE = "release"  # giving the outputs back; not part of the stage
STAGE = "stage"  # from the call to usable, verified outputs
END_TO_END = "end_to_end"  # the caller's whole task, when one is given


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run. `problem` names why the run must not be credited although it returned; None when nothing is wrong."""

    intervals: Mapping[str, int]
    path: PathName
    verified: bool
    problem: str | None = None


class Arm(Protocol):
    """A way to do the work that is measured.

    `expects` is the path a valid run takes: a backed arm that comes back by another path was not what is measured.
    """

    @property
    def name(self) -> str: ...

    @property
    def expects(self) -> PathName: ...

    def run_once(self) -> Sample: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One raw sample as it is kept in samples.jsonl; never dropped, invalid ones say why."""

    round: int
    position: int
    arm: str
    started_ns: int
    intervals: Mapping[str, int]
    path: str
    valid: bool
    problem: str | None = None


def judge(arm: Arm, sample: Sample) -> str | None:
    """Why `sample` must not be credited to `arm`, or None."""
    if sample.problem is not None:
        return sample.problem
    if sample.path != arm.expects:
        return f"the outputs came by path {sample.path!r}, not {arm.expects!r}: the proposal was ignored"
    if not sample.verified:
        return "the returned bytes were not verified"
    if STAGE not in sample.intervals:
        return f"the arm gave no {STAGE!r} interval"
    if any(value < 0 for value in sample.intervals.values()):
        return "an interval is negative: the clock went backwards"
    return None
