"""The packages that kvbacking.samples writes, read back with coremltools' own protobuf reader: contents, not bytes."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import numpy as np
import pytest

from kvbacking import samples
from kvbacking.samples.toolkit import quiet

ct = pytest.importorskip("coremltools", reason="the samples extra is not installed", exc_type=ImportError)

SMALL = {"layers": 2, "width": 32, "rows": 12, "capacity": 16}


def spec_of(info: samples.SampleInfo):
    spec = ct.models.MLModel(str(info.path), skip_model_load=True).get_spec()
    spec.description.metadata.userDefined.clear()  # holds the date
    return spec


def operations(spec, function: str = "main"):
    program = spec.mlProgram.functions[function]
    return list(program.block_specializations[program.opset].operations)


def op_types(spec, function: str = "main") -> collections.Counter[str]:
    return collections.Counter(op.type for op in operations(spec, function))


def shapes(features) -> dict[str, tuple[int, ...]]:
    return {f.name: tuple(f.type.multiArrayType.shape) for f in features}


def types(features) -> dict[str, str]:
    array = ct.proto.FeatureTypes_pb2.ArrayFeatureType
    return {f.name: array.ArrayDataType.Name(f.type.multiArrayType.dataType) for f in features}


def weight_bytes(info: samples.SampleInfo) -> bytes:
    return (info.path / "Data/com.apple.CoreML/weights/weight.bin").read_bytes()


@pytest.mark.parametrize("kind", ["turbo", "distil", "badtail"])
@pytest.mark.parametrize("form", ["linear", "batched"])
def test_projection_description(tmp_path: Path, kind: str, form: str) -> None:
    info = samples.write(kind, tmp_path / "m.mlpackage", **SMALL, form=form)
    description = spec_of(info).description
    assert shapes(description.input) == {"features": (1, 12, 32)}
    assert shapes(description.output) == {"cross_k": (2, 16, 32), "cross_v": (2, 16, 32)}
    assert set(types([*description.input, *description.output]).values()) == {"FLOAT16"}
    assert info.contract == {"outputs": ("cross_k", "cross_v"), "live": 12, "axis": 1, "tail": "zero"}


@pytest.mark.parametrize(("kind", "pads_input"), [("turbo", False), ("badtail", True)])
def test_badtail_pads_before_it_projects(tmp_path: Path, kind: str, pads_input: bool) -> None:
    info = samples.write(kind, tmp_path / "m.mlpackage", **SMALL)
    padded = [op.inputs["x"].arguments[0].name for op in operations(spec_of(info)) if op.type == "pad"]
    assert ("features" in padded) is pads_input
    assert len(padded) == (1 if pads_input else 2)


def test_full_size_families_have_the_family_shapes() -> None:
    assert samples.options_of("turbo") | {"form": 0, "target": 0} == {
        "layers": 4, "width": 1280, "rows": 1500, "capacity": 1536, "form": 0, "target": 0,
    }  # fmt: skip
    assert samples.options_of("distil")["layers"] == 2


@pytest.mark.parametrize("compute", ["fp16", "fp32"])
def test_fp32io_is_float32_outside(tmp_path: Path, compute: str) -> None:
    info = samples.write("fp32io", tmp_path / "m.mlpackage", compute=compute)
    spec = spec_of(info)
    assert set(types([*spec.description.input, *spec.description.output]).values()) == {"FLOAT32"}
    assert ("cast" in op_types(spec)) is (compute == "fp16")


CASES = [
    ("prefill", {}),
    ("prefill", {"per_layer": True, "logits": False, "target": "macOS14", "tokens": 256}),
    ("prefill", {"layers": 1, "heads": 2, "kv_heads": 2}),
    ("stateful", {}),
    ("stateful", {"layers": 1}),
    ("integers", {}),
    ("int8out", {}),
    ("compressed", {"scheme": "sparse"}),
]


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_contract_and_inputs_agree_with_the_description(tmp_path: Path, kind: str, options: dict[str, object]) -> None:
    info = samples.write(kind, tmp_path / "m.mlpackage", **options)
    description = spec_of(info).description
    outputs, inputs = shapes(description.output), shapes(description.input)
    contract = info.contract
    assert set(contract["outputs"]) | set(contract.get("unbacked", ())) == set(outputs)
    assert all(0 < contract["live"] <= outputs[name][contract["axis"]] for name in contract["outputs"])
    assert {name: spec.shape for name, spec in info.input_specs.items()} == inputs
    assert {n: s.dtype.upper() for n, s in info.input_specs.items()} == types(description.input)
    assert set(contract.get("sensitive_to", ())) <= set(inputs)


@pytest.mark.parametrize(("target", "fused"), [("macOS14", False), ("macOS15", True)])
def test_prefill_uses_the_attention_of_its_target(tmp_path: Path, target: str, fused: bool) -> None:
    ops = op_types(spec_of(samples.write("prefill", tmp_path / "m.mlpackage", target=target)))
    assert ("scaled_dot_product_attention" in ops) is fused
    assert ("softmax" in ops) is not fused
    assert {"gather", "rsqrt", "silu", "split", "tile"} <= set(ops)


def test_stateful_describes_its_states(tmp_path: Path) -> None:
    info = samples.write("stateful", tmp_path / "m.mlpackage", layers=3, heads=2, head_dim=8, capacity=20)
    spec = spec_of(info)
    states = {s.name: tuple(s.type.stateType.arrayType.shape) for s in spec.description.state}
    assert states == {"key_cache": (3, 2, 20, 8), "value_cache": (3, 2, 20, 8)}
    assert op_types(spec)["write_state"] == 2


def test_multifunction_lists_its_functions(tmp_path: Path) -> None:
    info = samples.write("multifunction", tmp_path / "m.mlpackage", capacities={"a": 12, "b": 20})
    description = spec_of(info).description
    assert {f.name: shapes(f.output)["cross_k"] for f in description.functions} == {"a": (2, 12, 32), "b": (2, 20, 32)}
    assert description.defaultFunctionName == info.function == "b"
    assert info.input_specs["features"].shape == (1, 16, 32)


@pytest.mark.parametrize(("kind", "field"), [("range", "shapeRange"), ("enumerated", "enumeratedShapes")])
def test_flexible_outputs_have_no_shape(tmp_path: Path, kind: str, field: str) -> None:
    info = samples.write("flexible", tmp_path / "m.mlpackage", shapes=kind)
    description = spec_of(info).description
    assert description.input[0].type.multiArrayType.WhichOneof("ShapeFlexibility") == field
    assert shapes(description.output) == {"cross_k": (), "cross_v": ()}
    assert not info.contract


@pytest.mark.parametrize("default", [0.0, 0.5])
def test_optional_input_carries_its_default(tmp_path: Path, default: float) -> None:
    info = samples.write("optional", tmp_path / "m.mlpackage", default=default)
    inputs = {f.name: f.type for f in spec_of(info).description.input}
    assert not inputs["features"].isOptional
    assert inputs["offset"].isOptional
    assert inputs["offset"].multiArrayType.floatDefaultValue == default
    assert set(info.input_specs) == {"features"}


COMPRESSED = [
    *((target, "palette", bits) for target in ("macOS14", "macOS15") for bits in (1, 2, 4, 6, 8)),
    ("macOS15", "palette", 3),
    *((target, scheme, 4) for target in ("macOS14", "macOS15") for scheme in ("int8", "sparse")),
    ("macOS15", "int4", 4),
]


@pytest.mark.parametrize(("target", "scheme", "bits"), COMPRESSED)
def test_compressed_weights_decode_to_what_the_writer_says(tmp_path: Path, target: str, scheme: str, bits: int) -> None:
    info = samples.write("compressed", tmp_path / "m.mlpackage", target=target, scheme=scheme, bits=bits)
    decoded = decode_with_coremltools(info)
    assert len(decoded) == 2
    for value, which in zip(decoded, ("key", "value"), strict=True):
        np.testing.assert_array_equal(value.astype(np.float16).astype(np.float32), info.weights[which][0])


def decode_with_coremltools(info: samples.SampleInfo) -> list[np.ndarray]:
    """coremltools' own decompression of every constexpr operation in the package."""
    from coremltools.converters.mil.frontend.milproto.load import load

    with quiet():
        weights = str(info.path / "Data/com.apple.CoreML/weights")
        spec = spec_of(info)
        program = load(spec, spec.specificationVersion, weights)
    found = [op for op in program.functions["main"].operations if op.op_type.startswith("constexpr_")]
    return [op.materialized_val_inference() for op in found]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "zip"}, "'zip' is not one of palette"),
        ({"bits": 3}, "has (1, 2, 4, 6, 8) bits, not 3"),
        ({"scheme": "int4"}, "int4 weights need target macOS15"),
        ({"width": 12}, "width 12 must be a multiple of 8"),
    ],
)
def test_compressed_refusals(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        samples.write("compressed", tmp_path / "m.mlpackage", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3, "kv_heads": 2}, "heads 3 must be a multiple of kv_heads 2"),
        ({"head_dim": 7}, "head_dim 7 must be even"),
        ({"tokens": 300}, "tokens 300 must be between 1 and capacity 256"),
    ],
)
def test_prefill_refusals(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        samples.write("prefill", tmp_path / "m.mlpackage", **options)


@pytest.mark.parametrize("kind", sorted(set(samples.KINDS) - {"turbo", "distil", "badtail", "whisper"}))
def test_writers_are_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str) -> None:
    samples.write(kind, tmp_path / "m.mlpackage")
    assert capfd.readouterr() == ("", "")


def test_seed_decides_the_contents(tmp_path: Path) -> None:
    first, again, other = (
        samples.write("turbo", tmp_path / f"{n}.mlpackage", seed, **SMALL) for n, seed in (("a", 7), ("b", 7), ("c", 8))
    )
    assert weight_bytes(first) == weight_bytes(again)
    assert spec_of(first) == spec_of(again)
    assert weight_bytes(first) != weight_bytes(other)
    assert all(np.array_equal(first.weights[k], again.weights[k]) for k in first.weights)


def test_inputs_are_seeded_and_typed(tmp_path: Path) -> None:
    info = samples.write("turbo", tmp_path / "m.mlpackage", **SMALL)
    one, same, other = info.inputs(1), info.inputs(1), info.inputs(2)
    assert one["features"].shape == (1, 12, 32)
    assert one["features"].dtype == np.float16
    assert np.array_equal(one["features"], same["features"])
    assert not np.array_equal(one["features"], other["features"])


def test_refusals_name_what_is_wrong(tmp_path: Path) -> None:
    out = tmp_path / "m.mlpackage"
    with pytest.raises(ValueError, match=r"'whale' is not one of turbo, distil"):
        samples.write("whale", out)
    with pytest.raises(ValueError, match=r"does not take depth; it takes capacity, form, layers"):
        samples.write("turbo", out, depth=3)
    with pytest.raises(ValueError, match=r"must end in \.mlpackage"):
        samples.write("turbo", tmp_path / "m.zip")
    with pytest.raises(ValueError, match=r"capacity 8 must be greater than rows 12"):
        samples.write("turbo", out, **SMALL | {"capacity": 8})
    with pytest.raises(ValueError, match=r"target 'iOS4' is not one of"):
        samples.write("turbo", out, **SMALL, target="iOS4")
    assert not out.exists()
