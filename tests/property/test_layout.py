"""Layouts against what NumPy says about arrays of the same strides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbacking._native import Layout, element_size

from .strategies import DTYPES, shapes, strided


@given(st.data(), st.sampled_from(DTYPES), shapes())
def test_counts_agree_with_numpy(data: st.DataObject, dtype: str, shape: tuple[int, ...]) -> None:
    array = data.draw(strided(shape, dtype))
    layout = Layout.strided(dtype, list(shape), [s // array.itemsize for s in array.strides])
    assert layout.element_count() == array.size
    assert layout.byte_count() == array.nbytes
    assert layout.row_length() == shape[-1]
    assert layout.row_count() == int(np.prod(shape[:-1]))
    if array.size:
        low, high = np.lib.array_utils.byte_bounds(array)
        assert layout.span_byte_count() == high - low
        assert not layout.overlaps_itself()
        assert layout.is_dense() == array.flags.c_contiguous
    else:
        assert layout.span_byte_count() == 0


@given(st.sampled_from(DTYPES), shapes(min_side=1))
def test_dense_is_c_order(dtype: str, shape: tuple[int, ...]) -> None:
    layout = Layout.dense(dtype, list(shape))
    array = np.empty(shape, dtype)
    assert [n * array.itemsize for n in layout.element_strides] == list(array.strides)
    assert layout.is_dense()
    assert layout.is_row_padded()
    assert layout.span_byte_count() == array.nbytes


@given(st.sampled_from(DTYPES), shapes(min_side=1), st.integers(0, 40))
def test_padded_rows_are_a_slice_of_wider_rows(dtype: str, shape: tuple[int, ...], padding: int) -> None:
    stride = shape[-1] + padding
    layout = Layout.padded_rows(dtype, list(shape), stride)
    wide = np.empty((*shape[:-1], stride), dtype)[..., : shape[-1]]
    # NumPy and we may differ in the stride of a dimension of one element, which no index ever uses.
    strides = [n * wide.itemsize for n, side in zip(layout.element_strides, shape, strict=True) if side > 1]
    assert strides == [n for n, side in zip(wide.strides, shape, strict=True) if side > 1]
    assert layout.is_row_padded()


@given(shapes(min_side=2, max_dims=3), st.data())
def test_a_zero_stride_overlaps_itself(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.broadcast_to(np.zeros(shape[1:], np.float16), shape)
    layout = Layout.strided("float16", list(shape), [s // 2 for s in array.strides])
    assert layout.overlaps_itself()


@pytest.mark.parametrize("dtype", DTYPES)
def test_element_size_is_numpys(dtype: str) -> None:
    assert element_size(dtype) == np.dtype(dtype).itemsize


@pytest.mark.parametrize("dtype", ["float8", "bfloat16", "uint8", "", "Float16"])
def test_an_unknown_dtype_is_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="float16"):
        element_size(dtype)


@pytest.mark.parametrize("shape", [[2**62, 4], [2**40, 2**40], [-1, 3]])
def test_what_overflows_or_is_negative_is_refused(shape: list[int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Layout.dense("float32", shape).byte_count()
