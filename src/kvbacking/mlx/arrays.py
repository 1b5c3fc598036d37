"""NumPy memory as MLX arrays: adopted where MLX offers it, else copied once; which of them is read off the
addresses."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvbacking.errors import ContractError, KVBackingError

ALIGNMENT = 16384  # pages of Apple silicon: Metal wraps memory only in whole pages
# From this version on MLX never donates foreign memory to the result of an operation (array::is_donatable asks
# is_owned).
FIRST_WITHOUT_FOREIGN_DONATION = (0, 32, 4)
IMPORTABLE = ("float16", "float32", "int8", "int32")  # NumPy names; MLX would narrow float64 without a word


class MlxUnavailableError(ImportError):
    """mlx or mlx-lm cannot be imported."""


class AdoptionRefusedError(KVBackingError, BufferError):
    """Memory was to be adopted without a copy (`copy=False`), and it or this MLX does not allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An MLX array and how it came to be. `same_address`: its first element is the view's, by measured pointers;
    `copied` is the opposite. `reason` says why nothing was adopted (empty when it was, or when a copy was asked
    for)."""

    array: Any
    copied: bool
    same_address: bool
    mlx_version: str
    reason: str = ""


def optional_module(name: str) -> Any:
    """The imported module of the `mlx` extra. Raises MlxUnavailableError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MlxUnavailableError(f"the hand-off needs {name} ({error}): pip install 'kvbacking[mlx]'") from error


def core() -> Any:
    """`mlx.core`."""
    return optional_module("mlx.core")


def address_of(array: Any) -> int:
    """Where the first element of an MLX array lies. Evaluates it; keeps nothing of it."""
    mx = core()
    mx.eval(array)
    if array.dtype == mx.bfloat16:  # the buffer protocol has no such format; a bit view shares the memory
        array = array.view(mx.uint16)
        mx.eval(array)
    return int(np.array(array, copy=False).ctypes.data)


def refusal(view: np.ndarray, version: str, unsafe: bool) -> str:
    """Why `view` must not be adopted by that MLX; empty when it may be tried."""
    if not view.flags.c_contiguous:
        return "the rows are padded or sliced: only whole contiguous memory can be adopted"
    if view.ctypes.data % ALIGNMENT or view.nbytes % ALIGNMENT:
        return f"address {view.ctypes.data:#x} or length {view.nbytes} is no multiple of {ALIGNMENT}"
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:3])
    if numbers < FIRST_WITHOUT_FOREIGN_DONATION and not unsafe:
        return f"mlx {version} may write results into adopted memory (unsafe=True accepts that)"
    return ""


def to_mlx(view: np.ndarray, copy: bool | None = None, unsafe: bool = False) -> Imported:
    """An MLX array with the elements of `view` (float16, float32, int8 or int32), same shape.

    copy=False adopts the memory or raises AdoptionRefusedError; True copies; None adopts where that is allowed. A copy
    is one copy, also of strided views, and is complete on return. An adopted array keeps the view, hence its set, busy
    for as long as it or anything derived from its memory lives. Raises TypeError for other dtypes, MlxUnavailableError.
    """
    if not isinstance(view, np.ndarray):
        raise TypeError(f"view must be a numpy.ndarray, got {type(view).__name__}")
    if view.dtype.name not in IMPORTABLE or not view.dtype.isnative:
        raise TypeError(f"view must be one of {', '.join(IMPORTABLE)}, got {view.dtype}")
    mx = core()
    version = str(mx.__version__)
    array, reason = None, ""
    if copy is not True:
        reason = refusal(view, version, unsafe)
        if not reason:
            try:
                array = _adopt(view)
            except (ValueError, TypeError, BufferError, AttributeError) as error:
                reason = f"mlx {version}: {error}"
        if array is None and copy is False:
            raise AdoptionRefusedError(f"[mlx.to_mlx] {reason}", details={"mlx_version": version})
    if array is None:
        array = mx.array(view) if view.flags.c_contiguous else _gathered(view)
        mx.eval(array)
    same = address_of(array) == view.ctypes.data
    if copy is False and not same:
        raise AdoptionRefusedError(
            f"[mlx.to_mlx] mlx {version} said that it adopted the memory but copied it",
            details={"mlx_version": version},
        )
    return Imported(array=array, copied=not same, same_address=same, mlx_version=version, reason="" if same else reason)


def _adopt(view: np.ndarray) -> Any:
    # A function of its own for the tests, whose bridge adopts on the CPU backend, where MLX refuses.
    return core().asarray(view, copy=False)


def _gathered(view: np.ndarray) -> Any:
    # mx.array() of a strided view takes the gaps along and has to gather a second time later.
    array = zeros(view.shape, view.dtype.name)
    np.copyto(np.array(array, copy=False), view)
    return array


def zeros(shape: Sequence[int], dtype: str) -> Any:
    """An evaluated MLX array of zeros: memory of its own that NumPy may write through `np.array(a, copy=False)`."""
    mx = core()
    array = mx.zeros(tuple(shape), getattr(mx, dtype))
    mx.eval(array)
    return array


def copied_rows(wanted: Sequence[tuple[np.ndarray, int]], live: int) -> list[Any]:
    """For each (view [1, heads, capacity, size], rows) an array [1, heads, rows, size] with the view's first `live`
    rows and room to decode into: one copy, of exactly the live rows or, when `rows` is the capacity of dense memory, of
    all of it."""
    mx = core()
    arrays = [
        mx.array(view)
        if _whole(view, rows)
        else mx.zeros((view.shape[0], view.shape[1], rows, view.shape[3]), getattr(mx, view.dtype.name))
        for view, rows in wanted
    ]
    mx.eval(arrays)  # once: waking MLX's thread for each costs more than clearing a short one
    for array, (view, rows) in zip(arrays, wanted, strict=True):
        if not _whole(view, rows):
            np.copyto(np.array(array, copy=False)[:, :, :live], view[:, :, :live])
    return arrays


def copied_byte_count(view: np.ndarray, live: int, rows: int) -> int:
    """Bytes that `copied_rows` reads."""
    return view.nbytes if _whole(view, rows) else view[:, :, :live].nbytes


def _whole(view: np.ndarray, rows: int) -> bool:
    return rows == view.shape[2] and view.flags.c_contiguous


def aligned_zeros(shape: Sequence[int], dtype: str) -> Any:
    """Like `zeros`, at an address that is a multiple of ALIGNMENT."""
    mx = core()
    count, size = math.prod(shape), np.dtype(dtype).itemsize
    # MLX updates in place only while the allocation is at most 16 KiB larger than the array: exactly the padding below.
    # A pooled buffer may be larger still.
    mx.clear_cache()
    base = zeros((count + ALIGNMENT // size,), dtype)
    skipped = -address_of(base) % ALIGNMENT
    if skipped % size:
        raise ContractError(f"[mlx.aligned_zeros] MLX memory is not aligned to its own {dtype} elements")
    array = base[skipped // size : skipped // size + count].reshape(tuple(shape))
    mx.eval(array)
    return array
