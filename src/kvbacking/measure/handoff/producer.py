"""Who wrote the K/V that is handed over: NumPy (a pattern, for a shape without a model) or a session (a real
prediction)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvbacking import _native
from kvbacking.contract import KVContract
from kvbacking.errors import ContractError
from kvbacking.mlx import OwnedBackings
from kvbacking.mlx.layers import layers_of
from kvbacking.model import Model
from kvbacking.payload import Payload
from kvbacking.session import Prediction, Session

Pair = tuple[np.ndarray, np.ndarray]
_PRIME = 2039  # integers below it are exact in float16


@dataclass(slots=True, kw_only=True)
class Producer:
    """K and V of `payload` in `capacity` rows of page-aligned memory; the first `live` hold a pattern that names layer,
    head and row, the others NaN. Memory is made when it is first asked for."""

    payload: Payload
    capacity: int
    live: int
    _stacked: Pair | None = None

    label = "written by NumPy, no model"

    def contract(self, stacked: bool) -> KVContract:
        """One pair of outputs, or one pair per layer."""
        shapes: dict[str, tuple[int, ...]] = {}
        for side, shape in zip(("key", "value"), _shapes(self.payload, self.capacity), strict=True):
            if stacked:
                shapes[f"{side}_cache"] = shape
            else:
                shapes |= {f"{side}_cache_{i}": (1, *shape[1:]) for i in range(self.payload.layers)}
        dtypes = {n: self.payload.keys if n.startswith("key") else self.payload.values for n in shapes}
        return KVContract(tuple(shapes), shapes, dtypes, self.live, _axis(self.payload), tail="any")

    def stacked(self) -> Pair:
        """K and V of all layers, each one array. Raises ContractError where every layer has outputs of its own."""
        if self._stacked is None:
            made = []
            dtypes = (self.payload.keys, self.payload.values)
            for side, (shape, dtype) in enumerate(zip(_shapes(self.payload, self.capacity), dtypes, strict=True)):
                count = math.prod(shape) * np.dtype(dtype).itemsize
                array = _native.Allocation.create(count).bytes().view(dtype).reshape(shape)
                _write_pattern(array, self.live, 0, side)
                made.append(array)
            self._stacked = made[0], made[1]
        return self._stacked

    def pairs(self) -> list[Pair]:
        """K and V layer by layer: views."""
        keys, values = self.stacked()
        return [(keys[i : i + 1], values[i : i + 1]) for i in range(self.payload.layers)]

    def write(self, backings: OwnedBackings) -> Prediction | None:
        """Writes K and V where MLX's arrays lie; the prediction that did it, if one did."""
        for name, array in owned_memory(backings).items():
            layer = int(name.rpartition("_")[2]) if name[-1].isdigit() else 0
            _write_pattern(array, self.live, layer, 0 if name.startswith("key") else 1)
        return None

    def expected(self, layer: int, side: int, rows: Sequence[int]) -> np.ndarray:
        """What these rows hold: [heads, rows, 1 or size], or [rows, 1 or width] of cross K/V."""
        heads = None if self.payload.kind == "cross" else self.payload.kv_heads
        grid: np.ndarray = _pattern(1, heads, np.asarray(rows), layer, side)[0]
        return grid[..., None]


@dataclass(slots=True, kw_only=True)
class PredictedProducer(Producer):
    """The outputs of a model, from a session with raw backings; into MLX's memory through a session over it."""

    model: Model
    made_for: KVContract
    inputs: Mapping[str, np.ndarray]
    prediction: Prediction = field(init=False)
    _session: Session = field(init=False)

    label = "predicted through a session"

    def __post_init__(self) -> None:
        self._session = Session(self.model, self.made_for, mechanism="raw", depth=1)
        self.prediction = self._session.predict(self.inputs, live=self.live)

    def close(self) -> None:
        """Lets go of the prediction; views keep its memory."""
        self.prediction.release()
        self._session.close()

    @property
    def per_layer(self) -> bool:
        """Whether every layer has outputs of its own."""
        return len(self.made_for.outputs) > 2

    def contract(self, stacked: bool) -> KVContract:
        if stacked == self.per_layer and self.payload.layers > 1:
            raise ContractError(
                "this model has one output per layer" if stacked else "this model has one output for all layers"
            )
        return self.made_for

    def stacked(self) -> Pair:
        self.contract(True)
        ((keys, values),) = self._names()
        return self.prediction[keys], self.prediction[values]

    def pairs(self) -> list[Pair]:
        if self.per_layer:
            return [(self.prediction[k], self.prediction[v]) for k, v in self._names()]
        keys, values = self.stacked()
        return [(keys[i : i + 1], values[i : i + 1]) for i in range(self.payload.layers)]

    def _names(self) -> list[tuple[str, str]]:
        if self.payload.kind == "growing":
            return [names for names, _ in layers_of(self.made_for, None, None)[0]][
                : self.payload.layers if self.per_layer else 1
            ]
        half = len(self.made_for.outputs) // 2
        return list(zip(self.made_for.outputs[:half], self.made_for.outputs[half:], strict=True))

    def write(self, backings: OwnedBackings) -> Prediction | None:
        session = Session(self.model, self.made_for, mechanism="external", storage=backings)
        prediction = session.predict(self.inputs, live=self.live)
        if prediction.path != "backing":
            raise ContractError(f"the framework did not write into MLX's memory: path {prediction.path!r}")
        return prediction

    def expected(self, layer: int, side: int, rows: Sequence[int]) -> np.ndarray:
        view = self.pairs()[layer][side][0]
        return np.array(view[list(rows)] if view.ndim == 2 else view[:, list(rows)])


def owned_memory(backings: OwnedBackings) -> dict[str, np.ndarray]:
    """NumPy over the memory of MLX-owned backings, by output. It keeps nothing alive: hold the backings."""
    contract = backings.contract
    memory: dict[str, np.ndarray] = {}
    for name, address in backings.addresses.items():
        shape = contract.shapes[name]
        dtype: np.dtype[Any] = np.dtype(contract.dtypes[name])
        raw: Any = (ctypes.c_uint8 * (math.prod(shape) * dtype.itemsize)).from_address(address)
        memory[name] = np.frombuffer(raw, dtype=np.uint8).view(dtype).reshape(shape)
    return memory


def _axis(payload: Payload) -> int:
    return 1 if payload.kind == "cross" else 2


def _shapes(payload: Payload, capacity: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes = (payload.head_dim, payload.value_dim or payload.head_dim)
    cross = payload.kind == "cross"
    keys, values = (
        (payload.layers, capacity, payload.kv_heads * size)
        if cross
        else (payload.layers, payload.kv_heads, capacity, size)
        for size in sizes
    )
    return keys, values


def _pattern(layers: int, heads: int | None, rows: np.ndarray, first_layer: int, side: int) -> np.ndarray:
    """[layers, heads, rows], or [layers, rows] without heads: small integers, other ones for other places."""
    layer = np.arange(first_layer, first_layer + layers).reshape(-1, *([1] * (1 if heads is None else 2)))
    values = layer * 131 + rows * 7 + side * 1009
    if heads is not None:
        values = values + np.arange(heads)[:, None] * 37
    return np.asarray(values % _PRIME, dtype=np.float16)


def _write_pattern(array: np.ndarray, live: int, first_layer: int, side: int) -> None:
    """Fills [layers, heads, rows, size] or [layers, rows, width]."""
    heads = array.shape[1] if array.ndim == 4 else None
    grid = _pattern(array.shape[0], heads, np.arange(live), first_layer, side)
    array[..., :live, :] = grid[..., None]
    array[..., live:, :] = np.nan
