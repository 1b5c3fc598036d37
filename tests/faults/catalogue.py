"""Every way the simulated framework can misbehave, and what a session must make of it.

One table: the fault tests run it, the mutation suite takes its cases from it, docs/failure-modes.md is printed from it.
Outcomes are given per mechanism group and `verify` level; a level that is left out behaves as the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["off", "layout", "scan", "full"]
LEVELS: tuple[Level, ...] = ("off", "layout", "scan", "full")
MECHANISMS = ("framework", "raw", "surface", "pool")
BACKED = ("raw", "surface", "pool")
SURFACES = ("surface", "pool")
TARGET = "cross_v"


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """A prediction comes back over this path with the control's bytes. `evidence`: fields and their values."""

    path: str
    evidence: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        extra = "".join(f", `{name}` is {value}" for name, value in self.evidence.items())
        return f"good bytes, path `{self.path}`{extra}"


@dataclass(frozen=True, kw_only=True)
class NotLookedAt:
    """This level does not look: the prediction comes back, and the evidence does not say that it was looked at."""

    fields: tuple[str, ...]

    def __str__(self) -> str:
        return "not looked at: " + ", ".join(f"`{name}` stays None" for name in self.fields)


@dataclass(frozen=True, kw_only=True)
class Missed:
    """No check of a single prediction can see it; `by` says what does. The prediction comes back with other bytes."""

    by: str

    def __str__(self) -> str:
        return f"not seen in a single prediction; {self.by} sees it"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """An error of this class; an IntegrityError names these checks for the target, whatever else it names."""

    error: str
    checks: tuple[str, ...] = ()
    says: str = ""

    def __str__(self) -> str:
        return f"`{self.error}`" + (f" naming {', '.join(f'`{c}`' for c in self.checks)}" if self.checks else "")


Outcome = Delivered | NotLookedAt | Missed | Refused


@dataclass(frozen=True, kw_only=True)
class Case:
    """One fault with one parameter, and what comes of it."""

    fault: str
    setting: Any = (TARGET,)  # what faults(fault=...) gets
    parameter: str = ""  # for people: which form of the fault
    outcomes: Mapping[tuple[str, ...], Mapping[Level, Outcome]]  # mechanisms -> level -> outcome
    after: int = 0  # unharmed predictions (other inputs, their outputs read) before the harmed one
    before: int = 0  # the same under the fault, which then has nothing to act on yet
    reuse: str = "new"
    kills: tuple[str, ...] = ()  # checks whose removal makes a test of this case fail
    why: str = ""  # what a person should know

    @property
    def name(self) -> str:
        form = self.parameter or (self.reuse if self.reuse != "new" else "")
        return f"{self.fault}-{form}" if form else self.fault

    def outcome(self, mechanism: str, level: Level) -> Outcome:
        by_level = next(by_level for names, by_level in self.outcomes.items() if mechanism in names)
        found = None
        for candidate in LEVELS[: LEVELS.index(level) + 1]:
            found = by_level.get(candidate, found)
        assert found is not None
        return found

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return tuple(name for names in self.outcomes for name in names)


def same(outcome: Outcome) -> Mapping[Level, Outcome]:
    return {"off": outcome}


def bytes_checked(*checks: str, at: Level = "scan") -> Mapping[Level, Outcome]:
    """Passes below `at` without a word about the bytes; an IntegrityError from there on."""
    return {"off": NotLookedAt(fields=("finite", "digest")), at: Refused(error="IntegrityError", checks=checks)}


def layout_checked(*checks: str, unchecked: Outcome | None = None) -> Mapping[Level, Outcome]:
    return {
        "off": unchecked or NotLookedAt(fields=("layout_ok",)),
        "layout": Refused(error="IntegrityError", checks=checks),
    }


ONE_ELEMENT = Missed(by="`prove`, which fills whole payloads twice,")
OUT_OF_RANGE = Refused(error="IntegrityError", checks=("in_range",))
CONTROL = same(Delivered(path="framework"))
COPIED = same(Delivered(path="copy", evidence={"accepted": False}))


def by_position(fault: str, check: str) -> tuple[Case, ...]:
    return (
        *(
            Case(
                fault=fault,
                setting={TARGET: where},
                parameter=where,
                outcomes={MECHANISMS: bytes_checked(check)},
                kills=(check,),
            )
            for where in ("first", "middle")
        ),
        Case(
            fault=fault,
            setting={TARGET: "last"},
            parameter="last",
            outcomes={MECHANISMS: bytes_checked(check, "tail_zero")},
            why="the last element lies in the tail as well",
        ),
    )


CASES: tuple[Case, ...] = (
    Case(
        fault="ignore",
        outcomes={("framework",): CONTROL, BACKED: COPIED},
        kills=("same_object",),
        why="the documented freedom of the framework: the proposal was not used",
    ),
    Case(
        fault="ignore_same_address",
        outcomes={
            ("framework",): CONTROL,
            BACKED: same(Delivered(path="copy", evidence={"accepted": False, "same_object": False})),
        },
        kills=("same_object",),
        why="equal addresses are not identity",
    ),
    Case(
        fault="swap_storage",
        outcomes={
            ("framework",): CONTROL,
            BACKED: same(
                Delivered(path="copy", evidence={"accepted": False, "same_object": True, "same_storage": False})
            ),
        },
        kills=("same_storage",),
        why="identity alone is not enough: an array may switch its storage",
    ),
    Case(fault="padded_return", outcomes={("framework",): CONTROL, BACKED: COPIED}, why="gathered row by row"),
    Case(
        fault="stage",
        outcomes={
            ("framework",): CONTROL,
            BACKED: same(Delivered(path="backing", evidence={"accepted": True, "direct_write": "unknown"})),
        },
        why="nothing public tells a staged write from a direct one, so the evidence says unknown",
    ),
    *(
        Case(
            fault="partial_write",
            setting={TARGET: part},
            parameter=part,
            outcomes={BACKED: bytes_checked("complete", "finite")},
            kills=("complete",),
            why="rows that were not written still hold the sentinel",
        )
        for part in ("head", "middle", "tail", "one_row")
    ),
    Case(
        fault="partial_write",
        setting={TARGET: "one_element"},
        parameter="one_element",
        outcomes={
            ("raw",): {"off": ONE_ELEMENT, "full": Refused(error="IntegrityError", checks=("parity",))},
            SURFACES: {"off": ONE_ELEMENT, "scan": Refused(error="IntegrityError", checks=("finite",))},
        },
        kills=("parity",),
        why="an element inside a row whose ends were written; sentinels stand only at the ends of rows (a "
        "simulated surface is new memory full of NaN)",
    ),
    Case(
        fault="stale",
        outcomes={BACKED: bytes_checked("complete")},
        kills=("complete",),
        why="nothing was written at all",
    ),
    Case(
        fault="stale_previous",
        outcomes={MECHANISMS: {**bytes_checked("fresh"), "full": Refused(error="IntegrityError")}},
        before=1,
        kills=("fresh",),
        why="the previous prediction's values, under changed inputs",
    ),
    *(
        Case(
            fault="dirty_tail",
            setting={TARGET: form},
            parameter=form,
            outcomes={MECHANISMS: bytes_checked("tail_zero")},
            kills=("tail_zero",),
            why="never masked: a dirty tail is an error" if form == "byte" else "-0.0 is not bitwise zero",
        )
        for form in ("byte", "negative_zero")
    ),
    *by_position("nan", "finite"),
    *by_position("inf", "finite"),
    Case(fault="all_zero", outcomes={MECHANISMS: bytes_checked("non_zero")}, kills=("non_zero",)),
    Case(
        fault="overrun",
        setting={TARGET: "end"},
        parameter="end",
        outcomes={("raw",): bytes_checked("canaries_intact")},
        kills=("canaries_intact",),
        why="surfaces have no canaries: `canaries_intact` is None there",
    ),
    Case(
        fault="overrun",
        setting={TARGET: "row_gaps"},
        parameter="row_gaps",
        outcomes={
            SURFACES: {
                "off": Delivered(path="backing", evidence={"row_gaps_touched": None}),
                "scan": Delivered(path="backing", evidence={"row_gaps_touched": True}),
            }
        },
        kills=("row_gaps_touched",),
        why="the gap bytes of a surface's rows belong to the surface: this informs and never fails",
    ),
    Case(fault="underrun", outcomes={("raw",): bytes_checked("canaries_intact")}, kills=("canaries_intact",)),
    Case(
        fault="alias_outputs",
        setting=True,
        outcomes={MECHANISMS: layout_checked("distinct", unchecked=NotLookedAt(fields=("distinct",)))},
        kills=("distinct",),
        why="K and V in one memory",
    ),
    Case(
        fault="alias_input",
        outcomes={
            MECHANISMS: layout_checked("distinct", unchecked=Refused(error="IntegrityError", checks=("strides",)))
        },
        kills=("distinct",),
    ),
    Case(
        fault="wrong_strides",
        outcomes={
            ("framework",): same(Refused(error="IntegrityError", checks=("strides",))),
            BACKED: layout_checked("strides", "in_range", unchecked=OUT_OF_RANGE),
        },
        kills=("strides",),
    ),
    Case(
        fault="wrong_dtype",
        outcomes={
            ("framework",): same(Refused(error="IntegrityError", checks=("dtype",))),
            BACKED: layout_checked("dtype", "in_range", unchecked=OUT_OF_RANGE),
        },
        kills=("dtype",),
    ),
    Case(
        fault="larger_shape",
        outcomes={
            ("framework",): same(Refused(error="IntegrityError", checks=("shape",))),
            BACKED: layout_checked("shape", "in_range", unchecked=OUT_OF_RANGE),
        },
        kills=("shape", "in_range"),
    ),
    Case(
        fault="missing_output",
        outcomes={MECHANISMS: same(Refused(error="IntegrityError", checks=("returned_names",)))},
        kills=("returned_names",),
    ),
    Case(
        fault="nil_value",
        outcomes={MECHANISMS: same(Refused(error="IntegrityError", checks=("nil_value",)))},
        kills=("nil_value",),
    ),
    Case(
        fault="extra_output",
        setting=True,
        outcomes={MECHANISMS: same(Refused(error="IntegrityError", checks=("returned_names",)))},
        kills=("returned_names",),
    ),
    Case(
        fault="locked_surface",
        outcomes={("surface",): same(Delivered(path="backing"))},
        after=1,
        why="with `reuse` new every prediction has a surface that nobody locked before",
    ),
    Case(
        fault="sticky_after_cpu_lock",
        setting={TARGET: "array"},
        parameter="array",
        outcomes={("surface",): same(Refused(error="PredictionError", says="locked"))},
        after=1,
        reuse="same",
        why="reading locked the array for good: the reuse mode is the framework's to decide, and `prove` finds it",
    ),
    Case(
        fault="sticky_after_cpu_lock",
        setting={TARGET: "buffer"},
        parameter="buffer",
        outcomes={("surface",): same(Delivered(path="backing"))},
        after=1,
        why="the pixel buffer itself stays locked: only a new surface per prediction works",
    ),
    Case(
        fault="input_lock",
        setting=True,
        outcomes={MECHANISMS: same(Delivered(path="*"))},
        after=1,
        why="inputs are copied into memory of ours, never proposed as outputs; a `Surface` that was an input is "
        "refused as a backing (`ContractError`) unless the session allows it",
    ),
    Case(
        fault="prediction_error",
        setting=True,
        outcomes={MECHANISMS: same(Refused(error="PredictionError", says="simulated"))},
        why="domain, code and text of the NSError are attributes",
    ),
    Case(
        fault="exception",
        setting="predict",
        outcomes={MECHANISMS: same(Refused(error="PredictionError"))},
        why="an NSException becomes an error after the autorelease pool drained",
    ),
    Case(
        fault="latency",
        setting=5,
        outcomes={MECHANISMS: same(Delivered(path="*"))},
        why="slow is not wrong",
    ),
    Case(
        fault="late_release",
        setting=200,
        outcomes={MECHANISMS: same(Delivered(path="*"))},
        after=1,
        why="the framework may hold arrays for about a second: nothing it holds is reused",
    ),
)

# Faults that are no matter of one prediction in a session; tests/faults/test_elsewhere.py has a test of each.
ELSEWHERE: Mapping[str, str] = {
    "disallow": "`ContractError` when the session opens, before any prediction",
    "load_error": "`ModelError` from `Model.load`, with the NSError's text",
    "compile_error": "`ModelError` from `Model.load`, and nothing is left in the cache",
    "allocation_failure": "`AllocationError` naming what could not be had; the next attempt works",
    "hang": "`prove` ends the child at its time limit: a termination failure in the verdict",
    "crash": "`prove` reports the child's signal: a termination failure in the verdict",
    "overlap": "never fires: predictions on one model wait for each other",
}

# Spec section 7, row by row: symptom, what answers it here.
SPEC_ROWS: tuple[tuple[str, str], ...] = (
    (
        "Prediction succeeds but identity differs",
        "`ignore`, `ignore_same_address`, `swap_storage`, `padded_return`: the checked copy, or `BackingIgnoredError`",
    ),
    (
        "Misspelled output appears harmless",
        "`ContractError` when the session opens: the names must be the model's exact set",
    ),
    (
        "Prediction reports an admissibility error",
        "`disallow`: `ContractError` before any prediction; an NSError is a `PredictionError`",
    ),
    (
        "Pixel-buffer path stalls or fails",
        "`sticky_after_cpu_lock`, `locked_surface`, `hang`: `reuse` is `new` by default; `prove` finds what works",
    ),
    (
        "Correct shape but corrupted cache",
        "`wrong_strides`, `overrun` (row gaps): strides are compared and row bytes are queried",
    ),
    ("Tail contains nonzero values", "`dirty_tail`: `IntegrityError` naming `tail_zero` and the first dirty index"),
    (
        "Repeated calls return stale bytes",
        "`stale`, `stale_previous`, `partial_write`: `IntegrityError` naming `complete` or `fresh`; calls wait",
    ),
    (
        "Candidate allocates less but is not faster",
        "`kvbacking bench` says `no saving shown`; `auto` follows only promoted certificates",
    ),
    (
        "Placement changes with backing",
        "`kvbacking bench` reports placement as its own result, never as a memory win",
    ),
)
