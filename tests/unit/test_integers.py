"""Integer arguments: NumPy's integers are welcome wherever an int is; a bool, a float and text are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking._integers import as_integer

NAMES = ("cross_k", "cross_v")
INTEGERS = [np.int64, np.int32, np.uint8, np.array, int]
NO_INTEGERS = [True, np.True_, 3.0, np.float64(3), "3", None, np.array([3, 4]), np.array(3.0), 3j]


def contract(live: Any = 3, axis: Any = 1, size: Any = 4) -> kvb.KVContract:
    return kvb.KVContract(NAMES, (2, size, 8), "float16", live, axis)


def set_live(cache: kvb.GrowableCache, count: Any) -> int:
    cache.live = count
    return cache.live


# What each gives for 3; all of them plain ints, so that documents and messages do not depend on the caller's type.
ENTRIES: dict[str, Callable[[Any], int]] = {
    "KVContract.live": lambda n: contract(live=n).live,
    "KVContract.axis": lambda n: kvb.KVContract(NAMES, (1, 1, 1, 4), "float16", 1, n).axis,
    "KVContract.shapes": lambda n: contract(size=n).shapes["cross_k"][1],
    "GrowableCache.live": lambda n: set_live(kvb.GrowableCache(contract()), n),
    "GrowableCache.grow": lambda n: grown(n).capacity,
}


def grown(capacity: Any) -> kvb.GrowableCache:
    cache = kvb.GrowableCache(contract())
    cache.grow(capacity)
    return cache


@pytest.mark.parametrize("entry", list(ENTRIES))
def test_every_kind_of_integer_is_taken_and_becomes_an_int(entry: str) -> None:
    for kind in INTEGERS:
        number = ENTRIES[entry](kind(3))
        assert number == 3
        assert type(number) is int


@pytest.mark.parametrize("entry", list(ENTRIES))
def test_what_is_no_integer_is_refused_by_name(entry: str) -> None:
    for wrong in NO_INTEGERS:
        with pytest.raises(TypeError, match="must be an integer, got " + type(wrong).__name__):
            ENTRIES[entry](wrong)


def test_a_scan_takes_them_for_every_count() -> None:
    array = np.ones((2, 4, 8), np.float16)
    plain = kvb.scan(array, live=3, axis=1, threads=1, fill_pattern=0x3C00)
    assert kvb.scan(array, live=np.int64(3), axis=np.int8(1), threads=np.uint16(1), fill_pattern=np.uint64(0x3C00)) == (
        plain
    )
    for name in ("live", "axis", "threads", "fill_pattern"):
        for wrong in (True, np.True_, 1.0, np.array([1, 2])):
            with pytest.raises(TypeError, match=rf"\[scan\] {name} must be an integer"):
                kvb.scan(array, **{name: wrong})


def test_the_message_names_what_was_expected() -> None:
    with pytest.raises(TypeError, match="live must be an integer or None, got str"):
        as_integer("live", "3", "an integer or None")
