"""Whisper's log-mel spectrogram in NumPy, and the 30 second windows it is computed over.

Source of the definition: the Whisper paper and its published preprocessing (25 ms Hann window, 10 ms hop, reflected
ends, Slaney mel filters normalised by area, log10 floored 8 below the window's maximum, scaled by (x + 4) / 4).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvbacking.whisper.wav import SAMPLE_RATE

Array = np.ndarray[Any, np.dtype[Any]]

FFT, HOP = 400, 160
CUT_SEARCH_S = 6.0  # a window that does not end the audio ends at the quietest place of its last seconds
CUT_FRAME = 1600


@functools.cache
def mel_filters(count: int) -> Array:
    """[count, FFT // 2 + 1] float32: triangles spaced evenly on Slaney's mel scale, each of unit area."""
    log_step = np.log(6.4) / 27.0

    def to_hz(mel: Array) -> Array:
        return np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * np.exp(log_step * (mel - 15.0)))

    top = 15.0 + np.log(SAMPLE_RATE / 2 / 1000.0) / log_step
    edges = to_hz(np.linspace(0.0, top, count + 2))
    bins = np.fft.rfftfreq(FFT, 1.0 / SAMPLE_RATE)
    ramps = edges[:, None] - bins[None]
    lower = -ramps[:-2] / np.diff(edges)[:-1, None]
    upper = ramps[2:] / np.diff(edges)[1:, None]
    triangles = np.maximum(0.0, np.minimum(lower, upper))
    weights: Array = (triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)
    return weights


def log_mel(samples: Array, *, mels: int, frames: int) -> Array:
    """float32 [1, mels, frames] of up to frames * HOP samples at 16 kHz; shorter audio is followed by silence."""
    wanted = frames * HOP
    if samples.size > wanted:
        raise ValueError(f"{samples.size} samples do not fit into {frames} frames of {HOP}")
    audio = np.zeros(wanted, np.float32)
    audio[: samples.size] = samples
    padded = np.pad(audio, FFT // 2, mode="reflect")
    hann = (0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(FFT) / FFT)).astype(np.float32)
    framed = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][:frames]
    power = np.abs(np.fft.rfft(framed * hann, axis=-1)).astype(np.float32) ** 2
    log = np.log10(np.maximum(mel_filters(mels) @ power.T, 1e-10))
    scaled: Array = ((np.maximum(log, log.max() - 8.0) + 4.0) / 4.0).astype(np.float32)
    return scaled[None]


def windows(samples: Array, window_samples: int) -> Iterator[tuple[int, int]]:
    """(start, end) of consecutive windows of at most `window_samples`, none for empty audio.

    A window is cut at the quietest 0.1 s of its last seconds, so that a word is rarely split.
    """
    start = 0
    search = min(int(CUT_SEARCH_S * SAMPLE_RATE), window_samples // 2)
    while start < samples.size:
        end = min(start + window_samples, samples.size)
        if end < samples.size and search >= CUT_FRAME:
            tail = samples[end - search : end].astype(np.float64)
            count = tail.size // CUT_FRAME
            energy = (tail[: count * CUT_FRAME].reshape(count, CUT_FRAME) ** 2).sum(axis=1)
            quietest = count - 1 - int(np.argmin(energy[::-1]))
            end = end - search + quietest * CUT_FRAME + CUT_FRAME // 2
        yield start, end
        start = end
