"""One document on stdout: which treatment of a surface makes the framework refuse it as a backing."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

from kvbacking import Model, _native, runtime_info
from kvbacking.random_inputs import random_inputs


def main(path: str, units: str) -> int:
    model = Model.load(path, compute_units=cast(Any, units))
    inputs = random_inputs(model, 0)
    output = next(iter(model.outputs))
    steps = _native.probe_surface(model._native, dict(inputs), output)
    fields = ("step", "outcome", "domain", "code", "message", "bytes_per_row")
    spec = model.outputs[output]
    document = {
        "schema": "kvbacking.surface-probe/1",
        "runtime": runtime_info().kind,
        "compute_units": units,
        "output": {"name": output, "shape": list(spec.shape or ()), "dtype": spec.dtype},
        "steps": [{name: getattr(step, name) for name in fields} for step in steps],
    }
    print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
