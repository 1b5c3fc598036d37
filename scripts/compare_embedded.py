"""Evidence of a C++ program that embeds kvbacking against Python's, for the same package and inputs.

compare_embedded.py FOLDER EMBED_CPP...: writes a small Turbo package and its inputs into FOLDER, runs every program on
them with every mechanism, and exits with 1 when a field of the evidence or a sum over live rows differs.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np

import kvbacking as kvb
from kvbacking import samples

ROWS = 60
MECHANISMS = ("framework", "raw", "surface", "pool")


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)


def expected(model: kvb.Model, contract: kvb.KVContract, mechanism: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    with kvb.Session(model, contract, mechanism=mechanism, verify="full") as session:
        prediction = session.predict(inputs)
        return {
            "runtime": "simulator",
            "path": prediction.path,
            "evidence": {name: evidence.to_dict() for name, evidence in prediction.evidence.items()},
            "live_sum": {name: float(prediction.live(name).astype(np.float64).sum()) for name in prediction},
        }


def differences(wanted: Any, got: Any, place: str = "") -> list[str]:
    if isinstance(wanted, dict) and isinstance(got, dict):
        keys = sorted(wanted.keys() | got.keys())
        return [d for k in keys for d in differences(wanted.get(k, "absent"), got.get(k, "absent"), f"{place}/{k}")]
    return [] if wanted == got else [f"{place}: Python says {wanted!r}, C++ says {got!r}"]


def main(folder: pathlib.Path, programs: list[str]) -> int:
    info = samples.write("turbo", folder / "turbo.mlpackage", layers=2, width=64, rows=ROWS, capacity=64)
    inputs = info.inputs(seed=1)
    files = []
    for name, array in inputs.items():
        path = folder / f"{name}.raw"
        array.tofile(path)
        files.append(f"{name}={path}")
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    found: list[str] = []
    for mechanism in MECHANISMS:
        wanted = json.loads(json.dumps(expected(model, contract, mechanism, inputs)))
        if mechanism != "framework" and wanted["path"] != "backing":
            found.append(f"{mechanism}: Python took the path {wanted['path']!r}")
        for program in programs:
            done = run(program, str(info.path), mechanism, str(ROWS), *files)
            if done.returncode != 0:
                found.append(f"{program} {mechanism}: exit {done.returncode}\n{done.stderr}")
                continue
            found += [f"{program} {mechanism} {d}" for d in differences(wanted, json.loads(done.stdout))]
    for program in programs:  # a tail that is not zero must be refused, by name
        refused = run(program, str(info.path), "raw", str(ROWS - 1), *files)
        if refused.returncode != 1 or "tail_zero" not in refused.stderr:
            found.append(f"{program}: a dirty tail gave exit {refused.returncode} and {refused.stderr!r}")
    print("\n".join(found) or f"{len(programs)} programs agree with Python on {', '.join(MECHANISMS)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
