"""One pass over the bytes of an array: finite, zero, range, tail, digest, and parity when asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from kvbacking import _native
from kvbacking._arrays import AnyArray, as_array, element_strided
from kvbacking._integers import as_integer
from kvbacking.contract import Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityResult:
    """Difference to a reference. Indices count elements in C order; -1: none. `cosine` is 1.0 for equal arrays."""

    max_abs_error: float
    max_abs_index: int
    max_rel_error: float
    max_rel_index: int
    over_tolerance_count: int
    first_over_index: int
    mean_abs_error: float
    cosine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanResult:
    """Indices count elements in C order; -1: none. `min` and `max` are those of the non-NaN live elements (NaN when
    there is none). `digest` is the XXH3-128 of every logical byte in C order, so that dense, padded and pooled forms of
    the same values agree. A dirty tail element is one whose bytes are not all zero: -0.0 is dirty."""

    element_count: int
    nan_count: int
    first_nan_index: int
    inf_count: int
    first_inf_index: int
    live_nan_count: int
    live_inf_count: int
    live_all_zero: bool
    min: float
    max: float
    tail_dirty_count: int
    first_tail_dirty_index: int
    residue_count: int
    first_residue_index: int
    digest: str
    parity: ParityResult | None

    @property
    def finite(self) -> bool:
        """No NaN and no infinity, in the live range and in the tail."""
        return self.nan_count == 0 and self.inf_count == 0

    @property
    def tail_zero(self) -> bool:
        """Every tail byte is zero."""
        return self.tail_dirty_count == 0

    def to_dict(self) -> dict[str, Any]:
        """The fields by name (NaN stays NaN)."""
        return asdict(self)


_PARITY_FIELDS = tuple(f.name for f in fields(ParityResult))
_SCAN_FIELDS = tuple(f.name for f in fields(ScanResult) if f.name != "parity")


def scan(
    array: AnyArray,
    *,
    live: int | None = None,
    axis: int = 0,
    reference: AnyArray | None = None,
    tolerance: Tolerance | None = None,
    fill_pattern: int | None = None,
    threads: int = 1,
) -> ScanResult:
    """Reads every logical byte of `array` once (float16, float32 or int8; any strides). Never copies it, except an
    array whose byte strides are no multiple of its element size.

    `live` elements along `axis` are payload, the rest is the tail. `reference` (equal shape; same dtype or fp16/fp32)
    adds parity over the live range under `tolerance`. `fill_pattern` counts elements that still hold these bytes.
    Raises ValueError.
    """
    if tolerance is not None and not isinstance(tolerance, Tolerance):
        raise TypeError(f"[scan] tolerance must be a Tolerance, got {type(tolerance).__name__}")
    limits = tolerance or Tolerance()
    axis = _integer("axis", axis, 64)
    threads = _integer("threads", threads, 32)
    if live is not None:
        live = _integer("live", live, 64)
    if fill_pattern is not None:
        fill_pattern = _integer("fill_pattern", fill_pattern, 65)
        if fill_pattern < 0:
            raise ValueError(f"[scan] fill_pattern must not be negative, got {fill_pattern}")
    scanned = _scannable(array, "array")
    if not -scanned.ndim <= axis < max(scanned.ndim, 1):
        raise ValueError(f"[scan] axis {axis} is outside an array of {scanned.ndim} dimensions")
    native = _native.scan(
        scanned,
        live=live,
        axis=axis,
        threads=threads,
        fill_pattern=fill_pattern,
        reference=None if reference is None else _scannable(reference, "reference"),
        max_abs=limits.max_abs,
        max_rel=limits.max_rel,
    )
    parity = native.parity
    return ScanResult(
        **{name: getattr(native, name) for name in _SCAN_FIELDS},
        parity=None if parity is None else ParityResult(**{name: getattr(parity, name) for name in _PARITY_FIELDS}),
    )


def _integer(name: str, value: object, bits: int) -> int:
    number = as_integer(f"[scan] {name}", value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"[scan] {name} is out of range: {number}")
    return number


def _scannable(value: AnyArray, what: str) -> np.ndarray:
    array = as_array(value)
    if not array.dtype.isnative or array.dtype.kind not in "fi" or array.dtype.name == "longdouble":
        raise ValueError(f"[scan] {what} must be float16, float32 or int8 in native byte order, got {array.dtype!r}")
    return element_strided(array)


def digest(array: np.ndarray) -> str:
    """The scan's digest alone."""
    return scan(array).digest
