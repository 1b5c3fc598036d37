"""Reference clips with known text (Debian's pocketsphinx-testdata, LibriVox), and counting of wrong words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

CLIPS = Path("/usr/share/pocketsphinx/test/data/librivox")


def reference_clips() -> dict[Path, str]:
    """WAV file -> what is said in it; empty where the package is not installed."""
    transcription = CLIPS / "transcription"
    if not transcription.is_file():
        return {}
    lines = re.findall(r"<s> (.*?) </s> \((\S+)\)", transcription.read_text())
    return {CLIPS / f"{name}.wav": text for text, name in lines}


def words(text: str) -> list[str]:
    """Lower case, no punctuation, compounds apart, titles written out."""
    plain = re.sub(r"\bmr\b\.?", "mister", text.lower())
    return re.findall(r"[a-z']+", plain.replace("-", " "))


def wrong_words(said: str, heard: str) -> int:
    """Substitutions, insertions and deletions between the two texts."""
    a, b = words(said), words(heard)
    row = np.arange(len(b) + 1)
    for i, word in enumerate(a, 1):
        previous, row = row, np.full(len(b) + 1, i)
        for j, other in enumerate(b, 1):
            row[j] = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (word != other))
    return int(row[-1])
