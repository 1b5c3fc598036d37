"""What the memory benchmarks share: cache size, load, reference passes, interleaved timing, ratios with intervals."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from kvbacking import _native

FAMILIES = {"turbo": (4, 1536, 1280), "distil": (2, 1536, 1280)}
PADDED_ROW = 1312  # elements: rows of 2560 bytes at the next multiple of 64 bytes plus 64, as the simulator pads them
LIVE, AXIS = 1500, 1


def last_level_cache_byte_count() -> int | None:
    """Bytes of the largest cache of the first processor; None when the system does not tell."""
    if platform.system() == "Darwin":
        for name in ("hw.perflevel0.l2cachesize", "hw.l2cachesize"):
            answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False).stdout.strip()
            if answer.isdigit():
                return int(answer)
        return None
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]])
    return max(sizes, default=None)


def usable_cpus() -> int:
    """Processors that this process may run on (pinning counts)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def conditions() -> dict[str, object]:
    """The machine and how busy it is, for the record."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next(
            (s.split(":", 1)[1].strip() for s in info.read_text().splitlines() if s.startswith("model name")), cpu
        )
    return {"cpu": cpu, "cpus": usable_cpus(), "load_1min": round(os.getloadavg()[0], 2), "numpy": np.__version__}


def rotation(set_byte_count: int, quick: bool) -> tuple[int, str]:
    """How many sets of buffers to rotate over so that none is still in a cache, and a sentence about it."""
    cache = last_level_cache_byte_count()
    if quick:
        return 2, "quick: two sets, caches may help"
    if cache is None:
        return max(2, (512 << 20) // set_byte_count), "last-level cache unknown: 512 MiB rotated"
    count = max(2, -(-4 * cache // set_byte_count))
    return count, f"rotates over {count * set_byte_count >> 20} MiB, last-level cache {cache >> 20} MiB"


MEMORIES = ("backing", "numpy")  # the library's own page-aligned allocations; NumPy's, which asks for huge pages


def in_memory(memory: str, values: np.ndarray) -> np.ndarray:
    """A copy of `values` in the kind of memory that is named."""
    if memory == "numpy":
        return values.copy()
    copy = _native.Allocation.create(values.nbytes).bytes().view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def padded(memory: str, dense: np.ndarray) -> np.ndarray:
    """The same values in rows PADDED_ROW elements apart."""
    storage = np.zeros((*dense.shape[:-1], PADDED_ROW), dense.dtype)
    storage[..., : dense.shape[-1]] = dense
    return in_memory(memory, storage)[..., : dense.shape[-1]]


class ReadPasses:
    """memchr that misses, memcmp of equal arrays, and SIMD sums compiled for this machine."""

    def __init__(self, folder: str) -> None:
        library = Path(folder) / "read_passes.so"
        source = Path(__file__).with_name("read_passes.c")
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        native = ctypes.CDLL(str(library))
        native.sum_one.restype = native.sum_two.restype = ctypes.c_uint64
        native.sum_one.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        native.sum_two.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        libc = ctypes.CDLL(None)
        libc.memchr.restype = ctypes.c_void_p
        libc.memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        libc.memcpy.restype = ctypes.c_void_p
        self._native, self._libc = native, libc

    def memchr(self, array: np.ndarray, byte: int) -> None:
        if self._libc.memchr(array.ctypes.data, byte, array.nbytes):
            raise RuntimeError("memchr found its byte: it did not read everything")

    def memcmp(self, a: np.ndarray, b: np.ndarray) -> None:
        if self._libc.memcmp(a.ctypes.data, b.ctypes.data, a.nbytes):
            raise RuntimeError("memcmp found a difference: it did not read everything")

    def memcpy(self, destination: np.ndarray, source: np.ndarray) -> None:
        self._libc.memcpy(destination.ctypes.data, source.ctypes.data, source.nbytes)

    def sum_one(self, array: np.ndarray) -> int:
        return int(self._native.sum_one(array.ctypes.data, array.nbytes))

    def sum_two(self, a: np.ndarray, b: np.ndarray) -> int:
        return int(self._native.sum_two(a.ctypes.data, b.ctypes.data, a.nbytes))


def interleave(arms: Mapping[str, Callable[[int], object]], sets: int, rounds: int) -> dict[str, np.ndarray]:
    """Seconds per call of every arm, called as arm(set index). Each round runs every arm once, in random order, every
    arm on a set that was last used many calls ago, so that a busy moment hits all arms and caches help none."""
    names = list(arms)
    order = np.random.default_rng(0)
    for name in names:
        arms[name](0)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    turn = 0
    for _ in range(rounds):
        for index in order.permutation(len(names)):
            turn += 1
            start = time.perf_counter()
            arms[names[index]](turn % sets)
            seconds[names[index]].append(time.perf_counter() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def speed(byte_count: int, samples: np.ndarray) -> dict[str, object]:
    """A row's own numbers: medians, the best sample, and the raw samples."""
    median = float(np.median(samples))
    return {
        "byte_count": byte_count,
        "median_ms": median * 1e3,
        "best_ms": float(samples.min()) * 1e3,
        "gigabytes_per_s": byte_count / median / 1e9,
        **conditions(),
        "samples_s": samples.tolist(),
    }


def ratio(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """median(a) / median(b) with a 95 % bootstrap interval over rounds. On a busy machine the ratio of the best samples
    says more about the code, the ratio of medians more about the machine; they agree on a quiet one."""
    picks = np.random.default_rng(1).integers(0, len(a), (1000, len(a)))
    resampled = np.median(a[picks], axis=1) / np.median(b[picks], axis=1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return {
        "ratio": float(np.median(a) / np.median(b)),
        "ratio_low": float(low),
        "ratio_high": float(high),
        "ratio_of_bests": float(a.min() / b.min()),
    }


Measure = Callable[[str, str, bool, int, str], tuple[list[dict[str, object]], str]]


def run_families(description: str, default_rounds: int, measure: Measure) -> int:
    """The main() of a benchmark over FAMILIES. `measure(family, memory, quick, rounds, folder)`: rows and a note."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds: shows that it runs, measures nothing")
    parser.add_argument("--rounds", type=int, default=default_rounds)
    parser.add_argument("--family", choices=list(FAMILIES), action="append")
    parser.add_argument("--memory", choices=MEMORIES, default="backing")
    options = parser.parse_args()
    for family in options.family or (["distil"] if options.quick else list(FAMILIES)):
        with tempfile.TemporaryDirectory() as folder:
            rows, note = measure(family, options.memory, options.quick, 2 if options.quick else options.rounds, folder)
        emit(rows, f"{family}, {options.memory} memory: {note}")
    return 0


def emit(rows: list[dict[str, object]], note: str) -> None:
    """JSON lines on stdout, a table on stderr."""
    heads = f"{'what':44} {'ms':>8} {'best':>8} {'GB/s':>6} {'against':18} {'ratio':>6} {'95 %':>15} {'of bests':>8}"
    print(f"{heads}  budget", file=sys.stderr)
    for row in rows:
        print(json.dumps(row))
        against, ratio, interval, best, budget = "", "", "", "", ""
        if "ratio" in row:
            against, ratio = str(row["against"]), f"{row['ratio']:.2f}"
            interval = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
            best = f"{row['ratio_of_bests']:.2f}"
        if row.get("budget") is not None:
            budget = f"{row['budget']} {'met' if row['met'] else 'MISSED'}"
        what = f"{row['family']} {row['layout']} {row['arm']}"
        speed = f"{row['median_ms']:8.3f} {row['best_ms']:8.3f} {row['gigabytes_per_s']:6.1f}"
        print(f"{what:44} {speed} {against:18} {ratio:>6} {interval:>15} {best:>8}  {budget}", file=sys.stderr)
    print(f"({note})", file=sys.stderr)
