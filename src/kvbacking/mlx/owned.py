"""Backings that MLX owns: Core ML writes where the decoder's cache will live, and nothing is copied on MLX's side."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from kvbacking.contract import KVContract
from kvbacking.errors import BackingInUseError, IntegrityError
from kvbacking.mlx.arrays import address_of, aligned_zeros
from kvbacking.session import Session


class OwnedBackings:
    """One set of MLX arrays, one per backed output, for one prompt: Session(model, contract, mechanism="external",
    storage=this), predict, handoff(..., owned=this).

    MLX moves or reuses an array's memory as soon as a cache updates it, so memory that Core ML may write and memory
    that MLX decodes into are never the same at the same time: take() closes the session before it gives the arrays
    away, and the next prompt gets new backings.
    """

    __slots__ = ("_addresses", "_arrays", "_writer", "contract")

    def __init__(self, contract: KVContract) -> None:
        self.contract = contract
        self._writer: Callable[[], Session | None] = lambda: None
        self._arrays: dict[str, Any] | None = {
            name: aligned_zeros(contract.shapes[name], contract.dtypes[name]) for name in contract.outputs
        }
        self._addresses = {name: address_of(array) for name, array in self._arrays.items()}

    @property
    def addresses(self) -> Mapping[str, int]:
        """Where each output's memory begins."""
        return MappingProxyType(self._addresses)

    def exports(self) -> list[dict[str, np.ndarray]]:
        """The memory as writable arrays, for a Session. Never copies. Raises BackingInUseError after take(), and while
        another session proposes it."""
        arrays = self._held()
        writer = self._writer()
        if writer is not None and not writer.closed:
            raise BackingInUseError("[OwnedBackings] another open session proposes this memory: close it first")
        return [{name: np.array(array, copy=False) for name, array in arrays.items()}]

    def lent_to(self, session: Session) -> None:
        """Called by the session that proposes this memory: take() closes it."""
        self._writer = weakref.ref(session)

    def take(self) -> dict[str, Any]:
        """The arrays by output, for good: closes the session first, so that Core ML writes no more. Views made from its
        predictions must not be read any longer once a cache updates the arrays. Raises BackingInUseError the second
        time, IntegrityError when an array has moved."""
        arrays = self._held()
        writer = self._writer()
        if writer is not None:
            writer.close()
        self._arrays = None
        moved = [name for name, array in arrays.items() if address_of(array) != self._addresses[name]]
        if moved:
            raise IntegrityError(
                f"[OwnedBackings.take] the memory of {', '.join(moved)} has moved since it was exported"
            )
        return arrays

    @property
    def taken(self) -> bool:
        """Whether take() was called."""
        return self._arrays is None

    def _held(self) -> dict[str, Any]:
        if self._arrays is None:
            raise BackingInUseError(
                "[OwnedBackings] MLX decodes into this memory already: make new backings per prompt"
            )
        return self._arrays


def owned_backings(contract: KVContract) -> OwnedBackings:
    """MLX-owned storage for every backed output of `contract`, aligned to 16 KiB and zeroed. A cache can only be
    updated in place in storage of its own: that takes one Core ML output per layer ([1, heads, capacity, size])."""
    if not isinstance(contract, KVContract):
        raise TypeError(f"contract must be a kvbacking.KVContract, got {type(contract).__name__}")
    return OwnedBackings(contract)
