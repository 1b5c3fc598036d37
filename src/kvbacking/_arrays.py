"""What a caller may hand over as an array, and the checks of a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbacking.errors import CheckFailure, ContractError

if TYPE_CHECKING:
    from kvbacking.model import TensorSpec

# A NumPy array, or anything with the buffer protocol or __dlpack__.
AnyArray = Any


def as_array(value: AnyArray) -> np.ndarray:
    """A NumPy array over the same memory. Never copies. Raises TypeError for what exports no memory (lists too)."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError) as error:
            raise TypeError(f"{type(value).__name__} exports no CPU memory: {error}") from error
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise TypeError(f"{type(value).__name__} has neither the buffer protocol nor __dlpack__") from None


def element_strided(value: AnyArray) -> np.ndarray:
    """The array itself, or a copy of one whose byte strides are no multiple of its element size (a field of a
    structured array): the native side counts strides in elements."""
    array = as_array(value)
    size = array.itemsize
    if array.flags.c_contiguous or not any(stride % size for stride in array.strides):
        return array
    return np.ascontiguousarray(array)


def prepare_inputs(
    specs: Mapping[str, TensorSpec], inputs: Mapping[str, AnyArray], cast: bool
) -> dict[str, np.ndarray]:
    """The arrays to hand to the native side, which copies them. The caller's mapping and arrays are never changed.

    Raises TypeError for what is no mapping, and one ContractError that names every name, shape and dtype that is wrong.
    """
    if not isinstance(inputs, Mapping):
        raise TypeError(f"inputs must be a mapping from input name to array, got {type(inputs).__name__}")
    prepared: dict[str, np.ndarray] = {}
    failures: list[CheckFailure] = []
    for name, spec in specs.items():
        if name not in inputs:
            if not spec.optional:
                failures.append(_failure(name, "name", spec.describe(), "missing"))
            continue
        try:
            array = as_array(inputs[name])
        except TypeError as error:
            failures.append(_failure(name, "type", "a buffer or DLPack array", str(error)))
            continue
        if array.dtype.name != spec.dtype or not array.dtype.isnative:
            if cast and spec.dtype is not None and array.dtype.kind in "fiub":
                array = array.astype(spec.dtype)
            else:
                failures.append(
                    _failure(
                        name,
                        "dtype",
                        str(spec.dtype),
                        array.dtype.str if not array.dtype.isnative else array.dtype.name,
                    )
                )
                continue
        if not spec.accepts_shape(array.shape):
            failures.append(_failure(name, "shape", spec.describe_shape(), str(list(array.shape))))
            continue
        prepared[name] = element_strided(array)
    if len(inputs) != len(prepared):
        failures += [
            _failure(str(n), "name", f"one of {sorted(specs)}", "unknown input") for n in inputs if n not in specs
        ]
    if failures:
        text = "; ".join(map(str, failures))
        raise ContractError(
            f"[inputs] {len(failures)} mismatch{'es' if len(failures) > 1 else ''}: {text}", failures=failures
        )
    return prepared


def _failure(name: str, check: str, expected: str, actual: str) -> CheckFailure:
    return CheckFailure(output=name, check=check, expected=expected, actual=actual)
