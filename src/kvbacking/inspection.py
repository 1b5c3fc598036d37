"""What `kvbacking inspect` shows: descriptions, matching family, layout warnings. Predicts nothing."""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import Any

from kvbacking import _mlmodel
from kvbacking.contract import FAMILIES, family_of
from kvbacking.model import Model, TensorSpec
from kvbacking.runtime import RuntimeInfo, runtime_info

_ITEM_BYTES = {"float16": 2, "int8": 1}
# Both seen in the field, neither a documented constant: rows are asked for, never assumed.
_ROW_ALIGNMENT_BYTES = 64
_SURFACE_WIDTH_MULTIPLE = 32


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
        "inputs": [spec.to_dict() for spec in model.inputs.values()],
        "outputs": [spec.to_dict() for spec in model.outputs.values()],
        "states": [spec.to_dict() for spec in model.states.values()],
        "program": None if program is None else asdict(program),
        "warnings": warnings_for(model, family, runtime),
    }


def warnings_for(model: Model, family: str | None, runtime: RuntimeInfo) -> list[str]:
    """What about the outputs makes backings impossible, padded or wasteful."""
    found: list[str] = []
    for spec in model.outputs.values():
        found += _output_warnings(spec, runtime)
    for spec in model.states.values():
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


def _output_warnings(spec: TensorSpec, runtime: RuntimeInfo) -> list[str]:
    where = f"output {spec.name}"
    if not spec.backable:
        return [f"{where}: {spec.describe()} cannot be backed (an array of a fixed shape and known dtype can)"]
    found = []
    width, height = spec.shape[-1], prod(spec.shape[:-1])
    size = _ITEM_BYTES.get(spec.dtype or "")
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
