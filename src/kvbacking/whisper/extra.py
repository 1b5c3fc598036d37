"""Imports of what only transcription needs, each with an error that names the extra."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


class WhisperUnavailableError(ImportError):
    """A package of the `whisper` extra cannot be imported."""


def optional_module(name: str) -> Any:
    """The imported module; its own import-time warnings are not ours to pass on."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        raise WhisperUnavailableError(
            f"transcription needs {name.split('.')[0]} ({error}): pip install 'kvbacking[whisper]' "
            "and pip install --no-deps mlx-whisper==0.4.3"
        ) from error
