"""What the sample packages must compute, in NumPy float32 from `SampleInfo.weights` and the definitions alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def projection(info: Any, inputs: dict[str, Array], rows: int | None = None) -> dict[str, Array]:
    """cross_k, cross_v of the projection kinds, padded with zeros after the rows (badtail: V's bias in V's tail)."""
    features = inputs["features"].astype(np.float32)[0]
    live = features.shape[0]
    capacity = info.options.get("capacity", live) if rows is None else rows
    found = {}
    for name, which in (("cross_k", "key"), ("cross_v", "value")):
        weight = info.weights[which]
        bias = info.weights.get("value_bias") if which == "value" else None
        out = np.zeros((weight.shape[0], capacity, weight.shape[1]), np.float32)
        for layer, matrix in enumerate(weight):
            shift = 0 if bias is None else bias[layer]
            out[layer, :live] = features @ matrix.T + shift
            if info.kind == "badtail":
                out[layer, live:] = shift
        found[name] = out
    return found


def prefill(info: Any, inputs: dict[str, Array]) -> dict[str, Array]:
    o, w = info.options, info.weights
    tokens, heads, kv_heads, head_dim = o["tokens"], o["heads"], o["kv_heads"], o["head_dim"]
    half = head_dim // 2
    frequency = 10000.0 ** (-np.arange(half) / half)
    angle = np.arange(tokens)[:, None] * frequency
    cos, sin = (f(angle).astype(np.float16).astype(np.float32) for f in (np.cos, np.sin))

    def norm(x: Array, gain: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain

    def rotate(x: Array) -> Array:  # [heads, tokens, head_dim]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def split(x: Array, count: int) -> Array:
        return x.reshape(tokens, count, head_dim).transpose(1, 0, 2)

    x = w["embedding"][inputs["input_ids"][0]]
    caches: dict[str, list[Array]] = {"key_cache": [], "value_cache": []}
    causal = np.triu(np.full((tokens, tokens), -np.inf, np.float32), 1)
    for layer in range(o["layers"]):
        h = norm(x, w["attention_norm"][layer])
        query = rotate(split(h @ w["query"][layer].T, heads))
        key = rotate(split(h @ w["key"][layer].T, kv_heads))
        value = split(h @ w["value"][layer].T, kv_heads)
        caches["key_cache"].append(key)
        caches["value_cache"].append(value)
        group = heads // kv_heads
        mixed = np.stack(
            [
                softmax(query[head] @ key[head // group].T / math.sqrt(head_dim) + causal) @ value[head // group]
                for head in range(heads)
            ]
        )
        x = x + mixed.transpose(1, 0, 2).reshape(tokens, -1) @ w["out"][layer].T
        h = norm(x, w["mlp_norm"][layer])
        gate = h @ w["gate"][layer].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"][layer].T)) @ w["down"][layer].T
    found = {}
    for name, each in caches.items():
        stacked = np.zeros((o["layers"], kv_heads, o["capacity"], head_dim), np.float32)
        stacked[:, :, :tokens] = np.stack(each)
        found |= {f"{name}_{i}": stacked[i : i + 1] for i in range(o["layers"])} if o["per_layer"] else {name: stacked}
    if o["logits"]:
        found["logits"] = norm(x[inputs["last_token"]], w["final_norm"]) @ w["embedding"].T
    return found


class Stateful:
    """The decoder step with its caches."""

    def __init__(self, info: Any) -> None:
        self.info = info
        o = info.options
        shape = (o["layers"], o["heads"], o["capacity"], o["head_dim"])
        self.caches = {"key_cache": np.zeros(shape, np.float32), "value_cache": np.zeros(shape, np.float32)}

    def step(self, inputs: dict[str, Array]) -> dict[str, Array]:
        o, w = self.info.options, self.info.weights
        heads, head_dim = o["heads"], o["head_dim"]
        position = int(inputs["position"][0])
        x = inputs["hidden"].astype(np.float32)[0]
        rows: dict[str, list[Array]] = {"key_rows": [], "value_rows": []}
        for layer in range(o["layers"]):
            query, key, value = ((x @ w[n][layer].T).reshape(heads, 1, head_dim) for n in ("query", "key", "value"))
            for name, row in (("key", key), ("value", value)):
                rows[f"{name}_rows"].append(row)
                # States hold fp16
                self.caches[f"{name}_cache"][layer, :, position] = row[:, 0].astype(np.float16)
            keys = self.caches["key_cache"][layer, :, : position + 1].copy()
            values = self.caches["value_cache"][layer, :, : position + 1].copy()
            keys[:, position], values[:, position] = key[:, 0], value[:, 0]
            mixed = softmax(query @ keys.transpose(0, 2, 1) / math.sqrt(head_dim)) @ values
            x = x + mixed.reshape(1, -1) @ w["out"][layer].T
        return {"step": x[None], **{name: np.stack(each) for name, each in rows.items()}}
