"""A session's own memory adopted by MLX, over the tests' bridge where MLX itself refuses: the very code that runs on
Metal. A set is busy while MLX can still read it, and free as soon as it cannot; nothing keeps either side alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking import samples
from kvbacking.mlx import arrays

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)

# One layer of K or V is exactly 16 KiB: [1, 2, 64, 64] halves.
LAYERS, KV_HEADS, SIZE, CAPACITY, LIVE = 2, 2, 64, 64, 20
# and of cross-attention K or V 48 KiB: [1, 48, 512] halves
CROSS = {"layers": 2, "width": 512, "rows": 40, "capacity": 48}
HUNG_S = 30.0
Setup = tuple[kvb.Model, kvb.KVContract, dict[str, np.ndarray]]


def loaded(info: samples.SampleInfo) -> Setup:
    model = kvb.Model.load(info.path)
    return model, kvb.KVContract.from_model(model, **info.contract), info.inputs(seed=1)


@pytest.fixture(scope="module")
def prefill(package: Callable[..., samples.SampleInfo]) -> Setup:
    return loaded(package(
        "prefill", per_layer=False, layers=LAYERS, heads=4, kv_heads=KV_HEADS, head_dim=SIZE, hidden=64, vocab=64,
        tokens=24, capacity=CAPACITY,
    ))  # fmt: skip


@pytest.fixture(scope="module")
def whisper(package: Callable[..., samples.SampleInfo]) -> Setup:
    return loaded(package("turbo", **CROSS))


def raw(setup: Setup, **options: Any) -> kvb.Session:
    return kvb.Session(setup[0], setup[1], mechanism="raw", depth=1, verify="layout", **options)


def busy(session: kvb.Session, inputs: dict[str, np.ndarray]) -> bool:
    """Whether the session's only set cannot be predicted into."""
    try:
        session.predict(inputs).release()
    except kvb.BackingInUseError:
        return True
    return False


def let_go(session: kvb.Session, inputs: dict[str, np.ndarray]) -> bool:
    """Whether MLX lets go of the set; its own threads may do so a moment after an evaluation returned."""
    mx.synchronize()
    waiting = threading.Event()
    for _ in range(int(HUNG_S / 0.02)):
        if not busy(session, inputs):
            return True
        waiting.wait(0.02)
    return False


def test_a_layer_is_adopted_where_it_lies(whisper: Setup, adopting: None) -> None:
    with raw(whisper) as session:
        view = session.predict(whisper[2])["cross_k"]
        for layer in range(CROSS["layers"]):
            part = view[layer : layer + 1]
            got = kvb.mlx.to_mlx(part, copy=None)
            assert (got.copied, got.same_address, got.reason) == (False, True, "")
            assert kvb.mlx.address_of(got.array) == part.ctypes.data
            assert (tuple(got.array.shape), got.array.dtype) == (part.shape, mx.float16)
            np.testing.assert_array_equal(np.array(got.array), part)
        sliced = kvb.mlx.to_mlx(view[:1, : CROSS["rows"]], copy=None)  # 40 rows are no whole pages
        assert (sliced.copied, sliced.same_address) == (True, False)
        assert "multiple of 16384" in sliced.reason


class Older:
    """This mlx under an older version's number, which is what the gate looks at."""

    __version__ = "0.32.3"

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)


def test_a_version_that_writes_into_foreign_memory_gets_copies(
    whisper: Setup, adopting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "core", lambda: Older())
    with raw(whisper) as session:
        view = session.predict(whisper[2])["cross_k"]
        got = kvb.mlx.to_mlx(view[:1], copy=None)
        assert (got.copied, got.mlx_version) == (True, "0.32.3")
        assert "may write results into adopted memory" in got.reason
        with pytest.raises(kvb.mlx.AdoptionRefusedError, match="may write results"):
            kvb.mlx.to_mlx(view[:1], copy=False)
        assert kvb.mlx.to_mlx(view[:1], copy=False, unsafe=True).same_address


def array_itself(array: Any) -> Any:
    return array


def slice_of_it(array: Any) -> Any:
    part = array[:, 3:5]
    mx.eval(part)
    return part


def pending_graph(array: Any) -> Any:
    return array.astype(mx.float32) + 1


@pytest.mark.parametrize("made", [array_itself, slice_of_it, pending_graph])
def test_the_set_is_busy_while_mlx_can_read_it(
    whisper: Setup, adopting: None, no_collector: None, made: Callable[[Any], Any]
) -> None:
    with raw(whisper) as session:
        prediction = session.predict(whisper[2])
        array = kvb.mlx.to_mlx(prediction["cross_k"][:1], copy=False).array
        prediction.release()
        del prediction
        assert busy(session, whisper[2])
        held = made(array)
        del array
        assert busy(session, whisper[2])
        del held
        assert not busy(session, whisper[2])


def test_an_evaluated_copy_frees_the_set(whisper: Setup, adopting: None, no_collector: None) -> None:
    with raw(whisper) as session:
        prediction = session.predict(whisper[2])
        expected = np.array(prediction["cross_k"][:1]).astype(np.float32) + 1
        later = pending_graph(kvb.mlx.to_mlx(prediction["cross_k"][:1], copy=False).array)
        del prediction
        assert busy(session, whisper[2])
        mx.eval(later)
        assert let_go(session, whisper[2])
        np.testing.assert_array_equal(np.array(later), expected)


def test_the_set_is_freed_by_whichever_thread_is_last(whisper: Setup, adopting: None, no_collector: None) -> None:
    with raw(whisper) as session:
        prediction = session.predict(whisper[2])
        array = kvb.mlx.to_mlx(prediction["cross_k"][:1], copy=False).array
        held = [[slice_of_it(array)] for _ in range(4)]
        del prediction, array
        threads = [threading.Thread(target=part.clear) for part in held]
        assert busy(session, whisper[2])
        for thread in threads[:-1]:
            thread.start()
            thread.join(HUNG_S)
        assert busy(session, whisper[2])
        threads[-1].start()
        threads[-1].join(HUNG_S)
        assert not busy(session, whisper[2])


def test_mlx_s_own_thread_frees_the_set(whisper: Setup, adopting: None, no_collector: None) -> None:
    with raw(whisper) as session:
        for _ in range(10):
            prediction = session.predict(whisper[2])
            result = pending_graph(kvb.mlx.to_mlx(prediction["cross_k"][:1], copy=False).array)
            del prediction
            for _ in range(20):
                result = mx.sin(result)
            mx.async_eval(result)
            del result
            assert let_go(session, whisper[2])


def test_a_session_may_go_first(whisper: Setup, adopting: None, no_collector: None) -> None:
    session = raw(whisper)
    prediction = session.predict(whisper[2])
    expected = np.array(prediction["cross_k"][:1])
    array = kvb.mlx.to_mlx(prediction["cross_k"][:1], copy=False).array
    session.close()
    del session, prediction
    np.testing.assert_array_equal(np.array(array), expected)


@pytest.mark.parametrize("copy", [None, False])
def test_a_handed_set_is_free_once_the_caches_have_their_copies(
    prefill: Setup, adopting: None, no_collector: None, copy: bool | None
) -> None:
    _, contract, inputs = prefill
    token = mx.full((1, KV_HEADS, 1, SIZE), 5, mx.float16)
    with raw(prefill) as session:
        prediction = session.predict(inputs, live=LIVE)
        wanted = [np.array(prediction[name]) for name in contract.outputs]
        filled = [caches.KVCache() for _ in range(LAYERS)]
        report = kvb.mlx.handoff(prediction, filled, contract, copy=copy)
        prediction.release()
        del prediction
        assert {layer.method for layer in report.layers} == {"adopted"}
        assert all(layer.same_address for layer in report.layers)
        assert report.bytes_copied == 0
        assert busy(session, inputs)
        pending = [cache.update_and_fetch(token, token) for cache in filled]
        assert busy(session, inputs)
        mx.eval(pending)  # mlx copies foreign memory once, before it writes
        del pending
        assert let_go(session, inputs)
    for index, cache in enumerate(filled):
        for side, rows in zip((cache.keys, cache.values), wanted, strict=True):
            np.testing.assert_array_equal(np.array(side)[0, :, :LIVE], rows[index, :, :LIVE])
            assert float(side[0, 0, LIVE, 0]) == 5


def test_the_memory_of_backings_that_mlx_owns_goes_with_their_session(whisper: Setup, no_collector: None) -> None:
    """Native code lets go of a Python owner through a queue, which the next call empties."""
    model, contract, inputs = whisper
    byte_count = 2 * CROSS["layers"] * CROSS["capacity"] * CROSS["width"] * 2
    before = mx.get_active_memory()
    owned = kvb.mlx.owned_backings(contract)
    session = kvb.Session(model, contract, mechanism="external", storage=owned)
    view = session.predict(inputs)["cross_k"]
    expected = view.copy()
    session.close()
    del session, owned
    model.predict(inputs)
    assert mx.get_active_memory() >= before + byte_count  # somebody still looks
    np.testing.assert_array_equal(view, expected)
    del view
    waiting = threading.Event()
    for _ in range(int(HUNG_S / 0.05)):  # the framework may hold its wrapper for about a second
        model.predict(inputs)
        if mx.get_active_memory() < before + byte_count // 2:
            break
        waiting.wait(0.05)
    assert mx.get_active_memory() < before + byte_count // 2


def test_a_dropped_cache_frees_the_set(prefill: Setup, adopting: None, no_collector: None) -> None:
    _, contract, inputs = prefill
    with raw(prefill) as session:
        filled = [caches.KVCache() for _ in range(LAYERS)]
        kvb.mlx.handoff(session.predict(inputs, live=LIVE), filled, contract, copy=False)
        assert busy(session, inputs)
        filled.clear()
        assert not busy(session, inputs)


def steps_over(rows: kvb.mlx.CrossRows, count: int) -> list[np.ndarray]:
    """What a decoder does with cross-attention K/V at each step: reads all of it."""
    generator = np.random.default_rng(8)
    results = []
    for _ in range(count):
        query = mx.array(generator.standard_normal((1, 1, CROSS["width"]), dtype=np.float32))
        for keys, values in rows.arrays:
            weights = mx.softmax(query @ keys.astype(mx.float32).swapaxes(1, 2) / 16, axis=-1)
            query = weights @ values.astype(mx.float32)
        results.append(np.array(query))
    return results


def places(rows: kvb.mlx.CrossRows) -> list[tuple[int, int]]:
    return [(kvb.mlx.address_of(k), kvb.mlx.address_of(v)) for k, v in rows.arrays]


@pytest.fixture
def reference(whisper: Setup) -> list[np.ndarray]:
    with raw(whisper) as session:
        prediction = session.predict(whisper[2])
        return steps_over(kvb.mlx.cross(prediction, copy=True), 4)


def test_read_only_rows_are_adopted_and_never_copied(
    whisper: Setup, adopting: None, no_collector: None, reference: list[np.ndarray]
) -> None:
    with raw(whisper) as session:
        prediction = session.predict(whisper[2])
        written = [
            tuple(prediction[name][layer].ctypes.data for name in ("cross_k", "cross_v"))
            for layer in range(CROSS["layers"])
        ]
        rows = kvb.mlx.cross(prediction)
        prediction.release()
        del prediction
        assert (rows.bytes_copied, rows.live) == (0, CROSS["rows"])
        assert [layer.method for layer in rows.layers] == ["adopted"] * CROSS["layers"]
        assert {tuple(a.shape) for pair in rows.arrays for a in pair} == {(1, CROSS["rows"], CROSS["width"])}
        for got, wanted in zip(steps_over(rows, 4), reference, strict=True):
            np.testing.assert_array_equal(got, wanted)
            assert places(rows) == written
        assert busy(session, whisper[2])
        del rows
        assert let_go(session, whisper[2])


def test_read_only_rows_in_mlx_s_memory_cost_nothing_on_any_backend(
    whisper: Setup, no_collector: None, reference: list[np.ndarray]
) -> None:
    """No bridge here: one stacked output each for K and V, in memory that MLX owns."""
    model, contract, inputs = whisper
    owned = kvb.mlx.owned_backings(contract)
    with kvb.Session(model, contract, mechanism="external", storage=owned) as session:
        prediction = session.predict(inputs)
        if prediction.path != "backing":
            pytest.skip("this framework ignores the backing")
        rows = kvb.mlx.cross(prediction, owned=owned)
        assert (prediction.released, session.closed, owned.taken) == (True, True, True)
    layer_byte_count = CROSS["capacity"] * CROSS["width"] * 2
    written = [
        tuple(owned.addresses[name] + layer * layer_byte_count for name in ("cross_k", "cross_v"))
        for layer in range(CROSS["layers"])
    ]
    assert rows.bytes_copied == 0
    assert all(layer.method == "owned" and layer.same_address for layer in rows.layers)
    for got, wanted in zip(steps_over(rows, 4), reference, strict=True):
        np.testing.assert_array_equal(got, wanted)
        assert places(rows) == written


@pytest.mark.parametrize("mechanism", ["raw", "surface"])
def test_without_adoption_the_live_rows_are_copied_once(
    whisper: Setup, reference: list[np.ndarray], mechanism: Any
) -> None:
    with kvb.Session(whisper[0], whisper[1], mechanism=mechanism, depth=1) as session:
        prediction = session.predict(whisper[2])
        rows = kvb.mlx.cross(prediction, copy=True)
        assert rows.bytes_copied == 2 * CROSS["layers"] * CROSS["rows"] * CROSS["width"] * 2
        assert not any(layer.same_address for layer in rows.layers)
        prediction.release()
        assert not busy(session, whisper[2])
    for got, wanted in zip(steps_over(rows, 4), reference, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("copy", [True, None])
def test_rows_beyond_the_live_ones_are_in_no_array(adopting: None, copy: bool | None) -> None:
    shape = (2, CROSS["capacity"], CROSS["width"])
    whole = np.zeros(shape[0] * shape[1] * shape[2] + 8192, np.float16)
    start = -whole.ctypes.data % 16384 // 2
    poisoned = whole[start : start + np.prod(shape)].reshape(shape)
    poisoned[:, : CROSS["rows"]] = 1
    poisoned[:, CROSS["rows"] :] = np.nan
    rows = kvb.mlx.cross({"cross_k": poisoned, "cross_v": poisoned}, CROSS["rows"], copy=copy)
    assert {layer.method for layer in rows.layers} == {"copied" if copy else "adopted"}
    assert all(bool(mx.all(array == 1)) for pair in rows.arrays for array in pair)
    more = kvb.mlx.cross({"cross_k": poisoned, "cross_v": poisoned}, CROSS["rows"] + 1, copy=copy)
    assert all(bool(mx.any(mx.isnan(array))) for pair in more.arrays for array in pair)


def test_cross_says_what_does_not_fit(whisper: Setup) -> None:
    k = np.zeros((2, 8, 4), np.float16)
    for outputs, live, why in (
        ({"cross_k": k, "cross_v": k}, 9, "8 rows, 9 live"),
        ({"cross_k": k, "cross_v": k}, 0, "0 live"),
        ({"cross_k": k, "cross_v": k[:1]}, 4, "as many layers"),
        ({"cross_k": k[0], "cross_v": k}, 4, "expected"),
    ):
        with pytest.raises(kvb.ContractError, match=why):
            kvb.mlx.cross(outputs, live)
    with pytest.raises(TypeError, match="live= is needed"):
        kvb.mlx.cross({"cross_k": k, "cross_v": k})
    with pytest.raises(KeyError, match="cross_v"):
        kvb.mlx.cross({"cross_k": k}, 4)
    with pytest.raises(TypeError, match=r"cross_k.*list"):
        kvb.mlx.cross({"cross_k": k.tolist(), "cross_v": k}, 4)
    with pytest.raises(kvb.ContractError, match=r"cross_k.*layers"):
        kvb.mlx.cross({"cross_k": k[:0], "cross_v": k[:0]}, 4)
    model, contract, inputs = whisper
    owned, other = kvb.mlx.owned_backings(contract), kvb.mlx.owned_backings(contract)
    with kvb.Session(model, contract, mechanism="external", storage=owned) as session:
        prediction = session.predict(inputs)
        if prediction.path == "backing":
            with pytest.raises(kvb.ContractError, match="not predicted into these backings"):
                kvb.mlx.cross(prediction, owned=other)
            assert not other.taken
