"""What is no plain pair of halves travels too: INT8 values with a scale per head and row, and the states of a hybrid
model's linear layers, the recurrent one in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking.samples.toolkit import convert, quiet, save, tools

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)
pytest.importorskip("coremltools", reason="coremltools is not installed (extra samples)", exc_type=ImportError)

LAYERS, HEADS, CAPACITY, SIZE, LIVE = 2, 4, 512, 16, 200
CHANNELS, STATE = 24, 8
Setup = tuple[kvb.Model, kvb.KVContract, dict[str, np.ndarray]]


def write(path: Path, per_layer: bool) -> None:
    """x fp16 [layers, heads, capacity, size] -> keys fp16, values int8, scales fp16 [.., 1]; and of its first rows a
    convolution's state fp16 [1, 3, channels] and a recurrent state fp32 [1, heads, state, size]."""
    t = tools()
    mb = t.mb

    def build(x: Any) -> Any:
        outputs = []
        for i in range(LAYERS) if per_layer else [None]:
            part = x if i is None else mb.slice_by_size(x=x, begin=[i, 0, 0, 0], size=[1, HEADS, CAPACITY, SIZE])
            end = "" if i is None else f"_{i}"
            outputs.append(mb.mul(x=part, y=np.float16(0.5), name=f"key_cache{end}"))
            outputs.append(mb.cast(x=mb.mul(x=part, y=np.float16(20)), dtype="int8", name=f"value_cache{end}"))
            largest = mb.reduce_max(x=mb.abs(x=part), axes=[3], keep_dims=True)
            outputs.append(mb.mul(x=largest, y=np.float16(0.01), name=f"value_scale{end}"))
        rows = mb.reshape(x=mb.slice_by_size(x=x, begin=[0, 0, 0, 0], size=[1, 1, 9, SIZE]), shape=[1, 9 * SIZE])
        conv = mb.slice_by_size(x=rows, begin=[0, 0], size=[1, 3 * CHANNELS])
        outputs.append(mb.reshape(x=conv, shape=[1, 3, CHANNELS], name="conv_0"))
        state = mb.cast(x=mb.slice_by_size(x=x, begin=[0, 0, 0, 0], size=[1, HEADS, STATE, SIZE]), dtype="fp32")
        outputs.append(mb.mul(x=state, y=np.float32(1 / 3), name="recurrent_0"))
        return tuple(outputs)

    with quiet():
        spec = mb.TensorSpec(shape=(LAYERS, HEADS, CAPACITY, SIZE), dtype=t.types.fp16)
        program = mb.program(input_specs=[spec], opset_version=t.ct.target.macOS26)(build)
        save(convert(program, target="macOS26", compute="fp32"), path)


@pytest.fixture(scope="module", params=[False, True], ids=["stacked", "per layer"])
def setup(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    path = tmp_path_factory.mktemp("hybrid") / "hybrid.mlpackage"
    write(path, request.param)
    model = kvb.Model.load(path)
    rows = [name for name in model.outputs if name.split("_")[0] in ("key", "value")]
    states = [name for name in model.outputs if name not in rows]
    contract = kvb.KVContract.from_model(model, rows, LIVE, 2, tail="any", unbacked=states)
    x = np.random.default_rng(3).uniform(-4, 4, (LAYERS, HEADS, CAPACITY, SIZE)).astype(np.float16)
    return model, contract, {"x": x}


def fresh() -> list[Any]:
    """Attention, linear, attention: as a hybrid model orders them."""
    return [caches.KVCache(), caches.ArraysCache(2), caches.KVCache()]


def expected(prediction: Any, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys, and values multiplied with their scales in the scales' dtype, by NumPy."""
    if "key_cache" in prediction:
        k, v, s = (prediction[f"{n}"][layer : layer + 1] for n in ("key_cache", "value_cache", "value_scale"))
    else:
        k, v, s = (prediction[f"{n}_{layer}"] for n in ("key_cache", "value_cache", "value_scale"))
    assert (v.dtype, s.dtype, s.shape[-1]) == (np.int8, np.float16, 1)
    return np.array(k[:, :, :LIVE]), v[:, :, :LIVE].astype(np.float16) * s[:, :, :LIVE]


@pytest.mark.parametrize("memory", ["copied", "owned"])
def test_scaled_values_and_states_arrive(setup: Setup, memory: str) -> None:
    model, contract, inputs = setup
    owned = kvb.mlx.owned_backings(contract) if memory == "owned" else None
    if owned is None:
        session = kvb.Session(model, contract, mechanism="raw")
    else:
        session = kvb.Session(model, contract, mechanism="external", storage=owned)
    prediction = session.predict(inputs)
    wanted = [expected(prediction, layer) for layer in range(LAYERS)]
    states = [np.array(prediction[name]) for name in ("conv_0", "recurrent_0")]
    assert states[1].dtype == np.float32
    assert not np.array_equal(states[1], states[1].astype(np.float16))  # halves could not hold it
    filled = fresh()
    report = kvb.mlx.handoff(prediction, filled, contract, owned=owned)
    for cache, (k, v) in zip((filled[0], filled[2]), wanted, strict=True):
        assert (cache.offset, cache.values.dtype) == (LIVE, mx.float16)
        np.testing.assert_array_equal(np.array(cache.keys)[:, :, :LIVE], k)
        np.testing.assert_array_equal(np.array(cache.values)[:, :, :LIVE], v)
    for got, state in zip(filled[1].cache, states, strict=True):
        assert np.array(got).dtype == state.dtype
        np.testing.assert_array_equal(np.array(got), state)
    held = filled[0].values.nbytes
    assert [layer.keys.split("_")[0] for layer in report.layers] == ["key", "conv", "key"]
    assert report.bytes_converted == LAYERS * held
    assert report.layers[1].bytes_copied == sum(state.nbytes for state in states)
    in_place = memory == "owned" and report.per_layer and report.layers[0].method == "owned"
    element_count = LAYERS * HEADS * LIVE
    assert report.bytes_copied == (
        report.bytes_converted
        + report.layers[1].bytes_copied
        + (0 if in_place else element_count * (2 * SIZE + SIZE + 2))  # half keys, byte values, a half per row
    )
    session.close()


def test_decoding_goes_on_in_place_after_the_scaling(setup: Setup) -> None:
    model, contract, inputs = setup
    filled = fresh()
    with kvb.Session(model, contract, mechanism="raw") as session:
        kvb.mlx.handoff(session.predict(inputs), filled, contract)
    token = mx.full((1, HEADS, 1, SIZE), 5, mx.float16)
    for cache in (filled[0], filled[2]):
        places = [kvb.mlx.address_of(a) for a in (cache.keys, cache.values)]
        mx.eval(cache.update_and_fetch(token, token))
        assert [kvb.mlx.address_of(a) for a in (cache.keys, cache.values)] == places


def test_a_layer_is_adopted_as_a_whole_or_not_at_all(setup: Setup, adopting: None) -> None:
    """Keys and values lie on whole pages here and their scales do not: of what was adopted alone, keys would have more
    rows than values."""
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs)
        filled = fresh()
        with pytest.raises(kvb.mlx.AdoptionRefusedError, match="multiple of 16384"):
            kvb.mlx.handoff(prediction, filled, contract, copy=False)
        assert filled[0].keys is None
        report = kvb.mlx.handoff(prediction, filled, contract, copy=None)
        wanted = [expected(prediction, layer) for layer in range(LAYERS)]
    assert {layer.method for layer in report.layers} == {"copied"}
    for cache, (k, v) in zip((filled[0], filled[2]), wanted, strict=True):
        assert cache.keys.shape[2] == cache.values.shape[2]
        np.testing.assert_array_equal(np.array(cache.keys)[:, :, :LIVE], k)
        np.testing.assert_array_equal(np.array(cache.values)[:, :, :LIVE], v)


def test_int8_without_scales_is_refused(setup: Setup) -> None:
    model, contract, inputs = setup
    rows = [name for name in contract.outputs if "scale" not in name]
    scales = [name for name in contract.outputs if "scale" in name]
    less = kvb.KVContract.from_model(model, rows, LIVE, 2, tail="any")
    with kvb.Session(model, less, mechanism="raw") as session:
        prediction = session.predict(inputs)
        filled = fresh()
        with pytest.raises(kvb.ContractError, match="int8 needs the outputs that scale it"):
            kvb.mlx.handoff(prediction, filled, less)
        with pytest.raises(kvb.ContractError, match="no backed output"):
            kvb.mlx.handoff(prediction, filled, less, scales=scales)
        assert filled[0].keys is None
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs)
        with pytest.raises(kvb.ContractError, match="expected float16 or float32"):
            kvb.mlx.handoff(prediction, filled, contract, scales=[n for n in rows if "key" in n])
        with pytest.raises(kvb.ContractError, match=r"keys are .*int8"):
            kvb.mlx.handoff(
                prediction, filled, contract, keys=[n for n in rows if "value" in n],
                values=[n for n in rows if "value" in n], scales=scales,
            )  # fmt: skip
        assert filled[0].keys is None


def test_states_that_do_not_fit_are_refused(setup: Setup) -> None:
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs)
        for states, why in (
            ([], "0 pairs of states for 1"),
            ([("conv_0", "nothing")], "unknown"),
            (["conv_0"], "got 'conv_0'"),
        ):
            with pytest.raises(kvb.ContractError, match=why):
                kvb.mlx.handoff(prediction, fresh(), contract, states=states)
        with pytest.raises(kvb.ContractError, match="no cache is an ArraysCache"):
            kvb.mlx.handoff(
                prediction, [caches.KVCache(), caches.KVCache()], contract, states=[("conv_0", "recurrent_0")]
            )
        held = fresh()
        held[1][1] = mx.zeros((1, HEADS, STATE, SIZE), mx.float16)  # a model that keeps halves
        held[1][0] = mx.zeros((1, 3, CHANNELS), mx.float16)
        with pytest.raises(kvb.ContractError, match=r"ArraysCache held float16 .* got float32"):
            kvb.mlx.handoff(prediction, held, contract)
        assert held[0].keys is None


def test_swapped_states_are_other_states(setup: Setup) -> None:
    """The comparison can fail: named the other way round, another array arrives."""
    model, contract, inputs = setup
    filled = fresh()
    with kvb.Session(model, contract, mechanism="raw") as session:
        kvb.mlx.handoff(session.predict(inputs), filled, contract, states=[("recurrent_0", "conv_0")])
    assert (filled[1][0].dtype, filled[1][1].dtype) == (mx.float32, mx.float16)
