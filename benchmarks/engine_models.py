"""The models of benchmarks/engine.py, each as a .mlpackage and as the same arithmetic in torch (or NumPy)."""

from __future__ import annotations

import contextlib
import io
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Sizes:
    """Whisper base unless said otherwise; `rows` is the encoder's output length."""

    width: int = 512
    heads: int = 8
    layers: int = 6
    mels: int = 80
    rows: int = 1500
    cross_layers: int = 6


def draw(sizes: Sizes, seed: int = 0) -> dict[str, Array]:
    """fp16 weights by name, drawn so that activations keep their size."""
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> Array:
        return (random.standard_normal(shape, dtype=np.float32) / math.sqrt(np.prod(shape[1:]))).astype(np.float16)

    d = sizes.width
    weights = {"conv1": matrix(d, sizes.mels, 3), "conv2": matrix(d, d, 3), "positions": matrix(sizes.rows, d)}
    for name in ("conv1.bias", "conv2.bias"):
        weights[name] = matrix(d, 1)[:, 0]
    for i in range(sizes.layers):
        shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "out": (d, d), "up": (4 * d, d), "down": (d, 4 * d)}
        for name, shape in shapes.items():
            weights[f"{i}.{name}"] = matrix(*shape)
            weights[f"{i}.{name}.bias"] = matrix(shape[0], 1)[:, 0]
    for i in range(sizes.cross_layers):
        weights[f"cross.{i}.k"], weights[f"cross.{i}.v"] = matrix(d, d), matrix(d, d)
    return weights


def encoder_package(sizes: Sizes, weights: dict[str, Array], path: Path, fused: bool) -> None:
    """mel [1, mels, 2 * rows] -> cross_k, cross_v [cross_layers, rows, width], all fp16."""
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.mil import types

    d, h, rows = sizes.width, sizes.heads, sizes.rows
    half, ones, zeros = np.float16, np.ones(d, np.float16), np.zeros(d, np.float16)
    target = ct.target.iOS18 if fused else ct.target.iOS17

    def linear(x: Any, name: str) -> Any:
        return mb.linear(x=x, weight=weights[name], bias=weights.get(f"{name}.bias"))

    def conv(x: Any, name: str, stride: int) -> Any:
        return mb.conv(
            x=x, weight=weights[name], bias=weights[f"{name}.bias"], strides=[stride], pad_type="custom", pad=[1, 1]
        )

    def split(x: Any) -> Any:
        return mb.transpose(x=mb.reshape(x=x, shape=[1, rows, h, d // h]), perm=[0, 2, 1, 3])

    def attend(q: Any, k: Any, v: Any) -> Any:
        if fused:
            return mb.scaled_dot_product_attention(query=q, key=k, value=v)
        scaled = mb.mul(x=q, y=half(1 / math.sqrt(d // h)))
        return mb.matmul(x=mb.softmax(x=mb.matmul(x=scaled, y=k, transpose_y=True), axis=-1), y=v)

    def norm(x: Any) -> Any:
        return mb.layer_norm(x=x, axes=[-1], gamma=ones, beta=zeros, epsilon=half(1e-5))

    @mb.program(input_specs=[mb.TensorSpec((1, sizes.mels, 2 * rows), types.fp16)], opset_version=target)
    def program(mel: Any) -> Any:
        x = mb.gelu(x=conv(mel, "conv1", 1), mode="EXACT")
        x = mb.gelu(x=conv(x, "conv2", 2), mode="EXACT")
        x = mb.add(x=mb.transpose(x=x, perm=[0, 2, 1]), y=weights["positions"])
        for i in range(sizes.layers):
            y = norm(x)
            y = attend(*(split(linear(y, f"{i}.{n}")) for n in "qkv"))
            y = mb.reshape(x=mb.transpose(x=y, perm=[0, 2, 1, 3]), shape=[1, rows, d])
            x = mb.add(x=x, y=linear(y, f"{i}.out"))
            x = mb.add(x=x, y=linear(mb.gelu(x=linear(norm(x), f"{i}.up"), mode="EXACT"), f"{i}.down"))
        x = norm(x)
        return tuple(
            mb.concat(
                values=[linear(x, f"cross.{i}.{n}") for i in range(sizes.cross_layers)], axis=0, name=f"cross_{n}"
            )
            for n in "kv"
        )

    save(program, path, target)


def projection_package(width: int, rows: int, capacity: int, layers: int, path: Path) -> dict[str, Array]:
    """features [1, rows, width] -> cross_k, cross_v [layers, capacity, width]: the Turbo projection."""
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.mil import types

    weights = draw(Sizes(width=width, layers=0, rows=1, cross_layers=layers, mels=1))

    @mb.program(input_specs=[mb.TensorSpec((1, rows, width), types.fp16)], opset_version=ct.target.iOS17)
    def program(features: Any) -> Any:
        return tuple(
            mb.pad(
                x=mb.concat(
                    values=[mb.linear(x=features, weight=weights[f"cross.{i}.{n}"]) for i in range(layers)], axis=0
                ),
                pad=[0, capacity - rows, 0, 0],
                mode="constant",
                constant_val=np.float16(0),
                name=f"cross_{n}",
            )
            for n in "kv"
        )

    save(program, path, ct.target.iOS17)
    return weights


def save(program: Any, path: Path, target: Any) -> None:
    import coremltools as ct

    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stderr(io.StringIO()):
        ct.convert(
            program, convert_to="mlprogram", minimum_deployment_target=target, compute_precision=ct.precision.FLOAT16,
            skip_model_load=True,
        ).save(str(path))  # fmt: skip
    logging.disable(logging.NOTSET)


def reference(
    sizes: Sizes | None, weights: dict[str, Array], x: Array, capacity: int, threads: int
) -> Callable[[], list[Array]]:
    """The same model as a function of no arguments, in torch fp32 where torch is installed, else in NumPy."""
    try:
        import torch
    except ImportError:
        return numpy_projection(weights, x, capacity)
    torch.set_num_threads(threads)
    w = {name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()}
    given = torch.from_numpy(x.astype(np.float32))
    functional = torch.nn.functional
    layers = sum(name.startswith("cross") for name in weights) // 2

    def linear(y: Any, name: str) -> Any:
        return functional.linear(y, w[name], w.get(f"{name}.bias"))

    def encoder(y: Any) -> Any:
        assert sizes is not None
        d, h, rows = sizes.width, sizes.heads, sizes.rows
        y = functional.gelu(functional.conv1d(y, w["conv1"], w["conv1.bias"], padding=1))
        y = functional.gelu(functional.conv1d(y, w["conv2"], w["conv2.bias"], stride=2, padding=1))
        y = y.transpose(1, 2) + w["positions"]
        for i in range(sizes.layers):
            z = functional.layer_norm(y, (d,))
            q, k, v = (linear(z, f"{i}.{n}").view(1, rows, h, d // h).transpose(1, 2) for n in "qkv")
            z = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, rows, d)
            y = y + linear(z, f"{i}.out")
            y = y + linear(functional.gelu(linear(functional.layer_norm(y, (d,)), f"{i}.up")), f"{i}.down")
        return functional.layer_norm(y, (d,))

    def run() -> list[Array]:
        with torch.inference_mode():
            y = given if sizes is None else encoder(given)
            found = []
            for n in "kv":
                stacked = torch.cat([linear(y, f"cross.{i}.{n}") for i in range(layers)])
                found.append(functional.pad(stacked, (0, 0, 0, capacity - stacked.shape[1])).numpy())
            return found

    return run


def numpy_projection(weights: dict[str, Array], x: Array, capacity: int) -> Callable[[], list[Array]]:
    wide = {name: value.astype(np.float32) for name, value in weights.items() if name.startswith("cross")}
    given, layers = x.astype(np.float32)[0], len(wide) // 2

    def run() -> list[Array]:
        found = []
        for n in "kv":
            out = np.zeros((layers, capacity, given.shape[1]), np.float32)
            for i in range(layers):
                np.matmul(given, wide[f"cross.{i}.{n}"].T, out=out[i, : len(given)])
            found.append(out)
        return found

    return run
