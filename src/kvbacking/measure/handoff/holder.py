"""What a decoder holds after a hand-off, and the two steps it makes with it: mlx-lm's caches, or read-only K/V."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from kvbacking.mlx import address_of, fill
from kvbacking.mlx.arrays import core, optional_module
from kvbacking.payload import Payload


class Holder(Protocol):
    """K and V of every layer."""

    def arrays(self) -> list[Any]:
        """K, V, K, V, ... as they lie now."""

    def step(self, index: int) -> None:
        """One decoder step over all layers, evaluated."""

    def wrong(self, live: int, expected: Any) -> str:
        """Which row holds something else; empty when none of those looked at does."""


class Caches:
    """One KVCache per layer; a step writes a token into each."""

    def __init__(self, payload: Payload) -> None:
        mx = core()
        make = optional_module("mlx_lm.models.cache").KVCache
        self.caches: list[Any] = [make() for _ in range(payload.layers)]
        sizes = (payload.head_dim, payload.value_dim or payload.head_dim)
        dtypes = (getattr(mx, payload.keys), getattr(mx, payload.values))
        # Two different tokens: the second step must not find the first one's rows.
        self._tokens = [
            [mx.full((1, payload.kv_heads, 1, size), 3 + 2 * i, d) for size, d in zip(sizes, dtypes, strict=True)]
            for i in range(2)
        ]
        mx.eval(self._tokens)

    def fill(self, pairs: Sequence[tuple[Any, Any]], live: int) -> None:
        """Puts arrays into the caches and evaluates them."""
        for cache, (keys, values) in zip(self.caches, pairs, strict=True):
            fill(cache, keys, values, live)
        core().eval([array for cache in self.caches for array in (cache.keys, cache.values)])

    def arrays(self) -> list[Any]:
        return [array for cache in self.caches for array in (cache.keys, cache.values)]

    def step(self, index: int) -> None:
        keys, values = self._tokens[index]
        core().eval([cache.update_and_fetch(keys, values) for cache in self.caches])

    def wrong(self, live: int, expected: Any) -> str:
        rows = sorted({0, live // 2, live - 1})
        for layer, cache in enumerate(self.caches):
            if cache.offset != live + 2:
                return f"layer {layer} holds {cache.offset} rows, not {live} and two tokens"
            for side, array in enumerate((cache.keys, cache.values)):
                found = np.array(array, copy=False)[0]
                if not np.array_equal(found[:, rows], _like(expected(layer, side, rows), found[:, rows])):
                    return f"layer {layer}: rows {rows} of {'KV'[side]} are not those that were written"
                if not ((found[:, live] == 3).all() and (found[:, live + 1] == 5).all()):
                    return f"layer {layer}: the tokens of the two steps are not in {'KV'[side]}"
        return ""


class ReadOnly:
    """K and V [1, live, width] per layer; a step reads a row of each."""

    def __init__(self, pairs: Sequence[tuple[Any, Any]], live: int) -> None:
        self._pairs = [(keys[:, :live], values[:, :live]) for keys, values in pairs]
        core().eval(self._pairs)

    def arrays(self) -> list[Any]:
        return [array for pair in self._pairs for array in pair]

    def step(self, index: int) -> None:
        mx = core()
        mx.eval([mx.max(array[:, index]) for array in self.arrays()])

    def wrong(self, live: int, expected: Any) -> str:
        rows = sorted({0, live // 2, live - 1})
        for layer, pair in enumerate(self._pairs):
            for side, array in enumerate(pair):
                found = np.array(array, copy=False)[0]
                if found.shape[0] != live:
                    return f"layer {layer} holds {found.shape[0]} rows, not {live}"
                if not np.array_equal(found[rows], _like(expected(layer, side, rows), found[rows])):
                    return f"layer {layer}: rows {rows} of {'KV'[side]} are not those that were written"
        return ""


def addresses(holder: Holder) -> list[int]:
    """Where every array begins."""
    return [address_of(array) for array in holder.arrays()]


def _like(values: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values, other.shape)
