"""What `kvbacking inspect` shows: descriptions, matching family, layout warnings. Predicts nothing."""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import Any

import numpy as np

from kvbacking import _mlmodel
from kvbacking.contract import FAMILIES, family_of
from kvbacking.model import Model, TensorSpec
from kvbacking.runtime import RuntimeInfo, runtime_info

_SURFACE_ITEM_BYTES = {"float16": 2, "int8": 1}
# Both seen in the field, neither a documented constant: rows are asked for, never assumed.
_ROW_ALIGNMENT_BYTES = 64
_SURFACE_WIDTH_MULTIPLE = 32
_CACHE_RANK = 4  # [layers, heads, capacity, head_dim]


def describe(model: Model) -> dict[str, Any]:
    """A JSON document about a loaded model."""
    runtime = runtime_info()
    program = _mlmodel.summarise(model.path)
    family = family_of(model)
    return {
        "path": model.path.name,
        "fingerprint": model.fingerprint,
        "compute_units": model.compute_units,
        "function": model.function,
        "functions": list(model.functions),
        "family": family,
        "inputs": [_feature(spec) for spec in model.inputs.values()],
        "outputs": [_feature(spec) for spec in model.outputs.values()],
        "states": [_feature(spec) for spec in model.states.values()],
        "program": None if program is None else asdict(program),
        "warnings": warnings_for(model, family, runtime),
    }


def _feature(spec: TensorSpec) -> dict[str, Any]:
    """The description and the bytes of its logical elements; None without a fixed shape and a known dtype."""
    fixed = spec.dtype is not None and bool(spec.shape) and not spec.flexible
    return {**spec.to_dict(), "byte_count": prod(spec.shape) * np.dtype(spec.dtype).itemsize if fixed else None}


def warnings_for(model: Model, family: str | None, runtime: RuntimeInfo) -> list[str]:
    """What about the outputs makes backings impossible, padded or wasteful."""
    found: list[str] = []
    for spec in model.outputs.values():
        found += _output_warnings(spec, runtime) + _cache_warnings(f"output {spec.name}", spec)
    for spec in model.states.values():
        found += _cache_warnings(f"state {spec.name}", spec)
        if spec.shape and spec.shape[-1] % _SURFACE_WIDTH_MULTIPLE:
            found.append(
                f"state {spec.name}: last dimension {spec.shape[-1]} is no multiple of {_SURFACE_WIDTH_MULTIPLE}; "
                "states of such widths were reported to fail on the Neural Engine"
            )
    if family:
        contract = FAMILIES[family]
        capacity = contract.shapes[contract.outputs[0]][contract.axis]
        found.append(
            f"family {family}: {contract.live} of {capacity} rows are live; rows {contract.live} to {capacity - 1} "
            "must be bitwise zero"
        )
    return found


def _cache_warnings(where: str, spec: TensorSpec) -> list[str]:
    """Of a key/value cache: dimensions that were seen to fail, and what the model does not tell."""
    if spec.flexible or len(spec.shape) != _CACHE_RANK:
        return []
    found = []
    if odd := [n for n in spec.shape[1:] if n & (n - 1)]:
        found.append(
            f"{where}: dimensions {', '.join(map(str, odd))} of {list(spec.shape)} are no powers of two; models whose "
            "concatenated caches have such dimensions beyond the first were reported to fail in a prediction"
        )
    if where.startswith("output"):
        found.append(
            f"{where}: a capacity of {spec.shape[2]} rows along axis 2, if this is a cache; how many of them are live "
            "is not in the model, so the contract or each prediction must say it"
        )
    return found


def _output_warnings(spec: TensorSpec, runtime: RuntimeInfo) -> list[str]:
    where = f"output {spec.name}"
    if not spec.backable:
        return [f"{where}: {spec.describe()} cannot be backed (an array of a fixed shape and known dtype can)"]
    found = []
    width, height = spec.shape[-1], prod(spec.shape[:-1])
    size = _SURFACE_ITEM_BYTES.get(spec.dtype or "")
    if size is None:
        found.append(f"{where}: surfaces hold float16 and int8 only, not {spec.dtype}; raw backings can hold it")
    else:
        if padding := -width * size % _ROW_ALIGNMENT_BYTES:
            found.append(
                f"{where}: rows of {width * size} bytes are likely to be padded by {padding} bytes or more on surfaces"
            )
        if width % _SURFACE_WIDTH_MULTIPLE:
            found.append(f"{where}: last dimension {width} is no multiple of {_SURFACE_WIDTH_MULTIPLE}")
        for name, value, limit in (
            ("width", width, runtime.surface_max_width),
            ("height", height, runtime.surface_max_height),
        ):
            if limit and value > limit:
                found.append(f"{where}: a surface of {name} {value} exceeds the limit {limit}; raw backings have none")
    return found
