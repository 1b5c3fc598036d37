"""Real .mlpackage files with seeded random weights, written by coremltools' MIL builder (no torch, no Mac).

    info = kvbacking.samples.write("turbo", "turbo.mlpackage")
    model = kvbacking.Model.load(info.path)
    contract = kvbacking.KVContract.from_model(model, **info.contract)
    model.predict(info.inputs(seed=1))

Two writes with one seed and the same options agree in content (coremltools draws fresh UUIDs and orders protobuf maps
as it likes, so not in bytes). Needs the `samples` extra; importing this module does not.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.info import InputSpec, SampleInfo
from kvbacking.samples.toolkit import SamplesUnavailableError, quiet, tools

__all__ = ["KINDS", "InputSpec", "SampleInfo", "SamplesUnavailableError", "options_of", "write"]

# kind -> module of the function of that name
KINDS: dict[str, str] = {
    "turbo": "projection",
    "distil": "projection",
    "badtail": "projection",
    "fp32io": "projection",
    "prefill": "prefill",
    "stateful": "stateful",
    "multifunction": "variants",
    "flexible": "variants",
    "optional": "variants",
    "integers": "variants",
    "int8out": "variants",
    "compressed": "compressed",
    "whisper": "whisper",
}


def _writer(kind: str) -> Any:
    if kind not in KINDS:
        raise ValueError(f"sample kind {kind!r} is not one of {', '.join(KINDS)}")
    return getattr(importlib.import_module(f"kvbacking.samples.{KINDS[kind]}"), kind)


def options_of(kind: str) -> dict[str, Any]:
    """The options that `write(kind, ...)` takes, with their defaults (`inspect.Parameter.empty`: required)."""
    parameters = inspect.signature(_writer(kind)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def write(kind: str, path: str | Path, seed: int = 0, **options: Any) -> SampleInfo:
    """Writes the package `path` (its name ends in .mlpackage; an existing package there is replaced).

    Raises ValueError for an unknown kind, option or value, SamplesUnavailableError without coremltools.
    """
    writer = _writer(kind)
    known = options_of(kind)
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"sample {kind!r} does not take {', '.join(unknown)}; it takes {', '.join(sorted(known))}")
    if missing := [n for n, d in known.items() if d is inspect.Parameter.empty and n not in options]:
        raise ValueError(f"sample {kind!r} needs {', '.join(missing)}")
    target = Path(path)
    if target.suffix != ".mlpackage":
        raise ValueError(f"{target.name!r} must end in .mlpackage")
    tools()
    target.parent.mkdir(parents=True, exist_ok=True)
    with quiet():
        info: SampleInfo = writer(target, np.random.default_rng(seed), **options)
    return info
