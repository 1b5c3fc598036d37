"""The packages that kvbacking.samples writes, read back with coremltools' own protobuf reader: contents, not bytes."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvbacking import samples

ct = pytest.importorskip("coremltools", reason="the samples extra is not installed", exc_type=ImportError)

SMALL = {"layers": 2, "width": 32, "rows": 12, "capacity": 16}


def spec_of(info: samples.SampleInfo):
    return ct.models.MLModel(str(info.path), skip_model_load=True).get_spec()


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


def test_command_prints_one_json_document_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "m.mlpackage"
    sets = [text for name, value in SMALL.items() for text in ("--set", f"{name}={value}")]
    code = "from kvbacking.samples.cli import sample; sample()"
    done = subprocess.run(
        [sys.executable, "-c", code, "turbo", str(out), "--json", *sets], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["path"] == str(out)
    assert document["contract"]["outputs"] == ["cross_k", "cross_v"]
    assert out.is_dir()


def test_command_usage_errors_exit_2(tmp_path: Path) -> None:
    code = "from kvbacking.samples.cli import sample; sample()"
    for arguments in (["whale", "x.mlpackage"], ["turbo", "x.zip"], ["turbo", "x.mlpackage", "--set", "layers"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert "Error" in done.stderr
        assert "Traceback" not in done.stderr
