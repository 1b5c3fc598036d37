"""K/V in memory of the host's own that can grow: new memory, the live prefix copied, the old freed with its last view.

Not thread-safe. The memory is NumPy's: a view owns its part, and nothing here refers to a view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from kvbacking._integers import as_integer
from kvbacking.contract import KVContract

ALIGNMENT = 16384  # pages of Apple silicon


class GrowableCache:
    """One writable array per backed output of a contract; the contract's axis is the one that grows.

    `live` is the count of rows in use (the position of the next one). `attached` holds whatever belongs to the sequence
    and has no rows (recurrent state, pending rows): growing leaves it alone.
    """

    __slots__ = ("_arrays", "_axis", "_binding", "_capacity", "_generation", "_live", "attached")

    def __init__(self, contract: KVContract) -> None:
        """Zeroed memory in the contract's shapes and dtypes. Raises ValueError when capacities differ, MemoryError."""
        if not isinstance(contract, KVContract):
            raise TypeError(f"contract must be a kvbacking.KVContract, got {type(contract).__name__}")
        capacities = {shape[contract.axis] for shape in contract.shapes.values()}
        if len(capacities) != 1:
            raise ValueError(f"[GrowableCache] outputs differ in capacity: {sorted(capacities)}")
        self._axis = contract.axis
        self._capacity = capacities.pop()
        self._arrays = {name: _zeros(contract.shapes[name], contract.dtypes[name]) for name in contract.outputs}
        self._live = 0
        self._generation = 0
        self._binding: tuple[Any] | None = None
        self.attached: dict[str, Any] = {}

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        """The writable arrays by output: never a copy. They stay valid after grow(), apart from the cache."""
        return MappingProxyType(dict(self._arrays))

    @property
    def capacity(self) -> int:
        """Rows along the axis."""
        return self._capacity

    @property
    def generation(self) -> int:
        """Counts transitions: what was bound to the arrays of an earlier one is stale."""
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

    def binding(self, make: Callable[[Mapping[str, np.ndarray]], Any]) -> Any:
        """What `make(arrays)` gave in this generation (a session over this memory, say): made at the first call, let go
        of by grow()."""
        if self._binding is None:
            self._binding = (make(self.arrays),)
        return self._binding[0]

    def grow(self, capacity: int) -> int:
        """Moves to memory of `capacity` rows (fewer than now is allowed down to `live`) and returns the bytes copied:
        the live rows of each head and no more; the other rows are zero. Either all arrays move or, on MemoryError,
        none. Raises ValueError below the live length; the same capacity does nothing."""
        capacity = as_integer("capacity", capacity)
        if capacity < max(self._live, 1):
            raise ValueError(f"[GrowableCache.grow] {capacity} rows cannot hold the {self._live} live ones")
        if capacity == self._capacity:
            return 0
        rows = (slice(None),) * self._axis + (slice(0, self._live),)
        moved: dict[str, np.ndarray] = {}
        copied = 0
        for name, old in self._arrays.items():
            shape = (*old.shape[: self._axis], capacity, *old.shape[self._axis + 1 :])
            moved[name] = _zeros(shape, old.dtype.name)
            moved[name][rows] = old[rows]
            copied += old[rows].nbytes
        self._arrays, self._capacity, self._binding = moved, capacity, None
        self._generation += 1
        return copied


def _zeros(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    byte_count = math.prod(shape) * np.dtype(dtype).itemsize
    whole = -(-byte_count // ALIGNMENT) * ALIGNMENT
    memory = np.zeros(whole + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + byte_count].view(dtype).reshape(shape)
