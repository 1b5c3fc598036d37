"""The checked, stride-aware copy of K and V against memcpy of the same logical bytes.

Budgets: dense at least 0.95, padded rows at least 0.85 of the bandwidth of memcpy. Source and destination are written
before, and rotate over four times the last-level cache; arms are interleaved; medians with bootstrap intervals.

    python benchmarks/copy_bandwidth.py [--quick] [--rounds N] [--family turbo|distil] [--memory backing|numpy]

JSON lines on stdout, a table on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import _machine as machine
import numpy as np

from kvbacking import _native

BUDGETS = {"dense": 0.95, "padded to dense": 0.85, "dense to padded": 0.85}


def measure(family: str, memory: str, quick: bool, rounds: int, folder: str) -> tuple[list[dict[str, object]], str]:
    shape = machine.FAMILIES[family]
    byte_count = int(np.prod(shape)) * 2
    sets, note = machine.rotation(2 * byte_count, quick)
    random = np.random.default_rng(0)
    values = random.integers(0, 0x7C00, shape, dtype=np.uint16).view(np.float16)
    sources = [machine.in_memory(memory, values) for _ in range(sets)]
    padded_sources = [machine.padded(memory, values) for _ in range(sets)]
    destinations = [machine.in_memory(memory, np.ones(shape, np.float16)) for _ in range(sets)]
    padded_destinations = [machine.padded(memory, values) for _ in range(sets)]
    wide = [machine.in_memory(memory, np.ones(shape, np.float32)) for _ in range(sets)]
    passes = machine.ReadPasses(folder)
    arms: dict[str, Callable[[int], object]] = {
        "memcpy": lambda s: passes.memcpy(destinations[s], sources[s]),
        "dense": lambda s: _native.copy_elements(sources[s], destinations[s]),
        "padded to dense": lambda s: _native.copy_elements(padded_sources[s], destinations[s]),
        "dense to padded": lambda s: _native.copy_elements(sources[s], padded_destinations[s]),
        "fp16 to fp32": lambda s: _native.copy_elements(sources[s], wide[s]),
        "fp32 to fp16": lambda s: _native.copy_elements(wide[s], destinations[s]),
        "numpy padded to dense": lambda s: np.copyto(destinations[s], padded_sources[s]),
    }
    seconds = machine.interleave(arms, sets, rounds)
    rows: list[dict[str, object]] = []
    for name, samples in seconds.items():
        what = {"benchmark": "copy_bandwidth", "family": family, "layout": "", "memory": memory, "arm": name}
        row: dict[str, object] = {**what, **machine.speed(byte_count, samples)}
        if name != "memcpy":
            row |= {"against": "memcpy bandwidth", **machine.ratio(seconds["memcpy"], samples)}
            row |= {"budget": BUDGETS.get(name), "met": float(str(row["ratio"])) >= BUDGETS.get(name, 0.0)}
        rows.append(row)
    return rows, note


if __name__ == "__main__":
    sys.exit(machine.run_families(__doc__, 100, measure))
