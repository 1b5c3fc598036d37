"""The scan against NumPy, field by field, on any bits and any strides."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kvbacking as kvb

from .strategies import bit_patterns, shapes, strided

SCANNED = ("float16", "float32", "int8")


def reference_scan(array: np.ndarray, live: int | None, axis: int) -> dict[str, Any]:
    """What `scan` promises, slowly."""
    indices = np.arange(array.size).reshape(array.shape)
    inside = np.ones(array.shape, bool)
    if live is not None:
        tail = [slice(None)] * array.ndim
        tail[axis] = slice(live, None)
        inside[tuple(tail)] = False
    flat, order, inside = array.reshape(-1), indices.reshape(-1), inside.reshape(-1)
    floats = flat.astype(np.float64) if flat.dtype.kind == "i" else flat
    nan, inf = np.isnan(floats), np.isinf(floats)
    dirty = (np.ascontiguousarray(flat).view(np.uint8).reshape(flat.size, flat.itemsize) != 0).any(axis=1) & ~inside
    numbers = floats[inside & ~nan].astype(np.float64)

    def first(mask: np.ndarray) -> int:
        return int(order[mask][0]) if mask.any() else -1

    return {
        "element_count": array.size,
        "nan_count": int(nan.sum()),
        "first_nan_index": first(nan),
        "inf_count": int(inf.sum()),
        "first_inf_index": first(inf),
        "live_nan_count": int((nan & inside).sum()),
        "live_inf_count": int((inf & inside).sum()),
        "live_all_zero": not (floats[inside] != 0).any(),
        "min": float(numbers.min()) if numbers.size else float("nan"),
        "max": float(numbers.max()) if numbers.size else float("nan"),
        "tail_dirty_count": int(dirty.sum()),
        "first_tail_dirty_index": first(dirty),
    }


@st.composite
def scannable(draw: Any) -> tuple[np.ndarray, int | None, int]:
    """(array of any layout, live or None, axis)."""
    dtype = draw(st.sampled_from(SCANNED))
    shape = draw(st.one_of(shapes(max_side=9), st.tuples(st.integers(1, 3), st.integers(1, 300))))
    array = draw(strided(shape, dtype))
    if draw(st.booleans()):
        array[...] = draw(bit_patterns(shape, dtype))
    else:  # mostly usual values, so that single bad ones matter
        generator = np.random.default_rng(draw(st.integers(0, 1000)))
        array[...] = (generator.standard_normal(shape) * 20).astype(dtype)
        if array.size and draw(st.booleans()):
            where = draw(st.sampled_from([0, array.size // 2, array.size - 1]))
            bad = draw(st.sampled_from([0.0, -0.0] + ([np.nan, np.inf, -np.inf, 6e-8] if dtype != "int8" else [-128])))
            array[np.unravel_index(where, shape)] = bad
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    live = draw(st.one_of(st.none(), st.integers(0, shape[axis])))
    return array, live, axis


@given(scannable(), st.sampled_from([1, 2, 3]))
@example((np.zeros((0,), np.float16), None, 0), 1)
@example((np.array([-0.0], np.float16), 0, 0), 1)
@example((np.full((3, 40), np.inf, np.float32), 1, 0), 1)
def test_every_field_agrees_with_numpy(case: tuple[np.ndarray, int | None, int], threads: int) -> None:
    array, live, axis = case
    result = kvb.scan(array, live=live, axis=axis, threads=threads)
    for field, wanted in reference_scan(array, live, axis).items():
        found = getattr(result, field)
        assert found == wanted or (np.isnan(found) and np.isnan(wanted)), (field, found, wanted)
    assert result.finite is (result.nan_count == 0 and result.inf_count == 0)
    assert result.tail_zero is (result.tail_dirty_count == 0)


@given(scannable())
def test_the_digest_sees_logical_bytes_only(case: tuple[np.ndarray, int | None, int]) -> None:
    array, _, _ = case
    digest = kvb.scan(array).digest
    assert len(digest) == 32
    assert kvb.scan(np.ascontiguousarray(array)).digest == digest
    padded = np.zeros((*array.shape[:-1], array.shape[-1] + 5), array.dtype)
    padded[..., : array.shape[-1]] = array
    assert kvb.scan(padded[..., : array.shape[-1]]).digest == digest


@given(scannable(), st.data())
def test_one_changed_bit_changes_the_digest(case: tuple[np.ndarray, int | None, int], data: st.DataObject) -> None:
    array = np.ascontiguousarray(case[0])
    if not array.size:
        return
    before = kvb.scan(array).digest
    raw = array.reshape(-1).view(np.uint8)
    raw[data.draw(st.integers(0, raw.size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert kvb.scan(array).digest != before


def test_the_digest_is_xxh3_of_the_bytes() -> None:
    # XXH3-128 with seed 0 of no bytes at all, as the algorithm's authors publish it.
    assert kvb.scan(np.zeros((0,), np.int8)).digest == "99aa06d3014798d86001c324468d497f"


PAIRS = [
    ("float16", "float16"),
    ("float32", "float32"),
    ("float16", "float32"),
    ("float32", "float16"),
    ("int8", "int8"),
]


@given(st.data(), st.sampled_from(PAIRS), shapes(max_side=9, min_side=1))
@settings(max_examples=200)
def test_parity_agrees_with_numpy(data: st.DataObject, pair: tuple[str, str], shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    array, reference = data.draw(strided(shape, pair[0])), data.draw(strided(shape, pair[1]))
    reference[...] = (generator.standard_normal(shape) * 9).astype(pair[1])
    array[...] = reference.astype(pair[0])
    for _ in range(data.draw(st.integers(0, 3))):
        where = tuple(data.draw(st.integers(0, side - 1)) for side in shape)
        array[where] = array[where] + array.dtype.type(data.draw(st.integers(-3, 3)))
    limits = kvb.Tolerance(
        max_abs=data.draw(st.sampled_from([0.0, 0.5, 2.0])), max_rel=data.draw(st.sampled_from([0.0, 0.1]))
    )
    axis = data.draw(st.integers(0, len(shape) - 1))
    live = data.draw(st.one_of(st.none(), st.integers(0, shape[axis])))
    found = kvb.scan(array, live=live, axis=axis, reference=reference, tolerance=limits).parity
    assert found is not None
    index = [slice(None)] * len(shape)
    index[axis] = slice(0, live)
    a, b = array[tuple(index)].astype(np.float64), reference[tuple(index)].astype(np.float64)
    positions = np.arange(array.size).reshape(shape)[tuple(index)].reshape(-1)
    error = np.abs(a - b).reshape(-1)
    # Differences of halves and floats are taken in float32: at the very limit either answer is right.
    limit = limits.max_abs + limits.max_rel * np.abs(b).reshape(-1)
    scale = 1e-6 * (np.abs(a).reshape(-1) + np.abs(b).reshape(-1) + limit)
    surely, possibly = error > limit + scale, error > np.maximum(limit - scale, 0)
    assert surely.sum() <= found.over_tolerance_count <= possibly.sum()
    if surely.any():
        assert found.first_over_index <= positions[surely][0]
    if found.over_tolerance_count:
        assert found.first_over_index in positions[possibly]
    else:
        assert found.first_over_index == -1
    if not error.size:
        assert found.max_abs_index == -1
        return
    assert found.max_abs_error == pytest.approx(float(error.max()), rel=1e-5, abs=1e-5)
    assert found.mean_abs_error == pytest.approx(float(error.mean()), rel=1e-5, abs=1e-5)
    if error.max() > 0:
        assert error[positions == found.max_abs_index] == pytest.approx(error.max(), rel=1e-5, abs=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        relative = np.where(b.reshape(-1) == 0, np.where(error == 0, 0.0, np.inf), error / np.abs(b).reshape(-1))
    assert found.max_rel_error == pytest.approx(float(relative.max()), rel=1e-4, abs=1e-5)
    norms = float(np.sqrt((a * a).sum() * (b * b).sum()))
    if norms > 0:
        assert found.cosine == pytest.approx(float((a * b).sum()) / norms, abs=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_nan_on_one_side_is_over_any_tolerance(dtype: str) -> None:
    reference = np.ones((4, 5), dtype)
    array = reference.copy()
    array[2, 3] = np.nan
    limits = kvb.Tolerance(max_abs=1e9, max_rel=1e9)
    for a, b in ((array, reference), (reference, array)):
        found = kvb.scan(a, reference=b, tolerance=limits).parity
        assert found is not None
        assert (found.over_tolerance_count, found.first_over_index) == (1, 13)


@given(scannable(), st.data())
def test_residue_counts_elements_that_hold_the_fill(
    case: tuple[np.ndarray, int | None, int], data: st.DataObject
) -> None:
    array, _, _ = case
    size = array.itemsize
    pattern = data.draw(st.sampled_from([b"\x5a" * size, (np.nan if array.dtype.kind == "f" else -1,)]))
    fill = pattern if isinstance(pattern, bytes) else np.array(pattern, array.dtype).tobytes()
    if array.size:
        array[np.unravel_index(data.draw(st.integers(0, array.size - 1)), array.shape)] = np.frombuffer(
            fill, array.dtype
        )[0]
    held = [element.tobytes() == fill for element in array.reshape(-1)]
    result = kvb.scan(array, fill_pattern=int.from_bytes(fill, "little"))
    assert result.residue_count == sum(held)
    assert result.first_residue_index == (held.index(True) if any(held) else -1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"live": 9}, "live"),
        ({"live": -1}, "live"),
        ({"axis": 2}, "axis"),
        ({"axis": -3}, "axis"),
        ({"threads": 0}, "thread"),
        ({"reference": np.zeros((4, 4), np.float16)}, "shape"),
        ({"reference": np.zeros((4, 5), np.int8)}, "dtype|int8"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kvb.scan(np.zeros((4, 5), np.float16), **options)


@pytest.mark.parametrize("wrong", [None, [1.0], 3, "text"])
def test_what_is_no_array_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        kvb.scan(wrong)
