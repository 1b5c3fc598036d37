"""Two reports side by side, or the reasons why they must not be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kvbacking.errors import KVBackingError

from .report import Report

# What has to be equal for two reports to be about the same thing; what may differ is the point of comparing.
_SAME: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("runtime kind", ("runtime", "kind")),
    ("model", ("model", "fingerprint")),
    ("function", ("model", "function")),
    ("compute units", ("model", "compute_units")),
    ("contract", ("contract",)),
    ("inputs", ("inputs", "digest")),
    ("verification level", ("protocol", "verify")),
    ("buffers", ("protocol", "buffers")),
)
_ENVIRONMENT: tuple[tuple[str, ...], ...] = (
    ("kvbacking_version",),
    ("runtime", "os"),
    ("runtime", "os_build"),
    ("runtime", "chip"),
    ("runtime", "runtime_version"),
)


class ComparisonRefusedError(KVBackingError, ValueError):
    """The reports are about different things. `differences`: (what, in the first, in the second)."""

    def __init__(self, differences: list[tuple[str, Any, Any]]) -> None:
        self.differences = differences
        named = "; ".join(f"{what}: {first!r} and {second!r}" for what, first, second in differences)
        super().__init__(f"these reports cannot be compared, they differ in {named}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmComparison:
    """One arm and interval in both reports. `agree`: whether both come to the same decision (None: not decided on)."""

    arm: str
    interval: str
    first: dict[str, Any] | None
    second: dict[str, Any] | None
    first_decision: str | None
    second_decision: str | None
    agree: bool | None
    intervals_overlap: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportComparison:
    """Two reports side by side, without a difference of their timings."""

    environment: dict[str, tuple[Any, Any]]  # what differs around the runs
    arms: tuple[ArmComparison, ...]

    def document(self) -> dict[str, Any]:
        """A JSON document."""
        return asdict(self)


def compare(first: Report, second: Report) -> ReportComparison:
    """Raises ComparisonRefusedError naming everything that makes the reports incomparable.

    Runs of two reports are not paired, so their timings are never subtracted: each keeps its own paired difference,
    and the comparison says whether the decisions agree and the intervals overlap.
    """
    a, b = first.document, second.document
    different = [(what, _at(a, path), _at(b, path)) for what, path in _SAME if _at(a, path) != _at(b, path)]
    if different:
        raise ComparisonRefusedError(different)
    environment = {
        ".".join(path): (_at(a, path), _at(b, path)) for path in _ENVIRONMENT if _at(a, path) != _at(b, path)
    }
    differences = [{(d["arm"], d["interval"]): d for d in doc["differences"]} for doc in (a, b)]
    decisions = [{(d["arm"], d["interval"]): d["decision"] for d in doc["decisions"]} for doc in (a, b)]
    keys = dict.fromkeys([*differences[0], *differences[1], *decisions[0], *decisions[1]])
    rows = []
    for arm, interval in keys:
        one, two = (d.get((arm, interval)) for d in differences)
        word_one, word_two = (d.get((arm, interval)) for d in decisions)
        both_decided = word_one is not None and word_two is not None
        rows.append(
            ArmComparison(
                arm=arm,
                interval=interval,
                first=one,
                second=two,
                first_decision=word_one,
                second_decision=word_two,
                agree=word_one == word_two if both_decided else None,
                intervals_overlap=one["low_ns"] <= two["high_ns"] and two["low_ns"] <= one["high_ns"]
                if one and two
                else None,
            )
        )
    return ReportComparison(environment=environment, arms=tuple(rows))


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document
