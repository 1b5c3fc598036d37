"""What a session does in Python when the framework misbehaves: warnings, errors with attributes, the way on."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

if sys.platform == "darwin":
    pytest.skip("Core ML takes no orders", allow_module_level=True)

from kvbacking.simulator import faults

PROPOSING = ("raw", "surface", "pool")


@pytest.fixture
def inputs(small: samples.SampleInfo) -> dict[str, np.ndarray]:
    return small.inputs(seed=1)


@pytest.mark.parametrize("mechanism", PROPOSING)
def test_one_warning_per_session_and_the_right_bytes(
    model: kvb.Model, contract: kvb.KVContract, inputs: Any, mechanism: str
) -> None:
    plain = model.predict(inputs)
    for _ in range(2):  # another session says it again
        with faults(ignore=("cross_v",)), kvb.Session(model, contract, mechanism=mechanism) as session:
            with pytest.warns(kvb.BackingIgnoredWarning, match="cross_v") as caught:
                prediction = session.predict(inputs)
            assert len(caught) == 1
            assert "cross_k" not in str(caught[0].message)
            assert caught[0].filename == __file__
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                session.predict(inputs).release()
            assert prediction.path == "copy"
            assert prediction.evidence["cross_k"].accepted is True
            assert prediction.evidence["cross_v"].accepted is False
            assert prediction.evidence["cross_v"].bytes_copied == plain["cross_v"].nbytes
            for name in plain:
                np.testing.assert_array_equal(prediction[name], plain[name])
            assert (session.stats.ignored, session.stats.copied) == (2, 2)


def test_ignored_raises_when_told_to(model: kvb.Model, contract: kvb.KVContract, inputs: Any) -> None:
    with faults(ignore=True), kvb.Session(model, contract, mechanism="raw", on_ignored="raise", depth=1) as session:
        with pytest.raises(kvb.BackingIgnoredError, match="cross_k") as caught:
            session.predict(inputs)
        assert list(caught.value.outputs) == ["cross_k", "cross_v"]  # type: ignore[call-overload]
        with pytest.raises(kvb.BackingIgnoredError):  # the set is free again
            session.predict(inputs)


@pytest.mark.parametrize("mechanism", PROPOSING)
def test_an_integrity_error_names_everything_and_the_session_goes_on(
    model: kvb.Model, contract: kvb.KVContract, inputs: Any, mechanism: str
) -> None:
    plain = model.predict(inputs)
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        with faults(nan={"cross_v": "first"}), pytest.raises(kvb.IntegrityError) as caught:
            session.predict(inputs)
        assert ("cross_v", "finite") in {(f.output, f.check) for f in caught.value.failures}
        assert {f.output for f in caught.value.failures} == {"cross_v"}
        assert "finite" in str(caught.value)
        prediction = session.predict(inputs)
        assert prediction.path == "framework"
        for name in plain:
            np.testing.assert_array_equal(prediction[name], plain[name])
        stats = session.stats
        assert stats.quarantined == 1
        assert "cross_v" in stats.degraded_reason
        assert "finite" in stats.degraded_reason


def test_a_prediction_error_is_the_nserror_verbatim(model: kvb.Model, contract: kvb.KVContract, inputs: Any) -> None:
    with kvb.Session(model, contract, mechanism="raw") as session:
        with faults(prediction_error=True), pytest.raises(kvb.PredictionError) as caught:
            session.predict(inputs)
        assert caught.value.domain == "com.apple.CoreML"
        assert isinstance(caught.value.code, int)
        assert caught.value.description
        assert caught.value.description in str(caught.value)
        assert session.stats.failed == 1
        session.predict(inputs)


def test_an_objective_c_exception_is_an_error_too(model: kvb.Model, contract: kvb.KVContract, inputs: Any) -> None:
    with kvb.Session(model, contract, mechanism="raw") as session:
        with faults(exception=True), pytest.raises(kvb.PredictionError):
            session.predict(inputs)
        session.predict(inputs)


def test_a_disallowed_backing_is_refused_at_once(model: kvb.Model, contract: kvb.KVContract) -> None:
    with faults(disallow=("cross_k",)), pytest.raises(kvb.ContractError, match="cross_k") as caught:
        kvb.Session(model, contract, mechanism="raw")
    assert {f.check for f in caught.value.failures} == {"allowed"}


@pytest.mark.parametrize(
    ("fault", "question", "rule", "word"),
    [
        ({"ignore": True}, "used", "reject-api-feasibility", "same_object"),
        ({"swap_storage": True}, "used", "reject-api-feasibility", "same_storage"),
        ({"disallow": ("cross_v",)}, "admissible", "reject-api-feasibility", "cross_v"),
        ({"prediction_error": True, "after": 2}, "used", "reject-api-feasibility", "simulated"),
        ({"nan": ("cross_v",), "after": 2}, "correct", "reject-correctness", "finite"),
        ({"overrun": ("cross_k",), "after": 2}, "correct", "reject-correctness", "canaries_intact"),
        ({"stale": ("cross_k",), "after": 6}, "correct", "reject-correctness", "cross_k"),
        ({"crash": True, "after": 4}, "correct", "reject-correctness", "termination"),
    ],
)
def test_prove_under_faults(
    model: kvb.Model,
    contract: kvb.KVContract,
    small: samples.SampleInfo,
    fault: dict[str, Any],
    question: str,
    rule: str,
    word: str,
) -> None:
    with faults(**fault):
        verdict = kvb.prove(model, small.inputs(), contract, mechanisms=("raw",), repeats=4)
    assert verdict.outcome == "rejected"
    found = verdict["raw"]
    assert found.answers[question].value == "no", found
    assert found.rules[0].name == rule
    assert word in found.rules[0].because + str(found.failures)


def test_prove_says_that_a_hang_is_a_termination_failure(
    model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo
) -> None:
    with faults(hang=True, after=4):
        verdict = kvb.prove(model, small.inputs(), contract, mechanisms=("raw",), repeats=4, timeout_s=15)
    assert verdict["raw"].termination == "timeout"
    assert verdict["raw"].rules[0].name == "reject-correctness"
    assert "reuse" in verdict["raw"].termination_detail or "recipe" in verdict["raw"].termination_detail


def test_sticky_locks_are_found_by_reuse(model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo) -> None:
    """An array that was locked for reading may not be proposed again here: only new ones hold."""
    with faults(sticky_after_cpu_lock=True):
        verdict = kvb.prove(model, small.inputs(), contract, mechanisms=("surface",), repeats=4)
    assert verdict["surface"].outcome == "proven", verdict["surface"]
    assert verdict["surface"].reuse in ("rewrap", "new")
