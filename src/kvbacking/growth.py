"""K/V in memory of the host's own that can grow: new memory, the live prefix copied, the old freed with its last view.

Not thread-safe. The memory is pages of the system's or surfaces: a view owns its part, and nothing here refers to a
view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from kvbacking import _native
from kvbacking._integers import as_integer
from kvbacking.contract import KVContract
from kvbacking.errors import CheckFailure, ContractError
from kvbacking.surface import Surface, checked_shape, page_aligned

Memory = Literal["raw", "surface"]
Storage = np.ndarray | Surface


class GrowableCache:
    """One writable array, or one Surface, per backed output of a contract; the contract's axis is the one that grows.

    `live` is the count of rows in use (the position of the next one). `attached` holds whatever belongs to the sequence
    and lies elsewhere (recurrent state, rows that are pending): growing leaves it alone.
    """

    __slots__ = ("_axis", "_binding", "_capacity", "_generation", "_live", "_storage", "attached", "memory")

    def __init__(self, contract: KVContract, *, memory: Memory = "raw") -> None:
        """Zeroed memory in the contract's shapes and dtypes. Raises ValueError when capacities differ, ContractError
        naming every output that no surface can hold, AllocationError, MemoryError."""
        if not isinstance(contract, KVContract):
            raise TypeError(f"contract must be a kvbacking.KVContract, got {type(contract).__name__}")
        if memory not in get_args(Memory):
            raise ValueError(f"memory must be one of {get_args(Memory)}, got {memory!r}")
        capacities = {shape[contract.axis] for shape in contract.shapes.values()}
        if len(capacities) != 1:
            raise ValueError(f"[GrowableCache] outputs differ in capacity: {sorted(capacities)}")
        self.memory: Memory = memory
        self._axis = contract.axis
        self._capacity = capacities.pop()
        specs = {name: (contract.shapes[name], contract.dtypes[name]) for name in contract.outputs}
        self._require_room(specs)
        zeroed = page_aligned if memory == "raw" else Surface
        self._storage: dict[str, Storage] = {name: zeroed(*spec) for name, spec in specs.items()}
        self._live = 0
        self._generation = 0
        self._binding: tuple[Any] | None = None
        self.attached: dict[str, Any] = {}

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Writable arrays by output: never a copy. They stay valid after grow(), apart from the cache. Over surfaces
        they are mappings: no prediction can use the surfaces until the last of them is gone."""
        return MappingProxyType({name: _mapped(storage, True) for name, storage in self._storage.items()})

    @property
    def storage(self) -> Mapping[str, Storage]:
        """The memory itself by output, a set for `Session(storage=[...])`: the arrays, or the surfaces."""
        return MappingProxyType(dict(self._storage))

    @property
    def capacity(self) -> int:
        """Rows along the axis."""
        return self._capacity

    @property
    def generation(self) -> int:
        """Counts transitions: what was bound to the memory of an earlier one is stale."""
        return self._generation

    @property
    def live(self) -> int:
        """Rows in use."""
        return self._live

    @live.setter
    def live(self, count: int) -> None:
        count = as_integer("live", count)
        if not 0 <= count <= self._capacity:
            raise ValueError(f"[GrowableCache] live must be 0 to {self._capacity}, got {count}")
        self._live = count

    def binding(self, make: Callable[[Mapping[str, Storage]], Any]) -> Any:
        """What `make(storage)` gave in this generation (a session over this memory, say): made at the first call, let
        go of by grow(). Raises RuntimeError when `make` grew the cache: what it gave is stale."""
        if self._binding is None:
            generation = self._generation
            made = make(self.storage)
            if self._generation != generation:
                raise RuntimeError("[GrowableCache.binding] the cache grew while its binding was made")
            self._binding = (made,)
        return self._binding[0]

    def grow(self, capacity: int) -> int:
        """Moves to memory of `capacity` rows (fewer than now is allowed down to `live`) and returns the bytes copied:
        the live rows of each head and no more; the other rows are zero. Either everything moves or, on an error,
        nothing. Raises ValueError below the live length and from 2**40 on, ContractError naming every output that no
        surface of that capacity can hold, BackingInUseError while a prediction uses a surface, AllocationError,
        MemoryError; the same capacity does nothing."""
        capacity = as_integer("capacity", capacity)
        if capacity < max(self._live, 1):
            raise ValueError(f"[GrowableCache.grow] {capacity} rows cannot hold the {self._live} live ones")
        if capacity == self._capacity:
            return 0
        axis = self._axis
        specs = {
            name: ((*old.shape[:axis], capacity, *old.shape[axis + 1 :]), np.dtype(old.dtype).name)
            for name, old in self._storage.items()
        }
        for shape, _ in specs.values():
            checked_shape(shape)
        self._require_room(specs)
        moved: dict[str, Storage] = {}
        copied = 0
        for name, old in self._storage.items():
            moved[name] = _new(self.memory, *specs[name])
            copied += copy_live_rows(_mapped(old, False), _mapped(moved[name], True), axis, self._live)
            if self.memory == "surface":
                _mapped(moved[name], True)[(slice(None),) * axis + (slice(self._live, None),)] = 0
        self._storage, self._capacity, self._binding = moved, capacity, None
        self._generation += 1
        return copied

    def _require_room(self, specs: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
        if self.memory != "surface":
            return
        reasons = {name: _native.surface_refusal(dtype, shape) for name, (shape, dtype) in specs.items()}
        failures = [
            CheckFailure(output=name, check="surface_limits", expected="an array that fits a surface", actual=reason)
            for name, reason in reasons.items()
            if reason is not None
        ]
        if failures:
            raise ContractError(f"[GrowableCache] {'; '.join(map(str, failures))}", failures=failures)


def copy_live_rows(old: np.ndarray, new: np.ndarray, axis: int, live: int) -> int:
    """Copies the first `live` rows along `axis`, without the GIL and past the caches (a K/V prefix is larger than they
    are), and returns the bytes."""
    rows = (slice(None),) * axis + (slice(0, live),)
    _native.copy_elements(old[rows], new[rows], bypass_caches=True)
    return old[rows].nbytes


def _new(memory: Memory, shape: tuple[int, ...], dtype: str) -> Storage:
    """Raw memory is zero, a surface holds anything."""
    return page_aligned(shape, dtype) if memory == "raw" else Surface._not_zeroed(shape, dtype)


def _mapped(storage: Storage, writable: bool) -> np.ndarray:
    return storage.map(writable=writable) if isinstance(storage, Surface) else storage
