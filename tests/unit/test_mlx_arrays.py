"""Imports are what they say: one copy, the same bytes, an address that was measured; adoption is refused where it must
be."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking.mlx import arrays

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)


def page_aligned(byte_count: int) -> np.ndarray:
    memory = np.zeros(byte_count + arrays.ALIGNMENT, np.int8)
    start = -memory.ctypes.data % arrays.ALIGNMENT
    return memory[start : start + byte_count]


@pytest.mark.parametrize("dtype", arrays.IMPORTABLE)
@pytest.mark.parametrize("copy", [None, True])
def test_a_copy_has_the_same_bytes_elsewhere(dtype: str, copy: bool | None) -> None:
    view = np.arange(2 * 3 * 8).reshape(2, 3, 8).astype(dtype)
    view.flags.writeable = False
    got = kvb.mlx.to_mlx(view, copy)
    np.testing.assert_array_equal(np.array(got.array), view)
    assert got.array.dtype == getattr(mx, dtype)
    assert (got.copied, got.same_address) == (True, False)
    assert got.mlx_version == mx.__version__
    assert kvb.mlx.address_of(got.array) != view.ctypes.data


def test_a_strided_view_becomes_contiguous() -> None:
    whole = np.arange(2 * 8 * 16, dtype=np.float16).reshape(2, 8, 16)
    got = kvb.mlx.to_mlx(whole[:, :5, :10])
    np.testing.assert_array_equal(np.array(got.array), whole[:, :5, :10])
    assert np.array(got.array, copy=False).flags.c_contiguous
    assert got.reason


def test_the_copy_is_complete_on_return() -> None:
    view = np.ones((4, 4), np.float16)
    imported = [kvb.mlx.to_mlx(view).array, kvb.mlx.to_mlx(view[:, :2]).array]
    view[:] = 7
    assert all(bool(mx.all(array == 1)) for array in imported)


def test_adoption_is_refused_with_the_reason() -> None:
    aligned = page_aligned(2 * arrays.ALIGNMENT)
    odd = aligned[1:]
    for view, why in (
        (odd, "multiple of"),
        (aligned[: arrays.ALIGNMENT + 4], "multiple of"),
        (aligned[::2], "contiguous"),
    ):
        with pytest.raises(kvb.mlx.AdoptionRefusedError, match=why):
            kvb.mlx.to_mlx(view, copy=False)
    assert "multiple of" in kvb.mlx.to_mlx(odd, copy=None).reason
    if mx.default_device() == mx.Device(mx.cpu):
        with pytest.raises(kvb.mlx.AdoptionRefusedError, match="without a copy"):  # MLX's own words
            kvb.mlx.to_mlx(aligned, copy=False)
        assert "without a copy" in kvb.mlx.to_mlx(aligned, copy=None).reason


def test_a_version_that_writes_into_foreign_memory_is_not_given_any() -> None:
    aligned = page_aligned(arrays.ALIGNMENT)
    assert "may write" in arrays.refusal(aligned, "0.32.3", unsafe=False)
    assert "may write" in arrays.refusal(aligned, "0.9.10", unsafe=False)
    assert arrays.refusal(aligned, "0.32.3", unsafe=True) == ""
    assert arrays.refusal(aligned, "0.32.4", unsafe=False) == ""
    assert arrays.refusal(aligned, "1.0.0.dev2", unsafe=False) == ""
    assert arrays.refusal(aligned[1:], "0.32.3", unsafe=True) != ""


class Liar:
    """An mlx whose asarray(copy=False) copies all the same."""

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)

    def asarray(self, view: np.ndarray, copy: bool) -> Any:
        return mx.array(view)


def test_an_adoption_is_believed_only_at_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "core", lambda: Liar())
    aligned = page_aligned(arrays.ALIGNMENT)
    with pytest.raises(kvb.mlx.AdoptionRefusedError, match="but copied it"):
        kvb.mlx.to_mlx(aligned, copy=False)
    got = kvb.mlx.to_mlx(aligned, copy=None)
    assert (got.copied, got.same_address) == (True, False)


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", ">f2"])
def test_a_dtype_that_would_change_is_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="must be one of"):
        kvb.mlx.to_mlx(np.zeros((2, 2), dtype))
    with pytest.raises(TypeError, match="numpy"):
        kvb.mlx.to_mlx([1.0])  # type: ignore[arg-type]


def test_bfloat16_has_an_address_too() -> None:
    array = mx.ones((4, 8), mx.bfloat16)
    assert kvb.mlx.address_of(array) == kvb.mlx.address_of(array) != 0


@pytest.mark.parametrize(("shape", "dtype"), [((1, 2, 64, 8), "float16"), ((3, 5), "float32"), ((7,), "int8")])
def test_owned_memory_is_aligned_and_written_through(shape: tuple[int, ...], dtype: str) -> None:
    array = arrays.aligned_zeros(shape, dtype)
    assert kvb.mlx.address_of(array) % arrays.ALIGNMENT == 0
    export = np.array(array, copy=False)
    assert (export.shape, export.dtype.name, export.flags.writeable, export.flags.c_contiguous) == (
        shape,
        dtype,
        True,
        True,
    )
    export[:] = 3
    assert bool(mx.all(array == 3))


def test_owned_memory_is_freed() -> None:
    mx.clear_cache()
    before = mx.get_active_memory()
    array = arrays.aligned_zeros((1 << 20,), "float16")
    export = np.array(array, copy=False)
    assert mx.get_active_memory() >= before + (1 << 21)
    del array, export
    gc.collect()
    assert mx.get_active_memory() < before + (1 << 20)


def test_importing_it_imports_no_mlx() -> None:
    program = "import sys, kvbacking.mlx; print(any(m.split('.')[0] in ('mlx', 'mlx_lm') for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_without_mlx_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(kvb.mlx.MlxUnavailableError, match=r"kvbacking\[mlx\]"):
        kvb.mlx.to_mlx(np.zeros((2, 2), np.float16))


def test_owned_memory_is_updated_in_place_whatever_the_pool_holds() -> None:
    shape = (1, 2, 64, 32)
    wanted = 2 * 2 * 64 * 32 + arrays.ALIGNMENT
    used = [mx.zeros((wanted + 4096,), mx.int8) for _ in range(4)]  # a pooled buffer that is a little larger would fit
    mx.eval(used)
    del used
    array = arrays.aligned_zeros(shape, "float16")
    before = kvb.mlx.address_of(array)
    array[:, :, 3:4] = mx.ones((1, 2, 1, 32), mx.float16)
    assert kvb.mlx.address_of(array) == before
