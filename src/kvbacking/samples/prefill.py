"""`prefill`: a decoder-only transformer (RMS norm, RoPE half-split, grouped-query attention, SwiGLU) whose outputs are
the prompt's K/V caches, stacked `[layers, kv_heads, capacity, head_dim]` or one output per layer
`[1, kv_heads, capacity, head_dim]`, with or without the logits of the last prompt token.

The prompt window is static (`tokens`, at most `capacity`): rows beyond it are zero here, and rows beyond the live
length that the caller passes hold whatever the padding tokens produce, which an LLM cache may.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.info import Array, InputSpec, SampleInfo
from kvbacking.samples.toolkit import convert, save, target_of, tools

EPSILON = 1e-5
ROPE_BASE = 10000.0
MASKED = -3e4  # far below any score, still finite in fp16


def rope_tables(count: int, head_dim: int) -> tuple[Array, Array]:
    """cos and sin [count, head_dim // 2], float32, rounded to fp16; angle(p, i) = p * base ** (-2 i / head_dim)."""
    inverse = ROPE_BASE ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angles = np.arange(count, dtype=np.float64)[:, None] * inverse
    return np.cos(angles).astype(np.float16).astype(np.float32), np.sin(angles).astype(np.float16).astype(np.float32)


def draw_weights(
    rng: np.random.Generator, *, layers: int, heads: int, kv_heads: int, head_dim: int, hidden: int, vocab: int
) -> dict[str, Array]:
    """Every weight as float32 after rounding to fp16; matrices are (out, in), stacked by layer on axis 0."""

    def matrix(out: int, fan_in: int) -> Array:
        return rng.standard_normal((layers, out, fan_in), dtype=np.float32) / np.float32(np.sqrt(fan_in))

    inner = 2 * hidden
    drawn = {
        "embedding": rng.standard_normal((vocab, hidden), dtype=np.float32),
        "query": matrix(heads * head_dim, hidden),
        "key": matrix(kv_heads * head_dim, hidden),
        "value": matrix(kv_heads * head_dim, hidden),
        "out": matrix(hidden, heads * head_dim),
        "gate": matrix(inner, hidden),
        "up": matrix(inner, hidden),
        "down": matrix(hidden, inner),
        "attention_norm": rng.uniform(0.5, 1.5, (layers, hidden)),
        "mlp_norm": rng.uniform(0.5, 1.5, (layers, hidden)),
        "final_norm": rng.uniform(0.5, 1.5, (hidden,)),
    }
    return {name: value.astype(np.float16).astype(np.float32) for name, value in drawn.items()}


def rms_norm(x: Any, gain: Array) -> Any:
    mb = tools().mb
    mean = mb.reduce_mean(x=mb.pow(x=x, y=np.float16(2)), axes=[-1], keep_dims=True)
    scaled = mb.mul(x=x, y=mb.rsqrt(x=mean, epsilon=np.float16(EPSILON)))
    return mb.mul(x=scaled, y=gain.astype(np.float16))


def rotate(x: Any, cos: Array, sin: Array) -> Any:
    """RoPE, half-split: pairs are (i, i + head_dim / 2). x [1, heads, tokens, head_dim]."""
    mb = tools().mb
    first, second = mb.split(x=x, num_splits=2, axis=-1)
    c, s = cos.astype(np.float16), sin.astype(np.float16)
    rotated = (
        mb.sub(x=mb.mul(x=first, y=c), y=mb.mul(x=second, y=s)),
        mb.add(x=mb.mul(x=second, y=c), y=mb.mul(x=first, y=s)),
    )
    return mb.concat(values=rotated, axis=-1)


def split_heads(x: Any, count: int, tokens: int, head_dim: int) -> Any:
    """[1, tokens, count * head_dim] -> [1, count, tokens, head_dim]."""
    mb = tools().mb
    return mb.transpose(x=mb.reshape(x=x, shape=[1, tokens, count, head_dim]), perm=[0, 2, 1, 3])


def repeat_heads(x: Any, times: int, kv_heads: int, tokens: int, head_dim: int) -> Any:
    """Grouped-query attention: every K/V head serves `times` consecutive query heads."""
    if times == 1:
        return x
    mb = tools().mb
    tiled = mb.tile(x=mb.expand_dims(x=x, axes=[2]), reps=[1, 1, times, 1, 1])
    return mb.reshape(x=tiled, shape=[1, kv_heads * times, tokens, head_dim])


def attend(query: Any, key: Any, value: Any, mask: Any, *, head_dim: int, fused: bool) -> Any:
    """softmax(q k' / sqrt(d) + mask) v; `fused` uses the operation that macOS 15 added."""
    mb = tools().mb
    if fused:
        return mb.scaled_dot_product_attention(query=query, key=key, value=value, attn_mask=mask)
    scaled = mb.mul(x=query, y=np.float16(1.0 / np.sqrt(head_dim)))
    scores = mb.add(x=mb.matmul(x=scaled, y=key, transpose_y=True), y=mask)
    return mb.matmul(x=mb.softmax(x=scores, axis=-1), y=value)


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
    if heads % kv_heads:
        raise ValueError(f"heads {heads} must be a multiple of kv_heads {kv_heads}")
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} must be even: rotary embedding pairs its halves")
    if not 0 < tokens <= capacity:
        raise ValueError(f"tokens {tokens} must be between 1 and capacity {capacity}")
    t = tools()
    mb = t.mb
    fused = target not in ("macOS13", "macOS14")
    weights = draw_weights(
        rng, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim, hidden=hidden, vocab=vocab
    )
    half = {name: value.astype(np.float16) for name, value in weights.items()}
    cos, sin = rope_tables(tokens, head_dim)
    mask = np.triu(np.full((tokens, tokens), MASKED, np.float16), k=1)[None, None]

    def fit(cache: Any, name: str | None) -> Any:
        extra = {} if name is None else {"name": name}
        if tokens == capacity:
            return mb.identity(x=cache, **extra)
        pad = [0, 0, 0, 0, 0, capacity - tokens, 0, 0]
        return mb.pad(x=cache, pad=pad, mode="constant", constant_val=np.float16(0), **extra)

    def build(input_ids: Any, last_token: Any = None) -> Any:
        x = mb.gather(x=half["embedding"], indices=input_ids, axis=0, validate_indices=False)
        keys, values = [], []
        for i in range(layers):
            normed = rms_norm(x, weights["attention_norm"][i])
            query = rotate(split_heads(mb.linear(x=normed, weight=half["query"][i]), heads, tokens, head_dim), cos, sin)
            key = rotate(split_heads(mb.linear(x=normed, weight=half["key"][i]), kv_heads, tokens, head_dim), cos, sin)
            value = split_heads(mb.linear(x=normed, weight=half["value"][i]), kv_heads, tokens, head_dim)
            keys.append(key)
            values.append(value)
            wide = [repeat_heads(c, heads // kv_heads, kv_heads, tokens, head_dim) for c in (key, value)]
            mixed = attend(query, wide[0], wide[1], mask, head_dim=head_dim, fused=fused)
            joined = mb.reshape(x=mb.transpose(x=mixed, perm=[0, 2, 1, 3]), shape=[1, tokens, heads * head_dim])
            x = mb.add(x=x, y=mb.linear(x=joined, weight=half["out"][i]))
            normed = rms_norm(x, weights["mlp_norm"][i])
            gate = mb.silu(x=mb.linear(x=normed, weight=half["gate"][i]))
            inner = mb.mul(x=gate, y=mb.linear(x=normed, weight=half["up"][i]))
            x = mb.add(x=x, y=mb.linear(x=inner, weight=half["down"][i]))
        outputs = []
        for name, caches in (("key_cache", keys), ("value_cache", values)):
            if per_layer:
                outputs += [fit(cache, f"{name}_{i}") for i, cache in enumerate(caches)]
            elif layers == 1:
                outputs.append(fit(caches[0], name))
            else:
                outputs.append(fit(mb.concat(values=caches, axis=0), name))
        if last_token is not None:
            row = mb.squeeze(x=mb.gather(x=x, indices=last_token, axis=1, validate_indices=False), axes=[1])
            normed = rms_norm(row, weights["final_norm"])
            outputs.append(mb.linear(x=normed, weight=half["embedding"], name="logits"))
        return tuple(outputs)

    specs = [mb.TensorSpec(shape=(1, tokens), dtype=t.types.int32)]
    inputs = {"input_ids": InputSpec(shape=(1, tokens), dtype="int32", high=vocab)}
    if logits:
        specs.append(mb.TensorSpec(shape=(1,), dtype=t.types.int32))
        inputs["last_token"] = InputSpec(shape=(1,), dtype="int32", high=tokens)

        def with_logits(input_ids: Any, last_token: Any) -> Any:
            return build(input_ids, last_token)

        body: Any = with_logits
    else:

        def without_logits(input_ids: Any) -> Any:
            return build(input_ids)

        body = without_logits
    program = mb.program(input_specs=specs, opset_version=target_of(target))(body)
    names = tuple(
        name
        for stem in ("key_cache", "value_cache")
        for name in ([f"{stem}_{i}" for i in range(layers)] if per_layer else [stem])
    )
    unbacked = ("logits",) if logits else ()
    outputs = [t.ct.TensorType(name=name, dtype=np.float16) for name in (*names, *unbacked)]
    save(convert(program, target=target, outputs=outputs), path)
    return SampleInfo(
        kind="prefill",
        path=path,
        input_specs=inputs,
        contract={
            "outputs": names, "live": tokens, "axis": 2, "tail": "any", "unbacked": unbacked,
            "sensitive_to": ("input_ids",),
        },
        options={
            "layers": layers, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "hidden": hidden,
            "vocab": vocab, "tokens": tokens, "capacity": capacity, "per_layer": per_layer, "logits": logits,
            "target": target,
        },
        weights=weights,
    )  # fmt: skip
