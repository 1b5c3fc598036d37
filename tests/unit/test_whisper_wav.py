"""Every accepted WAV form gives the same signal; every other one is refused by name."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from scipy import signal

from kvbacking.whisper.wav import AudioError, decode_wav, read_wav, resample

RATE = 16000


def wav_bytes(frames: bytes, *, code: int = 1, channels: int = 1, rate: int = RATE, bits: int = 16, extra: bytes = b""):
    width = channels * bits // 8
    fmt = struct.pack("<HHIIHH", code, channels, rate, rate * width, width, bits) + extra
    body = b"WAVE" + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    body += b"LIST" + struct.pack("<I", 3) + b"abc\0"  # an odd chunk, padded
    body += b"data" + struct.pack("<I", len(frames)) + frames
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tone(count: int = 1600, rate: int = RATE) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(count) / rate)


def pcm(samples: np.ndarray, bits: int) -> bytes:
    scaled = np.round(samples * 2 ** (bits - 1)).astype(np.int64)
    if bits == 8:
        return (scaled + 128).astype(np.uint8).tobytes()
    return scaled.astype("<i8").view(np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_integer_pcm(bits: int) -> None:
    samples, rate = decode_wav(wav_bytes(pcm(tone(), bits), bits=bits))
    assert rate == RATE
    assert samples.dtype == np.float32
    np.testing.assert_allclose(samples, tone(), atol=0.51 / 2 ** (bits - 1) + 1e-7)


@pytest.mark.parametrize(("bits", "dtype"), [(32, "<f4"), (64, "<f8")])
def test_float_pcm(bits: int, dtype: str) -> None:
    samples, _ = decode_wav(wav_bytes(tone().astype(dtype).tobytes(), code=3, bits=bits))
    np.testing.assert_allclose(samples, tone(), atol=1e-7)


def test_extensible_names_its_codec_in_the_sub_format() -> None:
    extra = struct.pack("<HHIH", 22, 24, 0, 1) + bytes(14)
    samples, _ = decode_wav(wav_bytes(pcm(tone(), 24), code=0xFFFE, bits=24, extra=extra))
    np.testing.assert_allclose(samples, tone(), atol=1e-6)


def test_channels_are_averaged() -> None:
    left, right = tone(), 0.25 * np.ones(1600)
    frames = pcm(np.stack([left, right], axis=1).reshape(-1), 16)
    samples, _ = decode_wav(wav_bytes(frames, channels=2))
    np.testing.assert_allclose(samples, (left + right) / 2, atol=1e-4)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
def test_resampling_keeps_a_tone(rate: int) -> None:
    out = resample(tone(rate, rate).astype(np.float32), rate, RATE)
    assert out.size == RATE
    middle = slice(400, RATE - 400)
    np.testing.assert_allclose(out[middle], tone(RATE)[middle], atol=2e-4)


def test_resampling_agrees_with_another_resampler_on_band_limited_noise() -> None:
    noise = np.random.default_rng(3).standard_normal(44100)
    noise = signal.sosfiltfilt(signal.butter(12, 5000, fs=44100, output="sos"), noise)
    ours = resample(noise.astype(np.float32), 44100, RATE)
    other = signal.resample_poly(noise, 160, 441, window=("kaiser", 9.0))
    assert ours.size == other.size
    middle = slice(400, -400)
    assert np.abs(ours[middle] - other[middle]).max() < 2e-3


def test_resampling_removes_what_would_alias() -> None:
    high = np.sin(2 * np.pi * 11000 * np.arange(44100) / 44100).astype(np.float32)
    assert np.abs(resample(high, 44100, RATE)[400:-400]).max() < 1e-3


def test_one_sample_and_no_sample_survive() -> None:
    assert resample(np.ones(1, np.float32), 44100, RATE).size == 1
    assert decode_wav(wav_bytes(b""))[0].size == 0


def test_a_data_chunk_that_claims_too_much_is_read_as_far_as_it_goes() -> None:
    data = bytearray(wav_bytes(pcm(tone(), 16)))
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", 0xFFFFFFFF)
    assert decode_wav(bytes(data))[0].size == 1600


REFUSED = [
    (b"", "the file is empty"),
    (b"RIFX" + bytes(40), "RIFX is not supported"),
    (b"RF64" + bytes(40), "RF64 is not supported"),
    (b"ID3" + bytes(40), "not a RIFF WAV file"),
    (b"RIFF\0\0\0\0WAVE", "no fmt chunk"),
    (wav_bytes(b"")[:50], "no data chunk"),
    (wav_bytes(b"", code=0x55), "MP3 is not supported"),
    (wav_bytes(b"", code=0x1234), "codec 0x1234 is not supported"),
    (wav_bytes(b"", bits=20), "20 bit PCM is not supported"),
    (wav_bytes(b"", bits=16, code=3), "16 bit float is not supported"),
    (wav_bytes(b"", channels=0), "0 channels"),
    (wav_bytes(b"", rate=4000), "4000 Hz is outside 8000 to 192000 Hz"),
    (wav_bytes(np.array([0, np.nan], "<f4").tobytes(), code=3, bits=32), "sample 1 is not a finite number"),
]


@pytest.mark.parametrize(("data", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refusals(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "clip.wav"
    path.write_bytes(data)
    with pytest.raises(AudioError, match=message) as refusal:
        read_wav(path)
    assert str(path) in str(refusal.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"nowhere\.wav: cannot be read: No such file"):
        read_wav(tmp_path / "nowhere.wav")


def test_every_truncation_is_an_error_or_shorter_audio() -> None:
    data = wav_bytes(pcm(tone(50), 16))
    for end in range(len(data)):
        try:
            samples, _ = decode_wav(data[:end])
        except AudioError:
            continue
        assert samples.size <= 50
