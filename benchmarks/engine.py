"""The simulator's engine against torch on the CPU (NumPy where torch is missing): ratios, peak memory.

    python benchmarks/engine.py [--quick] [--rounds N] [--threads N] [--json FILE]

Arms take turns; the engine runs in `mil_run` (KVB_MIL_RUN, or the one that scripts/test builds), so that neither the
extension nor the framework is in the numbers; memory is measured there and in a Python process (engine_memory.py).
Every number is of this machine and of the simulator. Loading: benchmarks/load.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import engine_memory
import numpy as np
from _machine import conditions
from engine_models import Sizes, draw, encoder_package, projection_package, reference

ROOT = Path(__file__).parents[1]
BUDGETS = {"encoder": 1.3, "encoder, attention unfused": 1.3, "projection": 1.2}


def find_mil_run() -> str:
    if given := os.environ.get("KVB_MIL_RUN"):
        return given
    for build in ("build/parts/native/cmake", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("build/*"))):
        candidate = ROOT / build / "tests" / "native" / "mil_run"
        if candidate.exists():
            return str(candidate)
    sys.exit("engine.py: no mil_run; build the native tests (scripts/test --only native) or set KVB_MIL_RUN")


def engine_run(package: Path, folder: Path, repeat: int, threads: int) -> dict[str, Any]:
    command = [find_mil_run(), str(package), str(folder), "--repeat", str(repeat), "--threads", str(threads)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    fields = [line.split() for line in out]
    found: dict[str, Any] = {"runs": [float(value) for key, value in fields if key == "run"]}
    found.update({key: float(value) for key, value in fields if key != "run"})
    return found


def outputs(folder: Path) -> list[np.ndarray]:
    found = []
    for line in sorted((folder / "outputs.txt").read_text().splitlines()):
        name, dtype, dims = line.split()
        data = np.fromfile(folder / f"out.{name}.bin", dtype=dtype)
        found.append(data.reshape([int(d) for d in dims.split(",")]))
    return found


def write_input(folder: Path, name: str, x: np.ndarray) -> None:
    x.tofile(folder / "input.bin")
    shape = ",".join(map(str, x.shape))
    (folder / "inputs.txt").write_text(f"{name} {x.dtype} {shape} input.bin\n")


def weight_byte_count(package: Path) -> int:
    return (package / "Data" / "com.apple.CoreML" / "weights" / "weight.bin").stat().st_size


def measure(what: str, package: Path, folder: Path, other: Any, rounds: int, threads: int) -> dict[str, Any]:
    ours: list[float] = []
    theirs: list[float] = []
    weight_bytes = weight_byte_count(package)
    info: dict[str, Any] = {}
    other()  # warm
    for _ in range(rounds):
        info = engine_run(package, folder, 3, threads)
        ours += info["runs"]
        for _ in range(3):
            begin = time.perf_counter()
            other()
            theirs.append(time.perf_counter() - begin)
    difference = max(
        float(np.abs(a.astype(np.float32) - b.astype(np.float32)).max())
        for a, b in zip(outputs(folder), other(), strict=True)
    )
    budget_bytes = weight_bytes + 2 * info["peak_live_bytes"]
    return {
        "what": what, "engine_s": statistics.median(ours), "other_s": statistics.median(theirs),
        "ratio_median": statistics.median(ours) / statistics.median(theirs), "ratio_best": min(ours) / min(theirs),
        "budget": BUDGETS[what], "max_abs_difference": difference,
        "weight_bytes": weight_bytes, "peak_live_bytes": info["peak_live_bytes"],
        "rss_bytes": info["peak_rss_bytes"] - info["start_rss_bytes"],
        "arena_bytes": info["arena_bytes"], "decoded_bytes": info["decoded_bytes"],
        "python_rss_bytes": engine_memory.measure(package, folder / "cache"),
        "rss_budget_bytes": budget_bytes, **conditions(), "engine_samples_s": ours, "other_samples_s": theirs,
    }  # fmt: skip


def describe(r: dict[str, Any]) -> str:
    mib = 2.0**20
    speed = f"engine {r['engine_s']:.3f} s, other {r['other_s']:.3f} s, ratio {r['ratio_median']:.2f}"
    best = f"best runs {r['ratio_best']:.2f}, budget {r['budget']}, load average {r['load_1min']}"
    memory = (
        f"peak memory {r['rss_bytes'] / mib:.0f} MiB, in Python {r['python_rss_bytes'] / mib:.0f} MiB of "
        f"{r['rss_budget_bytes'] / mib:.0f} MiB (weights {r['weight_bytes'] / mib:.0f} + 2 x "
        f"{r['peak_live_bytes'] / mib:.0f}): {'met' if r['python_rss_bytes'] <= r['rss_budget_bytes'] else 'MISSED'}; "
        f"arena {r['arena_bytes'] / mib:.0f}, decoded constants {r['decoded_bytes'] / mib:.1f} MiB"
    )
    difference = f"largest difference {r['max_abs_difference']:.2g}"
    return f"{r['what']}: {speed} ({best}); {memory}; {difference}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, one round: shows that it runs, measures nothing"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    sizes = Sizes(width=64, heads=2, layers=1, rows=50, cross_layers=2) if options.quick else Sizes()
    width, rows, capacity, layers = (64, 50, 64, 2) if options.quick else (1280, 1500, 1536, 4)
    try:
        import torch

        partner = f"torch {torch.__version__}"
    except ImportError:
        partner = "NumPy (torch is not installed: the encoder is left out)"
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        random = np.random.default_rng(1)
        folder = Path(scratch)
        if partner.startswith("torch"):
            weights = draw(sizes)
            mel = random.standard_normal((1, sizes.mels, 2 * sizes.rows), dtype=np.float32).astype(np.float16)
            write_input(folder, "mel", mel)
            run = reference(sizes, weights, mel, sizes.rows, options.threads)
            for what, fused in (("encoder", True), ("encoder, attention unfused", False)):
                package = folder / f"encoder{fused}.mlpackage"
                encoder_package(sizes, weights, package, fused)
                results.append(measure(what, package, folder, run, rounds, options.threads))
        package = folder / "projection.mlpackage"
        weights = projection_package(width, rows, capacity, layers, package)
        features = random.standard_normal((1, rows, width), dtype=np.float32).astype(np.float16)
        write_input(folder, "features", features)
        run = reference(None, weights, features, capacity, options.threads)
        results.append(measure("projection", package, folder, run, rounds, options.threads))
    print(
        f"simulated; {options.threads} threads; against {partner}"
        + ("; quick: the numbers mean nothing" if options.quick else "")
    )
    for r in results:
        print(describe(r))
    if options.json:
        options.json.write_text(
            json.dumps({"partner": partner, "threads": options.threads, "results": results}, indent=1)
        )


if __name__ == "__main__":
    main()
