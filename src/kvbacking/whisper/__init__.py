"""Speech to text through kvbacking's memory: a Whisper encoder in Core ML, mlx-whisper's decoder on its K/V.

    with kvbacking.whisper.Transcriber(checkpoint, mechanism="raw") as transcriber:
        print(transcriber.transcribe("speech.wav").text)

Needs the `whisper` extra and mlx-whisper (scripts/fetch-whisper --runtime); to make the encoder's package from a
checkpoint, the `samples` extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbacking.whisper.checkpoint import Checkpoint, CheckpointError
from kvbacking.whisper.extra import WhisperUnavailableError
from kvbacking.whisper.wav import AudioError, read_wav

if TYPE_CHECKING:
    from kvbacking.whisper.result import Transcription, WindowResult
    from kvbacking.whisper.transcribe import Transcriber

__all__ = [
    "AudioError", "Checkpoint", "CheckpointError", "Transcriber", "Transcription", "WhisperUnavailableError",
    "WindowResult", "read_wav",
]  # fmt: skip

_LAZY = {"Transcriber": "transcribe", "Transcription": "result", "WindowResult": "result"}


def __getattr__(name: str) -> Any:
    # The reader of checkpoints serves the package writer too, which must not need the native module's session.
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"kvbacking.whisper.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
