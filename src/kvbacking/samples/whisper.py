"""`whisper`: a real Whisper encoder and the cross-attention K/V projections of its decoder, from a checkpoint.

mel [1, mels, 2 * positions] -> cross_k, cross_v [decoder layers, capacity, width]: projected first, padded after, so
that the rows beyond the encoder's positions are zero. For macOS 15 attention is the fused operation, before that a
softmax between two matrix products.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.info import Array, InputSpec, SampleInfo
from kvbacking.samples.projection import pad_rows
from kvbacking.samples.toolkit import convert, save, target_of, tools
from kvbacking.whisper.checkpoint import Checkpoint

LAYER_NORM_EPSILON = 1e-5


def _half(value: Array) -> Array:
    return value.astype(np.float16)


def _linear(x: Any, weight_and_bias: tuple[Array, Array]) -> Any:
    weight, bias = weight_and_bias
    bias_if_any = {"bias": _half(bias)} if bias.any() else {}
    return tools().mb.linear(x=x, weight=_half(weight), **bias_if_any)


def _layer_norm(x: Any, gain_and_shift: tuple[Array, Array]) -> Any:
    gain, shift = map(_half, gain_and_shift)
    return tools().mb.layer_norm(x=x, axes=[-1], gamma=gain, beta=shift, epsilon=np.float16(LAYER_NORM_EPSILON))


def _attention(x: Any, checkpoint: Checkpoint, layer: int, *, fused: bool) -> Any:
    mb, d = tools().mb, checkpoint.dimensions
    head_dim = d.width // d.audio_heads
    weight, bias = checkpoint.linear(f"encoder/layer_{layer}/self_attention/linear_0")

    def part(index: int) -> Any:
        rows = slice(index * d.width, (index + 1) * d.width)
        split = mb.reshape(x=_linear(x, (weight[rows], bias[rows])), shape=[1, -1, d.audio_heads, head_dim])
        return mb.transpose(x=split, perm=[0, 2, 1, 3])

    query, key, value = part(0), part(1), part(2)
    if fused:
        mixed = mb.scaled_dot_product_attention(query=query, key=key, value=value)
    else:
        scaled = mb.mul(x=query, y=np.float16(head_dim**-0.5))
        weights = mb.softmax(x=mb.matmul(x=scaled, y=key, transpose_y=True), axis=-1)
        mixed = mb.matmul(x=weights, y=value)
    joined = mb.reshape(x=mb.transpose(x=mixed, perm=[0, 2, 1, 3]), shape=[1, -1, d.width])
    return _linear(joined, checkpoint.linear(f"encoder/layer_{layer}/self_attention/linear_1"))


def _encoder(mel: Any, checkpoint: Checkpoint, *, fused: bool) -> Any:
    mb = tools().mb
    x = mel
    for name, stride in (("conv1", 1), ("conv2", 2)):
        weight, bias = map(_half, checkpoint.linear(f"encoder/{name}"))
        x = mb.conv(x=x, weight=weight, bias=bias, strides=[stride], pad_type="custom", pad=[1, 1])
        x = mb.gelu(x=x, mode="EXACT")
    x = mb.transpose(x=x, perm=[0, 2, 1])
    x = mb.add(x=x, y=_half(checkpoint.tensor("encoder/position_encodings/encodings"))[None])
    for layer in range(checkpoint.dimensions.audio_layers):
        prefix = f"encoder/layer_{layer}"
        normed = _layer_norm(x, checkpoint.norm(f"{prefix}/self_attention/layer_norm"))
        x = mb.add(x=x, y=_attention(normed, checkpoint, layer, fused=fused))
        inner = _linear(
            _layer_norm(x, checkpoint.norm(f"{prefix}/ffn/layer_norm")), checkpoint.linear(f"{prefix}/ffn/linear_0")
        )
        x = mb.add(x=x, y=_linear(mb.gelu(x=inner, mode="EXACT"), checkpoint.linear(f"{prefix}/ffn/linear_1")))
    return _layer_norm(x, checkpoint.norm("encoder/layer_norm"))


def whisper(
    path: Path,
    _rng: np.random.Generator,
    *,
    checkpoint: str | Path,
    capacity: int | None = None,
    target: str = "macOS15",
) -> SampleInfo:
    """The package of a CTranslate2 checkpoint directory; capacity defaults to the next multiple of 512 positions."""
    source = Checkpoint.load(checkpoint)
    d = source.dimensions
    rows = d.audio_positions
    slots = rows + 512 - rows % 512 if capacity is None else capacity
    if slots <= rows:
        raise ValueError(f"capacity {slots} must be greater than the encoder's {rows} positions")
    t = tools()
    mb = t.mb
    fused = target not in ("macOS13", "macOS14")

    def build(mel: Any) -> Any:
        features = _encoder(mel, source, fused=fused)
        per_layer = [source.cross_key_value(layer) for layer in range(d.text_layers)]
        outputs = []
        for index, name in enumerate(("cross_k", "cross_v")):
            projected = [_linear(features, pair[index]) for pair in per_layer]
            stacked = mb.concat(values=projected, axis=0) if len(projected) > 1 else projected[0]
            outputs.append(pad_rows(stacked, slots - rows, "float16", name))
        return tuple(outputs)

    shape = (1, d.mels, 2 * rows)
    spec = mb.TensorSpec(shape=shape, dtype=t.types.fp16)
    program = mb.program(input_specs=[spec], opset_version=target_of(target))(build)
    outputs = [t.ct.TensorType(name=name, dtype=np.float16) for name in ("cross_k", "cross_v")]
    save(convert(program, target=target, outputs=outputs), path)
    return SampleInfo(
        kind="whisper",
        path=path,
        input_specs={"mel": InputSpec(shape=shape)},
        contract={"outputs": ("cross_k", "cross_v"), "live": rows, "axis": 1, "tail": "zero"},
        options={"checkpoint": str(checkpoint), "capacity": slots, "target": target},
        weights={},
    )
