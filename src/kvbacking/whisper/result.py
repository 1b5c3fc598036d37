"""What a transcription says: text, and for every window how its K/V came back and where the time went. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvbacking.evidence import OutputEvidence

# Names of the intervals of a window, nanoseconds
FEATURES = "features"  # log-mel
PREDICTION = "prediction"  # the framework's call alone
VERIFICATION = "verification"
COPY = "copy"  # the checked copy into memory we own
ENCODER_STAGE = "encoder_stage"  # from mel to verified K/V
IMPORT = "import"  # K/V into the decoder's arrays
DECODE = "decode"
INTERVALS = (FEATURES, PREDICTION, VERIFICATION, COPY, ENCODER_STAGE, IMPORT, DECODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """One window. `same_bytes`: the live rows that the decoder multiplied with were compared to the session's memory
    and are equal (None: not compared, verification was "off" or "layout"). `import_bytes_copied`:
    bytes of K/V copied into MLX's memory (0 where it adopted the session's). `fault` is the error for which the window
    was encoded again through the control; None when nothing went wrong. `silent`: no speech was found, text is empty.
    """

    start_s: float
    end_s: float
    text: str
    tokens: tuple[int, ...]
    language: str
    silent: bool
    average_log_probability: float
    no_speech_probability: float
    path: str
    evidence: Mapping[str, OutputEvidence]
    same_bytes: bool | None
    import_bytes_copied: int
    fault: str | None
    intervals_ns: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return {
            "start_s": self.start_s, "end_s": self.end_s, "text": self.text, "tokens": list(self.tokens),
            "language": self.language, "silent": self.silent,
            "average_log_probability": self.average_log_probability,
            "no_speech_probability": self.no_speech_probability, "path": self.path,
            "evidence": {name: evidence.to_dict() for name, evidence in self.evidence.items()},
            "same_bytes": self.same_bytes, "import_bytes_copied": self.import_bytes_copied, "fault": self.fault,
            "intervals_ns": dict(self.intervals_ns),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcription:
    """`text` is the windows' texts, joined by spaces. `total_ns` runs from the call to the final text."""

    text: str
    duration_s: float
    mechanism: str
    verify: str
    runtime: str
    windows: tuple[WindowResult, ...]
    sets_created: int
    degraded_reason: str
    total_ns: int

    def interval_ns(self, name: str) -> int:
        """The sum of one interval over all windows."""
        return sum(window.intervals_ns[name] for window in self.windows)

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return {
            "text": self.text, "duration_s": self.duration_s, "mechanism": self.mechanism, "verify": self.verify,
            "runtime": self.runtime, "sets_created": self.sets_created, "degraded_reason": self.degraded_reason,
            "total_ns": self.total_ns, "intervals_ns": {name: self.interval_ns(name) for name in INTERVALS},
            "windows": [window.to_dict() for window in self.windows],
        }  # fmt: skip
