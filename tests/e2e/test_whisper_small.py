"""The whole way from samples to tokens on a tiny random checkpoint: what needs no real weights, only real plumbing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import whisper_checkpoints

import kvbacking as kvb
from kvbacking.measure.bench import bench
from kvbacking.samples.toolkit import convert, quiet, save, tools
from kvbacking.whisper import AudioError, Checkpoint, Transcriber, Transcription
from kvbacking.whisper.package import cached_package
from kvbacking.whisper.task import SpeechTask, Spoken, open_speech

for module in ("mlx.core", "tokenizers", "coremltools"):
    pytest.importorskip(module, reason=f"{module} is not installed (extras whisper, samples)", exc_type=ImportError)
pytest.importorskip("mlx_whisper", reason="mlx-whisper is not installed (scripts/fetch-whisper --runtime)")

MECHANISMS = ("framework", "raw", "surface", "pool")
WINDOW = 40 * 160
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whisper_checkpoints.write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def package(directory: Path, cache: Path) -> Path:
    return cached_package(Checkpoint.load(directory), cache)


def sound(window_count: float = 1.0, seed: int = 0) -> np.ndarray:
    """A tone that climbs, in noise: no two windows are alike."""
    count = int(window_count * WINDOW)
    noise = 0.01 * np.random.default_rng(seed).standard_normal(count)
    return (0.5 * np.sin(2e-5 * np.arange(count) ** 2 + seed) + noise).astype(np.float32)


def transcribe(directory: Path, package: Path, samples: np.ndarray, **options: object) -> Transcription:
    with Transcriber(directory, package, **options) as transcriber:
        return transcriber.transcribe(samples)


def write_wav(path: Path, samples: np.ndarray) -> Path:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


def test_every_mechanism_and_level_gives_the_same_tokens(directory: Path, package: Path) -> None:
    samples = sound(3)
    control = transcribe(directory, package, samples, mechanism="framework", verify="off")
    assert len(control.windows) >= 3
    assert len({window.tokens for window in control.windows}) > 1
    for mechanism in MECHANISMS:
        for verify in ("off", "layout", "scan", "full"):
            result = transcribe(directory, package, samples, mechanism=mechanism, verify=verify)
            assert [w.tokens for w in result.windows] == [w.tokens for w in control.windows]
            assert result.text == control.text
            if mechanism in ("framework", "raw"):  # a surface or pool session makes new surfaces every time
                assert result.sets_created == 2


def test_the_cached_package_is_written_once(directory: Path, package: Path, cache: Path) -> None:
    before = (package / "Manifest.json").stat().st_mtime_ns
    assert cached_package(Checkpoint.load(directory), cache) == package
    assert (package / "Manifest.json").stat().st_mtime_ns == before
    assert [p.name for p in package.parent.iterdir()] == [package.name]


def test_the_result_is_a_json_document(directory: Path, package: Path) -> None:
    result = transcribe(directory, package, sound(2), mechanism="raw")
    document = result.to_dict()
    assert document["runtime"] == kvb.runtime_info().kind
    assert document["intervals_ns"]["decode"] == sum(w["intervals_ns"]["decode"] for w in document["windows"])
    assert document["windows"][1]["evidence"]["cross_v"]["same_object"] is True
    assert result.total_ns > result.interval_ns("encoder_stage") > result.interval_ns("prediction") > 0


def write_float32_package(path: Path) -> Path:
    """mel float32 [1, 8, 40] -> cross_k, cross_v float32 [2, 24, 16]: some projection of neighbouring frames."""
    t = tools()
    mb, rng = t.mb, np.random.default_rng(5)

    def build(mel: Any) -> Any:
        rows = mb.reshape(x=mb.transpose(x=mel, perm=[0, 2, 1]), shape=[1, 20, 16])
        pad = [0, 0, 0, 4, 0, 0]
        return tuple(
            mb.pad(
                x=mb.concat(
                    values=[mb.linear(x=rows, weight=rng.standard_normal((16, 16)).astype(np.float32)) for _ in "12"],
                    axis=0,
                ),
                pad=pad, mode="constant", constant_val=np.float32(0), name=name,
            )
            for name in ("cross_k", "cross_v")
        )  # fmt: skip

    with quiet():
        spec = mb.TensorSpec(shape=(1, 8, 40), dtype=t.types.fp32)
        program = mb.program(input_specs=[spec], opset_version=t.ct.target.macOS15)(build)
        save(convert(program, target="macOS15", compute="fp32"), path)
    return path


def test_float32_packages_fit_too(directory: Path, package: Path, tmp_path: Path) -> None:
    """The dtype of mel is the package's business: what is asked for is read from its description."""
    own = Checkpoint.load(directory).dimensions
    assert (own.mels, own.audio_positions, own.text_layers, own.width) == (8, 20, 2, 16)
    for path, dtype in ((package, "float16"), (write_float32_package(tmp_path / "wide.mlpackage"), "float32")):
        with Transcriber(directory, path, mechanism="raw") as transcriber:
            assert transcriber.encoder.dtype == dtype
            window = transcriber.transcribe(sound()).windows[0]
        assert window.evidence["cross_k"].dtype == dtype
        assert (window.path, window.same_bytes) == ("backing", True)
        assert window.import_bytes_copied in (0, 2 * 2 * 20 * 16 * np.dtype(dtype).itemsize)


def test_rows_that_are_not_the_session_s_never_become_text(
    directory: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Transcriber(directory, package, mechanism="raw") as transcriber:
        real = transcriber.decoder.import_cache

        def changed(cross_k: np.ndarray, cross_v: np.ndarray, live: int) -> Any:
            other = np.array(cross_v)
            other[1, 3, 5] += 1
            return real(cross_k, other, live)

        monkeypatch.setattr(transcriber.decoder, "import_cache", changed)
        with pytest.raises(kvb.IntegrityError, match="layer 1") as error:
            transcriber.transcribe(sound())
        assert [(f.output, f.check) for f in error.value.failures] == [("cross_v", "same_bytes")]
        assert "in 1 rows" in error.value.failures[0].actual


def test_a_closed_transcriber_keeps_its_results(directory: Path, package: Path) -> None:
    transcriber = Transcriber(directory, package, mechanism="raw")
    result = transcriber.transcribe(sound())
    transcriber.close()
    transcriber.close()
    assert result.windows[0].evidence["cross_k"].digest
    with pytest.raises(ValueError, match="session is closed"):
        transcriber.transcribe(sound())


def test_a_view_that_somebody_keeps_is_never_overwritten(directory: Path, package: Path) -> None:
    with Transcriber(directory, package, mechanism="raw", depth=1) as transcriber:
        mel = np.zeros((1, 8, 40), np.float16)
        held = transcriber.session.predict({"mel": mel})["cross_k"]
        before = held.copy()
        with pytest.raises(kvb.BackingInUseError):
            transcriber.transcribe(sound())
        np.testing.assert_array_equal(held, before)
        del held
        assert transcriber.transcribe(sound()).windows[0].path == "backing"


def test_bench_takes_speech_as_its_task(directory: Path, package: Path, tmp_path: Path) -> None:
    wav = write_wav(tmp_path / "clip.wav", sound(0.9))
    speech = open_speech(directory, package, wav)
    report = bench(
        speech.model, speech.inputs(), speech.contract, rounds=3, warmup=1, end_to_end=speech, placement=False
    ).document
    for arm in report["arms"]:
        assert (arm["status"], arm["samples"], arm["invalid"]) == ("valid", 3, 0), arm["reasons"]
        assert {"prediction", "copy", "stage", "end_to_end"} <= set(arm["intervals"])
    assert {arm["mechanism"] for arm in report["arms"]} == {"framework", "raw", "surface"}
    assert all(all(passed.values()) for passed in report["end_to_end"]["gates"].values())
    intervals = {(d["arm"], d["interval"]) for d in report["differences"]}
    assert {("raw", "end_to_end"), ("surface", "end_to_end"), ("raw", "stage")} <= intervals


def test_the_task_predicts_once_and_its_gates_see_a_difference(directory: Path, package: Path, tmp_path: Path) -> None:
    speech = open_speech(directory, package, write_wav(tmp_path / "clip.wav", sound(0.9)))
    calls = []
    with kvb.Session(speech.model, speech.contract, mechanism="raw") as session:

        def predict(inputs: dict[str, np.ndarray]) -> kvb.Prediction:
            calls.append(inputs)
            return session.predict(inputs)

        spoken = speech.run(predict)
    assert len(calls) == 1
    assert spoken.tokens
    assert speech.gates(spoken, spoken) == {"text": True, "tokens": True}
    assert speech.gates(spoken, Spoken("other", spoken.tokens)) == {"text": False, "tokens": True}
    with pytest.raises(TypeError, match="what run returned"):
        speech.gates(spoken, "text")


@pytest.mark.parametrize("window_count", [0.0, 1.5])
def test_the_task_takes_exactly_one_window(directory: Path, package: Path, tmp_path: Path, window_count: float) -> None:
    wav = write_wav(tmp_path / "clip.wav", sound(window_count))
    with pytest.raises(AudioError, match="a bench takes one window"):
        SpeechTask(Checkpoint.load(directory), _encoder(directory, package), wav)


def _encoder(directory: Path, package: Path) -> object:
    from kvbacking.whisper.package import open_encoder

    return open_encoder(Checkpoint.load(directory), package)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=240)


def test_the_example_prints_text_and_evidence(directory: Path, package: Path, tmp_path: Path) -> None:
    wav = write_wav(tmp_path / "clip.wav", sound(2))
    with Transcriber(directory, package, mechanism="raw") as transcriber:
        expected = transcriber.transcribe(wav)
    assert expected.text
    done = _run(str(ROOT / "examples/whisper/transcribe.py"), str(wav), str(directory), "raw", str(package))
    assert (done.returncode, done.stdout) == (0, f"{expected.text}\n"), done.stderr
    assert done.stderr.count("path backing") == len(expected.windows) > 1
    for window in expected.windows:
        assert str(window.evidence["cross_v"].digest) in done.stderr
    wrong = _run(str(ROOT / "examples/whisper/transcribe.py"), str(wav))
    assert wrong.returncode == 1
    assert "speech.wav" in wrong.stderr


def test_the_snippet_of_the_documentation_runs(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/whisper.md").read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    write_wav(tmp_path / "speech.wav", sound())
    (tmp_path / "build/whisper").mkdir(parents=True)
    (tmp_path / "build/whisper/tiny.en").symlink_to(directory)
    exec(snippet, {})
    text, facts = capsys.readouterr().out.splitlines()
    assert text
    assert re.match(r"True \{.*'encoder_stage': \d+", facts)


def test_the_bench_command_times_the_way_to_the_final_text(directory: Path, package: Path, tmp_path: Path) -> None:
    wav, out = write_wav(tmp_path / "clip.wav", sound(0.9)), tmp_path / "report"
    done = _run(
        "-m", "kvbacking", "bench", str(package), "--whisper", str(wav), "--checkpoint", str(directory),
        "--rounds", "20", "--no-placement", "--out", str(out), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (out / "report.html").is_file()
    assert [arm["name"] for arm in document["arms"]] == ["framework", "framework again", "raw", "surface"]
    for arm in document["arms"]:
        assert {"prediction", "copy", "stage", "end_to_end"} <= set(arm["intervals"])
        assert arm["intervals"]["end_to_end"]["p50_ns"] > arm["intervals"]["stage"]["p50_ns"]
    assert all(all(passed.values()) for passed in document["end_to_end"]["gates"].values())
    alone = _run("-m", "kvbacking", "bench", str(package), "--whisper", str(wav), "--out", str(out))
    assert (alone.returncode, alone.stdout) == (2, "")
    assert "--whisper and --checkpoint go together" in alone.stderr
