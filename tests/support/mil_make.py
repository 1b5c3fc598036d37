"""Seeded tensors and the short form of a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mil_engine import Case

RNG = np.random.default_rng(20)
CHANNELS = np.linspace(0.5, 2.0, 6, dtype=np.float32)


def floats(*shape: int, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, low: int = -5, high: int = 6) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


def apply(op: str, **fixed: Any) -> Callable[..., Any]:
    return lambda mb, **variables: getattr(mb, op)(**variables, **fixed)


def case(
    name: str, op: str, inputs: dict[str, np.ndarray], reference: Any = None, tolerance: float = 2e-5, **fixed: Any
) -> Case:
    return Case(name, apply(op, **fixed), inputs, reference, tolerance)
