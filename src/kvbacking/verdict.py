"""What `prove` found out: five questions, each answered on its own, and the decision rules that applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kvbacking.errors import CheckFailure

Value = Literal["yes", "no", "unknown"]
Outcome = Literal["proven", "rejected"]
FORMAT = "kvbacking-verdict/1"
QUESTIONS = ("api_available", "admissible", "used", "correct", "faster")

# The decision rules of the specification, section 6.3.
RULES: Mapping[str, str] = {
    "reject-api-feasibility": (
        "Reject API feasibility if an output name is absent, a proposed value is disallowed, or a returned identity "
        "differs."
    ),
    "reject-correctness": (
        "Reject correctness on any parity, range, stride, canary, tail, stale-data, or termination failure."
    ),
    "reject-copy-removal-language": (
        "Reject copy-removal language unless the accepted backing produces a repeatable paired stage saving beyond "
        "timer noise and allocation effects."
    ),
    "reject-product-promotion": (
        "Reject product promotion unless the saving survives the full end-to-end latency and quality gates."
    ),
    "retain-explicit-copy-control": (
        "Retain the explicit-copy control whenever the runtime, OS, compiled model, family, or output description "
        "changes."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One of the five questions: the answer and what it rests on."""

    value: Value
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRule:
    """A decision rule that applied, and why."""

    name: str
    because: str

    @property
    def text(self) -> str:
        """The rule itself."""
        return RULES[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of the recipe over all its predictions; `passed` None: not evaluated, `detail` says why."""

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismVerdict:
    """The recipe on one mechanism. `reuse` is the mode that held over at least three lock/predict cycles (None: none
    did, or it was not reached); `termination` says how the child process ended: "completed", "timeout" or "crash"."""

    mechanism: str
    outcome: Outcome
    reuse: str | None
    answers: Mapping[str, Answer]
    rules: tuple[AppliedRule, ...]
    failures: tuple[CheckFailure, ...]
    checks: tuple[Check, ...]
    evidence: tuple[Mapping[str, Any], ...]
    predictions: int
    termination: str
    termination_detail: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return {
            "mechanism": self.mechanism,
            "outcome": self.outcome,
            "reuse": self.reuse,
            "answers": {name: asdict(answer) for name, answer in self.answers.items()},
            "rules": [{"name": r.name, "text": r.text, "because": r.because} for r in self.rules],
            "failures": [f.to_dict() for f in self.failures],
            "checks": [asdict(c) for c in self.checks],
            "evidence": [dict(e) for e in self.evidence],
            "predictions": self.predictions,
            "termination": self.termination,
            "termination_detail": self.termination_detail,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`outcome` is "proven" when at least one mechanism is; each mechanism has its own verdict. It says nothing about
    direct writes and nothing about speed: `faster` stays "unknown" until a bench report answers it."""

    outcome: Outcome
    runtime: Mapping[str, Any]
    model: Mapping[str, Any]
    contract: Mapping[str, Any]
    repeats: int
    mechanisms: tuple[MechanismVerdict, ...]

    @property
    def proven(self) -> tuple[MechanismVerdict, ...]:
        """The mechanisms that passed, in the order they were asked for."""
        return tuple(m for m in self.mechanisms if m.outcome == "proven")

    def __getitem__(self, mechanism: str) -> MechanismVerdict:
        """The verdict of one mechanism. Raises KeyError for one that was not asked for."""
        for verdict in self.mechanisms:
            if verdict.mechanism == mechanism:
                return verdict
        raise KeyError(mechanism)

    @property
    def sentence(self) -> str:
        """The verdict as one sentence."""
        label = "simulated" if self.runtime["kind"] == "simulator" else "on this machine"
        if self.outcome == "proven":
            names = " and ".join(m.mechanism for m in self.proven)
            rejected = [m.mechanism for m in self.mechanisms if m.outcome == "rejected"]
            rest = f"; rejected: {', '.join(rejected)}" if rejected else ""
            return (
                f"Proven ({label}): {names} backings were accepted and every check on the bytes passed over "
                f"{self.repeats} predictions; whether the device wrote into them directly, and whether anything became "
                f"faster, is unknown{rest}."
            )
        reasons = "; ".join(f"{m.mechanism}: {m.rules[0].name} ({m.rules[0].because})" for m in self.mechanisms)
        return f"Rejected ({label}): keep the explicit-copy control. {reasons}."

    def to_dict(self) -> dict[str, Any]:
        """A JSON document that docs/schema/verdict.schema.json describes."""
        return {
            "format": FORMAT,
            "outcome": self.outcome,
            "sentence": self.sentence,
            "runtime": dict(self.runtime),
            "model": dict(self.model),
            "contract": dict(self.contract),
            "repeats": self.repeats,
            "mechanisms": [m.to_dict() for m in self.mechanisms],
        }

    def to_json(self) -> str:
        """`to_dict`, indented."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)


def applied(name: str, because: str) -> AppliedRule:
    """A rule by its name; KeyError for one that the specification does not have."""
    RULES[name]
    return AppliedRule(name=name, because=because)


def standing_rules() -> tuple[AppliedRule, ...]:
    """The rules that hold for every proof, until a bench report says otherwise."""
    return (
        applied("reject-copy-removal-language", "no paired stage saving was measured here"),
        applied("reject-product-promotion", "no end-to-end latency and quality gates were run here"),
    )


def names_of(failures: Sequence[CheckFailure]) -> str:
    """All of them on one line, for a rule's reason."""
    return "; ".join(f"{f.output} {f.check} (expected {f.expected}, got {f.actual})" for f in failures)
