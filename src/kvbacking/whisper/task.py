"""Speech to text as the end-to-end task of a bench: one WAV of one window, through whatever predicts its K/V."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvbacking.model import ComputeUnits
from kvbacking.session import Prediction
from kvbacking.whisper import features
from kvbacking.whisper.checkpoint import Checkpoint
from kvbacking.whisper.decoder import Decoder
from kvbacking.whisper.package import INPUT, OUTPUTS, Encoder, open_encoder
from kvbacking.whisper.tokens import Tokenizer
from kvbacking.whisper.wav import SAMPLE_RATE, AudioError, read_wav

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Spoken:
    """The final text of one run and the tokens it was made from."""

    text: str
    tokens: tuple[int, ...]


class SpeechTask:
    """Reads the WAV, predicts exactly once, decodes on the prediction's K/V: from WAV to final text.

    The gates ask for the control's very text and tokens. `model` and `contract` are the encoder's. Raises AudioError
    for audio longer than one window or empty.
    """

    def __init__(
        self, checkpoint: Checkpoint, encoder: Encoder, wav: str | os.PathLike[str], *, language: str = "en"
    ) -> None:
        self._encoder = encoder
        self._wav = os.fspath(wav)
        self._language = language
        self._tokenizer = Tokenizer(checkpoint)
        self._decoder = Decoder(checkpoint, self._tokenizer.rules)
        self._tokenizer.rules.prompt(language)
        self.model, self.contract = encoder.model, encoder.contract
        self.inputs()

    def inputs(self) -> dict[str, Array]:
        """The encoder's input: what every arm of the bench is given."""
        samples = read_wav(self._wav)
        limit = self._encoder.frames * features.HOP
        if not 0 < samples.size <= limit:
            raise AudioError(
                f"{self._wav}: {samples.size / SAMPLE_RATE:.1f} s of audio; a bench takes one window, up to "
                f"{limit / SAMPLE_RATE:.0f} s"
            )
        mel = features.log_mel(samples, mels=self._encoder.mels, frames=self._encoder.frames)
        return {INPUT: mel.astype(self._encoder.dtype)}

    def run(self, predict: Callable[[Mapping[str, Array]], Prediction]) -> Spoken:
        """The text. `predict` is called once; the prediction is the caller's to release."""
        prediction = predict(self.inputs())
        cross_k, cross_v = (prediction[name] for name in OUTPUTS)
        cache = self._decoder.import_cache(cross_k, cross_v, prediction.live_count)
        tokens = self._decoder.decode(cache, self._language).tokens
        return Spoken(self._tokenizer.text(tokens), tokens)

    def gates(self, control: object, candidate: object) -> dict[str, bool]:
        """Whether the candidate's text and tokens are the control's."""
        if not isinstance(control, Spoken) or not isinstance(candidate, Spoken):
            raise TypeError("gates compares what run returned")
        return {"text": candidate.text == control.text, "tokens": candidate.tokens == control.tokens}


def open_speech(
    checkpoint: str | os.PathLike[str],
    package: str | os.PathLike[str],
    wav: str | os.PathLike[str],
    *,
    compute_units: ComputeUnits = "all",
    language: str = "en",
) -> SpeechTask:
    """Loads both and checks that they fit; raises CheckpointError, ContractError, ModelError, AudioError."""
    loaded = Checkpoint.load(checkpoint)
    return SpeechTask(loaded, open_encoder(loaded, package, compute_units=compute_units), wav, language=language)
