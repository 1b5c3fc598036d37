"""Loading: fingerprints, the compiled cache, functions, descriptions, what inspect says, where operations would run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import _cache, _mlmodel, samples
from kvbacking.inspection import describe
from kvbacking.random_inputs import random_inputs


def compiled_in(cache: Path) -> list[Path]:
    return sorted((cache / "compiled").glob("*.mlmodelc"))


def test_descriptions(model: kvb.Model) -> None:
    assert list(model.inputs) == ["features"]
    assert model.inputs["features"] == kvb.TensorSpec(name="features", shape=(1, 30, 96), dtype="float16")
    assert sorted(model.outputs) == ["cross_k", "cross_v"]
    assert model.outputs["cross_v"].backable
    assert not model.states
    assert model.compute_units == "all"
    assert "turbo" in repr(model)
    with pytest.raises(TypeError):
        model.inputs["features"] = None  # type: ignore[index]


def test_a_package_is_compiled_once(small: samples.SampleInfo, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = kvb.Model.load(small.path, cache_dir=cache)
    entries = compiled_in(cache)
    assert len(entries) == 1
    before = {p: p.stat().st_mtime_ns for p in entries[0].rglob("*") if p.is_file()}
    copy = tmp_path / "elsewhere.mlpackage"
    shutil.copytree(small.path, copy)
    second = kvb.Model.load(copy, cache_dir=cache)
    assert second.fingerprint == first.fingerprint
    assert compiled_in(cache) == entries
    assert {p: p.stat().st_mtime_ns for p in entries[0].rglob("*") if p.is_file()} == before
    inputs = small.inputs()
    for name, array in first.predict(inputs).items():
        np.testing.assert_array_equal(array, second.predict(inputs)[name])


def test_a_damaged_cache_entry_is_made_anew(small: samples.SampleInfo, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    expected = kvb.Model.load(small.path, cache_dir=cache).predict(small.inputs())
    entry = compiled_in(cache)[0]
    for file in sorted(entry.rglob("*")):
        if file.is_file():
            file.write_bytes(b"")
    again = kvb.Model.load(small.path, cache_dir=cache).predict(small.inputs())
    for name, array in expected.items():
        np.testing.assert_array_equal(again[name], array)


def test_a_package_that_changes_while_it_is_compiled_is_refused_and_not_kept(
    small: samples.SampleInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, cache = tmp_path / "changing.mlpackage", tmp_path / "cache"
    shutil.copytree(small.path, package)
    fingerprint, calls = _cache.fingerprint, []

    def fingerprint_then_change(path: Path, folder: Path | None) -> str:
        found = fingerprint(path, folder)
        if not calls:
            (package / "Data" / "more").write_text("written between the fingerprint and the copy")
        calls.append(found)
        return found

    monkeypatch.setattr(_cache, "fingerprint", fingerprint_then_change)
    with pytest.raises(kvb.ModelError, match="changed while it was being compiled"):
        kvb.Model.load(package, cache_dir=cache)
    assert compiled_in(cache) == []
    assert kvb.Model.load(package, cache_dir=cache).fingerprint == calls[-1] != calls[0]


def test_a_compiled_model_loads_as_it_is(small: samples.SampleInfo, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kvb.Model.load(small.path, cache_dir=cache)
    compiled = tmp_path / "compiled.mlmodelc"
    shutil.copytree(compiled_in(cache)[0], compiled)
    model = kvb.Model.load(compiled, cache_dir=tmp_path / "other")
    assert model.outputs["cross_k"].shape == (2, 36, 96)
    assert not (tmp_path / "other" / "compiled").exists()
    document = describe(model)
    assert document["program"] is None


def test_functions(package: Callable[..., samples.SampleInfo]) -> None:
    if not kvb.runtime_info().supports_functions:
        pytest.skip("no multi-function packages here (macOS 15)")
    info = package("multifunction")
    default = kvb.Model.load(info.path)
    assert len(default.functions) >= 2
    fingerprints = set()
    for name in default.functions:
        model = kvb.Model.load(info.path, function=name)
        assert model.function == name
        assert all(array.size for array in model.predict(random_inputs(model)).values())
        fingerprints.add(model.fingerprint)
    assert fingerprints == {default.fingerprint}
    with pytest.raises(kvb.ModelError, match="no_such_function"):
        kvb.Model.load(info.path, function="no_such_function")


def test_a_compute_plan_is_an_expectation_per_operation(model: kvb.Model) -> None:
    if not kvb.runtime_info().supports_compute_plan:
        pytest.skip("no compute plans here (macOS 14.4)")
    plan = model.compute_plan()
    assert "linear" in {op.op.split(".")[-1] for op in plan}
    for op in plan:
        assert op.preferred_device in ("cpu", "gpu", "neural_engine", "unknown", "")
        assert op.cost is None or 0 <= op.cost <= 1


@pytest.mark.parametrize("kind", ["turbo", "stateful", "multifunction", "compressed", "flexible"])
def test_the_summary_agrees_with_coremltools(package: Callable[..., samples.SampleInfo], kind: str) -> None:
    ct = pytest.importorskip("coremltools")
    options = {"layers": 2, "width": 96, "rows": 30, "capacity": 36} if kind == "turbo" else {}
    if kind not in samples.KINDS:
        pytest.skip(f"no sample of kind {kind}")
    required = {"scheme": "palette"} if kind == "compressed" and "scheme" in samples.options_of(kind) else {}
    try:
        info = package(kind, **options, **required)
    except ValueError as error:
        pytest.skip(str(error))
    spec = ct.models.MLModel(str(info.path), skip_model_load=True).get_spec()
    counts: dict[str, int] = {}

    def count(block: object) -> None:
        for operation in block.operations:  # type: ignore[attr-defined]
            counts[operation.type] = counts.get(operation.type, 0) + 1
            for inner in operation.blocks:
                count(inner)

    opsets = set()
    for function in spec.mlProgram.functions.values():
        opsets.add(function.opset)
        for block in function.block_specializations.values():
            count(block)
    summary = _mlmodel.summarise(info.path)
    assert summary is not None
    assert summary.specification_version == spec.specificationVersion
    assert set(summary.opsets) == opsets
    assert summary.operations == {n: c for n, c in counts.items() if n != "const"}
    assert set(summary.compression) == {n for n in counts if n.startswith("constexpr_")}


@pytest.mark.parametrize("damage", ["truncate", "garbage", "manifest", "missing"])
def test_a_damaged_package_is_a_model_error(small: samples.SampleInfo, tmp_path: Path, damage: str) -> None:
    package = tmp_path / "damaged.mlpackage"
    shutil.copytree(small.path, package)
    program = next(package.rglob("model.mlmodel"))
    if damage == "truncate":
        program.write_bytes(program.read_bytes()[: program.stat().st_size // 2])
    elif damage == "garbage":
        program.write_bytes(bytes(range(256)) * 40)
    elif damage == "manifest":
        (package / "Manifest.json").write_text(json.dumps({"itemInfoEntries": {}, "rootModelIdentifier": "x"}))
    else:
        program.unlink()
    with pytest.raises(kvb.ModelError):
        _mlmodel.summarise(package)
    with pytest.raises(kvb.ModelError, match=r"damaged|model"):
        kvb.Model.load(package, cache_dir=tmp_path / "cache")


def test_warnings_about_layouts(package: Callable[..., samples.SampleInfo]) -> None:
    flexible = kvb.Model.load(package("flexible").path)
    assert any("cannot be backed" in line for line in describe(flexible)["warnings"])
    floats = kvb.Model.load(package("fp32io").path)
    assert any("float32" in line and "surfaces" in line for line in describe(floats)["warnings"])
    narrow = kvb.Model.load(package("turbo", layers=1, width=40, rows=6, capacity=8).path)
    found = describe(narrow)["warnings"]
    assert any("80 bytes" in line and "padded" in line for line in found)
    assert any("multiple of 32" in line for line in found)


def test_warnings_about_caches(package: Callable[..., samples.SampleInfo]) -> None:
    sizes = {"layers": 2, "kv_heads": 2, "head_dim": 32}
    odd = kvb.Model.load(package("prefill", **sizes, capacity=48, tokens=40).path)
    found = [line for line in describe(odd)["warnings"] if line.startswith("output key_cache")]
    assert any("48 of [2, 2, 48, 32]" in line and "powers of two" in line for line in found)
    assert any("capacity of 48 rows" in line and "live" in line for line in found)
    even = kvb.Model.load(package("prefill", **sizes, capacity=64, tokens=40).path)
    assert not any("powers of two" in line for line in describe(even)["warnings"])


def test_bytes_of_features(model: kvb.Model, package: Callable[..., samples.SampleInfo]) -> None:
    outputs = {spec["name"]: spec["byte_count"] for spec in describe(model)["outputs"]}
    assert outputs == {"cross_k": 2 * 36 * 96 * 2, "cross_v": 2 * 36 * 96 * 2}
    flexible = kvb.Model.load(package("flexible").path)
    assert {spec["byte_count"] for spec in describe(flexible)["outputs"]} == {None}


def test_random_inputs_are_seeded(model: kvb.Model) -> None:
    first, again, other = (random_inputs(model, seed)["features"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.dtype == np.float16
