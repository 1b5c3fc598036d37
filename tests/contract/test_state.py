"""Stateful models: one state, one call at a time, snapshots, and the control's numbers with every mechanism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def test_the_live_rows_are_written_and_nothing_else(model: kvb.Model) -> None:
    state = model.new_state()
    name = state.names[0]
    layers, heads, capacity, size = model.states[name].shape
    rng = np.random.default_rng(2)
    whole = rng.standard_normal((layers, heads, capacity, size), dtype=np.float32).astype(np.float16)
    state.write(name, whole)
    rows = rng.standard_normal((layers, heads, capacity + 5, size), dtype=np.float32)  # converted on the way
    state.write(name, rows, rows=7)
    whole[:, :, :7] = rows[:, :, :7].astype(np.float16)
    np.testing.assert_array_equal(state.read(name), whole)
    one = np.asfortranarray(rng.standard_normal((1, heads, 4, size), dtype=np.float32).astype(np.float16))
    state.write(name, one, rows=3, at=(layers - 1, 0, 2, 0))
    whole[layers - 1, :, 2:5] = one[0, :, :3]
    np.testing.assert_array_equal(state.read(name), whole)
    state.write(name, one, at=(0, 0, capacity - 4, 0))
    whole[0, :, capacity - 4 :] = one[0]
    np.testing.assert_array_equal(state.read(name), whole)
    state.write(name, rows, rows=0)
    np.testing.assert_array_equal(state.read(name), whole)
    for wrong in (
        {"rows": capacity + 1},
        {"rows": capacity + 6},
        {"rows": -1},
        {"rows": 1, "axis": 4},
        {"at": (0, 0, 0)},
        {"at": (0, 0, -1, 0), "rows": 1},
        {"at": (0, 0, capacity, 0), "rows": 1},
    ):
        with pytest.raises(ValueError, match=r"has shape|rows must|axis"):
            state.write(name, rows, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="rows"):
        state.write(name, rows, rows=1.5)  # type: ignore[arg-type]
    np.testing.assert_array_equal(state.read(name), whole)


def prefill(
    info: samples.SampleInfo, hidden: np.ndarray, positions: int
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Keys and values [layers][heads, positions, size] of a NumPy run in float32 over what the sample computes."""
    layers, heads, size = (info.options[name] for name in ("layers", "heads", "head_dim"))
    weights = info.weights
    keys = [np.zeros((heads, 0, size), np.float32) for _ in range(layers)]
    values = [np.zeros((heads, 0, size), np.float32) for _ in range(layers)]
    x = hidden[0]
    for position in range(positions):
        x = hidden[position]
        for layer in range(layers):
            query, key, value = ((weights[n][layer] @ x).reshape(heads, 1, size) for n in ("query", "key", "value"))
            keys[layer] = np.concatenate([keys[layer], key], axis=1)
            values[layer] = np.concatenate([values[layer], value], axis=1)
            scores = query @ keys[layer].transpose(0, 2, 1) / np.float32(np.sqrt(size))
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            shares /= shares.sum(axis=-1, keepdims=True)
            x = x + weights["out"][layer] @ (shares @ values[layer]).reshape(-1)
    return keys, values, x


def decode(session: kvb.Session, state: kvb.State, hidden: np.ndarray, first: int, count: int) -> list[np.ndarray]:
    steps = []
    for position in range(first, first + count):
        given = {
            "hidden": hidden[position].reshape(1, 1, -1).astype(np.float16),
            "position": np.array([position], np.int32),
        }
        with_rows = session.predict(given, state=state)
        steps.append(np.array(with_rows["step"]).reshape(-1))
        with_rows.release()
    return steps


@pytest.mark.parametrize("producer", ["numpy", "mlx"])
def test_a_prefill_elsewhere_continues_as_one_through_the_model(
    model: kvb.Model, contract: kvb.KVContract, stateful: samples.SampleInfo, mechanism: str, producer: str
) -> None:
    """The rows that another engine computed, written into the state, then decoded through the model."""
    n, more, capacity = 9, 6, stateful.options["capacity"]
    rng = np.random.default_rng(11)
    width = stateful.options["heads"] * stateful.options["head_dim"]
    hidden = rng.standard_normal((n + more, width), dtype=np.float32)
    hidden = hidden.astype(np.float16).astype(np.float32)
    keys, values, _ = prefill(stateful, hidden, n)
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        through = model.new_state()
        decode(session, through, hidden, 0, n)
        expected = decode(session, through, hidden, n, more)
        handed = model.new_state()
        for name, layers in (("key_cache", keys), ("value_cache", values)):
            for layer, rows in enumerate(layers):
                padded = np.full((1, rows.shape[0], capacity + 3, rows.shape[2]), np.nan, np.float32)
                padded[0, :, :n] = rows  # a cache with room, as a decoder keeps it; the room must not matter
                handed.write(name, in_memory_of(producer, padded), rows=n, at=(layer, 0, 0, 0))
            np.testing.assert_allclose(handed.read(name)[:, :, :n], np.stack(layers), atol=2e-2, rtol=0)
        got = decode(session, handed, hidden, n, more)
        shifted = model.new_state()  # the comparison can fail
        for name, layers in (("key_cache", keys), ("value_cache", values)):
            shifted.write(name, np.stack(layers)[:, :, 1:], rows=n - 1)
        wrong = decode(session, shifted, hidden, n, more)
    distance = max(float(np.abs(a.astype(np.float32) - b).max()) for a, b in zip(got, expected, strict=True))
    far = max(float(np.abs(a.astype(np.float32) - b).max()) for a, b in zip(wrong, expected, strict=True))
    assert distance < 0.02 < far, (distance, far)


def in_memory_of(producer: str, array: np.ndarray) -> Any:
    if producer == "numpy":
        return array
    return pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError).array(array)


def test_the_model_s_own_rows_through_another_engine_s_memory_change_nothing(
    model: kvb.Model, contract: kvb.KVContract, stateful: samples.SampleInfo
) -> None:
    n, more = 9, 6
    width = stateful.options["heads"] * stateful.options["head_dim"]
    hidden = np.random.default_rng(12).standard_normal((n + more, width), dtype=np.float32)
    with kvb.Session(model, contract, mechanism="raw") as session:
        through = model.new_state()
        decode(session, through, hidden, 0, n)
        rows = {name: through.read(name)[:, :, :n].copy() for name in through.names}
        expected = decode(session, through, hidden, n, more)
        handed = model.new_state()
        for name, array in rows.items():
            handed.write(name, array, rows=n)
        for a, b in zip(decode(session, handed, hidden, n, more), expected, strict=True):
            np.testing.assert_array_equal(a, b)


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
