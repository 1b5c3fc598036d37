"""Each fault x mechanism x verify level gives what the table says: an error that names it, or good bytes, or a None."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import simulator

from .catalogue import CASES, ELSEWHERE, LEVELS, TARGET, Case, Delivered, Level, Missed, NotLookedAt, Outcome, Refused

pytestmark = pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")

GRID = [
    pytest.param(case, mechanism, level, id=f"{case.name}-{mechanism}-{level}")
    for case in CASES
    for mechanism in case.mechanisms
    for level in LEVELS
]


def test_the_table_covers_every_fault_of_the_simulator() -> None:
    assert {case.fault for case in CASES} | set(ELSEWHERE) == set(simulator.KNOWN_FAULTS)


@pytest.mark.parametrize(("case", "mechanism", "level"), GRID)
def test_fault(
    case: Case,
    mechanism: str,
    level: Level,
    model: kvb.Model,
    contract: kvb.KVContract,
    inputs: dict[str, np.ndarray],
    other_inputs: dict[str, np.ndarray],
    control: dict[str, np.ndarray],
) -> None:
    expected = case.outcome(mechanism, level)
    with kvb.Session(model, contract, mechanism=mechanism, verify=level, reuse=case.reuse) as session:
        with simulator.faults(after=case.after, **{case.fault: case.setting}) as injection:
            for _ in range(case.before + case.after):
                earlier = session.predict(other_inputs)
                assert all(np.isfinite(array).all() for array in earlier.values())
                earlier.release()
                del earlier
            if isinstance(expected, Refused):
                check_refused(session, inputs, expected)
            else:
                prediction = session.predict(inputs)
                check_came_back(prediction, expected, mechanism, control)
                prediction.release()
                del prediction
            if expects_to_fire(case, mechanism):
                assert injection.fired[case.fault] > 0
        check_goes_on(session, other_inputs, expected)
    assert simulator.violations().get("overlap", 0) == 0


def expects_to_fire(case: Case, mechanism: str) -> bool:
    """Some faults need a proposal, a second try, or a surface among the inputs to have something to act on."""
    if mechanism == "framework" and case.fault in ("ignore", "ignore_same_address", "swap_storage", "stage"):
        return False
    if case.fault == "sticky_after_cpu_lock":
        return case.reuse == "same"
    return case.fault not in ("input_lock", "padded_return")


def check_refused(session: kvb.Session, inputs: dict[str, np.ndarray], expected: Refused) -> None:
    with pytest.raises(getattr(kvb, expected.error)) as caught:
        session.predict(inputs)
    assert expected.says in str(caught.value)
    if expected.error == "IntegrityError":
        failed = {failure.check for failure in caught.value.failures}
        assert set(expected.checks) <= failed, caught.value
        assert all(failure.expected and failure.actual for failure in caught.value.failures)
        for check in expected.checks:
            assert check in str(caught.value)
        if "returned_names" not in expected.checks:
            assert any(failure.output == TARGET for failure in caught.value.failures)


def check_came_back(
    prediction: kvb.Prediction, expected: Outcome, mechanism: str, control: dict[str, np.ndarray]
) -> None:
    evidence = prediction.evidence[TARGET]
    if isinstance(expected, NotLookedAt):
        assert all(getattr(evidence, name) is None for name in expected.fields)
        return
    if isinstance(expected, Missed):
        assert np.count_nonzero(prediction[TARGET] != control[TARGET]) == 1
        return
    assert isinstance(expected, Delivered)
    for name, value in expected.evidence.items():
        assert getattr(evidence, name) == value, name
    honest = {"framework": "framework"}.get(mechanism, "backing")
    assert prediction.path == (honest if expected.path == "*" else expected.path)
    if expected.path == "copy":
        assert evidence.bytes_copied == control[TARGET].nbytes
    np.testing.assert_array_equal(prediction[TARGET], control[TARGET])


def check_goes_on(session: kvb.Session, inputs: dict[str, np.ndarray], expected: Outcome) -> None:
    """After the fault: the session works, and after an integrity failure it runs the control and says why."""
    gc.collect()
    simulator.drain()
    if isinstance(expected, Refused) and expected.error == "IntegrityError":
        proposing = session.mechanism != "framework"
        assert session.stats.quarantined == (1 if proposing else session.stats.quarantined)
        if proposing:
            assert TARGET in session.stats.degraded_reason or "returned_names" in session.stats.degraded_reason
        assert session.predict(inputs).path == "framework"
        return
    assert session.predict(inputs).path == ("framework" if session.mechanism == "framework" else "backing")


@pytest.mark.parametrize("fault", ["ignore", "ignore_same_address", "swap_storage"])
@pytest.mark.parametrize("mechanism", ["raw", "surface", "pool"])
def test_an_ignored_backing_raises_when_asked_to(
    fault: str, mechanism: str, model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    with (
        kvb.Session(model, contract, mechanism=mechanism, on_ignored="raise") as session,  # type: ignore[arg-type]
        simulator.faults(**{fault: (TARGET,)}) as injection,
    ):
        with pytest.raises(kvb.BackingIgnoredError, match=TARGET) as caught:
            session.predict(inputs)
        assert caught.value.outputs == [TARGET]
        assert "cross_k" not in str(caught.value)
        assert injection.fired[fault] == 1
        assert session.stats.ignored == 1


def test_the_warning_names_the_output_and_comes_once(
    model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    with kvb.Session(model, contract, mechanism="raw") as session, simulator.faults(ignore=(TARGET,)):
        with pytest.warns(kvb.BackingIgnoredWarning, match=TARGET):
            session.predict(inputs).release()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.predict(inputs).release()
