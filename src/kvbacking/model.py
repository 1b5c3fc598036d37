"""A loaded Core ML model: what it takes and gives, its fingerprint, the plain prediction without backings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from kvbacking import _cache, _native
from kvbacking._arrays import AnyArray, Surfaces, as_array, element_strided, is_plain_text, prepare_inputs, printable
from kvbacking._integers import as_integer
from kvbacking.errors import ModelError

ComputeUnits = Literal["all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"]
_SUFFIXES = (".mlpackage", ".mlmodelc", ".mlmodel")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input, output or state. `dtype` is NumPy's name, or None where the framework's type is not one of ours;
    `shape` is empty for an output without a fixed shape; an upper bound of -1 in `ranges` is none."""

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    flexible: bool = False
    optional: bool = False
    kind: str = "multi_array"
    enumerated_shapes: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def backable(self) -> bool:
        """Whether memory can be preallocated for it: an array of a fixed shape and known dtype."""
        return self.kind == "multi_array" and self.dtype is not None and bool(self.shape) and not self.flexible

    def accepts_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape may be given."""
        if shape == self.shape:
            return True
        if not self.flexible:
            return False
        if self.enumerated_shapes:
            return shape in self.enumerated_shapes
        if len(shape) != len(self.ranges):
            return not self.ranges and not self.shape
        return all(n >= low and (high < 0 or n <= high) for n, (low, high) in zip(shape, self.ranges, strict=True))

    def describe_shape(self) -> str:
        """The shape or shapes, as text."""
        if self.enumerated_shapes:
            return " or ".join(str(list(s)) for s in self.enumerated_shapes)
        if self.flexible and self.ranges:
            return "[" + ", ".join(f"{a}" if a == b else f"{a}..{'' if b < 0 else b}" for a, b in self.ranges) + "]"
        return str(list(self.shape)) if self.shape or not self.flexible else "any shape"

    def describe(self) -> str:
        """One line, as text."""
        if self.kind not in ("multi_array", "state"):
            return self.kind
        return f"{self.dtype or 'unknown'}{self.describe_shape()}{' flexible' if self.flexible else ''}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return asdict(self)

    @classmethod
    def _from_native(cls, native: _native.TensorSpec) -> TensorSpec:
        return cls(
            name=native.name,
            shape=tuple(native.shape),
            dtype=native.dtype,
            flexible=native.flexible,
            optional=native.optional,
            kind=native.kind,
            enumerated_shapes=tuple(tuple(s) for s in native.enumerated_shapes),
            ranges=tuple((a, b) for a, b in native.ranges),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOperation:
    """Where Core ML expects to run one operation: an expectation, no measurement and no evidence about backings."""

    function: str
    op: str
    outputs: tuple[str, ...]
    preferred_device: str
    supported_devices: tuple[str, ...]
    cost: float | None


class State:
    """The buffers of a stateful model. One call at a time: use while a prediction runs raises BackingInUseError."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.State) -> None:
        self._native = native

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the states, sorted."""
        return tuple(self._native.names())

    def read(self, name: str) -> np.ndarray:
        """A copy of one buffer. Raises ValueError for an unknown name."""
        return self._native.read(name)

    def write(
        self,
        name: str,
        array: AnyArray,
        *,
        rows: int | None = None,
        axis: int = -2,
        at: Sequence[int] | None = None,
    ) -> None:
        """Copies `array` (any strides; the state's dtype, or fp16/fp32) into one buffer: once, from where it lies.

        Without `rows` and `at` it has the state's shape. `rows` takes the first so many along `axis` and writes them to
        the first rows of the state; `at` gives the indices of the first element written (a layer's keys of shape
        [1, heads, rows, size] at (layer, 0, 0, 0)). Everything else stays as it was. Raises ValueError when it does not
        fit, BackingInUseError while a prediction uses the state.
        """
        source = element_strided(as_array(array))
        origin = [] if at is None else [as_integer("an index of at", index) for index in at]
        if rows is not None:
            rows, axis = as_integer("rows", rows, "an integer or None"), as_integer("axis", axis)
            if not -source.ndim <= axis < source.ndim:
                raise ValueError(f"axis {axis} is none of an array of shape {list(source.shape)}")
            if not 0 <= rows <= source.shape[axis]:
                raise ValueError(f"rows must be 0 to {source.shape[axis]}, the length of axis {axis}, got {rows}")
            source = source[(slice(None),) * (axis % source.ndim) + (slice(0, rows),)]
            origin = origin or [0] * source.ndim
        self._native.write(name, source, origin)

    def zero(self) -> None:
        """Zeroes every buffer."""
        self._native.zero()

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copies of every buffer."""
        return self._native.snapshot()

    def restore(self, snapshot: Mapping[str, AnyArray]) -> None:
        """Copies a snapshot back. Raises TypeError for what is no mapping from names, ValueError."""
        if not isinstance(snapshot, Mapping) or not all(isinstance(name, str) for name in snapshot):
            raise TypeError(f"snapshot must be a mapping from state name to array, got {type(snapshot).__name__}")
        self._native.restore({name: element_strided(as_array(array)) for name, array in snapshot.items()})


def native_state(state: State | None) -> _native.State | None:
    """What a prediction hands on. Raises TypeError for anything but a State or None."""
    if state is not None and not isinstance(state, State):
        raise TypeError(f"state must be a kvbacking State (Model.new_state) or None, got {type(state).__name__}")
    return None if state is None else state._native


class Model:
    """A loaded model. Sessions and predictions keep it alive; calls on one Model wait for each other."""

    __slots__ = (
        "_native",
        "cache_dir",
        "compute_units",
        "fingerprint",
        "function",
        "inputs",
        "outputs",
        "path",
        "states",
    )

    path: Path
    cache_dir: Path
    compute_units: ComputeUnits
    function: str | None
    fingerprint: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    states: Mapping[str, TensorSpec]
    _native: _native.Model

    def __init__(self) -> None:
        raise TypeError("use Model.load(path)")

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        compute_units: ComputeUnits = "all",
        function: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Model:
        """Loads a .mlpackage or .mlmodel (compiled once, into the cache) or a .mlmodelc.

        `function` chooses one of a multi-function package; `cache_dir` overrides KVBACKING_CACHE_DIR. Raises ModelError
        with the framework's own text, also for a package that changes while it is compiled; UnsupportedPlatformError.
        """
        if compute_units not in get_args(ComputeUnits):
            raise ValueError(f"compute_units must be one of {get_args(ComputeUnits)}, got {compute_units!r}")
        if function is not None and not isinstance(function, str):
            raise TypeError(f"function must be a name or None, got {type(function).__name__}")
        if function is not None and not is_plain_text(function):
            raise ValueError(f"function {function!a} cannot be a name: it holds a NUL or half a character")
        package = Path(path)
        if package.suffix not in _SUFFIXES:
            raise ModelError(f"[Model.load] {package.name!r} is not one of {', '.join(_SUFFIXES)}")
        cache = _cache.cache_directory(cache_dir)
        for what, place in (("package", package), ("cache folder", cache)):
            if not is_plain_text(str(place)):
                raise ModelError(f"[Model.load] the path of the {what} is not UTF-8 text: {str(place)!a}")
        try:
            found = package.exists()
        except OSError as error:
            raise ModelError(f"[Model.load] {printable(str(package))}: {error.strerror}") from error
        if not found:
            raise ModelError(f"[Model.load] {package} does not exist")
        fingerprint = _cache.fingerprint(package, cache)
        host = _native.host_info()
        compiled = package.suffix == ".mlmodelc"
        key = "" if compiled else _cache.compiled_key(fingerprint, host.kind, host.runtime_version, host.os_build)
        folder = os.path.join(cache, "compiled")
        is_new = not compiled and not _cache.touch(os.path.join(folder, f"{key}.mlmodelc"))
        native = _native.Model.load(
            str(package),
            compute_units=getattr(_native.ComputeUnits, compute_units),
            function=function,
            cache_dir="" if compiled else folder,
            cache_key=key,
        )
        if is_new:
            if _cache.fingerprint(package, cache) != fingerprint:  # what was compiled may be neither of the two
                _cache.discard(os.path.join(folder, f"{key}.mlmodelc"))
                raise ModelError(f"[Model.load] {package} changed while it was being compiled: load it again")
            _cache.prune_compiled(Path(folder))
        self = object.__new__(cls)
        self._native = native
        self.path = package
        self.cache_dir = cache
        self.compute_units = compute_units
        self.function = function
        self.fingerprint = fingerprint
        self.inputs = _specs(native.inputs)
        self.outputs = _specs(native.outputs)
        self.states = _specs(native.states)
        return self

    @property
    def functions(self) -> tuple[str, ...]:
        """Functions of a multi-function package; empty where the system cannot list them or there is one."""
        return tuple(self._native.functions())

    def predict(
        self, inputs: Mapping[str, AnyArray], *, cast: bool = False, state: State | None = None
    ) -> dict[str, np.ndarray]:
        """The plain control path: every output copied into memory of its own, dense. `cast=True` converts the dtype of
        inputs. Raises ContractError naming every input that is wrong, PredictionError."""
        surfaces: Surfaces = {}
        prepared = prepare_inputs(self.inputs, inputs, cast, surfaces)
        return self._native.predict({**prepared, **surfaces}, native_state(state))

    def release_idle_inputs(self) -> None:
        """Frees the input buffers that nothing holds now; the next predictions make new ones."""
        self._native.release_idle_inputs()

    def new_state(self) -> State:
        """New buffers, all zero. Raises UnsupportedPlatformError before macOS 15."""
        return State(_native.State.create(self._native))

    def compute_plan(self, *, timeout_s: float = 120.0) -> tuple[PlannedOperation, ...]:
        """Where Core ML expects to run each operation. Raises UnsupportedPlatformError (macOS 14.4), ModelError."""
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
            raise TypeError(f"timeout_s must be a number of seconds, got {type(timeout_s).__name__}")
        if not timeout_s > 0 or timeout_s == float("inf"):
            raise ValueError(f"timeout_s must be positive and finite, got {timeout_s}")
        return tuple(
            PlannedOperation(
                function=op.function,
                op=op.op,
                outputs=tuple(op.outputs),
                preferred_device=op.preferred_device,
                supported_devices=tuple(op.supported_devices),
                cost=op.cost,
            )
            for op in _native.compute_plan(self._native, timeout_s)
        )

    def __repr__(self) -> str:
        return f"Model({self.path.name!r}, compute_units={self.compute_units!r}, {self.fingerprint[:19]}...)"


def _specs(native: list[_native.TensorSpec]) -> Mapping[str, TensorSpec]:
    return MappingProxyType({spec.name: TensorSpec._from_native(spec) for spec in native})
