"""Every cache class of mlx-lm, filled from rows with poison behind them, against the same cache filled by mlx-lm
itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)

import kvbacking as kvb  # noqa: E402
from kvbacking.mlx import fill  # noqa: E402

HEADS, SIZE = 2, 64


def rows(count: int, seed: int, batch: int = 1, size: int = SIZE) -> Any:
    drawn = np.random.default_rng(seed).standard_normal((batch, HEADS, count, size), dtype=np.float32)
    return mx.array(drawn.astype(np.float16))


def poisoned(live: Any, capacity: int) -> Any:
    """The live rows at the start of `capacity` rows of NaN."""
    array = np.full((*live.shape[:2], capacity, live.shape[3]), np.nan, np.float16)
    array[:, :, : live.shape[2]] = np.array(live)
    return mx.array(array)


def same(a: Any, b: Any) -> bool:
    mx.eval(a, b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a.shape == b.shape and bool(mx.array_equal(a, b))


def agrees(filled: Any, native: Any, steps: tuple[int, ...] = (1, 1, 1, 3, 1, 1)) -> bool:
    """Whether both give the same rows (and masks) through single tokens and a longer chunk."""
    for i, count in enumerate(steps):
        k, v = rows(count, 100 + i), rows(count, 200 + i)
        if hasattr(native, "make_mask"):
            masks = [cache.make_mask(count, return_array=True, window_size=None) for cache in (filled, native)]
            if not all(isinstance(m, mx.array) for m in masks):
                if masks[0] is not None or masks[1] is not None:
                    return False
            elif not same(*masks):
                return False
        if not same(filled.update_and_fetch(k, v), native.update_and_fetch(k, v)):
            return False
        if not same(mx.array(filled.offset), mx.array(native.offset)):
            return False
    return True


CASES: dict[str, tuple[Callable[[], Any], int, int]] = {
    "KVCache": (lambda: caches.KVCache(), 20, 48),
    "KVCache full": (lambda: caches.KVCache(), 48, 48),
    "KVCache of the step": (lambda: caches.KVCache(), 256, 300),
    "ConcatenateKVCache": (lambda: caches.ConcatenateKVCache(), 20, 48),
    "QuantizedKVCache": (lambda: caches.QuantizedKVCache(), 20, 48),
    "QuantizedKVCache 4 bits": (lambda: caches.QuantizedKVCache(32, 4), 20, 48),
    "RotatingKVCache before": (lambda: caches.RotatingKVCache(32), 20, 48),
    "RotatingKVCache at": (lambda: caches.RotatingKVCache(32), 32, 48),
    "RotatingKVCache beyond": (lambda: caches.RotatingKVCache(32), 40, 48),
    "RotatingKVCache keep before": (lambda: caches.RotatingKVCache(32, keep=4), 20, 48),
    "RotatingKVCache keep beyond": (lambda: caches.RotatingKVCache(32, keep=4), 40, 48),
    "BatchKVCache": (lambda: caches.BatchKVCache([0]), 20, 48),
    "BatchRotatingKVCache before": (lambda: caches.BatchRotatingKVCache(32, [0]), 20, 48),
    "BatchRotatingKVCache beyond": (lambda: caches.BatchRotatingKVCache(32, [0]), 40, 48),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_cache_that_mlx_lm_would_have_filled(case: str) -> None:
    make, live, capacity = CASES[case]
    k, v = rows(live, 1), rows(live, 2)
    native, filled = make(), make()
    native.update_and_fetch(k, v)
    fill(filled, poisoned(k, capacity), poisoned(v, capacity), live)
    assert agrees(filled, native)


@pytest.mark.parametrize("live", [20, 40])
def test_chunked(live: int) -> None:
    k, v = rows(live, 1), rows(live, 2)
    native, filled = caches.ChunkedKVCache(32), caches.ChunkedKVCache(32)
    native.update_and_fetch(k, v)
    native.maybe_trim_front()
    fill(filled, poisoned(k, 48), poisoned(v, 48), live)
    assert filled.start_position == native.start_position == max(0, live - 32)
    for i in range(15):
        for cache in (native, filled):
            cache.maybe_trim_front()
        assert same(
            filled.update_and_fetch(rows(1, i), rows(1, 50 + i)), native.update_and_fetch(rows(1, i), rows(1, 50 + i))
        )
        assert filled.offset == native.offset


@pytest.mark.parametrize("live", [32, 45, 64])
def test_a_ring_is_taken_as_it_is(live: int) -> None:
    native, filled = caches.RotatingKVCache(32), caches.RotatingKVCache(32)
    k, v = rows(live, 1), rows(live, 2)
    native.update_and_fetch(k, v)
    order = [max(p for p in range(live) if p % 32 == i) for i in range(32)]
    fill(filled, k[:, :, mx.array(order)], v[:, :, mx.array(order)], live, ring=True)
    for i in range(40):
        step = rows(1, 300 + i)
        got, wanted = filled.update_and_fetch(step, step), native.update_and_fetch(step, step)
        # one ring begins elsewhere than the other: the same rows, in another order, attend to the same
        assert np.array_equal(*(np.sort(np.array(a[0]), axis=2) for a in (got, wanted)))
        assert filled.offset == native.offset


def test_a_batch_with_padding_on_the_left() -> None:
    k, v = rows(20, 1, batch=2), rows(20, 2, batch=2)
    for make in (lambda: caches.BatchKVCache([3, 0]), lambda: caches.BatchRotatingKVCache(16, [3, 0])):
        native, filled = make(), make()
        native.update_and_fetch(k, v)
        fill(filled, poisoned(k, 48), poisoned(v, 48), 20)
        for i in range(6):
            step = rows(1, 300 + i, batch=2)
            assert same(filled.make_mask(1), native.make_mask(1)) or i == 0  # mlx-lm trims at the next update
            assert same(filled.update_and_fetch(step, step), native.update_and_fetch(step, step))
            assert same(filled.offset, native.offset)
            assert same(filled.left_padding, native.left_padding)


def test_hybrid_state() -> None:
    conv, state = rows(3, 1), rows(4, 2).astype(mx.float32)
    k, v = rows(20, 3), rows(20, 4)
    cache = caches.CacheList(caches.ArraysCache(2), caches.KVCache())
    fill(cache, [conv, poisoned(k, 48)], [state, poisoned(v, 48)], 20)
    assert same(cache[0][0], conv)
    assert same(cache[0][1], state)
    assert cache[0][1].dtype == mx.float32
    native = caches.KVCache()
    native.update_and_fetch(k, v)
    assert agrees(cache[1], native)
    with pytest.raises(kvb.ContractError, match="2 members"):
        fill(cache, [conv], [state], 20)
    with pytest.raises(kvb.ContractError, match="ArraysCache held"):
        fill(cache[0], conv, state.astype(mx.float16), 20)
    with pytest.raises(kvb.ContractError, match="of 3 arrays"):
        fill(caches.ArraysCache(3), conv, state, 20)


def test_no_class_of_the_installed_version_is_forgotten() -> None:
    defined = {
        name
        for name, cls in inspect.getmembers(caches, inspect.isclass)
        if issubclass(cls, caches._BaseCache) and cls is not caches._BaseCache
    }
    tested = {case.split()[0] for case in CASES} | {"ChunkedKVCache", "CacheList", "ArraysCache"}
    assert defined == tested


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cache, k, v: fill(cache, poisoned(k, 48), poisoned(v, 48), 48),
        lambda cache, k, v: fill(cache, mx.roll(poisoned(k, 48), 1, axis=2), poisoned(v, 48), 20),
        lambda cache, k, v: fill(cache, poisoned(v, 48), poisoned(k, 48), 20),
        lambda cache, k, v: fill(cache, poisoned(k, 48), poisoned(v, 48), 19),
    ],
    ids=["offset is the capacity", "rows shifted", "keys and values swapped", "one row short"],
)
def test_the_comparison_can_fail(spoil: Callable[[Any, Any, Any], None]) -> None:
    k, v = rows(20, 1), rows(20, 2)
    native, filled = caches.KVCache(), caches.KVCache()
    native.update_and_fetch(k, v)
    spoil(filled, k, v)
    assert not agrees(filled, native)


class Lookalike:
    keys = values = None
    offset = 0


def test_refusals() -> None:
    k, v = rows(20, 1), rows(20, 2)
    cache = caches.KVCache()
    for live in (0, -1, 21):
        with pytest.raises(kvb.ContractError, match="live must be 1 to 20"):
            fill(cache, k, v, live)
    for live in (True, 3.0, "3"):
        with pytest.raises(TypeError, match="live"):
            fill(cache, k, v, live)  # type: ignore[arg-type]
    lookalike = type("KVCache", (Lookalike,), {})()
    subclass = type("KVCache", (caches.KVCache,), {})()
    for unknown in (lookalike, subclass, object(), caches.CacheList(caches.KVCache(), lookalike)):
        with pytest.raises(TypeError, match="no cache class"):
            fill(unknown, [k, k], [v, v], 20)
    with pytest.raises(kvb.ContractError, match="agree but for size"):
        fill(cache, k, v[:, :1], 20)
    with pytest.raises(kvb.ContractError, match="agree but for size"):
        fill(cache, k[0], v[0], 20)
    with pytest.raises(kvb.ContractError, match="scales"):
        fill(cache, k.astype(mx.int8), v, 20)
    with pytest.raises(kvb.ContractError, match="left padding for 2"):
        fill(caches.BatchKVCache([0, 0]), k, v, 20)
    with pytest.raises(kvb.ContractError, match="ring=True is for"):
        fill(caches.RotatingKVCache(20, keep=2), k, v, 20, ring=True)
    with pytest.raises(kvb.ContractError, match="exactly max_size 16"):
        fill(caches.RotatingKVCache(16), k, v, 20, ring=True)
    with pytest.raises(kvb.ContractError, match="at least 20"):
        fill(caches.RotatingKVCache(20), k, v, 19, ring=True)
    assert cache.keys is None
    assert cache.offset == 0
    batch = caches.BatchRotatingKVCache(16, [0])
    fill(batch, k, v, 20)
    with pytest.raises(kvb.ContractError, match="fill a new one"):
        fill(batch, k, v, 20)


def test_a_dtype_is_converted_only_when_asked() -> None:
    k, v = rows(20, 1), rows(20, 2)
    cache = caches.KVCache()
    with pytest.raises(kvb.ContractError, match="the model computes in"):
        fill(cache, k, v, 20, model_dtype=mx.bfloat16)
    with pytest.raises(kvb.ContractError, match="dtype= converts"):
        fill(cache, k, v.astype(mx.float32), 20)
    fill(cache, k, v, 20, mx.bfloat16, model_dtype=mx.bfloat16)
    assert cache.keys.dtype == cache.values.dtype == mx.bfloat16
    assert same(cache.keys, k.astype(mx.bfloat16))
    with pytest.raises(kvb.ContractError, match="the cache held"):
        fill(cache, k, v, 20)
    fill(cache, k, v, 20, model_dtype=None, dtype=mx.float16)
    assert same(cache.values, v)


def test_keys_and_values_may_differ_in_size() -> None:
    k, v = rows(20, 1), rows(20, 2, size=32)
    cache = caches.KVCache()
    fill(cache, poisoned(k, 48), poisoned(v, 48), 20)
    got = cache.update_and_fetch(rows(1, 3), rows(1, 4, size=32))
    assert same(got[0][:, :, :20], k)
    assert same(got[1][:, :, :20], v)
