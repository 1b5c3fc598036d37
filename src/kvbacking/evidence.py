"""What is known about one output of one prediction."""

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
