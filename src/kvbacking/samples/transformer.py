"""The prompt pass of a decoder-only transformer as a Core ML program: RMS norm, RoPE half-split, grouped-query
attention, SwiGLU, optionally normalised queries and keys (Qwen3). Its outputs are the K/V caches, stacked `[layers,
kv_heads, capacity, head_dim]` or one output per layer `[1, kv_heads, capacity, head_dim]`, with or without the logits
of the last prompt token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kvbacking.samples.info import Array, InputSpec, SampleInfo
from kvbacking.samples.toolkit import convert, save, target_of, tools

MASKED = -3e4  # far below any score, still finite in fp16
FAINT = 1e-3  # rows without any larger value are normalised as if they had one: nothing is divided by zero
DTypeName = Literal["float16", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """Sizes and constants of the network. Weights come beside it, as float32, matrices (out, in), layers on axis 0:
    embedding, query, key, value, out, gate, up, down, attention_norm, mlp_norm, final_norm; where the network has them,
    query_norm and key_norm [layers, head_dim] and unembedding (else the embedding is used)."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} must be even: rotary embedding pairs its halves")


def rope_tables(count: int, head_dim: int, base: float = 10000.0) -> tuple[Array, Array]:
    """cos and sin [count, head_dim // 2], float64; angle(p, i) = p * base ** (-2 i / head_dim)."""
    inverse = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angles = np.arange(count, dtype=np.float64)[:, None] * inverse
    return np.cos(angles), np.sin(angles)


class _Pass:
    """Builds the operations of one prompt window of `tokens`, constants in `dtype`."""

    def __init__(
        self,
        form: Transformer,
        weights: Mapping[str, Array],
        *,
        tokens: int,
        dtype: DTypeName,
        fused: bool,
        rope: tuple[Array, Array],
        scaled_norms: bool,
    ) -> None:
        self.form, self.tokens, self.fused, self.scaled_norms = form, tokens, fused, scaled_norms
        self.number = np.dtype(dtype).type
        self.weights = {name: value.astype(dtype) for name, value in weights.items()}
        self.cos, self.sin = (table.astype(dtype) for table in rope)
        self.mask = np.triu(np.full((tokens, tokens), MASKED, dtype), k=1)[None, None]
        self.mb = tools().mb

    def norm(self, x: Any, gain: Array) -> Any:
        """x / sqrt(mean(x^2) + epsilon) * gain. Scaled: of x / max|x|, whose squares cannot overflow."""
        mb, number, epsilon = self.mb, self.number, self.form.epsilon
        if self.scaled_norms:
            top = mb.maximum(x=mb.reduce_max(x=mb.abs(x=x), axes=[-1], keep_dims=True), y=number(FAINT))
            x = mb.real_div(x=x, y=top)
            mean = mb.reduce_mean(x=mb.mul(x=x, y=x), axes=[-1], keep_dims=True)
            share = mb.real_div(x=number(np.sqrt(epsilon)), y=top)
            inverse = mb.rsqrt(x=mb.add(x=mean, y=mb.mul(x=share, y=share)), epsilon=number(0))
        else:
            mean = mb.reduce_mean(x=mb.pow(x=x, y=number(2)), axes=[-1], keep_dims=True)
            inverse = mb.rsqrt(x=mean, epsilon=number(epsilon))
        return mb.mul(x=mb.mul(x=x, y=inverse), y=gain)

    def rotate(self, x: Any) -> Any:
        """RoPE, half-split: pairs are (i, i + head_dim / 2). x [1, heads, tokens, head_dim]."""
        mb = self.mb
        first, second = mb.split(x=x, num_splits=2, axis=-1)
        rotated = (
            mb.sub(x=mb.mul(x=first, y=self.cos), y=mb.mul(x=second, y=self.sin)),
            mb.add(x=mb.mul(x=second, y=self.cos), y=mb.mul(x=first, y=self.sin)),
        )
        return mb.concat(values=rotated, axis=-1)

    def heads(self, x: Any, which: str, layer: int, count: int) -> Any:
        """A projection of [1, tokens, hidden], split into [1, count, tokens, head_dim] and normalised where the network
        does so."""
        mb = self.mb
        projected = mb.linear(x=x, weight=self.weights[which][layer])
        shape = [1, self.tokens, count, self.form.head_dim]
        split = mb.transpose(x=mb.reshape(x=projected, shape=shape), perm=[0, 2, 1, 3])
        gain = self.weights.get(f"{which}_norm")
        return split if gain is None else self.norm(split, gain[layer])

    def repeated(self, x: Any) -> Any:
        """Grouped-query attention: every K/V head serves consecutive query heads."""
        form, mb = self.form, self.mb
        if form.heads == form.kv_heads:
            return x
        tiled = mb.tile(x=mb.expand_dims(x=x, axes=[2]), reps=[1, 1, form.heads // form.kv_heads, 1, 1])
        return mb.reshape(x=tiled, shape=[1, form.heads, self.tokens, form.head_dim])

    def attend(self, query: Any, key: Any, value: Any) -> Any:
        """softmax(q k' / sqrt(d) + mask) v, as [1, tokens, heads * head_dim]; `fused` uses the operation that macOS 15
        added."""
        form, mb = self.form, self.mb
        key, value = self.repeated(key), self.repeated(value)
        if self.fused:
            mixed = mb.scaled_dot_product_attention(query=query, key=key, value=value, attn_mask=self.mask)
        else:
            scaled = mb.mul(x=query, y=self.number(1.0 / np.sqrt(form.head_dim)))
            scores = mb.add(x=mb.matmul(x=scaled, y=key, transpose_y=True), y=self.mask)
            mixed = mb.matmul(x=mb.softmax(x=scores, axis=-1), y=value)
        joined = mb.transpose(x=mixed, perm=[0, 2, 1, 3])
        return mb.reshape(x=joined, shape=[1, self.tokens, form.heads * form.head_dim])

    def layer(self, x: Any, i: int) -> tuple[Any, Any, Any]:
        """x, keys, values after layer i."""
        mb, w = self.mb, self.weights
        normed = self.norm(x, w["attention_norm"][i])
        query = self.rotate(self.heads(normed, "query", i, self.form.heads))
        key = self.rotate(self.heads(normed, "key", i, self.form.kv_heads))
        value = self.heads(normed, "value", i, self.form.kv_heads)
        x = mb.add(x=x, y=mb.linear(x=self.attend(query, key, value), weight=w["out"][i]))
        normed = self.norm(x, w["mlp_norm"][i])
        gate = mb.silu(x=mb.linear(x=normed, weight=w["gate"][i]))
        inner = mb.mul(x=gate, y=mb.linear(x=normed, weight=w["up"][i]))
        return mb.add(x=x, y=mb.linear(x=inner, weight=w["down"][i])), key, value

    def logits(self, x: Any, last_token: Any) -> Any:
        mb, w = self.mb, self.weights
        row = mb.squeeze(x=mb.gather(x=x, indices=last_token, axis=1, validate_indices=False), axes=[1])
        weight = w.get("unembedding", w["embedding"])
        return mb.linear(x=self.norm(row, w["final_norm"]), weight=weight, name="logits")


def write_transformer(
    path: Path,
    form: Transformer,
    weights: Mapping[str, Array],
    *,
    tokens: int,
    capacity: int,
    per_layer: bool,
    logits: bool,
    target: str,
    dtype: DTypeName = "float16",
    rope: tuple[Array, Array] | None = None,
    scaled_norms: bool = False,
) -> SampleInfo:
    """Writes input_ids int32 [1, tokens] (and, with logits, last_token int32 [1]) -> caches (and logits [1, vocab]).

    The window is static: rows from `tokens` on are zero, rows between the prompt's length and `tokens` hold what the
    padding tokens made of themselves. `rope`: cos and sin [tokens, head_dim // 2] (default: `rope_tables`). `dtype` is
    that of weights, arithmetic and outputs. Norms square activations, which in float16 must stay below 256 unless
    scaled_norms divides each row by its largest value first. Called inside `quiet()`.
    """
    if not 0 < tokens <= capacity:
        raise ValueError(f"tokens {tokens} must be between 1 and capacity {capacity}")
    t = tools()
    mb = t.mb
    number = np.dtype(dtype).type
    steps = _Pass(
        form, weights, tokens=tokens, dtype=dtype, fused=target not in ("macOS13", "macOS14"),
        rope=rope_tables(tokens, form.head_dim) if rope is None else rope, scaled_norms=scaled_norms,
    )  # fmt: skip

    def fit(cache: Any, name: str) -> Any:
        if tokens == capacity:
            return mb.identity(x=cache, name=name)
        pad = [0, 0, 0, 0, 0, capacity - tokens, 0, 0]
        return mb.pad(x=cache, pad=pad, mode="constant", constant_val=number(0), name=name)

    def build(input_ids: Any, last_token: Any = None) -> Any:
        x = mb.gather(x=steps.weights["embedding"], indices=input_ids, axis=0, validate_indices=False)
        keys, values = [], []
        for i in range(form.layers):
            x, key, value = steps.layer(x, i)
            keys.append(key)
            values.append(value)
        outputs = []
        for name, caches in (("key_cache", keys), ("value_cache", values)):
            if per_layer:
                outputs += [fit(cache, f"{name}_{i}") for i, cache in enumerate(caches)]
            else:
                outputs.append(fit(mb.concat(values=caches, axis=0) if len(caches) > 1 else caches[0], name))
        if last_token is not None:
            outputs.append(steps.logits(x, last_token))
        return tuple(outputs)

    specs = [mb.TensorSpec(shape=(1, tokens), dtype=t.types.int32)]
    inputs = {"input_ids": InputSpec(shape=(1, tokens), dtype="int32", high=form.vocab)}
    body: Any  # coremltools reads the inputs' names off the function
    if logits:
        specs.append(mb.TensorSpec(shape=(1,), dtype=t.types.int32))
        inputs["last_token"] = InputSpec(shape=(1,), dtype="int32", high=tokens)

        def with_logits(input_ids: Any, last_token: Any) -> Any:
            return build(input_ids, last_token)

        body = with_logits
    else:

        def without_logits(input_ids: Any) -> Any:
            return build(input_ids)

        body = without_logits
    program = mb.program(input_specs=specs, opset_version=target_of(target))(body)
    names = tuple(
        name
        for stem in ("key_cache", "value_cache")
        for name in ([f"{stem}_{i}" for i in range(form.layers)] if per_layer else [stem])
    )
    unbacked = ("logits",) if logits else ()
    outputs = [t.ct.TensorType(name=name, dtype=number) for name in (*names, *unbacked)]
    compute = {"float16": "fp16", "float32": "fp32"}[dtype]
    save(convert(program, target=target, outputs=outputs, compute=compute), path)
    return SampleInfo(
        kind="prefill",
        path=path,
        input_specs=inputs,
        contract={
            "outputs": names, "live": tokens, "axis": 2, "tail": "any", "unbacked": unbacked,
            "sensitive_to": ("input_ids",),
        },
        options={
            **asdict(form), "tokens": tokens, "capacity": capacity, "per_layer": per_layer, "logits": logits,
            "target": target, "dtype": dtype,
        },
        weights={name: value.astype(dtype).astype(np.float32) for name, value in weights.items()},
    )  # fmt: skip
