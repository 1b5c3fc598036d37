"""Peak resident memory of a Python process that loads a package and predicts, above what `import kvbacking` takes.

    python benchmarks/engine_memory.py PACKAGE CACHE      one JSON line (benchmarks/engine.py starts it)

All of it counts: the mapped weights, the engine's tensors, a raw session's backings (one set) and the copied inputs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def resident_bytes(field: str) -> int:
    """VmRSS (now) or VmHWM (the peak since it was last reset) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def peak_above_import(package: str, cache: str) -> dict[str, int]:
    import kvbacking as kvb
    from kvbacking.random_inputs import random_inputs

    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    baseline = resident_bytes("VmRSS")
    model = kvb.Model.load(package, cache_dir=cache)
    contract = kvb.KVContract.from_model(model)
    inputs = random_inputs(model, 0)
    with kvb.Session(model, contract, mechanism="raw", depth=1, verify="layout") as session:
        for _ in range(3):
            prediction = session.predict(inputs)
            path = prediction.path
            prediction.release()
    if path != "backing":
        raise RuntimeError(f"the prediction took the path {path}: its memory is not what is asked for")
    return {"baseline_bytes": baseline, "peak_bytes": resident_bytes("VmHWM") - baseline}


def measure(package: Path, cache: Path) -> int:
    """Bytes of the peak in a fresh process."""
    command = [sys.executable, __file__, str(package), str(cache)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return int(found["peak_bytes"])


if __name__ == "__main__":
    print(json.dumps(peak_above_import(sys.argv[1], sys.argv[2])))
