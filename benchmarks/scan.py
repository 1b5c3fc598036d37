"""The scan of K and V against read passes over the same bytes and against a NumPy recipe with the same answers.

Budgets: one thread at most 1.25 x the better one-stream read pass (a memchr that misses, a SIMD sum); with parity at
most 1.25 x the better two-stream pass (memcmp of equal arrays, two SIMD sums side by side); the scan at least 80 x the
recipe.
Buffers rotate over four times the last-level cache; arms are interleaved in one process; medians with bootstrap
intervals. Parity is measured against a control with the same bits and against one where every fourth element is off
by one unit in the last place.

    python benchmarks/scan.py [--quick] [--rounds N] [--family turbo|distil] [--memory backing|numpy]

JSON lines on stdout, a table on stderr.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable

import _machine as machine
import numpy as np

import kvbacking as kvb

READ_BUDGET, RECIPE_BUDGET = 1.25, 80.0
ABSENT_BYTE = 0xFF  # the data below holds none


# The recipe, pinned: what a careful user writes without this library. Padded arrays must be packed for the checksum.
def recipe(a: np.ndarray) -> tuple[bool, bool, bool, float, float, int]:
    return (
        bool(np.isfinite(a).all()),
        bool(a[:, machine.LIVE :].any()),
        bool(a[:, : machine.LIVE].any()),
        float(a[:, : machine.LIVE].min()),
        float(a[:, : machine.LIVE].max()),
        zlib.crc32(np.ascontiguousarray(a)),
    )


def parity_recipe(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a.astype("f4") - b.astype("f4")).max())


def make_set(shape: tuple[int, ...], seed: int, memory: str) -> dict[str, list[np.ndarray]]:
    """K and V, dense and padded, an equal control and a close one. Every page is written: none is faulted in later."""
    random = np.random.default_rng(seed)
    arrays: dict[str, list[np.ndarray]] = {"dense": [], "padded": [], "equal": [], "close": []}
    for _ in range(2):
        bits = random.integers(0x2C00, 0x4200, shape, dtype=np.uint16)
        bits |= random.integers(0, 2, shape, dtype=np.uint16) << 15
        bits[(bits & 0xFF) == ABSENT_BYTE] ^= 1
        bits[:, machine.LIVE :] = 0
        dense = bits.view(np.float16)
        close = bits ^ ((random.integers(0, 4, shape, dtype=np.uint16) == 0) & (bits != 0) & ((bits & 0xFF) != 0xFE))
        arrays["dense"].append(machine.in_memory(memory, dense))
        arrays["padded"].append(machine.padded(memory, dense))
        arrays["equal"].append(machine.in_memory(memory, dense))
        arrays["close"].append(machine.in_memory(memory, close.view(np.float16)))
    return arrays


def scan_both(arrays: list[np.ndarray], controls: list[np.ndarray] | None, threads: int) -> None:
    for i, array in enumerate(arrays):
        reference = None if controls is None else controls[i]
        tolerance = None if controls is None else kvb.Tolerance(max_abs=0.01, max_rel=0.01)
        result = kvb.scan(
            array, live=machine.LIVE, axis=machine.AXIS, reference=reference, tolerance=tolerance, threads=threads
        )
        if not result.finite or not result.tail_zero:
            raise RuntimeError("the scan found something in good data")


def both(function: Callable[..., object], *columns: list[np.ndarray]) -> None:
    for arrays in zip(*columns, strict=True):
        function(*arrays)


def measure(family: str, memory: str, quick: bool, rounds: int, folder: str) -> tuple[list[dict[str, object]], str]:
    shape = machine.FAMILIES[family]
    byte_count = 2 * int(np.prod(shape)) * 2
    sets, note = machine.rotation(byte_count, quick)
    data = [make_set(shape, seed, memory) for seed in range(sets)]
    passes = machine.ReadPasses(folder)
    arms: dict[str, Callable[[int], object]] = {
        "memchr": lambda s: both(lambda a: passes.memchr(a, ABSENT_BYTE), data[s]["dense"]),
        "sum": lambda s: both(passes.sum_one, data[s]["dense"]),
        "memcmp": lambda s: both(passes.memcmp, data[s]["dense"], data[s]["equal"]),
        "two sums": lambda s: both(passes.sum_two, data[s]["dense"], data[s]["equal"]),
    }
    for layout in ("dense", "padded"):
        for threads in (1, 2) if machine.usable_cpus() > 1 else (1,):
            arms[f"{layout}|scan {threads}t"] = lambda s, la=layout, t=threads: scan_both(data[s][la], None, t)
            for control in ("equal", "close"):
                arms[f"{layout}|parity, {control} control {threads}t"] = lambda s, la=layout, t=threads, c=control: (
                    scan_both(data[s][la], data[s][c], t)
                )
    slow: dict[str, Callable[[int], object]] = {}
    for layout in ("dense", "padded"):
        slow[f"{layout}|recipe"] = lambda s, la=layout: both(recipe, data[s][la])
        slow[f"{layout}|recipe with parity"] = lambda s, la=layout: (
            both(recipe, data[s][la]),
            both(parity_recipe, data[s][la], data[s]["close"]),
        )
    seconds = machine.interleave(arms, sets, rounds)
    seconds |= machine.interleave(slow, sets, max(2, rounds // 20))

    one = min(("memchr", "sum"), key=lambda name: float(np.median(seconds[name])))
    two = min(("memcmp", "two sums"), key=lambda name: float(np.median(seconds[name])))
    rows: list[dict[str, object]] = []
    for name, samples in seconds.items():
        layout, _, arm = name.rpartition("|")
        what = {"benchmark": "scan", "family": family, "layout": layout or "dense", "memory": memory}
        row: dict[str, object] = {**what, "arm": arm, **machine.speed(byte_count, samples)}
        rows.append(row)
        if not arm.startswith(("scan", "parity")):
            continue
        parity, budgeted = arm.startswith("parity"), arm.endswith("1t")
        against = two if parity else one
        row |= {"against": against, **machine.ratio(samples, seconds[against])}
        row |= {"budget": READ_BUDGET if budgeted else None, "met": float(str(row["ratio"])) <= READ_BUDGET}
        if budgeted:
            slower = seconds[f"{layout}|recipe with parity" if parity else f"{layout}|recipe"]
            times = machine.ratio(slower, samples[: len(slower)])
            met = times["ratio"] >= RECIPE_BUDGET
            recipe_row = {**row, "arm": f"{arm}, speed", "against": "NumPy recipe", **times}
            rows.append({**recipe_row, "budget": None if parity else RECIPE_BUDGET, "met": met})
    return rows, note


if __name__ == "__main__":
    sys.exit(machine.run_families(__doc__, 60, measure))
