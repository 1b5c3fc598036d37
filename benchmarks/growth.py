"""Growing K/V: the copy of the live prefix against memcpy, whole transitions, and the footprint over 160 of them.

Budget: the copy of the live rows of every head at least 0.9 of the bandwidth of memcpy over as many contiguous bytes,
both into memory that was written before and is mapped already, rotating over four times the last-level cache. A whole
grow() also takes new memory, whose pages the system clears as they are touched, and maps surfaces: it stands against a
memcpy into new memory, without a budget.
The footprint must end within one 8192-row set of where it began. Surfaces are the simulator's on Linux.

    python benchmarks/growth.py [--quick] [--rounds N] [--memory raw|surface]

JSON lines on stdout, a table on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from typing import get_args

import _machine as machine
import numpy as np

import kvbacking as kvb
from kvbacking import _native
from kvbacking.growth import Memory, copy_live_rows

BUDGET = 0.9
SMALL, LARGE = 8192, 16384
HEADS = {"raw": 8, "surface": 1}  # a surface is as high as the rows of all heads, at most 16384 on the simulator
SIZE = 128
TRANSITIONS = 160


def contract(memory: str, rows: int) -> kvb.KVContract:
    return kvb.KVContract(("keys", "values"), (1, HEADS[memory], rows, SIZE), "float16", 1, 2, tail="any")


def written(memory: Memory, rows: int) -> list[np.ndarray]:
    """K and V whose pages are there already."""
    made = list(kvb.GrowableCache(contract(memory, rows), memory=memory).arrays.values())
    for array in made:
        array[...] = 1
    return made


def copy_prefix(old: list[np.ndarray], new: list[np.ndarray], live: int) -> None:
    for before, after in zip(old, new, strict=True):
        copy_live_rows(before, after, 2, live)


def measure(memory: Memory, live: int, quick: bool, rounds: int, folder: str) -> tuple[list[dict[str, object]], str]:
    byte_count = 2 * HEADS[memory] * live * SIZE * 2
    sets, note = machine.rotation(2 * byte_count, quick)
    small = [written(memory, SMALL) for _ in range(sets)]
    large = [written(memory, LARGE) for _ in range(sets)]
    flat = [kvb.page_aligned((byte_count,), "int8") for _ in range(2 * sets)]
    for array in flat:
        array[...] = 1
    passes = machine.ReadPasses(folder)
    cache = kvb.GrowableCache(contract(memory, SMALL), memory=memory)
    for array in cache.arrays.values():
        array[...] = 1
    del array
    cache.live = live

    def transition(_: int) -> None:
        cache.grow(LARGE if cache.capacity == SMALL else SMALL)

    arms: dict[str, Callable[[int], object]] = {
        "memcpy": lambda s: passes.memcpy(flat[2 * s], flat[2 * s + 1]),
        "copy of the live rows": lambda s: copy_prefix(small[s], large[s], live),
        "memcpy into new memory": lambda s: passes.memcpy(kvb.page_aligned((byte_count,), "int8"), flat[s]),
        "whole grow()": transition,
    }
    seconds = machine.interleave(arms, sets, rounds)
    against = {"copy of the live rows": "memcpy", "whole grow()": "memcpy into new memory"}
    rows: list[dict[str, object]] = []
    for name, samples in seconds.items():
        what = {"benchmark": "growth", "family": memory, "layout": f"{live} rows", "memory": memory, "arm": name}
        row: dict[str, object] = {**what, **machine.speed(byte_count, samples)}
        if name in against:
            row |= {"against": against[name], **machine.ratio(seconds[against[name]], samples)}
        if name == "copy of the live rows":
            row |= {"budget": BUDGET, "met": float(str(row["ratio"])) >= BUDGET}
        rows.append(row)
    return rows, note


def footprint(memory: Memory, live: int) -> dict[str, object]:
    """The process's memory over 160 transitions of a cache whose live rows were written."""
    cache = kvb.GrowableCache(contract(memory, SMALL), memory=memory)
    for array in cache.arrays.values():
        array[...] = 1
    del array
    cache.live = live
    one_set = sum(s.byte_count if isinstance(s, kvb.Surface) else s.nbytes for s in cache.storage.values())
    counts, first, highest = kvb.live_counts(), _native.memory_footprint_byte_count(), 0
    for _ in range(TRANSITIONS):
        cache.grow(LARGE if cache.capacity == SMALL else SMALL)
        highest = max(highest, _native.memory_footprint_byte_count())
    last = _native.memory_footprint_byte_count()
    return {
        "benchmark": "growth footprint", "memory": memory, "live": live, "transitions": TRANSITIONS,
        "one_set_byte_count": one_set, "grown_byte_count": last - first, "highest_above_first": highest - first,
        "live_counts_equal": kvb.live_counts() == counts, "met": last - first <= one_set, **machine.conditions(),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds: shows that it runs, measures nothing")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--memory", choices=get_args(Memory), action="append")
    options = parser.parse_args()
    for memory in options.memory or get_args(Memory):
        for live in (1024,) if options.quick else (1024, SMALL):
            with tempfile.TemporaryDirectory() as folder:
                rows, note = measure(memory, live, options.quick, 2 if options.quick else options.rounds, folder)
            machine.emit(rows, f"{memory} memory, {live} live rows: {note}")
        flat = footprint(memory, 1024 if options.quick else SMALL)
        print(json.dumps(flat))
        print(
            f"{memory}: {TRANSITIONS} transitions, footprint {int(str(flat['grown_byte_count'])) / 2**20:+.2f} MiB "
            f"(one set {int(str(flat['one_set_byte_count'])) / 2**20:.0f} MiB), native counts "
            f"{'equal' if flat['live_counts_equal'] else 'DIFFER'}",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
