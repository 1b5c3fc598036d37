"""What is known about one output, and about one input, of one prediction."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Literal

from kvbacking import _native


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEvidence:
    """A field that was not evaluated is None, never True. `shape`, `strides` (in elements) and `dtype` describe what
    was returned, not what was asked for. `direct_write` is always "unknown": nothing public tells."""

    name: str
    mechanism: str
    proposed: bool
    allowed: bool | None
    accepted: bool | None
    same_object: bool | None
    same_storage: bool | None
    in_range: bool | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    layout_ok: bool | None
    direct_write: Literal["unknown"]
    bytes_copied: int
    digest: str | None
    finite: bool | None
    non_zero: bool | None
    min: float | None
    max: float | None
    tail_zero: bool | None
    canaries_intact: bool | None
    row_gaps_touched: bool | None
    complete: bool | None
    fresh: bool | None
    distinct: bool | None
    checked: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        document = {name: getattr(self, name) for name in _FIELDS}
        for name in ("shape", "strides", "checked"):
            document[name] = list(document[name])
        return document

    def to_json(self) -> str:
        """`to_dict` as one line."""
        return json.dumps(self.to_dict())

    @classmethod
    def _from_native(cls, native: _native.OutputEvidence) -> OutputEvidence:
        values = {name: getattr(native, name) for name in _FIELDS}
        for name in ("shape", "strides", "checked"):
            values[name] = tuple(values[name])
        return cls(**values)


_FIELDS = tuple(f.name for f in fields(OutputEvidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEvidence:
    """How one input reached the framework. `path`: "copied" into a buffer of ours, "memory" lent where it lies, or a
    "surface". Addresses are of first bytes: the caller's (0 for a surface), and what the framework's array said after
    the prediction (None for a surface). `same_storage`: that array still lay in what was lent. `unchanged`: the lent
    bytes had the same digest before and after; None where that was not looked at. `reason`: why borrow="auto" copied.
    """

    name: str
    path: Literal["copied", "memory", "surface"]
    source_address: int
    array_address: int | None
    surface_id: int
    same_storage: bool | None
    unchanged: bool | None
    bytes_copied: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return {name: getattr(self, name) for name in _INPUT_FIELDS}

    @classmethod
    def _from_native(cls, native: _native.InputEvidence) -> InputEvidence:
        return cls(**{name: getattr(native, name) for name in _INPUT_FIELDS})


_INPUT_FIELDS = tuple(f.name for f in fields(InputEvidence))
