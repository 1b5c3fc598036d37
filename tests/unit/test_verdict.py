"""The decision of `prove` as a pure function of what the child reported."""

from __future__ import annotations

from typing import Any

import pytest

import kvbacking as kvb
from kvbacking.prove import decide
from kvbacking.verdict import QUESTIONS, RULES, MechanismVerdict, applied

ALL_YES = [{"event": "answer", "question": question, "value": "yes", "evidence": "seen"} for question in QUESTIONS[:4]]
FAILURE = {"output": "cross_v", "check": "tail_zero", "expected": "zero bytes", "actual": "element 5"}


def answered(question: str, value: str, evidence: str = "because") -> dict[str, Any]:
    return {"event": "answer", "question": question, "value": value, "evidence": evidence}


def verdict(events: list[dict[str, Any]], termination: str = "completed", detail: str = "") -> MechanismVerdict:
    return decide("raw", kvb.TURBO, events, termination, detail)


def names(decided: Any) -> list[str]:
    return [rule.name for rule in decided.rules]


def test_all_yes_is_proven_and_claims_no_speed() -> None:
    decided = verdict([{"event": "reuse", "reuse": "same"}, *ALL_YES, {"event": "prediction"}])
    assert decided.outcome == "proven"
    assert decided.reuse == "same"
    assert decided.predictions == 1
    assert decided.answers["faster"].value == "unknown"
    assert names(decided) == ["reject-copy-removal-language", "reject-product-promotion"]


@pytest.mark.parametrize("question", ["api_available", "admissible", "used"])
def test_a_no_before_correctness_rejects_feasibility(question: str) -> None:
    decided = verdict([*ALL_YES, answered(question, "no", "disallowed")])
    assert decided.outcome == "rejected"
    assert names(decided)[0] == "reject-api-feasibility"
    assert question in decided.rules[0].because
    assert "disallowed" in decided.rules[0].because


def test_a_failed_check_rejects_correctness_and_is_named() -> None:
    decided = verdict([*ALL_YES, answered("correct", "no"), {"event": "failures", "failures": [FAILURE]}])
    assert decided.outcome == "rejected"
    assert names(decided)[0] == "reject-correctness"
    for word in ("cross_v", "tail_zero", "element 5"):
        assert word in decided.rules[0].because


def test_a_failure_without_an_answer_is_never_proven() -> None:
    decided = verdict([*ALL_YES, {"event": "failures", "failures": [FAILURE]}])
    assert decided.outcome == "rejected"


@pytest.mark.parametrize("missing", range(4))
def test_an_open_question_is_never_proven(missing: int) -> None:
    events = [*ALL_YES[:missing], *ALL_YES[missing + 1 :]]
    decided = verdict(events)
    assert decided.outcome == "rejected"
    assert names(decided)[0] == "retain-explicit-copy-control"
    assert QUESTIONS[missing] in decided.rules[0].because


@pytest.mark.parametrize(
    ("termination", "detail"), [("timeout", "no answer within 3 s"), ("crash", "killed by SIGSEGV")]
)
def test_hang_and_crash_are_termination_failures(termination: str, detail: str) -> None:
    decided = verdict([*ALL_YES, {"event": "step", "step": "recipe"}], termination, detail)
    assert decided.outcome == "rejected"
    assert decided.answers["correct"].value == "no"
    assert names(decided)[0] == "reject-correctness"
    assert decided.failures[-1].check == "termination"
    assert detail in decided.rules[0].because


def test_an_unknown_rule_does_not_exist() -> None:
    with pytest.raises(KeyError):
        applied("reject-everything", "because")
    assert set(RULES) == {
        "reject-api-feasibility", "reject-correctness", "reject-copy-removal-language", "reject-product-promotion",
        "retain-explicit-copy-control",
    }  # fmt: skip
