"""Whisper cross-attention K/V projections: `turbo`, `distil`, the defective `badtail`, and `fp32io`.

K has no bias in Whisper and V has one. A good package projects and then pads, so both tails are zero; `badtail` pads
first, so that V's bias leaks into V's tail while K's stays zero.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.info import Array, InputSpec, SampleInfo
from kvbacking.samples.toolkit import convert, save, target_of, tools


def draw_weights(rng: np.random.Generator, layers: int, width: int, dtype: str) -> dict[str, Array]:
    """Projection weights [layers, width, width] (out, in) and the V bias [layers, width], rounded to `dtype`."""
    scale = np.float32(1.0 / np.sqrt(width))
    drawn = {
        "key": rng.standard_normal((layers, width, width), dtype=np.float32) * scale,
        "value": rng.standard_normal((layers, width, width), dtype=np.float32) * scale,
        "value_bias": rng.standard_normal((layers, width), dtype=np.float32) * np.float32(0.5),
    }
    return {name: value.astype(dtype).astype(np.float32) for name, value in drawn.items()}


def project(features: Any, weights: dict[str, Array], which: str, *, form: str, dtype: str) -> Any:
    """[1, rows, width] -> [layers, rows, width]: one `linear` per layer and a concat, or one broadcast matmul."""
    mb = tools().mb
    weight = weights[which].astype(dtype)
    bias = weights["value_bias"].astype(dtype) if which == "value" else None
    if form == "batched":
        out = mb.matmul(x=features, y=np.ascontiguousarray(weight.transpose(0, 2, 1)))
        return out if bias is None else mb.add(x=out, y=bias[:, None, :])
    if form != "linear":
        raise ValueError(f"form {form!r} is not one of linear, batched")
    per_layer = [
        mb.linear(x=features, weight=w) if bias is None else mb.linear(x=features, weight=w, bias=bias[index])
        for index, w in enumerate(weight)
    ]
    return per_layer[0] if len(per_layer) == 1 else mb.concat(values=per_layer, axis=0)


def pad_rows(x: Any, count: int, dtype: str, name: str | None = None) -> Any:
    """Appends `count` zero rows on axis 1 of a rank 3 value."""
    zero = np.dtype(dtype).type(0)
    extra = {} if name is None else {"name": name}
    return tools().mb.pad(x=x, pad=[0, 0, 0, count, 0, 0], mode="constant", constant_val=zero, **extra)


def write_projection(
    kind: str,
    path: Path,
    rng: np.random.Generator,
    *,
    layers: int,
    width: int,
    rows: int,
    capacity: int,
    form: str,
    target: str,
    dtype: str = "float16",
    compute: str = "fp16",
    pad_first: bool = False,
) -> SampleInfo:
    """features [1, rows, width] -> cross_k, cross_v [layers, capacity, width]."""
    if capacity <= rows:
        raise ValueError(f"capacity {capacity} must be greater than rows {rows}: the tail is what these samples test")
    t = tools()
    stored = "float16" if compute == "fp16" else "float32"
    weights = draw_weights(rng, layers, width, stored)
    io_type = {"float16": t.types.fp16, "float32": t.types.fp32}[dtype]

    def build(features: Any) -> Any:
        source = pad_rows(features, capacity - rows, dtype) if pad_first else features
        outputs = []
        for name, which in (("cross_k", "key"), ("cross_v", "value")):
            out = project(source, weights, which, form=form, dtype=dtype)
            named = t.mb.identity(x=out, name=name) if pad_first else pad_rows(out, capacity - rows, dtype, name)
            outputs.append(named)
        return tuple(outputs)

    spec = t.mb.TensorSpec(shape=(1, rows, width), dtype=io_type)
    program = t.mb.program(input_specs=[spec], opset_version=target_of(target))(build)
    np_type = np.dtype(dtype).type
    outputs = [t.ct.TensorType(name=name, dtype=np_type) for name in ("cross_k", "cross_v")]
    save(convert(program, target=target, outputs=outputs, compute=compute), path)
    return SampleInfo(
        kind=kind,
        path=path,
        input_specs={"features": InputSpec(shape=(1, rows, width), dtype=dtype)},
        contract={"outputs": ("cross_k", "cross_v"), "live": rows, "axis": 1, "tail": "zero"},
        options={
            "layers": layers, "width": width, "rows": rows, "capacity": capacity, "form": form, "target": target,
            "dtype": dtype, "compute": compute,
        },
        weights=weights,
    )  # fmt: skip


def _whisper_family(kind: str, layers: int, *, pad_first: bool = False) -> Callable[..., SampleInfo]:
    """The writer of one kind; families differ in the number of layers, the defective kind in what it pads."""

    def write(
        path: Path,
        rng: np.random.Generator,
        *,
        layers: int = layers,
        width: int = 1280,
        rows: int = 1500,
        capacity: int = 1536,
        form: str = "linear",
        target: str = "macOS14",
    ) -> SampleInfo:
        return write_projection(
            kind, path, rng, layers=layers, width=width, rows=rows, capacity=capacity, form=form, target=target,
            pad_first=pad_first,
        )  # fmt: skip

    return write


turbo = _whisper_family("turbo", 4)  # 30 MiB of K plus V
distil = _whisper_family("distil", 2)  # 15 MiB
badtail = _whisper_family("badtail", 4, pad_first=True)  # cross_v's tail holds V's bias, cross_k's is zero


def fp32io(
    path: Path,
    rng: np.random.Generator,
    *,
    layers: int = 2,
    width: int = 64,
    rows: int = 60,
    capacity: int = 64,
    form: str = "linear",
    target: str = "macOS14",
    compute: str = "fp16",
) -> SampleInfo:
    """Float32 input and outputs around an fp16 (or, compute="fp32", a float32) program."""
    return write_projection(
        "fp32io", path, rng, layers=layers, width=width, rows=rows, capacity=capacity, form=form, target=target,
        dtype="float32", compute=compute,
    )  # fmt: skip
