"""Whether a decoder that was handed its cache says what it would have said with its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvbacking.mlx.arrays import core, optional_module
from kvbacking.samples.info import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What mlx-lm says without any hand-off: `tokens` that it generated greedily after `prompt`, and its
    log-probabilities for each, float32 [steps, vocabulary]."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: Array

    @property
    def smallest_margin(self) -> float:
        """How far ahead of the second the chosen token was, at the closest step: what an error must reach to change a
        token."""
        best = np.partition(self.logprobs, -2, axis=1)[:, -2:]
        return float((best[:, 1] - best[:, 0]).min())


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A decode over handed caches beside its reference, step by step, both fed the reference's tokens.

    equal: steps whose most probable token is the reference's. equal_before_difference: those before the first other
    one, which is as far as free generation would have agreed. max_logprob_difference: over every step and the whole
    vocabulary; max_chosen_difference: over the reference's tokens only. Both infinite when any value is not finite.
    """

    steps: int
    equal: int
    equal_before_difference: int
    max_logprob_difference: float
    max_chosen_difference: float

    @property
    def rate(self) -> float:
        """equal / steps."""
        return self.equal / self.steps

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return {**asdict(self), "rate": self.rate}


def reference(decoder: Any, prompt: Sequence[int], steps: int) -> Reference:
    """Greedy generation by mlx-lm alone: its own prefill of prompt[:-1], then `steps` tokens. A hand-off to compare
    with it gives the rows of prompt[:-1]."""
    if len(prompt) < 2 or steps < 1:
        raise ValueError(f"expected a prompt of at least 2 tokens and 1 step, got {len(prompt)} and {steps}")
    mx = core()
    cache = optional_module("mlx_lm.models.cache").make_prompt_cache(decoder)
    generate = optional_module("mlx_lm.generate").generate_step
    tokens, rows = [], []
    for token, logprobs in generate(mx.array(list(prompt)), decoder, max_tokens=steps, prompt_cache=cache):
        tokens.append(int(token))
        rows.append(np.array(logprobs.astype(mx.float32)))
    return Reference(prompt=tuple(prompt), tokens=tuple(tokens), logprobs=np.stack(rows))


def agreement(decoder: Any, caches: Sequence[Any], wanted: Reference) -> Agreement:
    """Decodes over `caches`, which hold the rows of wanted.prompt[:-1] and are written on, and compares."""
    mx = core()
    fed = (wanted.prompt[-1], *wanted.tokens[:-1])
    rows, chosen = [], []
    for token in fed:
        logits = decoder(mx.array([[token]]), cache=caches)[0, -1]
        logprobs = logits - mx.logsumexp(logits, keepdims=True)  # as generate_step does, in the model's own dtype
        chosen.append(int(mx.argmax(logprobs)))
        rows.append(np.array(logprobs.astype(mx.float32)))
    got = np.stack(rows)
    same = np.array(chosen) == np.array(wanted.tokens)
    same &= np.isfinite(got).all(axis=1)  # the most probable of NaNs is a token, too
    apart = np.abs(got - wanted.logprobs) if np.isfinite(got).all() else np.full(got.shape, np.inf, np.float32)
    return Agreement(
        steps=len(fed),
        equal=int(same.sum()),
        equal_before_difference=int(same.argmin()) if not same.all() else len(fed),
        max_logprob_difference=float(apart.max()),
        max_chosen_difference=float(apart[np.arange(len(fed)), wanted.tokens].max()),
    )
