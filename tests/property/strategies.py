"""Arrays of every layout that the library allows, with NumPy as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

DTYPES = ("float16", "float32", "float64", "int32", "int8")


@st.composite
def shapes(draw: Any, max_dims: int = 4, max_side: int = 7, min_side: int = 0) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(min_side, max_side), min_size=1, max_size=max_dims)))


@st.composite
def bit_patterns(draw: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Any bit pattern: NaN payloads, infinities, subnormals and both zeros included."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype=dtype).reshape(shape)


@st.composite
def strided(draw: Any, shape: tuple[int, ...], dtype: str, *, negative: bool = False) -> np.ndarray:
    """A writable view of `shape` into a larger buffer: permuted, stepped, offset, rows padded."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.integers(1, 3)) for _ in shape]
    pads = [draw(st.integers(0, 3)) for _ in shape]
    base = np.zeros([shape[i] * steps[i] + pads[i] for i in order], dtype=dtype)
    view = base.transpose(np.argsort(order))
    view = view[tuple(slice(p, p + n * s, s) for n, s, p in zip(shape, steps, pads, strict=True))]
    if negative:
        view = view[tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in shape)]
    assert view.shape == shape
    return view
