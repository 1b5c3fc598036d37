"""WAV to text: log-mel, the encoder package through a Session, greedy decoding on the session's K/V.

A Transcriber belongs to one thread at a time. It owns its session and decoder; the model may be shared.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any, Literal, Self, get_args

import numpy as np

from kvbacking.certificate import Certificate
from kvbacking.errors import CheckFailure, IntegrityError
from kvbacking.model import ComputeUnits
from kvbacking.runtime import runtime_info
from kvbacking.session import Mechanism, Prediction, Session, Verify
from kvbacking.whisper import features, result
from kvbacking.whisper.checkpoint import Checkpoint
from kvbacking.whisper.decoder import CrossCache, Decoder
from kvbacking.whisper.package import INPUT, OUTPUTS, Encoder, open_encoder
from kvbacking.whisper.result import Transcription, WindowResult
from kvbacking.whisper.tokens import Tokenizer
from kvbacking.whisper.wav import SAMPLE_RATE, read_wav

Array = np.ndarray[Any, np.dtype[Any]]
OnFault = Literal["raise", "control"]

# Whisper's own rule for a window without speech, and one for a model that is sure of it although also sure of a word
NO_SPEECH_THRESHOLD, LOG_PROBABILITY_THRESHOLD = 0.6, -1.0
NO_SPEECH_CERTAIN = 0.85


class Transcriber:
    """Greedy transcription of a CTranslate2 Whisper checkpoint through one Session.

    package: the encoder package; None takes the checkpoint's own from the cache folder, written there on first use.
    mechanism, verify, depth, certificate: the Session's. precision: the Decoder's. on_fault: what to do with a window
    whose K/V failed a check: "raise" the IntegrityError, or encode it once more through the "control", which is allowed
    because the encoder has no state. encoder, decoder: loaded ones to share between transcribers.
    Raises CheckpointError, ContractError, ModelError, WhisperUnavailableError, SamplesUnavailableError.
    """

    def __init__(
        self,
        checkpoint: str | os.PathLike[str] | Checkpoint,
        package: str | os.PathLike[str] | None = None,
        *,
        mechanism: Mechanism = "auto",
        verify: Verify = "scan",
        depth: int = 2,
        certificate: Certificate | str | os.PathLike[str] | None = None,
        compute_units: ComputeUnits = "all",
        precision: str | None = None,
        on_fault: OnFault = "raise",
        cache_dir: str | os.PathLike[str] | None = None,
        encoder: Encoder | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        if on_fault not in get_args(OnFault):
            raise ValueError(f"on_fault must be one of {get_args(OnFault)}, got {on_fault!r}")
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint.load(os.fspath(checkpoint))
        self.checkpoint = checkpoint
        self.tokenizer = Tokenizer(checkpoint)
        self.decoder = decoder or Decoder(checkpoint, self.tokenizer.rules, precision=precision)
        self.encoder = encoder or open_encoder(checkpoint, package, compute_units=compute_units, cache_dir=cache_dir)
        self.on_fault = on_fault
        self.session = Session(
            self.encoder.model, self.encoder.contract, mechanism=mechanism, depth=depth, verify=verify,
            certificate=certificate,
        )  # fmt: skip
        self._control: Session | None = None

    def transcribe(self, wav: str | os.PathLike[str] | Array, *, language: str | None = "en") -> Transcription:
        """The text of a WAV file, or of float32 mono samples at 16 kHz. language None: detected in every window.

        Raises AudioError, ValueError for a language that the checkpoint does not know, and what the Session raises.
        """
        started = time.perf_counter_ns()
        samples = np.asarray(wav, np.float32) if isinstance(wav, np.ndarray) else read_wav(os.fspath(wav))
        if samples.ndim != 1:
            raise ValueError(f"samples must have one dimension, got shape {list(samples.shape)}")
        if language is not None:
            self.tokenizer.rules.prompt(language)
        limit = self.encoder.frames * features.HOP
        windows = tuple(
            self._window(samples[start:end], start / SAMPLE_RATE, language)
            for start, end in features.windows(samples, limit)
        )
        stats = self.session.stats
        return Transcription(
            text=" ".join(window.text for window in windows if window.text),
            duration_s=samples.size / SAMPLE_RATE,
            mechanism=self.session.mechanism,
            verify=self.session.verify,
            runtime=runtime_info().kind,
            windows=windows,
            sets_created=stats.sets_created,
            degraded_reason=stats.degraded_reason,
            total_ns=time.perf_counter_ns() - started,
        )

    def _window(self, samples: Array, start_s: float, language: str | None) -> WindowResult:
        clock = time.perf_counter_ns
        begin = clock()
        mel = features.log_mel(samples, mels=self.encoder.mels, frames=self.encoder.frames)
        inputs = {INPUT: mel.astype(self.encoder.dtype)}
        ready = clock()
        prediction, fault = self._encode(inputs)
        encoded = clock()
        cross_k, cross_v = (prediction[name] for name in OUTPUTS)
        cache = self.decoder.import_cache(cross_k, cross_v, prediction.live_count)
        del cross_k, cross_v  # a view keeps its set busy
        imported = clock()
        same_bytes = self._compare(prediction, cache) if self.session.verify in ("scan", "full") else None
        path, evidence = prediction.path, dict(prediction.evidence)
        intervals = {
            result.FEATURES: ready - begin,
            result.PREDICTION: prediction.predict_ns,
            result.VERIFICATION: prediction.verify_ns,
            result.COPY: prediction.copy_ns,
            result.ENCODER_STAGE: encoded - ready,
            result.IMPORT: imported - encoded,
        }
        prediction.release()
        spoken = language or self.decoder.detect_language(cache)
        before = clock()
        decoded = self.decoder.decode(cache, spoken)
        intervals[result.DECODE] = clock() - before
        certainty, likelihood = decoded.no_speech_probability, decoded.average_log_probability
        silent = certainty > NO_SPEECH_CERTAIN or (
            certainty > NO_SPEECH_THRESHOLD and likelihood < LOG_PROBABILITY_THRESHOLD
        )
        return WindowResult(
            start_s=start_s,
            end_s=start_s + samples.size / SAMPLE_RATE,
            text="" if silent else self.tokenizer.text(decoded.tokens),
            tokens=decoded.tokens,
            language=spoken,
            silent=silent,
            average_log_probability=likelihood,
            no_speech_probability=certainty,
            path=path,
            evidence=evidence,
            same_bytes=same_bytes,
            import_bytes_copied=cache.source.bytes_copied,
            fault=fault,
            intervals_ns=intervals,
        )

    def _encode(self, inputs: dict[str, Array]) -> tuple[Prediction, str | None]:
        """The prediction, and the fault for which it is the control's."""
        try:
            return self.session.predict(inputs), None
        except IntegrityError as error:
            if self.on_fault == "raise" or self.session.mechanism == "framework":
                raise
            fault = f"{type(error).__name__}: {error}"
        if self._control is None:
            self._control = Session(
                self.encoder.model, self.encoder.contract, mechanism="framework", verify=self.session.verify
            )
        return self._control.predict(inputs), fault

    def _compare(self, prediction: Prediction, cache: CrossCache) -> bool:
        """Whether what the decoder imported is, bit for bit, what lies in the session's live rows; raises if not."""
        for index, name in enumerate(OUTPUTS):
            live = prediction.live(name)
            bits = live.view(np.uint16)
            for layer, pair in enumerate(cache.source.arrays):
                used = np.array(pair[index], copy=False).view(np.uint16)
                if not np.array_equal(used[0], bits[layer]):
                    failure = CheckFailure(
                        output=name,
                        check="same_bytes",
                        expected=f"the session's {live.shape[1]} live rows of layer {layer}, bit for bit",
                        actual=f"other bytes in {np.count_nonzero((used[0] != bits[layer]).any(axis=1))} rows",
                    )
                    raise IntegrityError(f"[transcribe] what the decoder imported: {failure}", failures=[failure])
        return True

    def close(self) -> None:
        """Idempotent. Results stay valid."""
        self.session.close()
        if self._control is not None:
            self._control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
