"""Log-mel against a float64 evaluation of the definition and, where it is installed, against mlx-whisper's."""

from __future__ import annotations

import numpy as np
import pytest

from kvbacking.whisper.features import CUT_FRAME, log_mel, mel_filters, windows
from kvbacking.whisper.wav import SAMPLE_RATE


def speech_like(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    carrier = np.sin(2 * np.pi * 180 * np.arange(count) / SAMPLE_RATE) * np.abs(np.sin(np.arange(count) / 3000))
    return (0.3 * carrier + 0.01 * rng.standard_normal(count)).astype(np.float32)


def direct_log_mel(samples: np.ndarray, filters: np.ndarray, frames: int) -> np.ndarray:
    """The definition, frame by frame with an explicit DFT matrix in float64."""
    audio = np.zeros(frames * 160)
    audio[: samples.size] = samples
    padded = np.concatenate([audio[200:0:-1], audio, audio[-2:-202:-1]])
    hann = np.sin(np.pi * np.arange(400) / 400) ** 2
    basis = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    power = np.stack([np.abs(basis @ (padded[i * 160 : i * 160 + 400] * hann)) ** 2 for i in range(frames)], axis=1)
    log = np.log10(np.maximum(filters.astype(np.float64) @ power, 1e-10))
    return (np.maximum(log, log.max() - 8) + 4) / 4


@pytest.mark.parametrize("mels", [80, 128])
def test_log_mel_is_its_definition(mels: int) -> None:
    samples = speech_like(30000)
    ours = log_mel(samples, mels=mels, frames=200)
    assert ours.shape == (1, mels, 200)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours[0], direct_log_mel(samples, mel_filters(mels), 200), atol=2e-4)


def test_mel_filters_have_unit_area_and_peak_in_order() -> None:
    filters = mel_filters(80)
    assert filters.shape == (80, 201)
    assert (np.diff(filters.argmax(axis=1)) >= 0).all()
    wide = filters[41:]  # narrower triangles are undersampled by 40 Hz bins
    np.testing.assert_allclose(wide.sum(axis=1) * SAMPLE_RATE / 400, 1.0, rtol=0.05)


@pytest.mark.parametrize("mels", [80, 128])
def test_against_mlx_whisper(mels: int) -> None:
    pytest.importorskip("mlx.core", reason="the whisper extra is not installed")
    audio = pytest.importorskip("mlx_whisper.audio", reason="mlx-whisper is not installed")
    np.testing.assert_allclose(mel_filters(mels), np.array(audio.mel_filters(mels)), atol=3e-9)
    samples = speech_like(100000)
    reference = np.array(audio.log_mel_spectrogram(np.pad(samples, (0, 480000 - samples.size)), n_mels=mels)).T
    np.testing.assert_allclose(log_mel(samples, mels=mels, frames=3000)[0], reference, atol=1e-4)


def test_log_mel_of_nothing_is_flat_and_of_too_much_is_refused() -> None:
    np.testing.assert_allclose(log_mel(np.zeros(0, np.float32), mels=80, frames=20), -1.5, atol=1e-6)
    with pytest.raises(ValueError, match="3201 samples do not fit into 20 frames"):
        log_mel(np.zeros(3201, np.float32), mels=80, frames=20)


def test_windows_cover_everything_once() -> None:
    samples = speech_like(75 * SAMPLE_RATE)
    limit = 30 * SAMPLE_RATE
    found = list(windows(samples, limit))
    assert [start for start, _ in found] == [0, *[end for _, end in found[:-1]]]
    assert found[-1][1] == samples.size
    assert all(0 < end - start <= limit for start, end in found)
    assert len(found) == 3


def test_a_window_is_cut_in_the_pause() -> None:
    samples = speech_like(40 * SAMPLE_RATE) + np.float32(0.2)
    pause = slice(27 * SAMPLE_RATE, 27 * SAMPLE_RATE + 3 * CUT_FRAME)
    samples[pause] = 0
    first = next(iter(windows(samples, 30 * SAMPLE_RATE)))
    assert pause.start <= first[1] <= pause.stop


def test_short_and_empty_audio() -> None:
    assert list(windows(np.zeros(0, np.float32), 480000)) == []
    assert list(windows(np.zeros(1600, np.float32), 480000)) == [(0, 1600)]
    assert list(windows(np.zeros(480000, np.float32), 480000)) == [(0, 480000)]
