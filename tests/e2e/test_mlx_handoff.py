"""Prefill by Core ML, decode by mlx-lm: the caches that a hand-off fills, by every layout, and where their memory
lies."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking import samples

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)

LAYERS, KV_HEADS, SIZE, TOKENS, CAPACITY, LIVE = 3, 2, 64, 24, 48, 20
OPTIONS = {
    "layers": LAYERS, "heads": 4, "kv_heads": KV_HEADS, "head_dim": SIZE, "hidden": 64, "vocab": 64, "tokens": TOKENS,
    "capacity": CAPACITY,
}  # fmt: skip
Setup = tuple[kvb.Model, kvb.KVContract, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def prepared(package: Callable[..., samples.SampleInfo]) -> Callable[[bool], Setup]:
    """prepared(per_layer): model, contract and inputs of a prefill."""
    loaded: dict[bool, Setup] = {}

    def get(per_layer: bool) -> Setup:
        if per_layer not in loaded:
            info = package("prefill", per_layer=per_layer, **OPTIONS)
            model = kvb.Model.load(info.path)
            loaded[per_layer] = model, kvb.KVContract.from_model(model, **info.contract), info.inputs(seed=1)
        return loaded[per_layer]

    return get


@pytest.fixture(params=[False, True], ids=["stacked", "per layer"])
def setup(request: pytest.FixtureRequest, prepared: Callable[[bool], Setup]) -> Setup:
    return prepared(bool(request.param))


@pytest.fixture
def per_layer(prepared: Callable[[bool], Setup]) -> Setup:
    return prepared(True)


@pytest.fixture
def stacked(prepared: Callable[[bool], Setup]) -> Setup:
    return prepared(False)


def session_over(owned: kvb.mlx.OwnedBackings, model: kvb.Model, contract: kvb.KVContract) -> kvb.Session:
    return kvb.Session(model, contract, mechanism="external", storage=owned)


def token(seed: int) -> Any:
    drawn = np.random.default_rng(seed).standard_normal((1, KV_HEADS, 1, SIZE), dtype=np.float32)
    return mx.array(drawn.astype(np.float16))


def layer_rows(prediction: Any, contract: kvb.KVContract, index: int) -> list[np.ndarray]:
    """K and V [1, heads, capacity, size] of one layer, copied."""
    if "key_cache" in contract.outputs:
        return [np.array(prediction[f"{stem}_cache"][index : index + 1]) for stem in ("key", "value")]
    return [np.array(prediction[f"{stem}_cache_{index}"]) for stem in ("key", "value")]


def native_caches(prediction: Any, contract: kvb.KVContract, make: Callable[[], Any], live: int = LIVE) -> list[Any]:
    filled = []
    for i in range(LAYERS):
        cache = make()
        cache.update_and_fetch(*(mx.array(a[:, :, :live]) for a in layer_rows(prediction, contract, i)))
        filled.append(cache)
    mx.eval([cache.keys for cache in filled])
    return filled


def same_steps(got: list[Any], wanted: list[Any], steps: int = 4) -> bool:
    for i in range(steps):
        for a, b in zip(got, wanted, strict=True):
            k, v = token(i), token(50 + i)
            x, y = a.update_and_fetch(k, v), b.update_and_fetch(k, v)
            mx.eval(x, y)
            if not all(bool(mx.array_equal(p, q)) for p, q in zip(x, y, strict=True)):
                return False
    return True


CLASSES: list[Callable[[], Any]] = [
    lambda: caches.KVCache(),
    lambda: caches.ConcatenateKVCache(),
    lambda: caches.RotatingKVCache(16),
    lambda: caches.RotatingKVCache(16, keep=2),
    lambda: caches.RotatingKVCache(32),
    lambda: caches.BatchKVCache([0]),
]


@pytest.mark.parametrize("make", CLASSES)
def test_the_caches_are_those_of_mlx_lm(setup: Setup, make: Callable[[], Any]) -> None:
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs, live=LIVE)
        wanted = native_caches(prediction, contract, make)
        got = [make() for _ in range(LAYERS)]
        report = kvb.mlx.handoff(prediction, got, contract)
        assert same_steps(got, wanted)
    assert (report.live, len(report.layers), report.per_layer) == (LIVE, LAYERS, "key_cache" not in contract.outputs)
    assert report.total_ns > 0
    assert json.loads(json.dumps(report.to_dict()))["layers"][0]["method"] == "copied"


def test_a_surface_with_padded_rows(setup: Setup) -> None:
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="surface") as session:
        prediction = session.predict(inputs, live=LIVE)
        got = [caches.KVCache() for _ in range(LAYERS)]
        kvb.mlx.handoff(prediction, got, contract)
        assert same_steps(got, native_caches(prediction, contract, caches.KVCache))


def test_exactly_the_live_rows_are_copied_and_decoding_copies_no_more(setup: Setup) -> None:
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs, live=LIVE)
        got = [caches.KVCache() for _ in range(LAYERS)]
        report = kvb.mlx.handoff(prediction, got, contract)
        assert report.bytes_copied == LAYERS * 2 * KV_HEADS * LIVE * SIZE * 2
        assert not any(layer.same_address for layer in report.layers)
    for cache, layer in zip(got, report.layers, strict=True):
        mx.eval(cache.update_and_fetch(token(1), token(2)))
        assert (kvb.mlx.address_of(cache.keys), kvb.mlx.address_of(cache.values)) == layer.cache_addresses


def test_where_most_rows_are_live_dense_memory_is_copied_whole(setup: Setup) -> None:
    model, contract, inputs = setup
    live = CAPACITY - 4
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs, live=live)
        wanted = native_caches(prediction, contract, caches.KVCache, live)
        got = [caches.KVCache() for _ in range(LAYERS)]
        report = kvb.mlx.handoff(prediction, got, contract)
    assert report.bytes_copied == LAYERS * 2 * KV_HEADS * CAPACITY * SIZE * 2
    assert {cache.keys.shape[2] for cache in got} == {CAPACITY}
    mx.eval([cache.update_and_fetch(token(1), token(2)) for cache in got])
    for cache, layer in zip(got, report.layers, strict=True):
        assert (kvb.mlx.address_of(cache.keys), kvb.mlx.address_of(cache.values)) == layer.cache_addresses
        cache.trim(1)
    assert same_steps(got, wanted, steps=6)  # beyond the capacity, too


def test_full_memory_gets_room(setup: Setup) -> None:
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs, live=CAPACITY)
        wanted = native_caches(prediction, contract, caches.KVCache, CAPACITY)
        got = [caches.KVCache() for _ in range(LAYERS)]
        report = kvb.mlx.handoff(prediction, got, contract)
        joined = [caches.ConcatenateKVCache() for _ in range(LAYERS)]
        kvb.mlx.handoff(prediction, joined, contract)
    assert report.bytes_copied == LAYERS * 2 * KV_HEADS * CAPACITY * SIZE * 2
    assert {cache.keys.shape[2] for cache in got} == {256}
    assert {cache.keys.shape[2] for cache in joined} == {CAPACITY}
    assert same_steps(got, wanted)


def test_the_set_is_free_and_may_be_written_as_soon_as_it_returns(setup: Setup) -> None:
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="raw", depth=1) as session:
        prediction = session.predict(inputs, live=LIVE)
        wanted = native_caches(prediction, contract, caches.KVCache)
        got = [caches.KVCache() for _ in range(LAYERS)]
        kvb.mlx.handoff(prediction, got, contract)
        prediction.release()
        other = {**inputs, "input_ids": (inputs["input_ids"] + 1) % OPTIONS["vocab"]}
        session.predict(other, live=LIVE)  # BackingInUseError if anything still held the only set
        assert same_steps(got, wanted)


def test_without_evaluation_the_next_prediction_would_be_seen() -> None:
    """The hazard that the evaluation closes: an unevaluated array still reads the memory that it was made over."""
    source = mx.zeros((1, 2, 8, 4))
    mx.eval(source)
    lazy = source * 1
    np.array(source, copy=False)[:] = 5
    mx.eval(lazy)
    assert bool(mx.all(lazy == 5))


@pytest.fixture
def owned_run(per_layer: Setup) -> tuple[Any, Any, list[Any], list[Any], kvb.KVContract]:
    """backings, report, filled caches and the caches of mlx-lm."""
    model, contract, inputs = per_layer
    owned = kvb.mlx.owned_backings(contract)
    prediction = session_over(owned, model, contract).predict(inputs, live=LIVE)
    if prediction.path != "backing":
        pytest.skip("this framework ignores the backing")
    wanted = native_caches(prediction, contract, caches.KVCache)
    got = [caches.KVCache() for _ in range(LAYERS)]
    report = kvb.mlx.handoff(prediction, got, contract, owned=owned)
    assert prediction.released
    return owned, report, got, wanted, contract


def test_core_ml_writes_where_mlx_decodes(owned_run: Any) -> None:
    owned, report, got = owned_run[:3]
    assert report.bytes_copied == 0
    assert {layer.method for layer in report.layers} == {"owned"}
    for i, (cache, layer) in enumerate(zip(got, report.layers, strict=True)):
        assert layer.same_address
        assert layer.source_addresses == (owned.addresses[f"key_cache_{i}"], owned.addresses[f"value_cache_{i}"])
        for _ in range(1, CAPACITY - LIVE):
            mx.eval(cache.update_and_fetch(token(1), token(2)))
            assert (kvb.mlx.address_of(cache.keys), kvb.mlx.address_of(cache.values)) == layer.source_addresses
        for _ in range(2):  # the last row that there is, and one that there is not
            mx.eval(cache.update_and_fetch(token(1), token(2)))
        assert not {kvb.mlx.address_of(cache.keys), kvb.mlx.address_of(cache.values)} & set(layer.source_addresses)


def test_what_was_decoded_in_place_is_right(owned_run: Any) -> None:
    _, _, got, wanted, _ = owned_run
    assert same_steps(got, wanted, steps=CAPACITY - LIVE + 3)  # beyond the capacity, too: mlx-lm grows it


def test_a_reference_kept_elsewhere_moves_the_cache(owned_run: Any) -> None:
    """The address test can fail: a second holder of the memory forces MLX to copy."""
    _, report, got, _, _ = owned_run
    kept = got[0].keys[:, :, :LIVE]
    mx.eval(kept)
    mx.eval(got[0].update_and_fetch(token(1), token(2)))
    assert kvb.mlx.address_of(got[0].keys) != report.layers[0].cache_addresses[0]
    assert kvb.mlx.address_of(got[0].values) == report.layers[0].cache_addresses[1]


def test_owned_memory_is_for_one_prompt(owned_run: Any, per_layer: Setup) -> None:
    owned = owned_run[0]
    assert owned.taken
    with pytest.raises(kvb.BackingInUseError, match="new backings"):
        session_over(owned, per_layer[0], per_layer[1])
    with pytest.raises(kvb.BackingInUseError):
        owned.take()


def test_the_session_is_closed_before_mlx_gets_the_memory(per_layer: Setup) -> None:
    model, contract, inputs = per_layer
    owned = kvb.mlx.owned_backings(contract)
    session = session_over(owned, model, contract)
    with pytest.raises(kvb.BackingInUseError, match="another open session"):
        session_over(owned, model, contract)
    session.predict(inputs, live=LIVE).release()
    arrays = owned.take()
    assert session.closed
    assert set(arrays) == set(contract.outputs)
    with pytest.raises(ValueError, match="closed"):
        session.predict(inputs, live=LIVE)


def test_memory_that_has_moved_is_noticed(per_layer: Setup) -> None:
    owned = kvb.mlx.owned_backings(per_layer[1])
    owned._arrays["key_cache_1"] = mx.zeros((1, KV_HEADS, CAPACITY, SIZE), mx.float16)
    with pytest.raises(kvb.IntegrityError, match="key_cache_1"):
        owned.take()


def test_backings_of_another_prediction_are_refused(per_layer: Setup) -> None:
    model, contract, inputs = per_layer
    owned, other = kvb.mlx.owned_backings(contract), kvb.mlx.owned_backings(contract)
    prediction = session_over(owned, model, contract).predict(inputs, live=LIVE)
    got = [caches.KVCache() for _ in range(LAYERS)]
    with pytest.raises(kvb.ContractError, match="not predicted into these backings"):
        kvb.mlx.handoff(prediction, got, contract, owned=other)
    assert not other.taken
    assert all(cache.keys is None for cache in got)


def test_a_stacked_output_costs_one_copy_of_the_live_rows(stacked: Setup) -> None:
    model, contract, inputs = stacked
    owned = kvb.mlx.owned_backings(contract)
    prediction = session_over(owned, model, contract).predict(inputs, live=LIVE)
    wanted = native_caches(prediction, contract, caches.KVCache)
    got = [caches.KVCache() for _ in range(LAYERS)]
    report = kvb.mlx.handoff(prediction, got, contract, owned=owned)
    assert {layer.method for layer in report.layers} == {"copied"}
    assert report.bytes_copied == LAYERS * 2 * KV_HEADS * LIVE * SIZE * 2
    assert same_steps(got, wanted)


def test_owned_backings_that_were_not_used_fall_back_to_a_copy(
    per_layer: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, contract, inputs = per_layer
    monkeypatch.setenv("KVBACKING_DISABLE_BACKINGS", "1")
    owned = kvb.mlx.owned_backings(contract)
    prediction = session_over(owned, model, contract).predict(inputs, live=LIVE)
    assert prediction.path == "framework"
    wanted = native_caches(prediction, contract, caches.KVCache)
    got = [caches.KVCache() for _ in range(LAYERS)]
    report = kvb.mlx.handoff(prediction, got, contract, owned=owned)
    assert {layer.method for layer in report.layers} == {"copied"}
    assert not owned.taken
    assert same_steps(got, wanted)


def test_owned_memory_goes_away(per_layer: Setup, settled: Callable[..., dict[str, int]]) -> None:
    model, contract, inputs = per_layer
    byte_count = sum(2 * KV_HEADS * CAPACITY * SIZE for _ in contract.outputs)
    measured = []
    for prompts in (2, 12):
        for _ in range(prompts):
            owned = kvb.mlx.owned_backings(contract)
            prediction = session_over(owned, model, contract).predict(inputs, live=LIVE)
            got = [caches.KVCache() for _ in range(LAYERS)]
            kvb.mlx.handoff(prediction, got, contract, owned=owned)
            del owned, prediction, got
        settled()
        gc.collect()
        measured.append(mx.get_active_memory())
    assert measured[1] <= measured[0] + byte_count // 2


def test_conversion_is_counted(per_layer: Setup) -> None:
    model, contract, inputs = per_layer
    owned = kvb.mlx.owned_backings(contract)
    prediction = session_over(owned, model, contract).predict(inputs, live=LIVE)
    with pytest.raises(kvb.ContractError, match="the model computes in"):
        kvb.mlx.handoff(
            prediction, [caches.KVCache() for _ in range(LAYERS)], contract, owned=owned, model_dtype=mx.bfloat16
        )
    got = [caches.KVCache() for _ in range(LAYERS)]
    report = kvb.mlx.handoff(prediction, got, contract, owned=owned, dtype=mx.bfloat16, model_dtype=mx.bfloat16)
    assert got[0].keys.dtype == mx.bfloat16
    assert report.bytes_copied == LAYERS * 2 * KV_HEADS * CAPACITY * SIZE * 2


def test_nothing_is_touched_when_something_does_not_fit(setup: Setup) -> None:
    model, contract, inputs = setup
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs, live=LIVE)
        good = [caches.KVCache() for _ in range(LAYERS)]
        with pytest.raises(kvb.ContractError, match="caches are 2"):
            kvb.mlx.handoff(prediction, good[:2], contract)
        with pytest.raises(kvb.ContractError, match="more than one layer"):
            kvb.mlx.handoff(prediction, [good[0]] * LAYERS, contract)
        with pytest.raises(TypeError, match="no cache class"):
            kvb.mlx.handoff(prediction, [*good[:2], object()], contract)
        with pytest.raises(kvb.ContractError, match="for states"):
            kvb.mlx.handoff(prediction, [*good[:2], caches.ArraysCache(2)], contract)
        with pytest.raises(kvb.ContractError, match="both"):
            kvb.mlx.handoff(prediction, good, contract, keys=["key_cache"])
        with pytest.raises(kvb.ContractError, match="no backed output"):
            kvb.mlx.handoff(prediction, good, contract, keys=["a"] * LAYERS, values=["b"] * LAYERS)
        if kvb.runtime_info().kind == "simulator":
            with pytest.raises(kvb.mlx.AdoptionRefusedError):
                kvb.mlx.handoff(prediction, good, contract, copy=False)
        assert all(cache.keys is None and cache.offset == 0 for cache in good)
        prediction.release()
        with pytest.raises(kvb.BackingInUseError):
            kvb.mlx.handoff(prediction, good, contract)


def test_outputs_can_be_named(setup: Setup) -> None:
    model, contract, inputs = setup
    names = {stem: [n for n in contract.outputs if n.startswith(stem)] for stem in ("key", "value")}
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs, live=LIVE)
        got = [caches.KVCache() for _ in range(LAYERS)]
        kvb.mlx.handoff(prediction, got, contract, keys=names["key"], values=names["value"])
        swapped = [caches.KVCache() for _ in range(LAYERS)]
        kvb.mlx.handoff(prediction, swapped, contract, keys=names["value"], values=names["key"])
        assert same_steps(got, native_caches(prediction, contract, caches.KVCache))
        assert not same_steps(swapped, native_caches(prediction, contract, caches.KVCache))


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "copy": ({"copy": "yes"}, TypeError, "copy must be"),
    "copy as a number": ({"copy": 2}, TypeError, "copy must be"),
    "dtype by name": ({"dtype": "float32"}, TypeError, "dtype must be"),
    "dtype of integers": ({"dtype": mx.int8}, TypeError, "dtype must be"),
    "keys without an order": ({"keys": {"key_cache_0"}, "values": ["value_cache_0"]}, TypeError, "sequences of names"),
    "one name": ({"keys": "key_cache_0", "values": "value_cache_0"}, TypeError, "sequences of names"),
    "keys twice": (
        {"keys": ["key_cache_0"] * LAYERS, "values": [f"value_cache_{i}" for i in range(LAYERS)]},
        kvb.ContractError,
        "key_cache_0 named for more than one",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_nonsense_is_refused_before_the_prediction_is_given_up(per_layer: Setup, wrong: str) -> None:
    model, contract, inputs = per_layer
    options, error, text = WRONG[wrong]
    owned = kvb.mlx.owned_backings(contract)
    with session_over(owned, model, contract) as session:
        prediction = session.predict(inputs, live=LIVE)
        filled = [caches.KVCache() for _ in range(LAYERS)]
        with pytest.raises(error, match=text):
            kvb.mlx.handoff(prediction, filled, contract, owned=owned, **options)
        assert (prediction.released, owned.taken, session.closed) == (False, False, False)
        assert all(cache.keys is None for cache in filled)
        assert kvb.mlx.handoff(prediction, filled, contract, owned=owned).layers[0].method == "owned"


def test_what_is_no_prediction_contract_or_owner_is_named(per_layer: Setup) -> None:
    model, contract, inputs = per_layer
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction: Any = session.predict(inputs, live=LIVE)
        filled = [caches.KVCache() for _ in range(LAYERS)]
        for given, text in (
            ((None, contract, None), "prediction must be"),
            ((dict(prediction), contract, None), "prediction must be"),
            ((prediction, None, None), "contract must be"),
            ((prediction, contract, object()), "owned must be"),
        ):
            with pytest.raises(TypeError, match=text):
                kvb.mlx.handoff(given[0], filled, given[1], owned=given[2])  # type: ignore[arg-type]
