"""mlx-whisper's text decoder with the checkpoint's weights, fed with cross-attention K/V from outside.

The decoder never projects K/V itself: each layer's cache is seeded with `cross_k[layer, :live]` and `cross_v[layer,
:live]`, so that rows beyond `live` cannot take part. One Decoder belongs to one thread at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvbacking.errors import CheckFailure, IntegrityError
from kvbacking.mlx.cross import CrossRows, cross
from kvbacking.whisper.checkpoint import Checkpoint
from kvbacking.whisper.extra import optional_module
from kvbacking.whisper.tokens import Rules

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """tokens: without prompt and end. average_log_probability: over the tokens and the end token, natural logarithm."""

    tokens: tuple[int, ...]
    average_log_probability: float
    no_speech_probability: float


@dataclass(frozen=True, slots=True)
class CrossCache:
    """Per layer K and V as MLX arrays [1, live, width].

    `source` holds what was imported, in the dtype it came in, for digests, and how; `arrays` what the decoder
    multiplies with: the same arrays, or converted ones where its precision is another.
    """

    source: CrossRows
    arrays: tuple[tuple[Any, Any], ...]


class Decoder:
    """Greedy decoding. precision "float32" or "float16": what the weights and the products are kept in; None: float16
    where MLX has a GPU, else float32."""

    def __init__(self, checkpoint: Checkpoint, rules: Rules, *, precision: str | None = None) -> None:
        if precision not in (None, "float32", "float16"):
            raise ValueError(f"precision {precision!r} is not one of float32, float16")
        self._mx = optional_module("mlx.core")
        model = optional_module("mlx_whisper.whisper")
        d = checkpoint.dimensions
        # MLX multiplies fp16 matrices many times slower than fp32 ones on a CPU.
        self.precision = precision or ("float16" if self._mx.metal.is_available() else "float32")
        self._dtype = getattr(self._mx, self.precision)
        self._width, self._layers, self._positions = d.width, d.text_layers, d.text_positions
        self._decoder = model.TextDecoder(
            d.vocabulary, d.text_positions, d.width, d.text_heads, d.text_layers, self._dtype
        )
        self._decoder.load_weights(list(_weights(checkpoint, self._mx, self._dtype).items()), strict=True)
        self._mx.eval(self._decoder.parameters())
        self._rules = rules
        self._never = self._mask(d.vocabulary, rules.suppressed)
        self._not_first = self._mask(d.vocabulary, (*rules.suppressed, *rules.suppressed_first))

    def _mask(self, size: int, tokens: Sequence[int]) -> Any:
        mask = np.zeros(size, np.float32)
        mask[list(tokens)] = -np.inf
        return self._mx.array(mask)

    def import_cache(self, cross_k: Array, cross_v: Array, live: int) -> CrossCache:
        """Rows [0, live) of each layer; cross_k and cross_v are [layers, at least live, width]. Adopted where MLX does
        that, and then the cache keeps their memory; else copied once (`source` says which)."""
        for name, value in (("cross_k", cross_k), ("cross_v", cross_v)):
            if value.ndim != 3 or value.shape[0] != self._layers or value.shape[2] != self._width:
                raise ValueError(
                    f"{name} has shape {list(value.shape)}, expected [{self._layers}, rows, {self._width}]"
                )
        source = cross({"cross_k": cross_k, "cross_v": cross_v}, live)
        arrays = tuple((k.astype(self._dtype), v.astype(self._dtype)) for k, v in source.arrays)
        self._mx.eval(arrays)
        return CrossCache(source, arrays)

    def detect_language(self, cache: CrossCache) -> str:
        """The most probable language after the start token; "en" for an English-only checkpoint."""
        if not self._rules.languages:
            return "en"
        logits, _ = self._step([self._rules.start], self._fresh(cache))
        row = np.array(logits[0, -1].astype(self._mx.float32))
        return max(self._rules.languages, key=lambda name: float(row[self._rules.languages[name]]))

    def decode(self, cache: CrossCache, language: str, *, max_tokens: int | None = None) -> Decoded:
        """Greedy tokens until the end token, at most `max_tokens` (half the decoder's positions by default). Raises
        IntegrityError when a probability is not finite."""
        mx = self._mx
        prompt = self._rules.prompt(language)
        limit = self._positions // 2 if max_tokens is None else min(max_tokens, self._positions - len(prompt))
        state = self._fresh(cache)
        logits, state = self._step(prompt, state)
        at_start = mx.softmax(logits[0, 0].astype(mx.float32))
        no_speech = float(at_start[self._rules.no_speech])
        tokens: list[int] = []
        total = 0.0
        mask = self._not_first
        while True:
            row = logits[0, -1].astype(mx.float32) + mask
            token = int(mx.argmax(row))
            total += float(row[token] - mx.logsumexp(row))
            if not math.isfinite(total):
                failure = CheckFailure(
                    output="logits", check="finite", expected="finite log-probabilities", actual=str(total)
                )
                raise IntegrityError(
                    f"[decode] {failure}: the cross K/V or the decoder's weights are damaged; predict with "
                    'verify="scan" or compare the checkpoint',
                    failures=[failure],
                )
            if token == self._rules.end or len(tokens) == limit:
                break
            tokens.append(token)
            mask = self._never
            logits, state = self._step([token], state)
        return Decoded(
            tokens=tuple(tokens),
            average_log_probability=total / (len(tokens) + 1),
            no_speech_probability=no_speech,
        )

    def _fresh(self, cache: CrossCache) -> list[Any]:
        empty = self._mx.zeros((1, 0, self._width), self._dtype)
        return [((empty, empty), pair) for pair in cache.arrays]

    def _step(self, tokens: Sequence[int], state: list[Any]) -> tuple[Any, list[Any]]:
        # The decoder takes the cross-attention branch when its second argument is anything but None; it reads K/V from
        # the cache, never from this value.
        present = self._mx.zeros((1, 1, self._width), self._dtype)
        logits, state, _ = self._decoder(self._mx.array([list(tokens)]), present, state)
        return logits, state


def _weights(checkpoint: Checkpoint, mx: Any, dtype: Any) -> dict[str, Any]:
    """The decoder's parameters under mlx-whisper's names."""
    found: dict[str, Any] = {}

    def put(name: str, value: Array) -> None:
        found[name] = mx.array(value).astype(dtype)

    def linear(name: str, weight: Array, bias: Array | None) -> None:
        put(f"{name}.weight", weight)
        if bias is not None:
            put(f"{name}.bias", bias)

    def norm(name: str, source: str) -> None:
        gain, shift = checkpoint.norm(source)
        put(f"{name}.weight", gain)
        put(f"{name}.bias", shift)

    d = checkpoint.dimensions.width
    put("token_embedding.weight", checkpoint.tensor("decoder/embeddings/weight"))
    put("positional_embedding", checkpoint.tensor("decoder/position_encodings/encodings"))
    norm("ln", "decoder/layer_norm")
    for layer in range(checkpoint.dimensions.text_layers):
        source, block = f"decoder/layer_{layer}", f"blocks.{layer}"
        norm(f"{block}.attn_ln", f"{source}/self_attention/layer_norm")
        weight, bias = checkpoint.linear(f"{source}/self_attention/linear_0")
        linear(f"{block}.attn.query", weight[:d], bias[:d])
        linear(f"{block}.attn.key", weight[d : 2 * d], None)
        linear(f"{block}.attn.value", weight[2 * d :], bias[2 * d :])
        linear(f"{block}.attn.out", *checkpoint.linear(f"{source}/self_attention/linear_1"))
        norm(f"{block}.cross_attn_ln", f"{source}/attention/layer_norm")
        linear(f"{block}.cross_attn.query", *checkpoint.linear(f"{source}/attention/linear_0"))
        # Never multiplied with, but the module has these parameters and loads them strictly.
        (key, _), (value, value_bias) = checkpoint.cross_key_value(layer)
        linear(f"{block}.cross_attn.key", key, None)
        linear(f"{block}.cross_attn.value", value, value_bias)
        linear(f"{block}.cross_attn.out", *checkpoint.linear(f"{source}/attention/linear_2"))
        norm(f"{block}.mlp_ln", f"{source}/ffn/layer_norm")
        linear(f"{block}.mlp1", *checkpoint.linear(f"{source}/ffn/linear_0"))
        linear(f"{block}.mlp2", *checkpoint.linear(f"{source}/ffn/linear_1"))
    return found
