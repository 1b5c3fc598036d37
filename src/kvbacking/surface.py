"""Surfaces of the caller's own: model inputs that are passed without a copy, backings, and the memory of a cache."""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from collections.abc import Sequence

import numpy as np

from kvbacking import _native
from kvbacking._arrays import AnyArray, as_array, element_strided
from kvbacking._integers import as_integer

ALIGNMENT = _native.Allocation.granularity()  # max(page size, 16384)
HUGE_FROM = 4 << 20  # bytes, as NumPy has it


class Surface:
    """An IOSurface that you fill: an input of Session.predict or Model.predict, or a backing
    (`storage` of a Session).

    float16 or int8 (macOS 26); width is the last dimension, height the product of the others. Rows may be padded. While
    an array over it lives the surface is locked for the processor and predictions with it raise BackingInUseError.
    """

    __slots__ = ("__weakref__", "_native", "dtype", "shape")

    def __init__(self, shape: Sequence[int], dtype: str = "float16") -> None:
        """Zeroed. Raises ContractError with the reason when this system allows no such surface, AllocationError,
        TypeError and ValueError for what is no shape or dtype."""
        kind = np.dtype(dtype)
        if not kind.isnative:
            raise ValueError(f"dtype must have this machine's byte order, got {kind}")
        self.shape, self.dtype = checked_shape(shape), kind.name
        self._native = _native.OwnedSurface.create(self.dtype, self.shape)

    @classmethod
    def _not_zeroed(cls, shape: tuple[int, ...], dtype: str) -> Surface:
        self = object.__new__(cls)
        self.shape, self.dtype = shape, dtype
        self._native = _native.OwnedSurface.create(dtype, shape, zeroed=False)
        return self

    @property
    def id(self) -> int:
        """The system's number of this surface."""
        return self._native.id

    @property
    def bytes_per_row(self) -> int:
        """From one row to the next: at least a row's bytes, as the system chose it."""
        return self._native.bytes_per_row

    @property
    def byte_count(self) -> int:
        """Bytes with the gaps between rows."""
        return self._native.byte_count

    @property
    def used_as_input(self) -> str | None:
        """Name of the input that it last was; None: never. Afterwards it is refused as a backing unless the session
        allows it."""
        return self._native.input_name or None

    def map(self, *, writable: bool = True) -> np.ndarray:
        """An array over the memory, locked until it and every slice of it are gone. Never copies. Raises
        BackingInUseError while a prediction uses the surface."""
        return self._native.map(writable)

    def write(self, array: AnyArray) -> None:
        """Copies `array` (this shape, any strides; this dtype, or float16 from float32) into the surface, once. Raises
        ValueError, BackingInUseError."""
        _native.copy_elements(element_strided(as_array(array)), self.map())

    def __repr__(self) -> str:
        return f"Surface({list(self.shape)}, {self.dtype!r}, id={self.id})"


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """As a tuple of non-negative integers. Raises TypeError, ValueError."""
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
        raise TypeError(f"shape must be a sequence of integers, got {type(shape).__name__}")
    sizes = tuple(as_integer("a size of shape", size) for size in shape)
    if any(not 0 <= size < 1 << 40 for size in sizes):
        raise ValueError(f"shape must hold sizes from 0, below 2**40, got {list(sizes)}")
    return sizes


def page_aligned(shape: Sequence[int], dtype: str = "float16") -> np.ndarray:
    """A writable array of zeros at a multiple of 16384 bytes that shares its pages with nothing else: memory that
    Session.predict(borrow=...) can pass without a copy. It comes from the system and goes back to it with the last
    view. Raises MemoryError, TypeError, ValueError."""
    kind = np.dtype(dtype)
    if kind.hasobject or not kind.itemsize:
        raise ValueError(f"dtype must have a size and no Python objects, got {kind}")
    sizes = checked_shape(shape)
    byte_count = math.prod(sizes) * kind.itemsize
    whole = max(-(-byte_count // ALIGNMENT), 1) * ALIGNMENT + ALIGNMENT - mmap.PAGESIZE
    try:
        pages = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"[page_aligned] no {whole} bytes for {kind.name}{list(sizes)}: {error}") from error
    if whole >= HUGE_FROM and sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without huge pages: the same memory, touched page by page
            pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + byte_count].view(kind).reshape(sizes)
