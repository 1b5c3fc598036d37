"""Canaries: every damaged byte around a payload is found, and nothing else is."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvbacking as kvb
from kvbacking import _native
from kvbacking._native import Allocation


@given(st.integers(1, 100_000), st.integers(0, 2**64 - 1), st.booleans())
def test_the_payload_is_page_aligned_and_its_own(byte_count: int, seed: int, from_system: bool) -> None:
    allocation = Allocation.create(byte_count, from_system)
    assert allocation.address % Allocation.granularity() == 0
    allocation.arm_canaries(seed)
    payload = allocation.bytes()
    assert payload.nbytes == byte_count
    assert payload.ctypes.data == allocation.address
    payload[...] = 77
    assert allocation.check_canaries() is None


@given(st.integers(1, 50_000), st.integers(0, 2**64 - 1), st.data())
def test_one_changed_byte_is_found_where_it_is(byte_count: int, seed: int, data: st.DataObject) -> None:
    allocation = Allocation.create(byte_count)
    allocation.arm_canaries(seed)
    # The canary page before, and everything from the payload's end to the end of the canary page after it.
    before = st.integers(-Allocation.granularity(), -1)
    after = st.integers(byte_count, byte_count + Allocation.granularity() - 1)
    offset = data.draw(st.one_of(before, after, st.sampled_from([-1, byte_count])))
    byte = ctypes.c_uint8.from_address(allocation.address + offset)
    was = byte.value
    byte.value = was ^ data.draw(st.integers(1, 255))
    assert allocation.check_canaries() == (offset, was, byte.value)
    byte.value = was
    assert allocation.check_canaries() is None


def test_another_seed_gives_another_pattern() -> None:
    allocation = Allocation.create(64)
    allocation.arm_canaries(1)
    page = np.ctypeslib.as_array((ctypes.c_uint8 * 64).from_address(allocation.address + 64)).copy()
    allocation.arm_canaries(2)
    other = np.ctypeslib.as_array((ctypes.c_uint8 * 64).from_address(allocation.address + 64))
    assert not np.array_equal(page, other)


def test_an_array_keeps_the_allocation_alive() -> None:
    before = Allocation.live_count()
    payload = Allocation.create(1000).bytes()
    payload[...] = 5
    gc.collect()
    assert Allocation.live_count() == before + 1
    part = payload[10:20]
    del payload
    assert part.sum() == 50
    assert Allocation.live_count() == before + 1
    del part
    assert Allocation.live_count() == before


def test_pages_of_the_system_s_go_back_to_it() -> None:
    before = _native.memory_footprint_byte_count()
    kept = [Allocation.create(100_000, from_system=True) for _ in range(200)]  # the heap would keep these
    for allocation in kept:
        allocation.bytes()[...] = 1
    last = kept.pop()
    assert _native.memory_footprint_byte_count() - before > 15_000_000
    del kept, allocation
    gc.collect()
    assert _native.memory_footprint_byte_count() - before < 5_000_000
    assert (last.bytes() == 1).all()


def test_an_exhausted_system_is_an_allocation_error() -> None:
    Allocation.fail_nth_create(2)
    Allocation.create(64)
    with pytest.raises(kvb.AllocationError, match="64") as caught:
        Allocation.create(64)
    assert isinstance(caught.value, MemoryError)
    assert Allocation.create(64).byte_count == 64
