"""Real speech through a real Whisper: the session's K/V, the decoder's text, the same by every way to the bytes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import speech
import whisper_checkpoints

import kvbacking as kvb
import kvbacking.samples
from kvbacking.whisper import Transcriber
from kvbacking.whisper.decoder import Decoder
from kvbacking.whisper.package import Encoder, open_encoder
from kvbacking.whisper.tokens import Tokenizer

for module in ("mlx.core", "tokenizers", "coremltools"):
    pytest.importorskip(module, reason=f"{module} is not installed (extras whisper, samples)", exc_type=ImportError)
pytest.importorskip("mlx_whisper", reason="mlx-whisper is not installed (scripts/fetch-whisper --runtime)")

MECHANISMS = ("framework", "raw", "surface", "pool")
CLIPS = speech.reference_clips()
needs_clips = pytest.mark.skipif(not CLIPS, reason="the Debian package pocketsphinx-testdata is not installed")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@functools.cache
def parts(name: str, cache: Path) -> tuple[kvb.whisper.Checkpoint, Encoder, Decoder]:
    """Checkpoint, encoder and decoder, loaded once for the whole run."""
    directory = whisper_checkpoints.real_checkpoint(name)
    if directory is None:
        pytest.skip(f"Whisper {name} is not there: scripts/fetch-whisper {name}")
    checkpoint = kvb.whisper.Checkpoint.load(directory)
    decoder = Decoder(checkpoint, Tokenizer(checkpoint).rules)
    return checkpoint, open_encoder(checkpoint, cache_dir=cache), decoder


def make_transcriber(cache: Path, mechanism: str = "raw", name: str = "tiny.en", **options: object) -> Transcriber:
    checkpoint, encoder, decoder = parts(name, cache)
    return Transcriber(checkpoint, encoder=encoder, decoder=decoder, mechanism=mechanism, **options)


def joined_clips(gap_s: float = 0.5, repeat: int = 1) -> np.ndarray:
    gap = np.zeros(int(gap_s * 16000), np.float32)
    return np.concatenate([part for clip in list(CLIPS) * repeat for part in (kvb.whisper.read_wav(clip), gap)])


@needs_clips
@pytest.mark.parametrize(
    ("name", "allowed", "mechanisms"), [("tiny.en", 3, MECHANISMS), ("base", 1, ("framework", "raw"))]
)
def test_text_is_right_and_the_same_through_every_mechanism(
    cache_dir: Path, name: str, allowed: int, mechanisms: tuple[str, ...]
) -> None:
    heard: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for mechanism in mechanisms:
        with make_transcriber(cache_dir, mechanism, name) as transcriber:
            results = [transcriber.transcribe(clip) for clip in CLIPS]
        windows = [window for result in results for window in result.windows]
        assert {window.path for window in windows} == {"framework" if mechanism == "framework" else "backing"}
        assert all(window.same_bytes and window.fault is None for window in windows)
        for window in windows:
            for evidence in window.evidence.values():
                assert evidence.tail_zero
                assert evidence.finite
                assert evidence.accepted is (None if mechanism == "framework" else True)
        heard[mechanism] = [(result.text, result.windows[0].tokens) for result in results]
    assert all(heard[mechanism] == heard["framework"] for mechanism in mechanisms)
    wrong = [speech.wrong_words(said, text) for said, (text, _) in zip(CLIPS.values(), heard["raw"], strict=True)]
    assert sum(wrong) <= allowed, list(zip(wrong, heard["raw"], strict=True))


@needs_clips
@pytest.mark.parametrize("verify", ["off", "full"])
def test_verification_does_not_change_the_text(cache_dir: Path, verify: str) -> None:
    clip = list(CLIPS)[1]
    with make_transcriber(cache_dir, "framework") as control:
        expected = control.transcribe(clip)
    with make_transcriber(cache_dir, verify=verify) as transcriber:
        result = transcriber.transcribe(clip)
    assert result.text == expected.text
    assert result.windows[0].tokens == expected.windows[0].tokens
    assert result.windows[0].same_bytes is (True if verify in ("scan", "full") else None)


@needs_clips
def test_the_encoder_agrees_with_numpy(cache_dir: Path) -> None:
    checkpoint, encoder, _ = parts("tiny.en", cache_dir)
    samples = kvb.whisper.read_wav(list(CLIPS)[1])
    mel = kvb.whisper.features.log_mel(samples, mels=encoder.mels, frames=encoder.frames).astype(encoder.dtype)
    outputs = encoder.model.predict({"mel": mel})
    for name, expected in zip(
        ("cross_k", "cross_v"), whisper_checkpoints.encode(checkpoint.variables, mel), strict=True
    ):
        difference = np.abs(outputs[name][:, :1500].astype(np.float32) - expected)
        assert (difference - np.abs(expected) * 2**-10).max() < 2e-3  # one rounding to fp16, and accumulation
        assert not outputs[name][:, 1500:].view(np.uint16).any()


@needs_clips
def test_long_audio_reuses_the_sets(cache_dir: Path) -> None:
    samples = joined_clips(repeat=3)
    with make_transcriber(cache_dir, depth=2) as transcriber:
        result = transcriber.transcribe(samples)
    assert samples.size > 60 * 16000
    assert len(result.windows) >= 3
    assert [window.start_s for window in result.windows[1:]] == [window.end_s for window in result.windows[:-1]]
    assert {window.path for window in result.windows} == {"backing"}
    assert result.sets_created == 2
    digests = [window.evidence["cross_k"].digest for window in result.windows]
    assert len(set(digests)) == len(digests)
    assert all(window.evidence["cross_k"].fresh for window in result.windows[1:])
    said = " ".join(list(CLIPS.values()) * 3)
    assert speech.wrong_words(said, result.text) <= 12


def test_silence_short_and_empty_audio(cache_dir: Path) -> None:
    rng = np.random.default_rng(0)
    with make_transcriber(cache_dir) as transcriber:
        empty = transcriber.transcribe(np.zeros(0, np.float32))
        assert (empty.text, empty.windows, empty.duration_s) == ("", (), 0.0)
        for samples in (
            np.zeros(16000, np.float32),
            np.zeros(1600, np.float32),
            (0.01 * rng.standard_normal(1600)).astype(np.float32),
            np.zeros(1, np.float32),
        ):
            result = transcriber.transcribe(samples)
            assert (result.text, len(result.windows), result.windows[0].silent) == ("", 1, True)


@needs_clips
def test_the_form_of_the_file_does_not_matter(cache_dir: Path, tmp_path: Path) -> None:
    clip = list(CLIPS)[3]
    with wave.open(str(clip)) as source:
        frames = np.frombuffer(source.readframes(source.getnframes()), "<i2")
    stereo = tmp_path / "stereo.wav"
    with wave.open(str(stereo), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(3)
        out.setframerate(44100)
        grid = np.arange(int(frames.size * 44100 / 16000)) * 16000 / 44100
        wide = (np.interp(grid, np.arange(frames.size), frames) * 256).astype("<i4")
        out.writeframes(np.repeat(wide, 2).view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
    with make_transcriber(cache_dir) as transcriber:
        assert transcriber.transcribe(stereo).text == transcriber.transcribe(clip).text


def test_a_package_of_another_checkpoint_is_refused(cache_dir: Path, tmp_path: Path) -> None:
    directory = whisper_checkpoints.write_checkpoint(tmp_path / "other")
    info = kvb.samples.write("whisper", tmp_path / "other.mlpackage", checkpoint=directory, capacity=24)
    checkpoint, _, _ = parts("tiny.en", cache_dir)
    with pytest.raises(kvb.ContractError) as error:
        open_encoder(checkpoint, info.path, cache_dir=cache_dir)
    assert {f.output for f in error.value.failures} == {"mel", "cross_k", "cross_v"}
    assert "kvbacking sample whisper" in str(error.value)


def test_wrong_arguments_are_refused(cache_dir: Path) -> None:
    with make_transcriber(cache_dir) as transcriber:
        with pytest.raises(ValueError, match="English-only checkpoint cannot transcribe 'de'"):
            transcriber.transcribe(np.zeros(10, np.float32), language="de")
        with pytest.raises(ValueError, match=r"one dimension, got shape \[2, 10\]"):
            transcriber.transcribe(np.zeros((2, 10), np.float32))
    with pytest.raises(ValueError, match="on_fault must be one of"):
        make_transcriber(cache_dir, on_fault="ignore")


def command(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "KVBACKING_CACHE_DIR": str(cache)}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # a build not installed
    return subprocess.run(
        [sys.executable, "-m", "kvbacking", "transcribe", *arguments], capture_output=True, text=True, env=environment
    )


@needs_clips
def test_command_prints_the_text(cache_dir: Path) -> None:
    checkpoint, _, _ = parts("tiny.en", cache_dir)
    clip = str(list(CLIPS)[3])
    plain = command(clip, "--checkpoint", str(checkpoint.path), "--mechanism", "pool", cache=cache_dir)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert speech.wrong_words(CLIPS[Path(clip)], plain.stdout) <= 1
    full = command(clip, "--checkpoint", str(checkpoint.path), "--mechanism", "raw", "--json", cache=cache_dir)
    document = json.loads(full.stdout)
    assert document["text"] == plain.stdout.strip()
    assert document["windows"][0]["evidence"]["cross_k"]["accepted"] is True
    assert document["windows"][0]["intervals_ns"]["decode"] > 0
    assert full.stderr == ""


def test_command_errors_are_one_line(cache_dir: Path, tmp_path: Path) -> None:
    checkpoint, _, _ = parts("tiny.en", cache_dir)
    noise = tmp_path / "noise.wav"
    noise.write_bytes(b"not audio")
    for arguments, message in (
        ((str(noise), "--checkpoint", str(checkpoint.path)), "noise.wav: not a RIFF WAV file"),
        ((str(noise), "--checkpoint", str(tmp_path / "nowhere")), "nowhere: not a directory"),
    ):
        done = command(*arguments, cache=cache_dir)
        assert done.returncode == 3
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert done.stdout == ""
