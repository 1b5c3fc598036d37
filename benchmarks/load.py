"""What loading a model costs: Model.load of packages of about 50 MB beside reading their model.mlmodel.

The fingerprint is cached and the compiled form is kept, as in every start but the first. Arms take turns:
    read      open, read and close model.mlmodel
    load      Model.load, with everything it checks
    native    the part of it below Python
    notice    the part that finds out whether the package is still the one that was read: a stat of every file
    parse     coremltools' protobuf over the bytes of model.mlmodel: what somebody else's parser alone takes
`first` is the first load of a fresh process after `import kvbacking`. Times are the thread's processor time: a load
has no other threads, and on a busy machine the clock on the wall measures the neighbours (its medians are in the JSON).
Simulated; budget: load at most 3 x read.

    python benchmarks/load.py [--quick] [--rounds N]      JSON lines on stdout, a table on stderr
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _machine import conditions
from engine_models import Sizes, draw, encoder_package

import kvbacking as kvb
from kvbacking import _cache, _native, samples

BUDGET = 3.0
FIRST = """
import sys, time, kvbacking
begin = time.thread_time_ns()
kvbacking.Model.load(sys.argv[1], cache_dir=sys.argv[2])
print(time.thread_time_ns() - begin)
"""


def write_packages(folder: Path, quick: bool) -> dict[str, Path]:
    """By name. 52, 55 and 47 MB; the last has the shape of whisper-base with cross K/V."""
    turbo, prefill, whisper = (folder / f"{name}.mlpackage" for name in ("turbo", "prefill", "whisper-base"))
    samples.write("turbo", turbo, **({"layers": 1, "width": 32, "rows": 6, "capacity": 8} if quick else {"layers": 8}))
    sizes = {"heads": 2, "kv_heads": 1, "hidden": 64, "vocab": 50} if quick else {"hidden": 640, "vocab": 2000}
    samples.write("prefill", prefill, layers=1 if quick else 8, **sizes)
    shape = Sizes(width=64, heads=2, layers=1, rows=50, cross_layers=2) if quick else Sizes()
    encoder_package(shape, draw(shape), whisper, True)
    return {path.stem: path for path in (turbo, prefill, whisper)}


def arms(package: Path, cache: Path) -> dict[str, Callable[[], object]]:
    program = package / "Data" / "com.apple.CoreML" / "model.mlmodel"
    host = _native.host_info()
    fingerprint = _cache.fingerprint(package, cache)
    key = _cache.compiled_key(fingerprint, host.kind, host.runtime_version, host.os_build)

    def read() -> bytes:
        with open(program, "rb", buffering=0) as file:
            return file.read()

    found: dict[str, Callable[[], object]] = {
        "read": read,
        "load": lambda: kvb.Model.load(package, cache_dir=cache),
        "native": lambda: _native.Model.load(str(package), cache_dir=str(cache / "compiled"), cache_key=key),
        "notice": lambda: _cache.fingerprint(package, cache),
    }
    with contextlib.suppress(ImportError):
        from coremltools.proto import Model_pb2

        data = read()
        found["parse"] = lambda: Model_pb2.Model().ParseFromString(data)
    return found


def settle(package: Path) -> None:
    """Waits until the package is old enough for its fingerprint to be remembered."""
    newest = max(file.stat().st_ctime_ns for file in package.rglob("*"))
    time.sleep(max(0.0, (newest + _cache.SETTLED_NS - time.time_ns()) / 1e9) + 0.01)


def measure(package: Path, cache: Path, rounds: int) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Nanoseconds of the processor, and on the wall, by arm."""
    settle(package)
    kvb.Model.load(package, cache_dir=cache)
    if not any((cache / "fingerprints").iterdir()):
        raise RuntimeError("the fingerprint was not remembered: this is not what the budget is about")
    calls = arms(package, cache)
    samples_ns: dict[str, list[int]] = {name: [] for name in calls}
    wall_ns: dict[str, list[int]] = {name: [] for name in calls}
    order = np.random.default_rng(0)
    names = list(calls)
    gc.collect()
    gc.disable()
    for turn in range(rounds + 5):
        for index in order.permutation(len(names)):
            call = calls[names[index]]
            wall, begin = time.perf_counter_ns(), time.thread_time_ns()
            result = call()
            took, waited = time.thread_time_ns() - begin, time.perf_counter_ns() - wall
            del result
            if turn >= 5:
                samples_ns[names[index]].append(took)
                wall_ns[names[index]].append(waited)
    gc.enable()
    return samples_ns, wall_ns


def first_load(package: Path, cache: Path, processes: int) -> list[int]:
    command = [sys.executable, "-c", FIRST, str(package), str(cache)]
    return [int(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(processes)]


def describe(name: str, package: Path, cache: Path, rounds: int, processes: int) -> dict[str, object]:
    samples_ns, wall_ns = measure(package, cache, rounds)
    median = {arm: float(np.median(values)) / 1e3 for arm, values in samples_ns.items()}
    best = {arm: min(values) / 1e3 for arm, values in samples_ns.items()}
    sizes = [file.stat().st_size for file in package.rglob("*") if file.is_file()]
    program = package / "Data" / "com.apple.CoreML" / "model.mlmodel"
    return {
        "benchmark": "load", "label": kvb.runtime_info().label, "package": name, "package_bytes": sum(sizes),
        "program_bytes": program.stat().st_size, "median_us": median, "best_us": best,
        "median_wall_us": {arm: float(np.median(values)) / 1e3 for arm, values in wall_ns.items()},
        "ratio": median["load"] / median["read"], "ratio_of_bests": best["load"] / best["read"], "budget": BUDGET,
        "first_us": [took / 1e3 for took in first_load(package, cache, processes)], **conditions(),
        "samples_ns": samples_ns,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny packages, few rounds: measures nothing")
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    heads = "".join(f"{name:>9}" for name in ("MB", "kB", "read", "load", "native", "notice", "parse", "first"))
    print(
        f"{'package':13}{heads}  load / read (of bests), microseconds of the processor at the median", file=sys.stderr
    )
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch) / "cache"
        for name, package in write_packages(Path(scratch), options.quick).items():
            row = describe(name, package, cache, 3 if options.quick else options.rounds, 1 if options.quick else 5)
            print(json.dumps(row))
            median = row["median_us"]
            assert isinstance(median, dict)
            numbers = [int(str(row["package_bytes"])) / 1e6, int(str(row["program_bytes"])) / 1e3]
            numbers += [median.get(arm, float("nan")) for arm in ("read", "load", "native", "notice", "parse")]
            numbers.append(float(np.median(np.asarray(row["first_us"]))))
            met = "met" if float(str(row["ratio"])) <= BUDGET else "MISSED"
            print(
                f"{name:13}{''.join(f'{number:9.1f}' for number in numbers)}  "
                f"{row['ratio']:.1f} ({row['ratio_of_bests']:.1f}), budget {BUDGET:g}: {met}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
