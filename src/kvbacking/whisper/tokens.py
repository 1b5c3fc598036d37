"""The checkpoint's tokenizer and decoding rules: prompt, end, suppressed tokens, text. Needs the `whisper` extra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvbacking.whisper.checkpoint import Checkpoint, CheckpointError
from kvbacking.whisper.extra import optional_module

MULTILINGUAL_VOCABULARY = 51865  # an English-only vocabulary has one token fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Token ids that decoding needs. `suppressed` never appear, `suppressed_first` not as the first token."""

    start: int
    end: int
    no_speech: int
    no_timestamps: int
    transcribe: int
    languages: dict[str, int]  # empty for an English-only checkpoint
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]

    def prompt(self, language: str) -> tuple[int, ...]:
        """The tokens before the text; raises ValueError for a language that the checkpoint does not know."""
        if not self.languages:
            if language != "en":
                raise ValueError(f"an English-only checkpoint cannot transcribe {language!r}")
            return (self.start, self.no_timestamps)
        if language not in self.languages:
            raise ValueError(f"language {language!r} is not one of {', '.join(sorted(self.languages))}")
        return (self.start, self.languages[language], self.transcribe, self.no_timestamps)


class Tokenizer:
    """tokenizer.json of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        tokenizers = optional_module("tokenizers")
        path = checkpoint.path / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path}: missing")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.rules = self._read_rules(checkpoint)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of the tokens, special ones left out, spaces at the ends removed."""
        decoded: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return decoded.strip()

    def _id(self, *names: str) -> int:
        for name in names:
            found: int | None = self._tokenizer.token_to_id(name)
            if found is not None:
                return found
        raise CheckpointError(f"tokenizer.json has no token {' or '.join(names)}")

    def _read_rules(self, checkpoint: Checkpoint) -> Rules:
        size = checkpoint.dimensions.vocabulary
        config = checkpoint.config
        start, translate = self._id("<|startoftranscript|>"), self._id("<|translate|>")
        no_timestamps = self._id("<|notimestamps|>")
        languages: dict[str, int] = {}
        if size >= MULTILINGUAL_VOCABULARY:
            for token in range(start + 1, translate):
                languages[self._tokenizer.id_to_token(token).strip("<|>")] = token
        timestamps = range(no_timestamps, size)
        suppressed = {*config.get("suppress_ids", ()), *timestamps, start, translate, *languages.values()}
        rules = Rules(
            start=start,
            end=self._id("<|endoftext|>"),
            no_speech=self._id("<|nocaptions|>", "<|nospeech|>"),
            no_timestamps=no_timestamps,
            transcribe=self._id("<|transcribe|>"),
            languages=languages,
            suppressed=tuple(sorted(suppressed - {self._id("<|endoftext|>")})),
            suppressed_first=tuple(config.get("suppress_ids_begin", ())),
        )
        wrong = [t for t in (*rules.suppressed, *rules.suppressed_first, rules.end) if not 0 <= t < size]
        if wrong:
            raise CheckpointError(f"{checkpoint.path}: token {wrong[0]} is outside the vocabulary of {size}")
        return rules
