"""What a writer tells its caller about the package it wrote. Plain values; no coremltools, no native code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input: floats are drawn from a normal distribution, integers from [low, high)."""

    shape: tuple[int, ...]
    dtype: str = "float16"
    low: int = 0
    high: int = 1

    def draw(self, rng: np.random.Generator) -> Array:
        if np.issubdtype(np.dtype(self.dtype), np.floating):
            return rng.standard_normal(self.shape, dtype=np.float32).astype(self.dtype)
        return rng.integers(self.low, self.high, self.shape).astype(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """A package on disk, what it eats, what it promises, and the weights an independent check needs.

    contract: keyword arguments for `KVContract.from_model(model, **info.contract)`; empty where nothing can be backed.
    weights: float32 copies of the weights in the package, after its own rounding, by the writer's names.
    """

    kind: str
    path: Path
    input_specs: Mapping[str, InputSpec]
    contract: Mapping[str, Any]
    options: Mapping[str, Any]
    weights: Mapping[str, Array] = field(repr=False)
    function: str | None = None

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        """Fresh seeded example inputs of the declared shapes and dtypes."""
        rng = np.random.default_rng(seed)
        return {name: spec.draw(rng) for name, spec in self.input_specs.items()}

    def to_json(self) -> dict[str, Any]:
        """Everything but the weights, for `--json`."""
        return {
            "kind": self.kind,
            "path": str(self.path),
            "function": self.function,
            "inputs": {n: {"shape": list(s.shape), "dtype": s.dtype} for n, s in self.input_specs.items()},
            "contract": {k: list(v) if isinstance(v, tuple) else v for k, v in self.contract.items()},
            "options": {k: str(v) if isinstance(v, Path) else v for k, v in self.options.items()},
        }
