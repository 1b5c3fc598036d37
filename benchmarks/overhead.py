"""What the library adds to one prediction: the whole call from Python minus the framework call inside it.

Each sample pairs the two clocks of one call (`Prediction.predict_ns` is the framework alone), so that a slow framework
cancels out. The model is tiny: what is left is inputs, proposal, checks, evidence and Python. Budget: 25 us at the
median for two outputs with verify="layout". On the simulator the result is simulated and says nothing about Core ML.

    python benchmarks/overhead.py [--quick] [--rounds N]      JSON lines on stdout, a table on stderr
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import kvbacking as kvb
from kvbacking import samples

BUDGET_US = 25.0
ARMS = [(m, v) for m in ("framework", "raw", "surface", "pool") for v in ("off", "layout", "scan")]


def one_call(session: kvb.Session, inputs: dict[str, np.ndarray]) -> tuple[int, int]:
    """(nanoseconds added by the library, nanoseconds of the framework)."""
    start = time.perf_counter_ns()
    prediction = session.predict(inputs)
    view = prediction["cross_k"]
    whole = time.perf_counter_ns() - start
    framework = prediction.predict_ns
    del view, prediction
    return whole - framework, framework


def measure(model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray], rounds: int) -> list[dict]:
    sessions = {(m, v): kvb.Session(model, contract, mechanism=m, verify=v) for m, v in ARMS}
    added: dict[tuple[str, str], list[int]] = {arm: [] for arm in ARMS}
    framework: dict[tuple[str, str], list[int]] = {arm: [] for arm in ARMS}
    order = np.random.default_rng(0)
    for arm in ARMS:
        for _ in range(20):
            one_call(sessions[arm], inputs)
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for index in order.permutation(len(ARMS)):  # interleaved: a busy moment hits every arm
            ours, theirs = one_call(sessions[ARMS[index]], inputs)
            added[ARMS[index]].append(ours)
            framework[ARMS[index]].append(theirs)
    gc.enable()
    runtime = kvb.runtime_info()
    rows = []
    for arm in ARMS:
        microseconds = np.array(added[arm]) / 1000
        rows.append(
            {
                "benchmark": "overhead",
                "label": runtime.label,
                "mechanism": arm[0],
                "verify": arm[1],
                "outputs": len(contract.outputs),
                "rounds": rounds,
                "added_us_median": round(float(np.median(microseconds)), 2),
                "added_us_p90": round(float(np.percentile(microseconds, 90)), 2),
                "framework_us_median": round(float(np.median(framework[arm])) / 1000, 2),
                "budget_us": BUDGET_US if arm[1] == "layout" else None,
                "samples_ns": added[arm],
            }
        )
        sessions[arm].close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds: shows that it runs, measures nothing")
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    rounds = 20 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder:
        info = samples.write("turbo", Path(folder) / "tiny.mlpackage", layers=1, width=32, rows=6, capacity=8)
        model = kvb.Model.load(info.path, cache_dir=folder)
        contract = kvb.KVContract.from_model(model, **info.contract)
        rows = measure(model, contract, info.inputs(), rounds)
    print(f"{'mechanism':10} {'verify':7} {'added us':>9} {'p90':>8} {'framework us':>13}  budget", file=sys.stderr)
    for row in rows:
        print(json.dumps(row))
        budget = "" if row["budget_us"] is None else ("met" if row["added_us_median"] <= BUDGET_US else "MISSED")
        print(
            f"{row['mechanism']:10} {row['verify']:7} {row['added_us_median']:9.1f} {row['added_us_p90']:8.1f} "
            f"{row['framework_us_median']:13.1f}  {budget}",
            file=sys.stderr,
        )
    print(f"({rows[0]['label']}, {rounds} rounds, arms interleaved)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
