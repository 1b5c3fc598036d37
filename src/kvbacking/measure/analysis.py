"""From raw records to summaries, paired differences and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .decision import Decision, decide
from .runner import Measurement
from .sample import END_TO_END, STAGE, Record
from .statistics import RESAMPLES, PairedDifference, Summary, derived_seed, paired_difference, summarise

DECIDED = (STAGE, END_TO_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """`status` is "valid" only when every single sample was: otherwise the arm has no summaries to be quoted."""

    name: str
    status: str  # "valid" | "rejected"
    reasons: tuple[str, ...]
    samples: int
    invalid: int
    intervals: Mapping[str, Summary]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    arms: tuple[ArmResult, ...]
    differences: Mapping[str, Mapping[str, PairedDifference]]  # arm -> interval -> difference, with the A/A arm
    decisions: tuple[Decision, ...]
    objections: tuple[str, ...]  # against the whole run


def analyse(
    run: Measurement,
    *,
    control: str,
    duplicate: str,
    scored: Sequence[str],
    host_reasons: Sequence[str] = (),
    bootstrap_seed: int,
    resamples: int = RESAMPLES,
    decided: Sequence[str] = DECIDED,
) -> Analysis:
    """Pairs arms with the control per round and decides on the `scored` ones, for those of the `decided` intervals
    that were measured (the first one always)."""
    grouped: dict[str, dict[int, Record]] = {name: {} for name in (control, duplicate, *scored)}
    for record in run.records:
        grouped[record.arm][record.round] = record
    arms = {name: _arm_result(name, records, run.withdrawn.get(name)) for name, records in grouped.items()}

    differences: dict[str, dict[str, PairedDifference]] = {}
    for name in (duplicate, *scored):
        if arms[name].status == "valid" and arms[control].status == "valid":
            differences[name] = _differences(
                name, grouped[name], grouped[control], bootstrap_seed=bootstrap_seed, resamples=resamples
            )

    objections = [f"the host was not quiet: {reason}" for reason in host_reasons]
    if run.interrupted:
        objections.append(
            f"stopped by hand after {run.rounds_done} of {run.rounds_planned} rounds: "
            "when to stop may depend on what was seen"
        )
    if arms[control].status != "valid":
        objections.extend(f"the control is not valid: {reason}" for reason in arms[control].reasons)
    if arms[duplicate].status != "valid":
        objections.extend(f"the A/A arm is not valid: {reason}" for reason in arms[duplicate].reasons)

    measured = {interval for record in run.records for interval in record.intervals}
    decisions = [
        decide(
            name,
            interval,
            differences.get(name, {}).get(interval),
            differences.get(duplicate, {}).get(interval),
            objections=(*objections, *arms[name].reasons),
        )
        for name in scored
        for interval in decided
        if interval == decided[0] or interval in measured
    ]
    return Analysis(
        arms=tuple(arms.values()), differences=differences, decisions=tuple(decisions), objections=tuple(objections)
    )


def _arm_result(name: str, records: Mapping[int, Record], withdrawn: str | None) -> ArmResult:
    invalid = [record for record in records.values() if not record.valid]
    reasons = [withdrawn] if withdrawn else []
    problems: dict[str, int] = {}
    for record in invalid:
        problems[str(record.problem)] = problems.get(str(record.problem), 0) + 1
    reasons += [f"{count} of {len(records)} samples are not valid: {problem}" for problem, count in problems.items()]
    if not records and not reasons:
        reasons.append("no sample was taken")
    valid = not reasons
    names = dict.fromkeys(interval for record in records.values() for interval in record.intervals)
    return ArmResult(
        name=name,
        status="valid" if valid else "rejected",
        reasons=tuple(reasons),
        samples=len(records),
        invalid=len(invalid),
        intervals={i: summarise([r.intervals[i] for r in records.values() if i in r.intervals]) for i in names}
        if valid
        else {},
    )


def _differences(
    name: str,
    arm: Mapping[int, Record],
    control: Mapping[int, Record],
    *,
    bootstrap_seed: int,
    resamples: int,
) -> dict[str, PairedDifference]:
    result: dict[str, PairedDifference] = {}
    names = dict.fromkeys(interval for record in arm.values() for interval in record.intervals)
    for interval in names:
        pairs = [
            (record.intervals[interval], control[index].intervals[interval])
            for index, record in arm.items()
            if index in control and interval in record.intervals and interval in control[index].intervals
        ]
        if pairs:
            result[interval] = paired_difference(
                [a for a, _ in pairs],
                [c for _, c in pairs],
                seed=derived_seed(bootstrap_seed, name, interval),
                resamples=resamples,
            )
    return result
