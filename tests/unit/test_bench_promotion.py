"""A certificate is promoted by an end-to-end saving with every gate passed, and by nothing less."""

from __future__ import annotations

from typing import Any

import pytest
from planted import FINGERPRINT, MILLISECOND, RUNTIME, PlantedArm, arms, report

from kvbacking.certificate import MATCHED, Certificate
from kvbacking.errors import CertificateError
from kvbacking.measure.promotion import promote
from kvbacking.measure.report import Report
from kvbacking.measure.sample import END_TO_END, Sample

CONTRACT = {"outputs": ["cross_k", "cross_v"], "live": 1500, "axis": 1, "tail": "zero"}
GATES = {"raw": {"same text": True}, "surface": {"same text": True}}


class TaskArm(PlantedArm):
    """Around its stage, a task of 30 ms that differs by `extra_ns`."""

    extra_ns = 0

    def run_once(self) -> Sample:
        sample = PlantedArm.run_once(self)
        rest = round(30 * MILLISECOND * self.noise(self.rng, 0)) + self.extra_ns
        self.clock.advance(rest)
        whole = {**sample.intervals, END_TO_END: sample.intervals["stage"] + rest}
        return Sample(intervals=whole, path=sample.path, verified=sample.verified)


def _report(*, raw: float = 0.8, extra_ns: int = 0, gates: Any = GATES, **subject: Any) -> Report:
    planted: list[Any] = []
    for arm in arms(3, raw=raw):
        task = TaskArm(arm.name, arm.clock, arm.rng, expects=arm.expects, factor=arm.factor, noise=arm.noise)
        task.extra_ns = extra_ns if arm.name == "raw" else 0
        planted.append(task)
    return report(planted, rounds=200, gates=gates, contract=CONTRACT, **subject)


def _certificate(**changes: Any) -> Certificate:
    key = {
        "kvbacking_version": "0.1.0",
        "runtime_kind": "simulator",
        "os_build": RUNTIME["os_build"],
        "chip": RUNTIME["chip"],
        "python_sdk": "",
        "model_fingerprint": FINGERPRINT,
        "function": None,
        "compute_units": "all",
        "contract": CONTRACT,
        "outputs": [],
        "mechanism": "raw",
        "reuse": "new",
        **changes,
    }
    assert set(MATCHED) <= set(key)
    return Certificate._sealed("proven", key, {"repeats": 8}, None)


def test_an_end_to_end_saving_promotes_its_own_mechanism() -> None:
    made = _report()
    words = {(d["arm"], d["interval"]): d["decision"] for d in made.document["decisions"]}
    assert words["raw", "end_to_end"] == "saving shown"
    promoted = promote(_certificate(), made)
    assert promoted.grade == "promoted"
    assert promoted.bench is not None
    assert promoted.bench["interval_ns"][1] < 0
    assert Certificate.from_dict(promoted.to_dict()).digest == promoted.digest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gates": None}, "no end-to-end task"),
        ({"gates": {"raw": {"same text": True, "same words": False}}}, "quality gates not passed by raw: same words"),
        ({"gates": {}}, "no quality gates of raw"),
        ({"raw": 1.0}, "end to end, raw is 'no saving shown'"),
        ({"extra_ns": 10 * MILLISECOND}, "end to end, raw is 'slower'"),
    ],
)
def test_less_than_that_promotes_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CertificateError, match=message):
        promote(_certificate(), _report(**options))


@pytest.mark.parametrize(
    "field", ["os_build", "chip", "runtime_kind", "model_fingerprint", "compute_units", "contract"]
)
def test_a_report_about_something_else_promotes_nothing(field: str) -> None:
    with pytest.raises(CertificateError, match=f"about something else: {field}"):
        promote(_certificate(**{field: "other"}), _report())


def test_the_other_mechanism_is_not_promoted() -> None:
    with pytest.raises(CertificateError, match="end to end, surface is 'no saving shown'"):
        promote(_certificate(mechanism="surface"), _report())
