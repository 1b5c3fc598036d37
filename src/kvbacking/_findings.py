"""What the recipe of `prove` makes of errors, evidence and bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvbacking.errors import CheckFailure, KVBackingError
from kvbacking.session import Prediction


def as_failures(error: KVBackingError) -> tuple[CheckFailure, ...]:
    """The failed checks that an error carries, or the error itself as one."""
    if error.failures:
        return error.failures
    return (CheckFailure(output="*", check="prediction", expected="success", actual=str(error)),)


def how_ignored(prediction: Prediction, name: str) -> str:
    """Which part of acceptance an output lacks, as text."""
    evidence = prediction.evidence[name]
    return f"{name}: same_object {evidence.same_object}, same_storage {evidence.same_storage}"


def unwritten(copies: Sequence[np.ndarray], fills: Sequence[int]) -> str | None:
    """Which elements of one output still hold the fill byte of each of several predictions, as text; None: none do."""
    held = [
        np.all(np.ascontiguousarray(copy).view(np.uint8).reshape(copy.size, -1) == fill, axis=1)
        for copy, fill in zip(copies, fills, strict=True)
    ]
    found = np.flatnonzero(np.logical_and.reduce(held))
    return f"{found.size} elements hold the fill of both, first at {found[0]}" if found.size else None
