"""Every sample package through Model and Session, against NumPy in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sample_oracles
import whisper_checkpoints

import kvbacking as kvb
from kvbacking import samples

pytest.importorskip("coremltools", reason="the samples extra is not installed", exc_type=ImportError)

SMALL = {"layers": 2, "width": 64, "rows": 60, "capacity": 64}


def assert_close(actual: np.ndarray, expected: np.ndarray, *, atol: float = 1e-4) -> None:
    """Within one rounding to fp16 (relative 2**-11, here 2**-10) of the float32 value, and `atol` of accumulation."""
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.astype(np.float32), expected, rtol=2**-10, atol=atol)


def run(info: samples.SampleInfo, seed: int = 1, **load: object) -> tuple[kvb.Model, dict, dict]:
    model = kvb.Model.load(info.path, **load)
    inputs = info.inputs(seed)
    return model, inputs, model.predict(inputs)


@pytest.mark.parametrize("form", ["linear", "batched"])
@pytest.mark.parametrize("target", ["macOS13", "macOS14", "macOS15", "macOS26"])
def test_projection(tmp_path: Path, form: str, target: str) -> None:
    info = samples.write("turbo", tmp_path / "m.mlpackage", **SMALL, form=form, target=target)
    _, inputs, outputs = run(info)
    for name, expected in sample_oracles.projection(info, inputs).items():
        assert_close(outputs[name], expected)
        assert not outputs[name][:, 60:].view(np.uint16).any()


def test_badtail_leaks_the_bias_of_v(tmp_path: Path) -> None:
    info = samples.write("badtail", tmp_path / "m.mlpackage", **SMALL)
    model, inputs, outputs = run(info)
    for name, expected in sample_oracles.projection(info, inputs).items():
        assert_close(outputs[name], expected)
    assert not outputs["cross_k"][:, 60:].view(np.uint16).any()
    assert outputs["cross_v"][:, 60:].all()
    contract = kvb.KVContract.from_model(model, **info.contract)
    with kvb.Session(model, contract, mechanism="raw") as session, pytest.raises(kvb.IntegrityError) as error:
        session.predict(inputs)
    assert [(f.output, f.check) for f in error.value.failures] == [("cross_v", "tail_zero")]


@pytest.mark.parametrize("compute", ["fp16", "fp32"])
def test_fp32io(tmp_path: Path, compute: str) -> None:
    info = samples.write("fp32io", tmp_path / "m.mlpackage", compute=compute)
    _, inputs, outputs = run(info)
    # Inside an fp16 program the features may be rounded to fp16 (a device does, the simulator's fp32 mode does not).
    atol = 3e-3 if compute == "fp16" else 1e-5
    for name, expected in sample_oracles.projection(info, inputs).items():
        assert outputs[name].dtype == np.float32
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-5, atol=atol)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": "macOS14"},
        {"per_layer": True},
        {"logits": False, "tokens": 256},
        {"layers": 1, "heads": 2, "kv_heads": 2, "head_dim": 8, "hidden": 16, "tokens": 1, "capacity": 5},
    ],
    ids=["fused", "softmax", "per layer", "full window", "tiny"],
)
def test_prefill(tmp_path: Path, options: dict[str, object]) -> None:
    info = samples.write("prefill", tmp_path / "m.mlpackage", **options)
    model, inputs, outputs = run(info)
    expected = sample_oracles.prefill(info, inputs)
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        assert_close(outputs[name], value, atol=2e-3)
    contract = kvb.KVContract.from_model(model, **info.contract)
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs)
        assert prediction.path == "backing"
        for name, value in outputs.items():
            np.testing.assert_array_equal(prediction[name], value)


def test_stateful(tmp_path: Path) -> None:
    info = samples.write("stateful", tmp_path / "m.mlpackage")
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    oracle, state, other = sample_oracles.Stateful(info), model.new_state(), model.new_state()
    with kvb.Session(model, contract, mechanism="raw") as session:
        for position in range(6):
            inputs = info.inputs(position) | {"position": np.array([position], np.int32)}
            expected = oracle.step(inputs)
            with_state = session.predict(inputs, state=state)
            for name, value in expected.items():
                assert_close(with_state[name], value, atol=1e-3)
            with_state.release()
    for name, cache in oracle.caches.items():
        assert_close(state.read(name), cache, atol=1e-3)
        assert not other.read(name).any()


def test_multifunction(tmp_path: Path) -> None:
    info = samples.write("multifunction", tmp_path / "m.mlpackage")
    for function, capacity in info.options["capacities"].items():
        model = kvb.Model.load(info.path, function=function)
        features = np.random.default_rng(3).standard_normal((1, capacity - 4, 32)).astype(np.float16)
        outputs = model.predict({"features": features})
        for name, expected in sample_oracles.projection(info, {"features": features}, capacity).items():
            assert_close(outputs[name], expected)
    assert kvb.Model.load(info.path).inputs["features"].shape == info.input_specs["features"].shape


@pytest.mark.parametrize(("shapes", "rows"), [("range", (8, 33, 64)), ("enumerated", (16, 32, 64))])
def test_flexible(tmp_path: Path, shapes: str, rows: tuple[int, ...]) -> None:
    info = samples.write("flexible", tmp_path / "m.mlpackage", shapes=shapes)
    model = kvb.Model.load(info.path)
    for count in rows:
        features = np.random.default_rng(count).standard_normal((1, count, 32)).astype(np.float16)
        outputs = model.predict({"features": features})
        for name, expected in sample_oracles.projection(info, {"features": features}).items():
            assert_close(outputs[name], expected)
    with pytest.raises(kvb.ContractError, match="features"):
        model.predict({"features": np.zeros((1, 7, 32), np.float16)})
    with pytest.raises(kvb.ContractError, match="cross_k"):
        kvb.KVContract.from_model(model, ("cross_k", "cross_v"))


@pytest.mark.parametrize("default", [0.0, 0.5])
def test_optional(tmp_path: Path, default: float) -> None:
    info = samples.write("optional", tmp_path / "m.mlpackage", default=default)
    model, inputs, left_out = run(info)
    offset = np.random.default_rng(5).standard_normal(inputs["features"].shape).astype(np.float32)
    given = model.predict(inputs | {"offset": offset})
    assert model.inputs["offset"].optional
    for outputs, added in ((left_out, np.float32(default)), (given, offset)):
        expected = sample_oracles.projection(info, {"features": inputs["features"] + added})
        for name, value in expected.items():
            np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-5)


def test_integers(tmp_path: Path) -> None:
    info = samples.write("integers", tmp_path / "m.mlpackage")
    _, inputs, outputs = run(info)
    np.testing.assert_array_equal(outputs["rows"].astype(np.float32), info.weights["table"][inputs["ids"]])
    np.testing.assert_array_equal(outputs["next_ids"], inputs["ids"] + 1)
    assert outputs["next_ids"].dtype == np.int32


def test_int8_output(tmp_path: Path) -> None:
    info = samples.write("int8out", tmp_path / "m.mlpackage")
    model, inputs, outputs = run(info)
    exact = np.clip(16 * (inputs["features"].astype(np.float32) + info.weights["bias"]), -100, 100)
    assert outputs["codes"].dtype == np.int8
    np.testing.assert_array_equal(outputs["codes"], np.trunc(exact).astype(np.int8))
    contract = kvb.KVContract.from_model(model, **info.contract)
    for mechanism in ("raw", "surface"):
        with kvb.Session(model, contract, mechanism=mechanism) as session:
            prediction = session.predict(inputs)
            assert prediction.path == "backing"
            np.testing.assert_array_equal(prediction["codes"], outputs["codes"])


COMPRESSED = [
    *((target, "palette", bits) for target in ("macOS14", "macOS15") for bits in (1, 2, 4, 6, 8)),
    ("macOS15", "palette", 3),
    *((target, scheme, 4) for target in ("macOS14", "macOS15") for scheme in ("int8", "sparse")),
    ("macOS15", "int4", 4),
]


@pytest.mark.parametrize(("target", "scheme", "bits"), COMPRESSED)
def test_compressed(tmp_path: Path, target: str, scheme: str, bits: int) -> None:
    info = samples.write("compressed", tmp_path / "m.mlpackage", target=target, scheme=scheme, bits=bits)
    _, inputs, outputs = run(info)
    for name, expected in sample_oracles.projection(info, inputs).items():
        assert_close(outputs[name], expected)


@pytest.mark.parametrize("target", ["macOS14", "macOS15"])
def test_whisper_encoder_of_a_random_checkpoint(tmp_path: Path, target: str) -> None:
    checkpoint = whisper_checkpoints.write_checkpoint(tmp_path / "checkpoint", mels=8, positions=20)
    info = samples.write("whisper", tmp_path / "m.mlpackage", checkpoint=checkpoint, target=target, capacity=24)
    model, inputs, outputs = run(info)
    expected = whisper_checkpoints.encode(whisper_checkpoints.random_variables(0, mels=8, positions=20), inputs["mel"])
    for name, value in zip(("cross_k", "cross_v"), expected, strict=True):
        assert_close(outputs[name][:, :20], value, atol=2e-3)
        assert not outputs[name][:, 20:].view(np.uint16).any()
    contract = kvb.KVContract.from_model(model, **info.contract)
    for mechanism in ("raw", "surface", "pool"):
        with kvb.Session(model, contract, mechanism=mechanism) as session:
            prediction = session.predict(inputs)
            assert prediction.path == "backing"
            np.testing.assert_array_equal(prediction["cross_v"], outputs["cross_v"])
