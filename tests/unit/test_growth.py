"""Growing copies the live prefix and nothing else, keeps what belongs to the sequence, and keeps no old memory."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import kvbacking as kvb

NAMES = ("key_cache_0", "value_cache_0", "key_cache_1", "value_cache_1")


def cache_of(capacity: int, size: int = 16, axis: int = 2) -> kvb.GrowableCache:
    return kvb.GrowableCache(kvb.KVContract(NAMES, (1, 2, capacity, size), "float16", 1, axis, tail="any"))


def filled(capacity: int, live: int, size: int = 16) -> tuple[kvb.GrowableCache, dict[str, np.ndarray]]:
    """A cache with random live rows and NaN behind them, and a copy of the live rows."""
    cache = cache_of(capacity, size)
    rng = np.random.default_rng(3)
    for array in cache.arrays.values():
        array[:] = np.nan
        array[:, :, :live] = rng.standard_normal((1, 2, live, size), dtype=np.float32)
    cache.live = live
    return cache, {name: array[:, :, :live].copy() for name, array in cache.arrays.items()}


@pytest.mark.parametrize(
    ("before", "live", "after"), [(32, 20, 64), (64, 20, 32), (32, 32, 33), (32, 0, 64), (64, 20, 20)]
)
def test_the_live_rows_travel_and_no_others(before: int, live: int, after: int) -> None:
    cache, wanted = filled(before, live)
    assert cache.grow(after) == len(NAMES) * 2 * live * 16 * 2
    assert (cache.capacity, cache.live, cache.generation) == (after, live, 1)
    for name, array in cache.arrays.items():
        assert array.shape == (1, 2, after, 16)
        assert array.flags.writeable
        assert array.ctypes.data % 16384 == 0
        np.testing.assert_array_equal(array[:, :, :live], wanted[name])
        assert not array[:, :, live:].any()  # NaN, had a row beyond the live ones come along


def test_views_from_before_stay_valid_and_are_not_reused() -> None:
    cache, wanted = filled(32, 20)
    old = {name: array[:, :, :20] for name, array in cache.arrays.items()}
    cache.grow(64)
    for array in cache.arrays.values():
        assert not any(np.shares_memory(array, view) for view in old.values())
        array[:] = 9
    for name, view in old.items():
        np.testing.assert_array_equal(view, wanted[name])


def test_shrinking_below_the_live_rows_is_refused() -> None:
    cache, wanted = filled(32, 20)
    for capacity in (19, 0, -1):
        with pytest.raises(ValueError, match="cannot hold the 20 live"):
            cache.grow(capacity)
    assert (cache.capacity, cache.generation) == (32, 0)
    np.testing.assert_array_equal(cache.arrays[NAMES[0]][:, :, :20], wanted[NAMES[0]])
    assert cache.grow(32) == 0
    assert cache.generation == 0
    for wrong in (True, 40.0, "40"):
        with pytest.raises(TypeError):
            cache.grow(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            cache.live = wrong  # type: ignore[assignment]
    for wrong_live in (-1, 33):
        with pytest.raises(ValueError, match="live must be"):
            cache.live = wrong_live


def test_no_memory_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, wanted = filled(32, 20)
    real, calls = np.zeros, iter([0, 0])

    def scarce(*args: object, **options: object) -> np.ndarray:
        if next(calls, None) is None:
            raise MemoryError
        return real(*args, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(np, "zeros", scarce)
    with pytest.raises(MemoryError):
        cache.grow(64)
    assert (cache.capacity, cache.generation) == (32, 0)
    for name, array in cache.arrays.items():
        np.testing.assert_array_equal(array[:, :, :20], wanted[name])


class Bound:
    """What is made over the arrays."""


def test_a_binding_lasts_until_the_memory_moves() -> None:
    cache, _ = filled(32, 20)
    cache.attached["recurrent"] = state = np.ones(4, np.float32)
    first = cache.binding(lambda arrays: Bound())
    assert cache.binding(lambda arrays: Bound()) is first
    watched = weakref.ref(first)
    del first
    cache.grow(64)
    assert watched() is None
    seen = cache.binding(lambda arrays: {name: array.shape[2] for name, array in arrays.items()})
    assert set(seen.values()) == {64}
    assert cache.attached["recurrent"] is state


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_160_transitions_are_flat() -> None:
    cache, wanted = filled(8192, 100, size=8)
    one_set = sum(array.nbytes for array in cache.arrays.values())
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for i in range(160):
        cache.grow(8192 if i % 2 else 16384)
    after, peak = tracemalloc.get_traced_memory()
    assert abs(after - before) < 65536
    assert peak - before < 3 * one_set  # the next set beside the last one, and no third
    for name, array in cache.arrays.items():
        np.testing.assert_array_equal(array[:, :, :100], wanted[name])
    kept = [cache.arrays]  # the measurement can fail: whoever keeps every generation is seen
    for i in range(4):
        cache.grow(8192 if i % 2 else 16384)
        kept.append(cache.arrays)
    assert tracemalloc.get_traced_memory()[0] - before > 3 * one_set


def test_a_contract_is_needed_and_one_capacity() -> None:
    with pytest.raises(TypeError, match="KVContract"):
        kvb.GrowableCache(3)  # type: ignore[arg-type]
    shapes = {"k": (1, 2, 8, 4), "v": (1, 2, 9, 4)}
    with pytest.raises(ValueError, match="capacity"):
        kvb.GrowableCache(kvb.KVContract(("k", "v"), shapes, "float16", 1, 2))
