"""Reads a CTranslate2 Whisper checkpoint directory (model.bin, config.json, tokenizer.json) with NumPy alone.

model.bin is mapped, not read: tensors are read-only views into it, and keep the mapping alive. A file that does not
follow the format raises CheckpointError naming the file and the place; sizes are checked before they are believed.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

FORMAT_VERSION = 6
DTYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
MAX_RANK = 8


class CheckpointError(ValueError):
    """The directory is not a CTranslate2 Whisper checkpoint that this reader understands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What the tensors' shapes and head counts say."""

    mels: int
    audio_positions: int
    audio_layers: int
    audio_heads: int
    width: int
    text_positions: int
    text_layers: int
    text_heads: int
    vocabulary: int


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.data = np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: cannot be mapped: {error}") from error
        self.at = 0

    def take(self, count: int, what: str) -> Array:
        if count > self.data.size - self.at:
            raise CheckpointError(
                f"{self.path}: truncated: {what} at byte {self.at} needs {count} bytes, {self.data.size - self.at} left"
            )
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str, what: str) -> int:
        value: int = struct.unpack("<" + code, self.take(struct.calcsize(code), what).tobytes())[0]
        return value

    def text(self, what: str) -> str:
        raw = self.take(self.number("H", what), what).tobytes()
        if not raw.endswith(b"\0"):
            raise CheckpointError(f"{self.path}: {what} before byte {self.at} is not a terminated string")
        return raw[:-1].decode("utf-8", "replace")


def read_variables(path: Path) -> dict[str, Array]:
    """Every variable of a version 6 model.bin, aliases resolved."""
    reader = _Reader(path)
    version = reader.number("I", "format version")
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{path}: format version {version}, expected {FORMAT_VERSION}")
    spec = reader.text("specification name")
    if spec != "WhisperSpec":
        raise CheckpointError(f"{path}: holds a {spec!r}, expected 'WhisperSpec'")
    reader.number("I", "specification revision")
    variables: dict[str, Array] = {}
    for _ in range(reader.number("I", "variable count")):
        name = reader.text("variable name")
        rank = reader.number("B", f"rank of {name}")
        if rank > MAX_RANK:
            raise CheckpointError(f"{path}: {name} has rank {rank}, at most {MAX_RANK} is plausible")
        shape = tuple(reader.number("I", f"shape of {name}") for _ in range(rank))
        code = reader.number("B", f"dtype of {name}")
        if code not in DTYPES:
            raise CheckpointError(f"{path}: {name} has dtype code {code}, expected one of {sorted(DTYPES)}")
        dtype = np.dtype(DTYPES[code])
        byte_count = reader.number("I", f"size of {name}")
        expected = dtype.itemsize
        for extent in shape:
            expected *= extent
        if byte_count != expected:
            raise CheckpointError(f"{path}: {name} {list(shape)} has {byte_count} bytes, expected {expected}")
        variables[name] = reader.take(byte_count, name).view(dtype).reshape(shape)
    for _ in range(reader.number("I", "alias count")):
        alias, target = reader.text("alias"), reader.text("alias target")
        if target not in variables:
            raise CheckpointError(f"{path}: alias {alias} names {target}, which is not in the file")
        variables[alias] = variables[target]
    return variables


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint on disk. `variables` are read-only views; layers are counted from 0."""

    path: Path
    dimensions: Dimensions
    config: Mapping[str, Any]
    variables: Mapping[str, Array] = field(repr=False)

    @staticmethod
    def load(directory: str | os.PathLike[str]) -> Checkpoint:
        """Reads the directory; raises CheckpointError."""
        path = Path(directory)
        if not path.is_dir():
            raise CheckpointError(f"{path}: not a directory (scripts/fetch-whisper makes one)")
        variables = read_variables(path / "model.bin")
        return Checkpoint(
            path=path, dimensions=_dimensions(path, variables), config=_read_json(path / "config.json"),
            variables=variables,
        )  # fmt: skip

    def tensor(self, name: str) -> Array:
        """The variable as float32 (copies)."""
        if name not in self.variables:
            raise CheckpointError(f"{self.path}: no variable {name}")
        return self.variables[name].astype(np.float32)

    def linear(self, name: str) -> tuple[Array, Array]:
        """weight [out, in] and bias [out], float32."""
        return self.tensor(f"{name}/weight"), self.tensor(f"{name}/bias")

    def norm(self, name: str) -> tuple[Array, Array]:
        """gain and shift of a layer norm, float32."""
        return self.tensor(f"{name}/gamma"), self.tensor(f"{name}/beta")

    def cross_key_value(self, layer: int) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """(K weight, K bias), (V weight, V bias) of a decoder layer's cross-attention, which stores them as one."""
        weight, bias = self.linear(f"decoder/layer_{layer}/attention/linear_1")
        d = self.dimensions.width
        return (weight[:d], bias[:d]), (weight[d:], bias[d:])


def _dimensions(path: Path, variables: Mapping[str, Array]) -> Dimensions:
    def need(name: str, rank: int) -> Array:
        value = variables.get(name)
        if value is None or value.ndim != rank:
            found = "missing" if value is None else f"of rank {value.ndim}"
            raise CheckpointError(f"{path / 'model.bin'}: {name} is {found}, expected rank {rank}")
        return value

    def layers(side: str) -> int:
        count = 0
        while f"{side}/layer_{count}/ffn/linear_0/weight" in variables:
            count += 1
        if not count:
            raise CheckpointError(f"{path / 'model.bin'}: no {side}/layer_0")
        return count

    width, mels, _ = need("encoder/conv1/weight", 3).shape
    text_positions, text_width = need("decoder/position_encodings/encodings", 2).shape
    found = Dimensions(
        mels=mels,
        width=width,
        audio_positions=need("encoder/position_encodings/encodings", 2).shape[0],
        audio_layers=layers("encoder"),
        audio_heads=int(need("encoder/num_heads", 0)),
        text_positions=text_positions,
        text_layers=layers("decoder"),
        text_heads=int(need("decoder/num_heads", 0)),
        vocabulary=need("decoder/embeddings/weight", 2).shape[0],
    )
    if text_width != width:
        raise CheckpointError(f"{path / 'model.bin'}: encoder width {width} and decoder width {text_width} differ")
    for heads in (found.audio_heads, found.text_heads):
        if heads <= 0 or width % heads:
            raise CheckpointError(f"{path / 'model.bin'}: width {width} is not a multiple of {heads} heads")
    return found
