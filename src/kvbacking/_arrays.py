"""What a caller may hand over as an array, and the checks of a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbacking import _native
from kvbacking.errors import CheckFailure, ContractError

if TYPE_CHECKING:
    from kvbacking.model import TensorSpec

# A NumPy array, or anything with the buffer protocol or __dlpack__.
AnyArray = Any
Surfaces = dict[str, _native.OwnedSurface]

_NATIVE_DTYPES: dict[str | None, np.dtype[Any]] = {
    name: np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int8")
}
_MISSING: Any = object()


def as_array(value: AnyArray) -> np.ndarray:
    """A NumPy array over the same memory. Never copies. Raises TypeError for what exports no memory (lists too), for an
    exporter that fails, and for a masked array, whose mask nothing here would heed."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array's mask would be lost; give filled() or data")
    if isinstance(value, np.ndarray):
        return value
    kind = type(value).__name__
    # An exporter is somebody else's code and may raise anything, also from its attributes.
    try:
        if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
            return np.from_dlpack(value)
    except Exception as error:
        raise TypeError(f"{kind} exports no CPU memory: {error}") from error
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(f"{kind} has neither the buffer protocol nor __dlpack__") from None
    except Exception as error:
        raise TypeError(f"{kind} exports no memory: {error}") from error
    try:
        return np.asarray(view)
    except Exception as error:
        raise TypeError(f"{kind} exports memory that is no array: {error}") from error


def element_strided(value: AnyArray) -> np.ndarray:
    """The array itself, or a copy of one whose byte strides are no multiple of its element size (a field of a
    structured array): the native side counts strides in elements."""
    array = as_array(value)
    size = array.itemsize
    if array.flags.c_contiguous or not any(stride % size for stride in array.strides):
        return array
    return np.ascontiguousarray(array)


def prepare_inputs(
    specs: Mapping[str, TensorSpec],
    inputs: Mapping[str, AnyArray],
    cast: bool,
    surfaces: Surfaces | None = None,
    rearranged: set[str] | None = None,
) -> dict[str, np.ndarray]:
    """The arrays to hand to the native side, which copies them. The caller's mapping and arrays are never changed, and
    each is looked up and asked for its memory once. Inputs that are surfaces are put into `surfaces`; None: they are
    refused like anything else that is no array. Names of arrays that are copies already go into `rearranged`.

    Raises TypeError for what is no mapping, and one ContractError that names every name, shape and dtype that is wrong.
    """
    if type(inputs) is not dict and not isinstance(inputs, Mapping):
        raise TypeError(f"inputs must be a mapping from input name to array, got {type(inputs).__name__}")
    prepared: dict[str, np.ndarray] = {}
    failures: list[CheckFailure] = []
    for name, spec in specs.items():
        value = inputs.get(name, _MISSING)
        # The usual case first: it is paid on every prediction.
        if (
            type(value) is np.ndarray
            and value.dtype == _NATIVE_DTYPES.get(spec.dtype)
            and value.shape == spec.shape
            and value.flags.c_contiguous
        ):
            prepared[name] = value
        elif value is not _MISSING:
            if surfaces is None or not _prepare_surface(name, spec, value, surfaces, failures):
                copied = _prepare_unusual(name, spec, value, cast, prepared, failures)
                if copied and rearranged is not None:
                    rearranged.add(name)
        elif not spec.optional:
            failures.append(_failure(name, "name", spec.describe(), "missing"))
    if len(inputs) != len(prepared) + len(surfaces or ()):
        failures += [
            _failure(str(n), "name", f"one of {sorted(specs)}", "unknown input") for n in inputs if n not in specs
        ]
    if failures:
        text = "; ".join(map(str, failures))
        raise ContractError(
            f"[inputs] {len(failures)} mismatch{'es' if len(failures) > 1 else ''}: {text}", failures=failures
        )
    return prepared


def _prepare_surface(
    name: str, spec: TensorSpec, value: object, surfaces: Surfaces, failures: list[CheckFailure]
) -> bool:
    """Whether `value` is a surface; it is then noted, or what is wrong with it."""
    try:
        native = getattr(value, "_native", None)
    except Exception:  # somebody else's attribute of that name
        return False
    if not isinstance(native, _native.OwnedSurface):
        return False
    if native.dtype != spec.dtype:
        failures.append(_failure(name, "dtype", str(spec.dtype), native.dtype))
    elif not spec.accepts_shape(tuple(native.shape)):
        failures.append(_failure(name, "shape", spec.describe_shape(), str(native.shape)))
    else:
        surfaces[name] = native
    return True


def _prepare_unusual(
    name: str,
    spec: TensorSpec,
    value: AnyArray,
    cast: bool,
    prepared: dict[str, np.ndarray],
    failures: list[CheckFailure],
) -> bool:
    """Whether what it put into `prepared` is a copy."""
    try:
        array = given = as_array(value)
    except TypeError as error:
        failures.append(_failure(name, "type", "a buffer or DLPack array", str(error)))
        return False
    if array.dtype != _NATIVE_DTYPES.get(spec.dtype):
        if not cast or spec.dtype is None or array.dtype.kind not in "fiub":
            actual = array.dtype.name if array.dtype.isnative else f"{array.dtype.name} of the other byte order"
            failures.append(_failure(name, "dtype", str(spec.dtype), actual))
            return False
        array = array.astype(spec.dtype)
    if not spec.accepts_shape(array.shape):
        failures.append(_failure(name, "shape", spec.describe_shape(), str(list(array.shape))))
        return False
    prepared[name] = element_strided(array)
    return prepared[name] is not given


def borrowed_names(
    prepared: Mapping[str, np.ndarray],
    surfaces: Surfaces,
    rearranged: set[str],
    borrow: bool | str | Sequence[str],
    cast: bool,
) -> tuple[list[str], bool]:
    """(inputs to lend, whether a refusal is an error), of what prepare_inputs gave. Raises TypeError and ValueError
    for a `borrow` that is none, ContractError for memory that would have had to be rearranged first."""
    if cast:
        raise ValueError("borrow and cast=True exclude each other: a converted array is a copy already")
    names: list[str]
    if isinstance(borrow, bool) or borrow == "auto":
        names = list(prepared)
    elif isinstance(borrow, str) or not isinstance(borrow, Sequence) or not all(isinstance(n, str) for n in borrow):
        raise TypeError(f'borrow must be True, False, "auto" or a sequence of input names, got {borrow!r}')
    elif unknown := sorted(set(borrow) - set(prepared) - set(surfaces)):
        raise ValueError(f"borrow names {unknown}, the inputs given are {sorted({*prepared, *surfaces})}")
    else:
        names = [name for name in borrow if name not in surfaces]
    if borrow == "auto":
        return [name for name in names if name not in rearranged], False
    failures = [
        _failure(name, "borrow", "memory that can be passed without a copy", "an array that is not contiguous")
        for name in names
        if name in rearranged or not prepared[name].flags.c_contiguous
    ]
    if failures:
        raise ContractError(f"[inputs] cannot be lent: {'; '.join(map(str, failures))}", failures=failures)
    return names, True


def is_plain_text(name: str) -> bool:
    """Whether native code reads the same name: a NUL would end it there, half a surrogate pair has no UTF-8 form."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def printable(name: str) -> str:
    """A name that somebody else chose, as it may stand in a message: escaped where it cannot be printed, and short."""
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(name)} characters)"


def _failure(name: str, check: str, expected: str, actual: str) -> CheckFailure:
    return CheckFailure(output=printable(name), check=check, expected=expected, actual=actual)
