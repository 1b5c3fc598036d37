"""Growing copies the live prefix and nothing else, keeps what belongs to the sequence, and keeps no old memory."""

from __future__ import annotations

import errno
import gc
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import _native

NAMES = ("key_cache_0", "value_cache_0", "key_cache_1", "value_cache_1")


MEMORIES = ("raw", "surface")


def cache_of(memory: Any, capacity: int, size: int = 16, heads: int = 2) -> kvb.GrowableCache:
    contract = kvb.KVContract(NAMES, (1, heads, capacity, size), "float16", 1, 2, tail="any")
    return kvb.GrowableCache(contract, memory=memory)


def filled(
    memory: Any, capacity: int, live: int, size: int = 16, heads: int = 2
) -> tuple[kvb.GrowableCache, dict[str, np.ndarray]]:
    """A cache with random live rows and NaN behind them, and a copy of the live rows."""
    cache = cache_of(memory, capacity, size, heads)
    rng = np.random.default_rng(3)
    for array in cache.arrays.values():
        assert not array.any()
        array[:] = np.nan
        array[:, :, :live] = rng.standard_normal((1, heads, live, size), dtype=np.float32)
    cache.live = live
    return cache, {name: array[:, :, :live].copy() for name, array in cache.arrays.items()}


@pytest.mark.parametrize(
    ("before", "live", "after"), [(32, 20, 64), (64, 20, 32), (32, 32, 33), (32, 0, 64), (64, 20, 20)]
)
@pytest.mark.parametrize("memory", MEMORIES)
def test_the_live_rows_travel_and_no_others(memory: str, before: int, live: int, after: int) -> None:
    cache, wanted = filled(memory, before, live)
    assert cache.grow(after) == len(NAMES) * 2 * live * 16 * 2
    assert (cache.capacity, cache.live, cache.generation) == (after, live, 1)
    for name, array in cache.arrays.items():
        assert array.shape == (1, 2, after, 16)
        assert array.flags.writeable
        assert array.ctypes.data % (16384 if memory == "raw" else 64) == 0
        np.testing.assert_array_equal(array[:, :, :live], wanted[name])
        assert not array[:, :, live:].any()  # NaN, had a row beyond the live ones come along


@pytest.mark.parametrize("memory", MEMORIES)
def test_views_from_before_stay_valid_and_are_not_reused(memory: str) -> None:
    cache, wanted = filled(memory, 32, 20)
    old = {name: array[:, :, :20] for name, array in cache.arrays.items()}
    cache.grow(64)
    for array in cache.arrays.values():
        assert not any(np.shares_memory(array, view) for view in old.values())
        array[:] = 9
    for name, view in old.items():
        np.testing.assert_array_equal(view, wanted[name])


@pytest.mark.parametrize("memory", MEMORIES)
def test_shrinking_below_the_live_rows_is_refused(memory: str) -> None:
    cache, wanted = filled(memory, 32, 20)
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
    cache, wanted = filled("raw", 32, 20)
    real, calls = mmap.mmap, iter([0, 0])

    def scarce(*args: int, **options: int) -> mmap.mmap:
        if next(calls, None) is None:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return real(*args, **options)

    monkeypatch.setattr(mmap, "mmap", scarce)
    with pytest.raises(MemoryError, match=r"float16\[1, 2, 64, 16\]"):
        cache.grow(64)
    assert (cache.capacity, cache.generation) == (32, 0)
    for name, array in cache.arrays.items():
        np.testing.assert_array_equal(array[:, :, :20], wanted[name])


class Bound:
    """What is made over the arrays."""


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_binding_lasts_until_the_memory_moves(memory: str) -> None:
    cache, _ = filled(memory, 32, 20)
    cache.attached["recurrent"] = state = np.ones(4, np.float32)
    cache.attached["pending"] = pending = {"key_cache_0": np.full((1, 2, 3, 16), 7, np.float16)}
    first = cache.binding(lambda arrays: Bound())
    assert cache.binding(lambda arrays: Bound()) is first
    watched = weakref.ref(first)
    del first
    cache.grow(64)
    assert watched() is None
    seen = cache.binding(lambda storage: {name: entry.shape[2] for name, entry in storage.items()})
    assert set(seen.values()) == {64}
    assert cache.live == 20
    assert cache.attached["pending"] is pending
    assert (pending["key_cache_0"] == 7).all()
    assert cache.attached["recurrent"] is state


def transitions(memory: str, live: int, size: int, count: int, settled: Callable[..., dict[str, int]]) -> None:
    """Moves between 8192 and 16384 rows, a view of the very first memory held throughout; afterwards everything is as
    it was, counted and by the process's footprint."""
    cache, wanted = filled(memory, 8192, live, size, heads=1)
    one_set = sum(
        entry.byte_count if isinstance(entry, kvb.Surface) else entry.nbytes for entry in cache.storage.values()
    )
    first = cache.arrays[NAMES[0]][:, :, :live]
    for capacity in (16384, 8192):  # what is made once is made now
        cache.grow(capacity)
    counts = settled()  # arrays of an earlier test may still be the framework's
    footprint = _native.memory_footprint_byte_count()
    highest = 0
    for i in range(count):
        assert cache.grow(8192 if i % 2 else 16384) == len(NAMES) * live * size * 2
        now = kvb.live_counts()
        assert now["surface"] == counts["surface"]  # the old set goes at once: nothing else holds it
        highest = max(highest, _native.memory_footprint_byte_count() - footprint)
    gc.collect()
    assert cache.generation == count + 2
    assert kvb.live_counts() == counts
    assert _native.memory_footprint_byte_count() - footprint <= one_set
    assert highest <= 4 * one_set
    np.testing.assert_array_equal(first, wanted[NAMES[0]])
    for name, array in cache.arrays.items():
        assert not np.shares_memory(array, first)
        np.testing.assert_array_equal(array[:, :, :live], wanted[name])
    kept = [cache.arrays]  # the measurement can fail: whoever keeps every generation is seen
    for i in range(6):
        cache.grow(8192 if i % 2 else 16384)
        for array in cache.arrays.values():
            array[:] = 1
        kept.append(cache.arrays)
    assert _native.memory_footprint_byte_count() - footprint > 4 * one_set
    del kept, array, first
    held = kvb.live_counts()["surface"]
    assert held == counts["surface"] - (memory == "surface")  # the first surface went with its last view


@pytest.mark.parametrize("memory", MEMORIES)
def test_160_transitions_with_surfaces_counted(memory: str, settled: Callable[..., dict[str, int]]) -> None:
    transitions(memory, live=1000, size=64, count=160, settled=settled)


@pytest.mark.slow
@pytest.mark.parametrize("memory", MEMORIES)
def test_160_transitions_of_a_full_cache(memory: str, settled: Callable[..., dict[str, int]]) -> None:
    transitions(memory, live=8000, size=128, count=160, settled=settled)


def test_what_no_surface_can_hold_is_refused_before_anything_moves() -> None:
    cache, wanted = filled("surface", 8192, 20)
    limit = kvb.runtime_info().surface_max_height
    if not 0 < limit <= 16384:
        pytest.skip(f"surfaces of this system may be {limit} high")
    with pytest.raises(kvb.ContractError, match=r"height.*32768.*16384") as caught:
        cache.grow(16384)
    assert {failure.output for failure in caught.value.failures} == set(NAMES)
    assert (cache.capacity, cache.generation) == (8192, 0)
    np.testing.assert_array_equal(cache.arrays[NAMES[0]][:, :, :20], wanted[NAMES[0]])
    contract = kvb.KVContract(NAMES, (1, 2, 16384, 8), "float16", 1, 2, tail="any")
    with pytest.raises(kvb.ContractError, match="key_cache_1"):
        kvb.GrowableCache(contract, memory="surface")
    with pytest.raises(ValueError, match="memory"):
        kvb.GrowableCache(contract, memory="pool")  # type: ignore[arg-type]


def test_a_contract_is_needed_and_one_capacity() -> None:
    with pytest.raises(TypeError, match="KVContract"):
        kvb.GrowableCache(3)  # type: ignore[arg-type]
    shapes = {"k": (1, 2, 8, 4), "v": (1, 2, 9, 4)}
    with pytest.raises(ValueError, match="capacity"):
        kvb.GrowableCache(kvb.KVContract(("k", "v"), shapes, "float16", 1, 2))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("capacity", [1 << 40, 1 << 62, 1 << 70])
def test_capacities_beyond_counting_are_value_errors_and_move_nothing(memory: Any, capacity: int) -> None:
    cache, rows = filled(memory, 8, 5)
    with pytest.raises(ValueError, match=r"below 2\*\*40"):
        cache.grow(capacity)
    assert (cache.capacity, cache.generation, cache.live) == (8, 0, 5)
    for name, array in cache.arrays.items():
        np.testing.assert_array_equal(array[:, :, :5], rows[name])


def test_a_binding_that_grows_the_cache_is_not_kept() -> None:
    cache = cache_of("raw", 8)
    with pytest.raises(RuntimeError, match="grew while its binding was made"):
        cache.binding(lambda storage: cache.grow(16))
    assert cache.generation == 1
    assert cache.binding(lambda storage: storage[NAMES[0]].shape[2]) == 16
