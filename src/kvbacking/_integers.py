"""Integer arguments of the public API: plain int and whatever else Python counts as one."""

from __future__ import annotations

import operator


def as_integer(what: str, value: object, expected: str = "an integer") -> int:
    """The int of anything with `__index__` (NumPy's integers too). Raises TypeError, for a bool too: that is an answer,
    no count."""
    if type(value) is int:
        return value
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:  # no __index__, or the one of an array that holds no single integer
        pass
    raise TypeError(f"{what} must be {expected}, got {type(value).__name__}")
