"""`prefill`: a decoder-only transformer with random weights whose outputs are the prompt's K/V caches."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvbacking.samples.info import Array, SampleInfo
from kvbacking.samples.transformer import Transformer, write_transformer


def draw_weights(rng: np.random.Generator, form: Transformer) -> dict[str, Array]:
    """Every weight as float32."""
    layers, hidden, head_dim = form.layers, form.hidden, form.head_dim

    def matrix(out: int, fan_in: int) -> Array:
        return rng.standard_normal((layers, out, fan_in), dtype=np.float32) / np.float32(np.sqrt(fan_in))

    inner = 2 * hidden
    return {
        "embedding": rng.standard_normal((form.vocab, hidden), dtype=np.float32),
        "query": matrix(form.heads * head_dim, hidden),
        "key": matrix(form.kv_heads * head_dim, hidden),
        "value": matrix(form.kv_heads * head_dim, hidden),
        "out": matrix(hidden, form.heads * head_dim),
        "gate": matrix(inner, hidden),
        "up": matrix(inner, hidden),
        "down": matrix(hidden, inner),
        "attention_norm": rng.uniform(0.5, 1.5, (layers, hidden)),
        "mlp_norm": rng.uniform(0.5, 1.5, (layers, hidden)),
        "final_norm": rng.uniform(0.5, 1.5, (hidden,)),
    }


def prefill(
    path: Path,
    rng: np.random.Generator,
    *,
    layers: int = 4,
    heads: int = 8,
    kv_heads: int = 2,
    head_dim: int = 64,
    hidden: int = 256,
    vocab: int = 512,
    tokens: int = 64,
    capacity: int = 256,
    per_layer: bool = False,
    logits: bool = True,
    target: str = "macOS15",
) -> SampleInfo:
    """input_ids int32 [1, tokens] (and, with logits, last_token int32 [1]) -> caches (and logits [1, vocab])."""
    form = Transformer(
        layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, hidden=hidden, vocab=vocab
    )  # fmt: skip
    return write_transformer(
        path, form, draw_weights(rng, form), tokens=tokens, capacity=capacity, per_layer=per_layer, logits=logits,
        target=target,
    )  # fmt: skip
