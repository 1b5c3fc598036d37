"""A framework that misbehaves is never credited, whatever it would have saved; what is different is said to be so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform == "darwin":
    pytest.skip("the simulator's faults exist on Linux only", allow_module_level=True)

from quiet import QuietProbe

import kvbacking as kvb
from kvbacking import _native, samples, simulator
from kvbacking.measure.experiments import run_experiment
from kvbacking.measure.session_arm import Predict
from kvbacking.random_inputs import random_inputs

SCRIPTS = Path(__file__).parents[2] / "scripts"
BACKED = ("raw", "surface")


def run(model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract, **options: Any) -> dict[str, Any]:
    options = {"rounds": 20, "warmup": 1, "probe": QuietProbe(), "placement": False, **options}
    document = dict(kvb.bench(model, small.inputs(seed=1), contract, **options).document)
    document["by_name"] = {arm["name"]: arm for arm in document["arms"]}
    document["words"] = {d["arm"]: d["decision"] for d in document["decisions"]}
    return document


@pytest.mark.parametrize("fault", ["ignore", "ignore_same_address", "swap_storage", "padded_return", "disallow"])
def test_a_backing_that_is_not_used_is_never_timed(
    fault: str, model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    with simulator.faults(**{fault: True}):
        document = run(model, small, contract)
    for name in BACKED:
        arm = document["by_name"][name]
        assert (arm["status"], arm["samples"], arm["intervals"]) == ("rejected", 0, {}), arm
        assert document["words"][name] == "unscored"
    assert document["by_name"]["framework"]["status"] == "valid"


def test_a_single_ignored_backing_in_the_middle_rejects_its_arm(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    """After the warm-up, one round is enough: the arms that were hit are rejected, with the sample kept."""
    with simulator.faults(ignore=True, after=4 + 8, times=4):
        document = run(model, small, contract)
    for name in BACKED:
        arm = document["by_name"][name]
        assert (arm["status"], arm["samples"], arm["invalid"]) == ("rejected", 20, 1)
        assert "1 of 20 samples are not valid" in arm["reasons"][0]
        assert "ignored" in arm["reasons"][0]
        assert arm["intervals"] == {}


@pytest.mark.parametrize("fault", ["nan", "dirty_tail", "partial_write", "overrun"])
def test_wrong_bytes_end_the_arm_with_the_check_that_failed(
    fault: str, model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    with simulator.faults(**{fault: True}, after=4 + 8):
        document = run(model, small, contract)
    raw = document["by_name"]["raw"]
    assert raw["status"] == "rejected"
    assert "failed in round 2: IntegrityError" in raw["reasons"][0]
    assert document["words"]["raw"] == "unscored"


def test_a_control_that_fails_leaves_nothing_scored(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    with simulator.faults(prediction_error=True, after=4 + 8):
        document = run(model, small, contract)
    assert set(document["words"].values()) == {"unscored"}
    assert any("the control is not valid" in text and "PredictionError" in text for text in document["objections"])


def test_staging_behind_an_accepted_backing_does_not_make_it_rejected(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    """Nothing public tells; only the paired difference may speak. It must not be called zero-copy either."""
    with simulator.faults(stage=True):
        document = run(model, small, contract)
    for name in BACKED:
        assert document["by_name"][name]["status"] == "valid"
        assert {e["direct_write"] for e in document["by_name"][name]["evidence"]} == {"unknown"}


# "all" computes as the Neural Engine would, the CPU differently, and backed predictions as the CPU does.
SHIFTING: dict[str, Any] = {
    "numerics": {"all": "fp16", "cpu_only": "fp32", "cpu_and_gpu": "fp16", "cpu_and_ne": "fp16"},
    "backed_numerics": "fp32",
}


def test_a_shift_of_placement_is_its_own_result_and_no_saving(package: Any) -> None:
    info = package("prefill")  # several operations, so that the arithmetic shows in the bits
    with simulator.configured(**SHIFTING):
        model = kvb.Model.load(info.path)
        document = run(model, info, kvb.KVContract.from_model(model, **info.contract), placement=True)
    placement = document["placement"]
    assert placement["arms"] == {"framework": "unknown", "raw": "cpu_only", "surface": "cpu_only"}
    assert placement["result"] == "unknown", "the framework's bits are those of two controls"
    assert document["by_name"]["raw"]["status"] == "valid", "a shift is neither a fault nor a saving"


def test_a_shift_that_digests_can_name(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbacking.measure.placement.SINGLE_UNITS", ("cpu_only", "cpu_and_ne"))
    info = package("prefill")
    with simulator.configured(**SHIFTING):
        model = kvb.Model.load(info.path)
        contract = kvb.KVContract.from_model(model, **info.contract)
        answer = run_experiment("placement-shift", model, info.inputs(seed=1), contract, probe=QuietProbe())
    assert answer["answer"] == "supported"
    assert answer["numbers"]["placement"] == {"framework": "cpu_and_ne", "raw": "cpu_only", "surface": "cpu_only"}


def test_outputs_that_fare_differently_support_the_last_hypothesis(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    with simulator.faults(ignore=("cross_v",)):
        answer = run_experiment(
            "many-large-vs-one-small", model, small.inputs(seed=1), contract, rounds=20, probe=QuietProbe()
        )
    assert answer["answer"] == "supported"
    assert answer["numbers"]["the one"] == "cross_k"


class TwoFaced:
    """An end-to-end task; `predict` is what the arm hands in."""

    def __init__(self, inputs: Any) -> None:
        self.inputs = inputs

    def run(self, predict: Predict) -> object:
        return predict(self.inputs).path

    def gates(self, control: object, candidate: object) -> dict[str, bool]:
        return {"any result": candidate is not None}


def test_an_ignored_backing_cannot_be_promoted_by_its_task(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    inputs = small.inputs(seed=1)
    with simulator.faults(ignore=True):
        report = kvb.bench(
            model,
            inputs,
            contract,
            rounds=20,
            warmup=1,
            probe=QuietProbe(),
            placement=False,
            end_to_end=TwoFaced(inputs),
        )
    assert not report.promotable("raw")
    assert not report.promotable("surface")


@pytest.mark.parametrize(
    ("fault", "step"),
    [({"sticky_after_cpu_lock": "array"}, "read under lock"), ({"input_lock": True}, "used as input")],
)
def test_the_surface_probe_tells_which_treatment_spoils_a_surface(
    fault: dict[str, Any], step: str, tmp_path: Path
) -> None:
    sys.path.insert(0, str(SCRIPTS))
    from macproof.probe_package import main as write_package

    package = tmp_path / "probe.mlpackage"
    write_package(str(package))
    model = kvb.Model.load(package)
    inputs = dict(random_inputs(model, 0))
    plain = {s.step: s.outcome for s in _native.probe_surface(model._native, inputs, "y")}
    with simulator.faults(**fault):
        spoiled = {s.step: s for s in _native.probe_surface(model._native, inputs, "y")}
    assert plain == {
        "fresh": "accepted",
        "read by handler": "accepted",
        "read under lock": "accepted",
        "second prediction": "accepted",
        "locked": "error",
        "used as input": "accepted",
    }
    assert spoiled["fresh"].outcome == "accepted"
    assert spoiled[step].outcome == "error"
    assert spoiled[step].domain == "com.apple.CoreML"
    assert spoiled[step].bytes_per_row >= 128
