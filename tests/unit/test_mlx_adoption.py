"""MLX arrays over memory that MLX does not own, real ones: where they lie, how long the memory lives, who lets go of
it, and that nothing ever writes into it. On Metal MLX makes such arrays itself; here the tests' bridge does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mlx_bridge
import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking.mlx import arrays

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)

SHAPE = (1, 2, 64, 128)
BYTES = 2 * 64 * 128 * 2
HUNG_S = 30.0


@pytest.fixture
def memory(bridge: Any) -> Any:
    made = bridge.Memory(BYTES)
    made.bytes()[:] = np.arange(BYTES) % 59  # finite halves
    return made


def halves(memory: Any) -> np.ndarray:
    return memory.bytes().view(np.float16).reshape(SHAPE)


def test_the_array_lies_in_the_memory(memory: Any) -> None:
    array = memory.adopt(SHAPE, mx.float16)
    rows = halves(memory)
    assert kvb.mlx.address_of(array) == rows.ctypes.data
    np.testing.assert_array_equal(np.array(array), rows)
    rows[0, 1, 2, 3] = 77
    assert float(array[0, 1, 2, 3]) == 77
    assert memory.deletions == 0


def test_the_deleter_runs_once_when_the_array_dies(memory: Any, no_collector: None) -> None:
    array = memory.adopt(SHAPE, mx.float16)
    memory.release()
    assert memory.alive
    del array
    assert (memory.alive, memory.deletions, memory.deleted_on_this_thread) == (False, 1, True)


def test_a_slice_keeps_the_memory(memory: Any, no_collector: None) -> None:
    array = memory.adopt(SHAPE, mx.float16)
    part = array[:, 1:2, :5]
    mx.eval(part)
    start = halves(memory).ctypes.data
    assert kvb.mlx.address_of(part) == start + 64 * 128 * 2
    memory.release()
    del array
    assert (memory.alive, memory.deletions) == (True, 0)
    del part
    assert (memory.alive, memory.deletions) == (False, 1)


def test_a_pending_graph_keeps_the_memory_until_it_is_evaluated(memory: Any, no_collector: None) -> None:
    array = memory.adopt(SHAPE, mx.float16)
    expected = halves(memory).astype(np.float32) + 1
    later = array.astype(mx.float32) + 1
    memory.release()
    del array
    assert (memory.alive, memory.deletions) == (True, 0)
    mx.eval(later)
    mx.synchronize()
    assert memory.wait_for_deletions(1, HUNG_S)
    assert (memory.alive, memory.deletions) == (False, 1)
    np.testing.assert_array_equal(np.array(later), expected)


def test_a_graph_that_is_dropped_lets_go_too(memory: Any, no_collector: None) -> None:
    array = memory.adopt(SHAPE, mx.float16)
    later = array + 1
    memory.release()
    del array, later
    assert (memory.alive, memory.deletions) == (False, 1)


def test_the_deleter_needs_no_gil(bridge: Any, no_collector: None) -> None:
    """MLX's own thread drops the last reference while this one waits with the GIL held: a deleter that wanted it would
    never come through."""
    on_another_thread = 0
    for _ in range(50):
        memory = bridge.Memory(BYTES)
        array = memory.adopt(SHAPE, mx.float16)
        result = array.astype(mx.float32)
        for _ in range(20):
            result = mx.sin(result)
        mx.async_eval(result)
        memory.release()
        del array
        assert memory.wait_for_deletions(1, HUNG_S)
        assert (memory.alive, memory.deletions) == (False, 1)
        if not memory.deleted_on_this_thread:
            on_another_thread += 1
            assert memory.deletions_with_gil == 0
    assert on_another_thread > 0


def test_arrays_may_die_on_any_thread(bridge: Any) -> None:
    memory = bridge.Memory(BYTES)
    array = memory.adopt(SHAPE, mx.float16)
    memory.release()
    held = [[array[:, :, i : i + 1] for i in range(8)] for _ in range(4)]
    mx.eval(held)
    del array
    threads = [threading.Thread(target=part.clear) for part in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HUNG_S)
    assert (memory.alive, memory.deletions, memory.deleted_on_this_thread) == (False, 1, False)


def test_no_operation_writes_into_it(memory: Any) -> None:
    """An array that nobody else holds is where MLX would put the result if it owned the memory."""
    before = halves(memory).copy()
    array = memory.adopt(SHAPE, mx.float16)
    result = array + 1
    del array
    mx.eval(result)
    assert kvb.mlx.address_of(result) != halves(memory).ctypes.data
    array = memory.adopt(SHAPE, mx.float16)
    array[:, :, 3:4] = mx.full((1, 2, 1, 128), 9, mx.float16)
    mx.eval(array)
    assert kvb.mlx.address_of(array) != halves(memory).ctypes.data
    np.testing.assert_array_equal(halves(memory), before)
    assert float(array[0, 0, 3, 0]) == 9


def test_memory_of_mlx_is_written_in_place() -> None:
    """The same two steps on an array that MLX owns: what the test above looks for is there to be found."""
    array = arrays.zeros(SHAPE, "float16")
    place = kvb.mlx.address_of(array)
    result = array + 1
    del array
    mx.eval(result)
    assert kvb.mlx.address_of(result) == place
    result[:, :, 3:4] = mx.full((1, 2, 1, 128), 9, mx.float16)
    mx.eval(result)
    assert kvb.mlx.address_of(result) == place


def test_a_cache_copies_once_and_leaves_the_memory_alone(bridge: Any, no_collector: None) -> None:
    memories = [bridge.Memory(BYTES) for _ in range(2)]
    for seed, memory in enumerate(memories):
        halves(memory)[:] = np.random.default_rng(seed).standard_normal(SHAPE)
    before = [halves(memory).copy() for memory in memories]
    places = [halves(memory).ctypes.data for memory in memories]
    cache = caches.KVCache()
    kvb.mlx.fill(cache, *(memory.adopt(SHAPE, mx.float16) for memory in memories), live=20)
    mx.eval(cache.keys, cache.values)
    assert [kvb.mlx.address_of(a) for a in (cache.keys, cache.values)] == places
    token = mx.full((1, 2, 1, 128), 5, mx.float16)
    mx.eval(cache.update_and_fetch(token, token))
    moved = [kvb.mlx.address_of(a) for a in (cache.keys, cache.values)]
    assert not set(moved) & set(places)
    for memory, rows in zip(memories, before, strict=True):
        np.testing.assert_array_equal(halves(memory), rows)
        memory.release()
        assert memory.wait_for_deletions(1, HUNG_S)
        assert (memory.alive, memory.deletions) == (False, 1)
    for _ in range(4):
        mx.eval(cache.update_and_fetch(token, token))
        assert [kvb.mlx.address_of(a) for a in (cache.keys, cache.values)] == moved
    for side, rows in zip((cache.keys, cache.values), before, strict=True):
        np.testing.assert_array_equal(np.array(side)[:, :, :20], rows[:, :, :20])


def test_the_cpu_backend_itself_refuses(memory: Any) -> None:
    with pytest.raises(ValueError, match=r"\[convert\] Cannot import a CPU array without a copy"):
        mx.asarray(halves(memory), copy=False)
    with pytest.raises(kvb.mlx.AdoptionRefusedError, match="Cannot import a CPU array without a copy"):
        kvb.mlx.to_mlx(halves(memory), copy=False)


@pytest.mark.skipif(mx.metal.is_available(), reason="this MLX has Metal, which needs no bridge")
def test_a_bridge_that_cannot_be_built_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in (("CMakeLists.txt", 'message(FATAL_ERROR "no headers of MLX here")'), ("bridge.cpp", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(mlx_bridge, "SOURCES", tmp_path)
    with pytest.raises(mlx_bridge.UnavailableError, match=r"cannot be built: CMake Error.*no headers of MLX here"):
        mlx_bridge.build()
