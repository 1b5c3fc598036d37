"""Packages whose weights coremltools.optimize compressed, in every scheme that it writes, on the simulator.

The oracle is coremltools' own decompression: the dense weights that it says a package stands for, used in NumPy.
"""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("coremltools")

import coremltools as ct
from coremltools.converters.mil import Builder as mb  # noqa: N813
from coremltools.converters.mil.frontend.milproto.load import load
from coremltools.converters.mil.mil import types
from coremltools.optimize import coreml as cto
from mil_cases_vision import conv
from mil_engine import quiet

import kvbacking as kvb

ROWS, WIDTH, OUT, WORDS = 5, 64, 96, 40
RNG = np.random.default_rng(11)
DENSE = {
    "linear": RNG.standard_normal((OUT, WIDTH)).astype(np.float16),
    "conv": RNG.standard_normal((32, 16, 3, 3)).astype(np.float16),
    "table": RNG.standard_normal((WORDS, WIDTH)).astype(np.float16),
}


def dense_model(target: str) -> Any:
    """x [5, 64], image [1, 16, 9, 8], words [7] -> a product, a convolution and rows of a table."""
    shapes = [((ROWS, WIDTH), types.fp16), ((1, 16, 9, 8), types.fp16), ((7,), types.int32)]

    @mb.program([mb.TensorSpec(*s) for s in shapes], opset_version=getattr(ct.target, target))
    def program(x: Any, image: Any, words: Any) -> Any:
        return (
            mb.linear(x=x, weight=DENSE["linear"], name="product"),
            mb.conv(x=image, weight=DENSE["conv"], name="convolution"),
            mb.gather(x=DENSE["table"], indices=words, axis=0, name="rows"),
        )

    return ct.convert(
        program,
        convert_to="mlprogram",
        minimum_deployment_target=getattr(ct.target, target),
        outputs=[ct.TensorType(name=name, dtype=np.float16) for name in ("product", "convolution", "rows")],
        compute_precision=ct.precision.FLOAT16,
        skip_model_load=True,
    )


def palettize(model: Any, joint: bool = False, **options: Any) -> Any:
    config = cto.OpPalettizerConfig(mode=options.pop("mode", "uniform"), weight_threshold=500, **options)
    return cto.palettize_weights(model, cto.OptimizationConfig(global_config=config), joint_compression=joint)


def quantize(model: Any, joint: bool = False, **options: Any) -> Any:
    config = cto.OpLinearQuantizerConfig(weight_threshold=500, **options)
    return cto.linear_quantize_weights(model, cto.OptimizationConfig(global_config=config), joint_compression=joint)


def prune(model: Any, **options: Any) -> Any:
    config = cto.OpMagnitudePrunerConfig(weight_threshold=500, **options)
    return cto.prune_weights(model, cto.OptimizationConfig(global_config=config))


OLD: dict[str, Any] = {
    **{f"palette{bits}": partial(palettize, nbits=bits) for bits in (1, 2, 4, 6, 8)},
    "int8": quantize,
    "int8_affine": partial(quantize, mode="linear"),
    "uint8_affine": partial(quantize, mode="linear", dtype="uint8"),
    "int8_tensor": partial(quantize, granularity="per_tensor"),
    "sparse": partial(prune, target_sparsity=0.6),
    "sparse_n_of_m": partial(prune, n_m_ratio=(2, 4)),
}
NEW: dict[str, Any] = {
    **OLD,
    "palette3": partial(palettize, nbits=3),
    "palette_groups": partial(palettize, nbits=4, granularity="per_grouped_channel", group_size=8),
    "palette_groups_axis1": partial(
        palettize, nbits=2, granularity="per_grouped_channel", group_size=8, channel_axis=1
    ),
    "palette_channel_scale": partial(palettize, nbits=4, enable_per_channel_scale=True),
    "int4": partial(quantize, dtype="int4"),
    "int4_blocks": partial(quantize, dtype="int4", granularity="per_block", block_size=16),
    "uint4_blocks_affine": partial(quantize, dtype="uint4", mode="linear", granularity="per_block", block_size=16),
    "int8_blocks": partial(quantize, granularity="per_block", block_size=8),
    "palette_then_int8": lambda model: quantize(palettize(model, nbits=4), joint=True, granularity="per_tensor"),
    "sparse_then_palette": lambda model: palettize(prune(model, target_sparsity=0.5), joint=True, nbits=4),
    "sparse_then_palette1": lambda model: palettize(prune(model, target_sparsity=0.5), joint=True, nbits=1),
    "sparse_then_palette_groups": lambda model: palettize(
        prune(model, target_sparsity=0.5), joint=True, nbits=2, granularity="per_grouped_channel", group_size=16
    ),
    "sparse_then_int8": lambda model: quantize(prune(model, target_sparsity=0.5), joint=True),
    "sparse_then_int4": lambda model: quantize(prune(model, target_sparsity=0.5), joint=True, dtype="int4"),
}
EXPECTED_OPS = {
    "palette_then_int8": "constexpr_blockwise_shift_scale",
    "sparse_then_palette": "constexpr_lut_to_sparse",
    "sparse_then_int8": "constexpr_sparse_blockwise_shift_scale",
}
CASES = [(target, scheme) for target in ("iOS16", "iOS17") for scheme in OLD] + [("iOS18", scheme) for scheme in NEW]


def operations(model: Any, path: Path) -> list[Any]:
    model.save(str(path))
    spec = ct.utils.load_spec(str(path))
    weights = path / "Data" / "com.apple.CoreML" / "weights"
    return list(load(spec, spec.specificationVersion, str(weights)).functions["main"].operations)


def decompressed(model: Any, path: Path) -> dict[str, np.ndarray]:
    """The dense weights that coremltools says a compressed model has."""
    found = {op.op_type: op for op in operations(cto.decompress_weights(model), path)}
    return {
        "linear": found["linear"].inputs["weight"].val,
        "conv": found["conv"].inputs["weight"].val,
        "table": found["gather"].inputs["x"].val,
    }


@pytest.mark.parametrize(("target", "scheme"), CASES)
def test_compressed_weights(tmp_path: Path, target: str, scheme: str) -> None:
    path = tmp_path / "compressed.mlpackage"
    with quiet():
        model = (NEW if target == "iOS18" else OLD)[scheme](dense_model(target))
        kinds = Counter(op.op_type for op in operations(model, path))
        weights = decompressed(model, tmp_path / "dense.mlpackage")
        del model
        gc.collect()
    # N:M pruning is for products and convolutions alone.
    touched = [name for name in DENSE if scheme != "sparse_n_of_m" or name != "table"]
    assert sum(count for kind, count in kinds.items() if kind.startswith("constexpr")) >= len(touched), kinds
    assert kinds[EXPECTED_OPS.get(scheme, next(k for k in kinds if k.startswith("constexpr")))], kinds
    assert all(np.any(weights[name] != DENSE[name]) for name in touched), "nothing was compressed"

    rng = np.random.default_rng(12)
    inputs = {
        "x": rng.standard_normal((ROWS, WIDTH)).astype(np.float16),
        "image": rng.standard_normal((1, 16, 9, 8)).astype(np.float16),
        "words": np.array([0, 39, 7, 7, 1, 12, 31], np.int32),
    }
    got = kvb.Model.load(path).predict(inputs)
    wide = {name: value.astype(np.float64) for name, value in weights.items()}
    wanted = {
        "product": inputs["x"].astype(np.float64) @ wide["linear"].T,
        "convolution": conv(inputs["image"], wide["conv"]),
        "rows": wide["table"][inputs["words"]],
    }
    for name, want in wanted.items():
        np.testing.assert_allclose(got[name], want, rtol=2**-10, atol=2e-3 if name != "rows" else 0, err_msg=name)


def bits(array: np.ndarray, name: str) -> np.ndarray:
    """Integers as the sub-byte type `name` of MIL."""
    return array.astype(types.nptype_from_builtin(types.string_to_builtin(name)))


def vector_palette(axis: int, size: int, groups: tuple[int, ...]) -> Any:
    """[8, 12] as entries of `size` elements along `axis`, a palette of eight per block of `groups`."""
    shape = [8, 12]
    shape[axis] //= size
    lut = RNG.standard_normal((*groups, 8, size)).astype(np.float16)
    indices = bits(RNG.integers(0, 8, shape), "uint3")
    return mb.constexpr_lut_to_dense(indices=indices, lut=lut, vector_axis=axis)


def sparse_vectors(axis: int) -> Any:
    shape = [8, 12]
    shape[axis] //= 2
    mask = RNG.integers(0, 2, shape)
    lut = RNG.standard_normal((1, 1, 16, 2)).astype(np.float16)
    indices = bits(RNG.integers(0, 16, int(mask.sum())), "uint4")
    wide, values = mb.constexpr_lut_to_sparse(
        indices_mask=bits(mask, "uint1"), indices_nonzero_data=indices, lut=lut, vector_axis=axis
    )
    return mb.constexpr_sparse_to_dense(nonzero_data=values, mask=wide)


def sparse_integers(dtype: str, low: int, high: int, offset: bool) -> Any:
    mask = RNG.integers(0, 2, (8, 12))
    data = RNG.integers(low, high, int(mask.sum()))
    stored = bits(data, dtype) if "4" in dtype else data.astype(dtype)
    extra = {"offset": (bits if "4" in dtype else np.array)(np.full((4, 3), low + 2), dtype)} if offset else {}
    scale = RNG.uniform(0.01, 0.2, (4, 3)).astype(np.float16)
    wide, values = mb.constexpr_sparse_blockwise_shift_scale(
        data_mask=bits(mask, "uint1"), nonzero_data=stored, scale=scale, **extra
    )
    return mb.constexpr_sparse_to_dense(nonzero_data=values, mask=wide)


def value_of(weight: Any) -> np.ndarray:
    """What coremltools says the constexpr operation is. It does not look through a chain: the values under a mask are
    put in their places here."""
    if weight.op.op_type != "constexpr_sparse_to_dense":
        return weight.op.materialized_val_inference().astype(np.float64)
    mask, values = weight.op.nonzero_data.op.materialized_val_inference()
    dense = np.zeros(mask.shape)
    dense[mask.astype(bool)] = values
    return dense


FORMS = {
    "vectors_of_2_first_axis": lambda: vector_palette(0, 2, (1, 1)),
    "vectors_of_4_last_axis": lambda: vector_palette(1, 4, (1, 1)),
    "vectors_of_2_in_groups": lambda: vector_palette(0, 2, (2, 1)),
    "vectors_of_3_in_groups_last_axis": lambda: vector_palette(1, 3, (4, 2)),
    "sparse_vectors_first_axis": lambda: sparse_vectors(0),
    "sparse_vectors_last_axis": lambda: sparse_vectors(1),
    "sparse_int8": lambda: sparse_integers("int8", -128, 128, False),
    "sparse_uint8_offset": lambda: sparse_integers("uint8", 0, 256, True),
    "sparse_int4": lambda: sparse_integers("int4", -8, 8, False),
    "sparse_uint4_offset": lambda: sparse_integers("uint4", 0, 14, True),
}


def test_forms_that_the_optimizer_seldom_writes(tmp_path: Path) -> None:
    """Each as a weight [8, 12], against coremltools' own value of the operation."""
    path, weights = tmp_path / "forms.mlpackage", {}

    def build(x: Any) -> Any:
        found = []
        for name, form in FORMS.items():
            weight = form()
            weights[name] = value_of(weight)
            found.append(mb.linear(x=x, weight=weight, name=name))
        return tuple(found)

    with quiet():
        program = mb.program([mb.TensorSpec((3, 12), types.fp16)], opset_version=ct.target.iOS18)(build)
        model = ct.convert(
            program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS18, skip_model_load=True,
            outputs=[ct.TensorType(name=name, dtype=np.float16) for name in FORMS],
        )  # fmt: skip
        model.save(str(path))
        del model
        gc.collect()
    x = np.random.default_rng(13).standard_normal((3, 12)).astype(np.float16)
    got = kvb.Model.load(path).predict({"x": x})
    for name in FORMS:
        assert weights[name].shape == (8, 12)
        want = x.astype(np.float64) @ weights[name].T
        np.testing.assert_allclose(got[name], want, rtol=2**-10, atol=1e-3, err_msg=name)


def test_a_cast_constant(tmp_path: Path) -> None:
    path, weight = tmp_path / "cast.mlpackage", RNG.standard_normal((6, 12)).astype(np.float16)
    with quiet():

        @mb.program([mb.TensorSpec((3, 12), types.fp32)], opset_version=ct.target.iOS16)
        def program(x: Any) -> Any:
            return mb.linear(x=x, weight=mb.constexpr_cast(source_val=weight, output_dtype="fp32"), name="y")

        model = ct.convert(
            program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS16, skip_model_load=True,
            compute_precision=ct.precision.FLOAT32,
        )  # fmt: skip
        kinds = [op.op_type for op in operations(model, path)]
        del model
        gc.collect()
    assert "constexpr_cast" in kinds
    x = np.random.default_rng(14).standard_normal((3, 12)).astype(np.float32)
    got = kvb.Model.load(path).predict({"x": x})["y"]
    np.testing.assert_allclose(got, x.astype(np.float64) @ weight.astype(np.float64).T, rtol=1e-5, atol=1e-5)
