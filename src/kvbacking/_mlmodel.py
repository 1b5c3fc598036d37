"""Reads what `inspect` shows out of a package's model.mlmodel: opset, operations, weight compression, bytes.

Only the field numbers of the published Core ML model format that are needed here; everything else is skipped unread.
A compiled .mlmodelc has no such file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvbacking.errors import ModelError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 16  # of nested blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSummary:
    """`operations` counts op types over all functions, constants left out; `compression` names the constexpr ops."""

    specification_version: int
    opsets: tuple[str, ...]
    operations: dict[str, int]
    compression: tuple[str, ...]
    program_byte_count: int
    weight_byte_count: int


def summarise(package: Path) -> ProgramSummary | None:
    """None for a compiled model. Raises ModelError for a package that cannot be read."""
    if package.suffix == ".mlmodelc":
        return None
    try:
        file, weights = (package, 0) if package.suffix == ".mlmodel" else _locate(package)
        data = memoryview(file.read_bytes())
        counts: Counter[str] = Counter()
        opsets: set[str] = set()
        version = 0
        for number, value in _fields(data):
            if number == 1 and isinstance(value, int):
                version = value
            elif number == 502 and isinstance(value, memoryview):
                _program(value, counts, opsets)
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"[inspect] {package.name}: the package cannot be read: {error!r}") from error
    return ProgramSummary(
        specification_version=version,
        opsets=tuple(sorted(opsets)),
        operations=dict(sorted((n, c) for n, c in counts.items() if n != "const")),
        compression=tuple(sorted(n for n in counts if n.startswith("constexpr_"))),
        program_byte_count=len(data),
        weight_byte_count=weights,
    )


def _locate(package: Path) -> tuple[Path, int]:
    """(model.mlmodel, bytes of everything else)."""
    manifest = json.loads((package / "Manifest.json").read_text())
    root = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
    data = package / "Data"
    file = data / root
    if not file.resolve().is_relative_to(package.resolve()):
        raise ValueError(f"{root} leaves the package")
    return file, sum(p.stat().st_size for p in data.rglob("*") if p.is_file() and p != file)


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(field number, value) of one message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if size > len(data) - at:
            raise ValueError("a field is longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    return (value for number, value in _fields(data) if number == wanted and isinstance(value, memoryview))


def _entries(data: memoryview, wanted: int) -> Iterator[tuple[str, memoryview]]:
    """A map field: (key, value message)."""
    for entry in _messages(data, wanted):
        key, value = "", memoryview(b"")
        for number, item in _fields(entry):
            if isinstance(item, memoryview):
                key, value = (bytes(item).decode(), value) if number == 1 else (key, item)
        yield key, value


def _program(program: memoryview, counts: Counter[str], opsets: set[str]) -> None:
    for _, function in _entries(program, 2):
        for opset in _messages(function, 2):
            opsets.add(bytes(opset).decode())
        for _, block in _entries(function, 3):
            _block(block, counts, 0)


def _block(block: memoryview, counts: Counter[str], depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"blocks nested deeper than {_MAX_DEPTH}")
    for operation in _messages(block, 3):
        for number, value in _fields(operation):
            if number == 1 and isinstance(value, memoryview):
                counts[bytes(value).decode()] += 1
            elif number == 4 and isinstance(value, memoryview):
                _block(value, counts, depth + 1)
