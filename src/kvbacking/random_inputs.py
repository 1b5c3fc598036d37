"""Seeded inputs for a model that nobody gave any: floats from a normal distribution, integers zero or one."""

from __future__ import annotations

import numpy as np

from kvbacking.errors import CheckFailure, ContractError
from kvbacking.model import Model


def random_inputs(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """One array per required input. Integers stay at zero or one, which every embedding table has. Raises ContractError
    for an input that is no array of a known dtype and shape."""
    generator = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    failures: list[CheckFailure] = []
    for name, spec in model.inputs.items():
        if spec.optional:
            continue
        if spec.kind != "multi_array" or spec.dtype is None or not spec.shape:
            failures.append(
                CheckFailure(output=name, check="type", expected="an array of a known shape", actual=spec.describe())
            )
        elif np.dtype(spec.dtype).kind == "f":
            arrays[name] = generator.standard_normal(spec.shape, dtype=np.float32).astype(spec.dtype)
        else:
            arrays[name] = generator.integers(0, 2, spec.shape).astype(spec.dtype)
    if failures:
        raise ContractError(f"[random_inputs] give --inputs: {'; '.join(map(str, failures))}", failures=failures)
    return arrays
