"""Reductions, normalisation, products and attention."""

from __future__ import annotations

import math

import numpy as np
from mil_engine import Case
from mil_make import CHANNELS, case, floats, integers

# --- reductions and normalisation ---
REDUCTIONS = (
    "reduce_mean",
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_sum_square",
    "reduce_l1_norm",
    "reduce_l2_norm",
)
REDUCE = [
    *(
        case(f"{op}_{i}", op, {"x": floats(2, 3, 4, 5)}, axes=axes, keep_dims=keep)
        for op in REDUCTIONS
        for i, (axes, keep) in enumerate([([-1], True), ([1], False), ([0, 2], True), ([1, 2, 3], False)])
        if i < 2 or op in ("reduce_mean", "reduce_max")
    ),
    case("reduce_log_sum", "reduce_log_sum", {"x": floats(2, 9, low=0.1)}, axes=[-1], keep_dims=False),
    case("reduce_log_sum_exp", "reduce_log_sum_exp", {"x": floats(2, 9, high=50)}, axes=[-1], keep_dims=False),
    case("reduce_all", "reduce_sum", {"x": floats(2, 9)}, lambda x: x.sum(keepdims=True), axes=[0, 1], keep_dims=True),
    case("reduce_int", "reduce_sum", {"x": integers(2, 9)}, axes=[1], keep_dims=False),
    case("reduce_max_int", "reduce_max", {"x": integers(2, 9)}, axes=[0], keep_dims=False),
    case("argmax", "reduce_argmax", {"x": floats(2, 3, 4)}, axis=1, keep_dims=True),
    case("argmin", "reduce_argmin", {"x": floats(2, 3, 4)}, axis=-1, keep_dims=False),
]


def batch_norm(
    x: np.ndarray, mean: np.ndarray, variance: np.ndarray, gamma: np.ndarray, beta: np.ndarray
) -> np.ndarray:
    across = (1, -1) + (1,) * (x.ndim - 2)
    return (x - mean.reshape(across)) / np.sqrt(variance.reshape(across) + 1e-5) * gamma.reshape(across) + beta.reshape(
        across
    )


def instance_norm(x: np.ndarray) -> np.ndarray:
    axes = tuple(range(2, x.ndim))
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def layer_norm(x: np.ndarray, axis: int, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    shape = [1] * x.ndim
    shape[axis] = -1
    normal = (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)
    return normal * gamma.reshape(shape) + beta.reshape(shape)


def lrn(x: np.ndarray) -> np.ndarray:
    total = np.zeros_like(x)
    for c in range(x.shape[1]):
        total[:, c] = (x[:, max(0, c - 1) : c + 2] ** 2).sum(1)
    return x / (1 + 1e-2 / 3 * total) ** 0.75


NORMALIZE = [
    case("softmax", "softmax", {"x": floats(2, 3, 40)}, axis=-1),
    case("softmax_middle", "softmax", {"x": floats(2, 30, 7)}, axis=1),
    case("softmax_first", "softmax", {"x": floats(5, 600)}, axis=0),
    case(
        "layer_norm", "layer_norm", {"x": floats(2, 3, 40)}, axes=[-1], gamma=floats(40), beta=floats(40), epsilon=1e-5
    ),
    case("layer_norm_two", "layer_norm", {"x": floats(2, 3, 40)}, axes=[1, 2], epsilon=1e-3),
    Case(
        "layer_norm_channels",
        lambda mb, x: mb.layer_norm(x=x, axes=[1], gamma=CHANNELS, beta=CHANNELS[::-1].copy(), epsilon=1e-5),
        {"x": floats(2, 6, 1, 9)},
        lambda x: layer_norm(x, 1, CHANNELS, CHANNELS[::-1]),
    ),
    Case(
        "batch_norm",
        lambda mb, x: mb.batch_norm(
            x=x, mean=CHANNELS, variance=CHANNELS**2, gamma=CHANNELS + 1, beta=CHANNELS - 1, epsilon=1e-5
        ),
        {"x": floats(2, 6, 4, 5)},
        lambda x: batch_norm(x, CHANNELS, CHANNELS**2, CHANNELS + 1, CHANNELS - 1),
    ),
    case("instance_norm", "instance_norm", {"x": floats(2, 3, 4, 5)}, instance_norm, epsilon=1e-5),
    case(
        "l2_norm",
        "l2_norm",
        {"x": floats(2, 3, 4, 5)},
        lambda x: x / np.sqrt((x**2).sum((1, 2, 3), keepdims=True) + 1e-6),
        epsilon=1e-6,
    ),
    case(
        "local_response_norm", "local_response_norm", {"x": floats(2, 5, 3)}, lrn, size=3, alpha=1e-2, beta=0.75, k=1.0
    ),
]

# --- products ---
PRODUCTS = [
    case("linear", "linear", {"x": floats(2, 9, 16)}, weight=floats(7, 16), bias=floats(7)),
    case("linear_row", "linear", {"x": floats(1, 16)}, weight=floats(70, 16)),
    case("linear_large", "linear", {"x": floats(70, 300)}, weight=floats(130, 300), tolerance=2e-4),
    case("matmul", "matmul", {"x": floats(4, 5), "y": floats(5, 6)}),
    case("matmul_batch", "matmul", {"x": floats(2, 3, 4, 5), "y": floats(2, 3, 5, 6)}),
    case("matmul_broadcast", "matmul", {"x": floats(2, 1, 4, 5), "y": floats(3, 5, 6)}),
    case(
        "matmul_transposed", "matmul", {"x": floats(3, 5, 4), "y": floats(3, 6, 5)}, transpose_x=True, transpose_y=True
    ),
    case("matmul_const", "matmul", {"x": floats(2, 7, 5)}, y=floats(5, 6)),
    case("matmul_large", "matmul", {"x": floats(2, 100, 90), "y": floats(2, 90, 110)}, tolerance=2e-4),
    Case(
        "einsum_order",
        lambda mb, x, y: mb.einsum(values=(x, y), equation="nchw,nwhu->nchu"),
        {"x": floats(2, 3, 4, 5), "y": floats(2, 5, 4, 6)},
        lambda x, y: np.einsum("nchw,nwhu->nchu", x, y),
    ),
]


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    scores = query.astype(np.float64) @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])
    scores = scores if mask is None else np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


QKV = {"query": floats(2, 3, 150, 8), "key": floats(2, 3, 20, 8), "value": floats(2, 3, 20, 6)}
LOWER = np.tril(np.ones((150, 20), bool))
ATTENTION = [
    case("attention", "scaled_dot_product_attention", QKV, attention),
    Case(
        "attention_mask",
        lambda mb, m, **qkv: mb.scaled_dot_product_attention(**qkv, attn_mask=m),
        {**QKV, "m": floats(150, 20)},
        lambda m, **qkv: attention(**qkv, mask=m),
    ),
    Case(
        "attention_bool",
        lambda mb, **qkv: mb.scaled_dot_product_attention(**qkv, attn_mask=LOWER),
        QKV,
        lambda **qkv: attention(**qkv, mask=LOWER),
    ),
    Case(
        "attention_heads",
        lambda mb, m, **qkv: mb.scaled_dot_product_attention(**qkv, attn_mask=m),
        {**QKV, "m": floats(1, 3, 1, 20)},
        lambda m, **qkv: attention(**qkv, mask=m),
    ),
]
