"""WAV bytes to float32 mono at 16 kHz. RIFF little-endian; PCM 8, 16, 24 and 32 bit, float 32 and 64 bit, any channels.

Channels are averaged, other rates are resampled with a windowed sinc. Anything else is refused by name with AudioError:
compressed codecs, RF64, big-endian files, rates outside 8 to 192 kHz, non-finite samples, truncated headers. A data
chunk that claims more than the file holds (a recorder that was killed, a stream) is read as far as it goes.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

SAMPLE_RATE = 16000
PCM, FLOAT, EXTENSIBLE = 0x0001, 0x0003, 0xFFFE
CODECS = {0x0002: "Microsoft ADPCM", 0x0006: "A-law", 0x0007: "mu-law", 0x0011: "IMA ADPCM", 0x0055: "MP3"}
MIN_RATE, MAX_RATE = 8000, 192000
ZERO_CROSSINGS = 24  # of the sinc on each side
KAISER_BETA = 9.0  # about 90 dB of stop band


class AudioError(ValueError):
    """The file is not audio that can be transcribed; the message says what was found and what is accepted."""


def read_wav(path: str | Path) -> Array:
    """float32 [samples] at 16 kHz in [-1, 1] for integer PCM; empty for a file without samples."""
    source = Path(path)
    try:
        data = source.read_bytes()
    except OSError as error:
        raise AudioError(f"{source}: cannot be read: {error.strerror}") from error
    try:
        samples, rate = decode_wav(data)
    except AudioError as error:
        raise AudioError(f"{source}: {error}") from None
    return resample(samples, rate, SAMPLE_RATE)


def decode_wav(data: bytes) -> tuple[Array, int]:
    """(float32 mono samples, sample rate) of a WAV file's bytes."""
    if not data:
        raise AudioError("the file is empty: a WAV file starts with RIFF")
    if data[:4] in (b"RIFX", b"RF64", b"BW64"):
        raise AudioError(f"{data[:4].decode()} is not supported: convert to a RIFF WAV file of PCM 16 bit")
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise AudioError("not a RIFF WAV file: convert with any audio tool to WAV, PCM 16 bit, 16 kHz")
    chunks = _chunks(data)
    if b"fmt " not in chunks:
        raise AudioError("no fmt chunk: the file is truncated or damaged")
    if b"data" not in chunks:
        raise AudioError("no data chunk: the file is truncated or damaged")
    code, channels, rate, bits = _format(chunks[b"fmt "])
    frames = _samples(chunks[b"data"], code, bits)
    frames = frames[: frames.size - frames.size % channels].reshape(-1, channels)
    mono = frames[:, 0] if channels == 1 else frames.mean(axis=1, dtype=np.float64)
    if not np.isfinite(mono).all():
        raise AudioError(f"sample {int(np.flatnonzero(~np.isfinite(mono))[0])} is not a finite number")
    return np.ascontiguousarray(mono, dtype=np.float32), rate


def _chunks(data: bytes) -> dict[bytes, memoryview]:
    found: dict[bytes, memoryview] = {}
    at, view = 12, memoryview(data)
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        found.setdefault(name, view[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return found


def _format(chunk: memoryview) -> tuple[int, int, int, int]:
    """(PCM or FLOAT, channels, rate, bits per sample); everything that cannot be read is refused here."""
    if len(chunk) < 16:
        raise AudioError(f"the fmt chunk has {len(chunk)} bytes, expected at least 16")
    code, channels, rate, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == EXTENSIBLE:
        if len(chunk) < 26:
            raise AudioError(f"the extensible fmt chunk has {len(chunk)} bytes, expected 40")
        (code,) = struct.unpack_from("<H", chunk, 24)
    if code not in (PCM, FLOAT):
        raise AudioError(f"{CODECS.get(code, f'codec 0x{code:04x}')} is not supported: convert to PCM 16 bit")
    if bits not in ((8, 16, 24, 32) if code == PCM else (32, 64)):
        raise AudioError(f"{bits} bit {'PCM' if code == PCM else 'float'} is not supported: convert to PCM 16 bit")
    if channels == 0 or frame_bytes != channels * bits // 8:
        raise AudioError(f"{channels} channels of {bits} bits in {frame_bytes} bytes a frame make no sense")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise AudioError(f"{rate} Hz is outside {MIN_RATE} to {MAX_RATE} Hz")
    return code, channels, rate, bits


def _samples(chunk: memoryview, code: int, bits: int) -> Array:
    """The interleaved samples; integer PCM scaled to [-1, 1)."""
    width = bits // 8
    whole = chunk[: len(chunk) - len(chunk) % width]
    if code == FLOAT:
        return np.frombuffer(whole, "<f4" if bits == 32 else "<f8")
    if bits == 8:
        return (np.frombuffer(whole, np.uint8).astype(np.float32) - 128) / 128
    if bits == 24:
        wide = np.zeros((len(whole) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(whole, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float64) / 2**31
    scaled: Array = np.frombuffer(whole, f"<i{width}").astype(np.float64) / 2 ** (bits - 1)
    return scaled


def resample(samples: Array, rate: int, target: int) -> Array:
    """float32 samples at `target` Hz, ceil(n * target / rate) of them; the input itself when the rates are equal.

    A polyphase FIR: a Kaiser-windowed sinc that cuts at the lower of the two Nyquist rates, zeros beyond the ends.
    """
    if rate == target or samples.size == 0:
        return samples
    common = math.gcd(rate, target)
    up, down = target // common, rate // common
    cut = min(1.0, up / down)
    half = math.ceil(ZERO_CROSSINGS / cut)
    count = -(-samples.size * up // down)
    padded = np.pad(samples.astype(np.float64), (half, half + down + 1))
    out = np.empty(count, np.float64)
    taps = np.arange(-half + 1, half + 1)
    for first in range(min(up, count)):
        start, phase = divmod(first * down, up)
        distance = taps - phase / up
        window = np.i0(KAISER_BETA * np.sqrt(np.clip(1 - (distance / half) ** 2, 0, 1))) / np.i0(KAISER_BETA)
        kernel = cut * np.sinc(cut * distance) * window
        rows = np.lib.stride_tricks.sliding_window_view(padded, taps.size)[start + 1 :: down]
        wanted = -(-(count - first) // up)
        out[first::up] = rows[:wanted] @ kernel
    return out.astype(np.float32)
