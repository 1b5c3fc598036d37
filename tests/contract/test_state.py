"""Stateful models: one state, one call at a time, snapshots, and the control's numbers with every mechanism."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

pytestmark = [
    pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning"),
    pytest.mark.skipif(
        "not __import__('kvbacking').runtime_info().supports_state", reason="no MLState here (macOS 15)"
    ),
]


@pytest.fixture(scope="module")
def stateful(package: Callable[..., samples.SampleInfo]) -> samples.SampleInfo:
    return package("stateful")


@pytest.fixture(scope="module")
def model(stateful: samples.SampleInfo) -> kvb.Model:
    return kvb.Model.load(stateful.path)


@pytest.fixture
def contract(model: kvb.Model, stateful: samples.SampleInfo) -> kvb.KVContract:
    return kvb.KVContract.from_model(model, **stateful.contract)


def test_a_state_starts_at_zero_and_changes(model: kvb.Model, stateful: samples.SampleInfo) -> None:
    state = model.new_state()
    assert state.names == tuple(sorted(model.states))
    for name in state.names:
        assert state.read(name).shape == model.states[name].shape
        assert not state.read(name).any()
    model.predict(stateful.inputs(seed=1), state=state)
    assert any(state.read(name).any() for name in state.names)
    state.zero()
    assert not any(state.read(name).any() for name in state.names)


def test_backings_and_control_agree_step_by_step(
    model: kvb.Model, contract: kvb.KVContract, stateful: samples.SampleInfo, mechanism: str
) -> None:
    ours, control = model.new_state(), model.new_state()
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        for step in range(3):
            given = stateful.inputs(seed=step)
            prediction = session.predict(given, state=ours)
            plain = model.predict(given, state=control)
            for name in contract.outputs:
                np.testing.assert_array_equal(prediction[name], plain[name])
            prediction.release()
    for name in ours.names:
        np.testing.assert_array_equal(ours.read(name), control.read(name))


def test_a_snapshot_is_a_copy_and_restores(model: kvb.Model, stateful: samples.SampleInfo) -> None:
    state = model.new_state()
    model.predict(stateful.inputs(seed=1), state=state)
    snapshot = state.snapshot()
    again = model.predict(stateful.inputs(seed=2), state=state)
    assert any(not np.array_equal(snapshot[name], state.read(name)) for name in state.names)
    state.restore(snapshot)
    for name in state.names:
        np.testing.assert_array_equal(state.read(name), snapshot[name])
    for name, array in model.predict(stateful.inputs(seed=2), state=state).items():
        np.testing.assert_array_equal(array, again[name])


def test_writing_takes_any_strides_and_refuses_other_shapes(model: kvb.Model) -> None:
    state = model.new_state()
    name = state.names[0]
    shape, dtype = model.states[name].shape, model.states[name].dtype
    values = np.arange(np.prod(shape)).reshape(shape[::-1]).astype(dtype).T
    state.write(name, values)
    np.testing.assert_array_equal(state.read(name), values)
    with pytest.raises(ValueError, match=name):
        state.write(name, np.zeros((*shape, 2), dtype))
    with pytest.raises(ValueError, match="nope"):
        state.read("nope")


def test_full_verification_is_refused_with_state(
    model: kvb.Model, contract: kvb.KVContract, stateful: samples.SampleInfo
) -> None:
    with kvb.Session(model, contract, mechanism="raw", verify="full") as session:
        with pytest.raises(ValueError, match="full"):
            session.predict(stateful.inputs(), state=model.new_state())
        assert session.stats.predictions == 0


def test_a_state_of_another_model_is_refused(
    model: kvb.Model, contract: kvb.KVContract, stateful: samples.SampleInfo
) -> None:
    other = kvb.Model.load(stateful.path).new_state()
    with kvb.Session(model, contract, mechanism="raw") as session, pytest.raises(ValueError, match="another model"):
        session.predict(stateful.inputs(), state=other)


def test_prove_starts_every_prediction_from_a_fresh_state(
    model: kvb.Model, contract: kvb.KVContract, stateful: samples.SampleInfo
) -> None:
    first, second = stateful.inputs(seed=1), stateful.inputs(seed=2)
    verdict = kvb.prove(model, first, contract, other_inputs=second, mechanisms=("raw",), repeats=4)
    if kvb.runtime_info().kind != "simulator" and verdict["raw"].answers["used"].value != "yes":
        pytest.skip("raw backings are not used here")
    # One input twice gives the same outputs only from the same state, and so does parity with the control.
    checks = {check.name: check.passed for check in verdict["raw"].checks}
    assert checks["repeatable"] is True
    assert checks["parity"] is True
    assert verdict["raw"].outcome == "proven", verdict.sentence
