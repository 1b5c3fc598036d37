"""The stride-aware copy against NumPy's assignment, bit for bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbacking._native import copy_elements

from .strategies import DTYPES, bit_patterns, shapes, strided


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@given(st.data(), st.sampled_from(DTYPES), shapes(), st.booleans())
def test_every_bit_arrives_and_padding_is_left_alone(
    data: st.DataObject, dtype: str, shape: tuple[int, ...], bypass_caches: bool
) -> None:
    source = data.draw(strided(shape, dtype, negative=True))
    source[...] = data.draw(bit_patterns(shape, dtype))
    destination = data.draw(strided(shape, dtype))
    whole = destination
    while whole.base is not None:
        whole = whole.base
    whole.view(np.uint8)[...] = 0x5A
    expected = whole.copy()
    copy_elements(source, destination, bypass_caches)
    assert bits(destination) == bits(source)
    # Once more with NumPy: what the copy must not touch is still what it was.
    destination_in_expected = np.lib.stride_tricks.as_strided(
        expected.reshape(-1)[(destination.ctypes.data - whole.ctypes.data) // destination.itemsize :]
        if destination.size
        else expected.reshape(-1)[:0],
        destination.shape,
        destination.strides,
    )
    if destination.size:
        destination_in_expected[...] = source
    assert bits(whole) == bits(expected)


@given(st.data(), shapes(), st.sampled_from([("float16", "float32"), ("float32", "float16")]))
def test_halves_and_floats_convert_as_numpy_does(
    data: st.DataObject, shape: tuple[int, ...], pair: tuple[str, str]
) -> None:
    source = data.draw(strided(shape, pair[0]))
    source[...] = data.draw(bit_patterns(shape, pair[0]))
    destination = data.draw(strided(shape, pair[1]))
    copy_elements(source, destination)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy says it when a float overflows to an infinite half
        expected = source.astype(pair[1])
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(destination), np.isnan(expected))
    assert bits(destination[numbers]) == bits(expected[numbers])


@given(st.integers(1, 64), st.integers(0, 64), st.integers(0, 64))
def test_overlapping_sides_act_as_if_read_first(count: int, source_at: int, destination_at: int) -> None:
    buffer = np.arange(200, dtype=np.int32)
    expected = buffer.copy()
    expected[destination_at : destination_at + count] = buffer[source_at : source_at + count].copy()
    copy_elements(buffer[source_at : source_at + count], buffer[destination_at : destination_at + count])
    assert np.array_equal(buffer, expected)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (np.zeros((2, 3), np.float16), np.zeros((3, 2), np.float16)),
        (np.zeros(6, np.float16), np.zeros(6, np.int8)),
        (np.zeros(6, np.float64), np.zeros(6, np.float16)),
    ],
)
def test_other_shapes_and_dtypes_are_refused(source: np.ndarray, destination: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"\[copy\]"):
        copy_elements(source, destination)


def test_a_destination_that_overlaps_itself_is_refused() -> None:
    destination = np.lib.stride_tricks.as_strided(np.zeros(4, np.float16), (3, 3), (2, 2))
    with pytest.raises(ValueError, match=r"overlap"):
        copy_elements(np.zeros((3, 3), np.float16), destination)


def test_a_read_only_destination_is_refused() -> None:
    destination = np.zeros(4, np.float16)
    destination.flags.writeable = False
    with pytest.raises(TypeError):
        copy_elements(np.ones(4, np.float16), destination)
    assert not destination.any()


@pytest.mark.parametrize("offset", [0, 1, 2, 31, 33])
@pytest.mark.parametrize("length", [0, 1, 15, 63, 64, 65, 127, 200, 1000])
def test_streamed_runs_of_any_length_and_alignment(offset: int, length: int) -> None:
    source = np.random.default_rng(length).integers(-128, 128, (5, length + 70), dtype=np.int8)
    whole = np.full((5, length + 134), 0x5A, np.int8)
    destination = whole[:, offset : offset + length]
    copy_elements(source[:, 3 : 3 + length], destination, bypass_caches=True)
    np.testing.assert_array_equal(destination, source[:, 3 : 3 + length])
    assert (whole[:, :offset] == 0x5A).all()
    assert (whole[:, offset + length :] == 0x5A).all()
