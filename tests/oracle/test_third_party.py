"""Core ML packages that others built and published (scripts/fetch-packages), against other runs of the same model.

basic-pitch was converted from TensorFlow for CoreML5, crepe from torch for CoreML6, by people and with converter
versions that have nothing to do with this repository.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import kvbacking as kvb


def package(name: str, file: str) -> Path:
    root = os.environ.get("KVBACKING_PACKAGES_DIR")
    path = (Path(root) if root else Path(__file__).parents[2] / "build" / "packages") / name / file
    if not path.exists():
        pytest.skip(f"no {path}: scripts/fetch-packages {name}")
    return path


def tone(hertz: float, rate: int, count: int) -> np.ndarray:
    """A note with three overtones and a little noise."""
    time = np.arange(count) / rate
    noise = np.random.default_rng(2).standard_normal(count) * 0.01
    return sum(np.sin(2 * np.pi * hertz * n * time) / n for n in (1, 2, 3, 4)) + noise


def crepe_frames() -> tuple[np.ndarray, np.ndarray]:
    """Normalised frames [4, 1024] at 16 kHz, and their pitches in Hz."""
    pitches = np.array([110.0, 220.0, 329.63, 659.25])
    frames = np.stack([tone(pitch, 16000, 1024) for pitch in pitches])
    frames -= frames.mean(1, keepdims=True)
    return (frames / frames.std(1, keepdims=True)).astype(np.float32), pitches


def crepe_in_torch(path: Path, frames: np.ndarray) -> np.ndarray:
    """The published architecture, six times convolution, relu, batch norm and pooling, with the package's weights."""
    pytest.importorskip("torch", reason="the torch extra is not installed")
    import torch
    from mil_engine import quiet
    from torch.nn import functional

    with quiet():
        import coremltools as ct
        from coremltools.converters.mil.frontend.milproto.load import load

        spec = ct.utils.load_spec(str(path))
        weights = path / "Data" / "com.apple.CoreML" / "weights"
        operations = load(spec, spec.specificationVersion, str(weights)).functions["main"].operations

    def arguments(kind: str, *names: str) -> list[list[torch.Tensor]]:
        """Of every operation of a kind, in order."""
        found = [operation for operation in operations if operation.op_type == kind]
        return [[torch.from_numpy(np.array(op.inputs[n].val, np.float32)) for n in names] for op in found]

    convolutions = arguments("conv", "weight", "bias")
    norms = arguments("batch_norm", "mean", "variance", "gamma", "beta")
    ((classifier, shift),) = arguments("linear", "weight", "bias")
    epsilon = float(np.float16(0.001))
    with torch.inference_mode():
        x = torch.from_numpy(frames)[:, None, :, None]
        for layer, ((weight, bias), norm) in enumerate(zip(convolutions, norms, strict=True)):
            x = functional.pad(x, (0, 0, 254, 254) if layer == 0 else (0, 0, 31, 32))
            x = functional.conv2d(x, weight, bias, stride=(4, 1) if layer == 0 else 1)
            x = functional.max_pool2d(functional.batch_norm(x.relu(), *norm, eps=epsilon), (2, 1), (2, 1))
        x = x.permute(0, 2, 1, 3).flatten(1)
        return torch.sigmoid(functional.linear(x, classifier, shift)).numpy()


@pytest.mark.parametrize("size", ["tiny", "full"])
def test_crepe_hears_the_pitch(size: str) -> None:
    frames, pitches = crepe_frames()
    model = kvb.Model.load(package("crepe", f"{size}.mlpackage"))
    bins = model.predict({"frames": frames})["probabilities"].argmax(1)
    # A bin is 20 cents wide; bin 0 stands 1997.38 cents above 10 Hz.
    heard = 10 * 2 ** ((20 * bins + 1997.3794) / 1200)
    np.testing.assert_allclose(1200 * np.log2(heard / pitches), 0, atol=25)


@pytest.mark.parametrize("size", ["tiny", "full"])
def test_crepe_agrees_with_torch(size: str) -> None:
    path = package("crepe", f"{size}.mlpackage")
    frames, _ = crepe_frames()
    want = crepe_in_torch(path, frames)
    got = kvb.Model.load(path).predict({"frames": frames})["probabilities"]
    assert want.max() > 0.5
    np.testing.assert_allclose(got, want, atol=2e-5)
    one = kvb.Model.load(path).predict({"frames": frames[2:3]})["probabilities"]
    np.testing.assert_allclose(one, want[2:3], atol=2e-5)


def test_basic_pitch_agrees_with_its_onnx_twin() -> None:
    path, twin = package("basic-pitch", "nmp.mlpackage"), package("basic-pitch", "nmp.onnx")
    runtime = pytest.importorskip("onnxruntime", reason="the torch extra is not installed")
    audio = tone(440.0, 22050, 43844) * 0.3
    audio[:11025] *= 0.01  # the note begins after half a second
    audio = audio.astype(np.float32)[None, :, None]
    model = kvb.Model.load(path)
    got = model.predict({"input_2": audio})
    session = runtime.InferenceSession(str(twin), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {session.get_inputs()[0].name: audio})
    order = {"Identity": (172, 264), "Identity_1": (172, 88), "Identity_2": (172, 88)}
    assert {name: spec.shape[1:] for name, spec in model.outputs.items()} == order
    names = [node.name for node in session.get_outputs()]
    for name in order:
        (want,) = [w for n, w in zip(names, wanted, strict=True) if n.split(":")[-1] == str(list(order).index(name))]
        assert want.max() > 0.5
        np.testing.assert_allclose(got[name], want, atol=1e-4, err_msg=name)
    # The note itself: MIDI 69 is key 48 of a piano; a frame has 256 samples.
    assert got["Identity_1"][0, 100].argmax() == 48
    assert abs(int(got["Identity_2"][0, :, 48].argmax()) - 11025 // 256) <= 2
