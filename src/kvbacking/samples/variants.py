"""Small packages that differ in one respect each: `multifunction`, `flexible`, `optional`, `integers`, `int8out`.

All use one weight pair, K without and V with a bias, as the Whisper families do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.info import Array, InputSpec, SampleInfo
from kvbacking.samples.projection import draw_weights, pad_rows, project
from kvbacking.samples.toolkit import convert, save, target_of, tools

NAMES = ("cross_k", "cross_v")


def _half_outputs() -> list[Any]:
    return [tools().ct.TensorType(name=name, dtype=np.float16) for name in NAMES]


def _project_both(features: Any, weights: dict[str, Array], pad: int) -> tuple[Any, Any]:
    mb = tools().mb
    both = []
    for name, which in zip(NAMES, ("key", "value"), strict=True):
        out = project(features, weights, which, form="linear", dtype="float16")
        both.append(pad_rows(out, pad, "float16", name) if pad else mb.identity(x=out, name=name))
    return both[0], both[1]


def multifunction(
    path: Path,
    rng: np.random.Generator,
    *,
    layers: int = 2,
    width: int = 32,
    capacities: Mapping[str, int] | None = None,
) -> SampleInfo:
    """One function per static capacity over shared weights, as models for several prompt lengths are shipped.

    capacities: function name -> capacity, default {"short": 16, "long": 64}; each has capacity - 4 live rows. The last
    one is the package's default function and the one that `contract` and `inputs` describe. macOS 15.
    """
    t = tools()
    target = "macOS15"
    sizes = dict(capacities or {"short": 16, "long": 64})
    weights = draw_weights(rng, layers, width, "float16")
    descriptor = t.ct.utils.MultiFunctionDescriptor()
    default = list(sizes)[-1]
    with tempfile.TemporaryDirectory() as scratch:
        for name, capacity in sizes.items():

            def build(features: Any) -> Any:
                return _project_both(features, weights, 4)

            spec = t.mb.TensorSpec(shape=(1, capacity - 4, width), dtype=t.types.fp16)
            program = t.mb.program(input_specs=[spec], opset_version=target_of(target))(build)
            single = Path(scratch) / f"{name}.mlpackage"
            save(convert(program, target=target, outputs=_half_outputs()), single)
            descriptor.add_function(str(single), src_function_name="main", target_function_name=name)
        descriptor.default_function_name = default
        t.ct.utils.save_multifunction(descriptor, str(path))
    rows = sizes[default] - 4
    return SampleInfo(
        kind="multifunction",
        path=path,
        input_specs={"features": InputSpec(shape=(1, rows, width))},
        contract={"outputs": NAMES, "live": rows, "axis": 1, "tail": "zero"},
        options={"layers": layers, "width": width, "capacities": sizes},
        weights=weights,
        function=default,
    )


def flexible(
    path: Path,
    rng: np.random.Generator,
    *,
    layers: int = 2,
    width: int = 32,
    shapes: str = "range",
    target: str = "macOS14",
) -> SampleInfo:
    """features [1, rows, width] with rows 8..64 (shapes="range") or one of 16, 32, 64 ("enumerated").

    The outputs' descriptions carry no shape, so nothing can be backed and `contract` is empty.
    """
    t = tools()
    ct = t.ct
    if shapes == "range":
        flexible_shape = ct.Shape(shape=(1, ct.RangeDim(8, 64, default=16), width))
    elif shapes == "enumerated":
        flexible_shape = ct.EnumeratedShapes(shapes=[(1, rows, width) for rows in (16, 32, 64)], default=(1, 16, width))
    else:
        raise ValueError(f"shapes {shapes!r} is not one of range, enumerated")
    weights = draw_weights(rng, layers, width, "float16")

    def build(features: Any) -> Any:
        return _project_both(features, weights, 0)

    spec = t.mb.TensorSpec(shape=(1, t.new_symbol(), width), dtype=t.types.fp16)
    program = t.mb.program(input_specs=[spec], opset_version=target_of(target))(build)
    inputs = [ct.TensorType(name="features", shape=flexible_shape, dtype=np.float16)]
    save(convert(program, target=target, outputs=_half_outputs(), inputs=inputs), path)
    return SampleInfo(
        kind="flexible",
        path=path,
        input_specs={"features": InputSpec(shape=(1, 16, width))},
        contract={},
        options={"layers": layers, "width": width, "shapes": shapes, "target": target},
        weights=weights,
    )


def integers(path: Path, rng: np.random.Generator, *, count: int = 16, target: str = "macOS14") -> SampleInfo:
    """ids int32 [1, count] -> rows fp16 [1, count, 8] (an embedding) and next_ids int32 [1, count] (ids + 1)."""
    t = tools()
    mb = t.mb
    table = rng.standard_normal((32, 8), dtype=np.float32).astype(np.float16)

    def build(ids: Any) -> Any:
        rows = mb.gather(x=table, indices=ids, axis=0, validate_indices=False, name="rows")
        return rows, mb.add(x=ids, y=np.int32(1), name="next_ids")

    spec = mb.TensorSpec(shape=(1, count), dtype=t.types.int32)
    program = mb.program(input_specs=[spec], opset_version=target_of(target))(build)
    outputs = [t.ct.TensorType(name="rows", dtype=np.float16), t.ct.TensorType(name="next_ids", dtype=np.int32)]
    save(convert(program, target=target, outputs=outputs), path)
    return SampleInfo(
        kind="integers",
        path=path,
        input_specs={"ids": InputSpec(shape=(1, count), dtype="int32", high=31)},
        contract={"outputs": ("rows", "next_ids"), "live": count, "axis": 1, "tail": "any"},
        options={"count": count, "target": target},
        weights={"table": table.astype(np.float32)},
    )


def int8out(path: Path, rng: np.random.Generator, *, rows: int = 12, width: int = 32) -> SampleInfo:
    """features fp16 [1, rows, width] -> codes int8 of that shape: trunc(clip(16 * (features + bias), -100, 100)).

    Int8 model outputs exist from macOS 26 on.
    """
    t = tools()
    mb = t.mb
    bias = rng.standard_normal((width,), dtype=np.float32).astype(np.float16)

    def build(features: Any) -> Any:
        scaled = mb.mul(x=mb.add(x=features, y=bias), y=np.float16(16))
        clipped = mb.clip(x=scaled, alpha=np.float16(-100), beta=np.float16(100))
        return mb.cast(x=clipped, dtype="int8", name="codes")

    spec = mb.TensorSpec(shape=(1, rows, width), dtype=t.types.fp16)
    program = mb.program(input_specs=[spec], opset_version=target_of("macOS26"))(build)
    outputs = [t.ct.TensorType(name="codes", dtype=np.int8)]
    save(convert(program, target="macOS26", outputs=outputs), path)
    return SampleInfo(
        kind="int8out",
        path=path,
        input_specs={"features": InputSpec(shape=(1, rows, width))},
        contract={"outputs": ("codes",), "live": rows, "axis": 1, "tail": "any"},
        options={"rows": rows, "width": width},
        weights={"bias": bias.astype(np.float32)},
    )


def optional(
    path: Path, rng: np.random.Generator, *, layers: int = 2, width: int = 32, rows: int = 12, default: float = 0.0
) -> SampleInfo:
    """features [1, rows, width] and offset [1, rows, width], which may be left out and is `default` then, fp32 (a type
    that can carry a default): cross_k, cross_v fp32 of features + offset."""
    t = tools()
    weights = draw_weights(rng, layers, width, "float32")
    shape = (1, rows, width)

    def build(features: Any, offset: Any) -> Any:
        source = t.mb.add(x=features, y=offset)
        return tuple(
            t.mb.identity(x=project(source, weights, which, form="linear", dtype="float32"), name=name)
            for name, which in zip(NAMES, ("key", "value"), strict=True)
        )

    specs = [t.mb.TensorSpec(shape=shape, dtype=t.types.fp32) for _ in range(2)]
    program = t.mb.program(input_specs=specs, opset_version=target_of("macOS14"))(build)
    inputs = [
        t.ct.TensorType(name="features", shape=shape, dtype=np.float32),
        t.ct.TensorType(name="offset", default_value=np.full(shape, default, np.float32), shape=shape),
    ]
    outputs = [t.ct.TensorType(name=name, dtype=np.float32) for name in NAMES]
    save(convert(program, target="macOS14", outputs=outputs, inputs=inputs, compute="fp32"), path)
    return SampleInfo(
        kind="optional",
        path=path,
        input_specs={"features": InputSpec(shape=shape, dtype="float32")},
        contract={"outputs": NAMES, "live": rows, "axis": 1, "tail": "any"},
        options={"layers": layers, "width": width, "rows": rows, "default": default},
        weights=weights,
    )
