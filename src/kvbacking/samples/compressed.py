"""`compressed`: the K/V projection with compressed weights, in the form of macOS 14 or of macOS 15.

The compressed data is drawn directly and decoded here, so that `SampleInfo.weights` is exact and owes nothing to a
reader of packages. Sub-byte data is packed with the first element in the low bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.info import Array, InputSpec, SampleInfo
from kvbacking.samples.projection import pad_rows
from kvbacking.samples.toolkit import convert, save, target_of, tools

SCHEMES = ("palette", "int8", "int4", "sparse")
PALETTE_BITS = {"macOS14": (1, 2, 4, 6, 8), "macOS15": (1, 2, 3, 4, 6, 8)}
GROUPS = 2  # macOS 15: lookup tables or scale blocks along the output axis
BLOCK = 8  # macOS 15: input channels that share one scale


def pack_bits(values: Array, bits: int) -> Array:
    """uint8 bytes holding `bits`-wide values, first value in the low bits."""
    planes = (values.reshape(-1, 1).astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(planes.reshape(-1), bitorder="little")


def sub_byte(values: Array, type_name: str) -> Array:
    """The array in the NumPy dtype by which coremltools recognises a sub-byte type."""
    types = tools().types
    return values.astype(types.nptype_from_builtin(types.string_to_builtin(type_name)))


def palette(rng: np.random.Generator, width: int, bits: int, target: str) -> tuple[Any, Array]:
    """A lookup-table weight [width, width] and its float32 values."""
    mb = tools().mb
    count = 2**bits
    indices = rng.integers(0, count, (width, width)).astype(np.uint8)
    groups = 1 if target == "macOS14" else GROUPS
    table = (rng.standard_normal((groups, count), dtype=np.float32) / np.sqrt(width)).astype(np.float16)
    group_of_row = np.arange(width) * groups // width
    values = table[group_of_row[:, None], indices].astype(np.float32)
    if target == "macOS14":
        packed = pack_bits(indices, bits)
        shape = np.array([width, width], np.uint32)
        return mb.constexpr_lut_to_dense(indices=packed, lut=table[0], shape=shape), values
    stored = indices if bits == 8 else sub_byte(indices, f"uint{bits}")
    return mb.constexpr_lut_to_dense(indices=stored, lut=table.reshape(groups, 1, count, 1)), values


def linear(rng: np.random.Generator, width: int, bits: int, target: str) -> tuple[Any, Array]:
    """An affine weight [width, width]: per output channel with a zero point, or (macOS 15) per block with an offset."""
    mb = tools().mb
    low, high = (-128, 128) if bits == 8 else (-8, 8)
    data = rng.integers(low, high, (width, width)).astype(np.int8)
    step = 2.0 / (high * np.sqrt(width))
    if target == "macOS14":
        scale = (step * rng.uniform(0.5, 1.5, width)).astype(np.float16)
        zero = rng.integers(-4, 4, width).astype(np.int8)
        shifted = data.astype(np.float32) - zero.astype(np.float32)[:, None]
        values = scale.astype(np.float32)[:, None] * shifted
        op = mb.constexpr_affine_dequantize(quantized_data=data, zero_point=zero, scale=scale, axis=np.int32(0))
    else:
        blocks = (width, width // BLOCK)
        scale = (step * rng.uniform(0.5, 1.5, blocks)).astype(np.float16)
        offset = rng.integers(-4, 4, blocks).astype(np.int8)
        shifted = data.astype(np.float32) - np.repeat(offset.astype(np.float32), BLOCK, axis=1)
        values = np.repeat(scale.astype(np.float32), BLOCK, axis=1) * shifted
        stored, stored_offset = (data, offset) if bits == 8 else (sub_byte(data, "int4"), sub_byte(offset, "int4"))
        op = mb.constexpr_blockwise_shift_scale(data=stored, scale=scale, offset=stored_offset)
    return op, values.astype(np.float16).astype(np.float32)


def sparse(rng: np.random.Generator, width: int, target: str) -> tuple[Any, Array]:
    """A weight [width, width] of which about one element in three is stored."""
    mb = tools().mb
    mask = rng.random((width, width)) < 1 / 3
    nonzero = (rng.standard_normal(int(mask.sum()), dtype=np.float32) / np.sqrt(width)).astype(np.float16)
    values = np.zeros((width, width), np.float32)
    values[mask] = nonzero.astype(np.float32)
    if target == "macOS14":
        shape = np.array([width, width], np.uint32)
        return mb.constexpr_sparse_to_dense(nonzero_data=nonzero, mask=pack_bits(mask, 1), shape=shape), values
    return mb.constexpr_sparse_to_dense(nonzero_data=nonzero, mask=sub_byte(mask, "uint1")), values


def compressed(
    path: Path,
    rng: np.random.Generator,
    *,
    scheme: str = "palette",
    bits: int = 4,
    width: int = 64,
    rows: int = 12,
    capacity: int = 16,
    target: str = "macOS14",
) -> SampleInfo:
    """features [1, rows, width] -> cross_k, cross_v [1, capacity, width]; `bits` is for the palette scheme alone."""
    if scheme not in SCHEMES:
        raise ValueError(f"scheme {scheme!r} is not one of {', '.join(SCHEMES)}")
    if target not in PALETTE_BITS:
        raise ValueError(f"target {target!r} is not one of {', '.join(PALETTE_BITS)}")
    if scheme == "palette" and bits not in PALETTE_BITS[target]:
        raise ValueError(f"a palette for {target} has {PALETTE_BITS[target]} bits, not {bits}")
    if scheme == "int4" and target == "macOS14":
        raise ValueError("int4 weights need target macOS15")
    if width % BLOCK:
        raise ValueError(f"width {width} must be a multiple of {BLOCK}")
    t = tools()
    mb = t.mb
    weights: dict[str, Array] = {}

    def build(features: Any) -> Any:
        outputs = []
        for name, which in (("cross_k", "key"), ("cross_v", "value")):
            if scheme == "palette":
                weight, values = palette(rng, width, bits, target)
            elif scheme == "sparse":
                weight, values = sparse(rng, width, target)
            else:
                weight, values = linear(rng, width, int(scheme.removeprefix("int")), target)
            weights[which] = values[None]
            outputs.append(pad_rows(mb.linear(x=features, weight=weight), capacity - rows, "float16", name))
        return tuple(outputs)

    spec = mb.TensorSpec(shape=(1, rows, width), dtype=t.types.fp16)
    program = mb.program(input_specs=[spec], opset_version=target_of(target))(build)
    outputs = [t.ct.TensorType(name=name, dtype=np.float16) for name in ("cross_k", "cross_v")]
    save(convert(program, target=target, outputs=outputs), path)
    return SampleInfo(
        kind="compressed",
        path=path,
        input_specs={"features": InputSpec(shape=(1, rows, width))},
        contract={"outputs": ("cross_k", "cross_v"), "live": rows, "axis": 1, "tail": "zero"},
        options={
            "scheme": scheme, "bits": bits, "width": width, "rows": rows, "capacity": capacity, "target": target,
        },
        weights=weights,
    )  # fmt: skip
