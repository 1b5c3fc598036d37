"""Elementwise ops, arithmetic with broadcasting, comparisons and logic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mil_engine import Case
from mil_make import case, floats, integers
from scipy import special

# --- elementwise ---
UNARY = {
    "abs": (-3, 3),
    "acos": (-0.99, 0.99),
    "asin": (-0.99, 0.99),
    "atan": (-3, 3),
    "atanh": (-0.9, 0.9),
    "ceil": (-3, 3),
    "cos": (-9, 9),
    "cosh": (-3, 3),
    "erf": (-4, 4),
    "exp": (-9, 9),
    "exp2": (-9, 9),
    "floor": (-3, 3),
    "relu": (-3, 3),
    "relu6": (-3, 9),
    "round": (-3, 3),
    "sigmoid": (-20, 20),
    "sign": (-3, 3),
    "sin": (-9, 9),
    "sinh": (-3, 3),
    "softplus": (-20, 20),
    "softsign": (-3, 3),
    "sqrt": (0, 9),
    "square": (-3, 3),
    "tan": (-1.4, 1.4),
    "tanh": (-12, 12),
}


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x.astype(np.float64)))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x.astype(np.float64) * (1 + special.erf(x.astype(np.float64) / math.sqrt(2)))


ELEMENTWISE = [
    *(case(op, op, {"x": floats(3, 5, 7, low=low, high=high)}) for op, (low, high) in UNARY.items()),
    case("silu", "silu", {"x": floats(4, 33)}, silu),
    case("gelu_exact", "gelu", {"x": floats(4, 33, low=-6, high=6)}, gelu, mode="EXACT"),
    case("gelu_tanh", "gelu", {"x": floats(4, 33)}, mode="TANH_APPROXIMATION"),
    case("gelu_sigmoid", "gelu", {"x": floats(4, 33)}, mode="SIGMOID_APPROXIMATION"),
    case("rsqrt", "rsqrt", {"x": floats(2, 9, low=0.1)}, epsilon=1e-3),
    case("log", "log", {"x": floats(2, 9, low=0.1)}),
    case("log_epsilon", "log", {"x": floats(2, 9, low=0.1)}, epsilon=0.5),
    case("inverse", "inverse", {"x": floats(2, 9, low=0.5)}, epsilon=1e-3),
    case("clip", "clip", {"x": floats(2, 9)}, alpha=-1.0, beta=0.5),
    case("threshold", "threshold", {"x": floats(2, 9)}, alpha=0.5),
    case("elu", "elu", {"x": floats(2, 9)}, alpha=0.7),
    case("leaky_relu", "leaky_relu", {"x": floats(2, 9)}, alpha=0.1),
    case("clamped_relu", "clamped_relu", {"x": floats(2, 9)}, alpha=0.1, beta=1.5),
    case("linear_activation", "linear_activation", {"x": floats(2, 9)}, alpha=2.0, beta=0.5),
    case("scaled_tanh", "scaled_tanh", {"x": floats(2, 9)}, alpha=2.0, beta=0.5),
    case("sigmoid_hard", "sigmoid_hard", {"x": floats(2, 9)}, alpha=0.2, beta=0.5),
    case("thresholded_relu", "thresholded_relu", {"x": floats(2, 9)}, alpha=0.5),
    case("prelu", "prelu", {"x": floats(2, 3, 4, 2)}, alpha=np.array([0.1, 0.2, 0.3], np.float32)),
    case(
        "softplus_parametric",
        "softplus_parametric",
        {"x": floats(2, 3, 4)},
        alpha=np.array([0.5, 1.0, 2.0], np.float32),
        beta=np.array([1.0, 0.5, 2.0], np.float32),
    ),
]

# --- arithmetic over two tensors, with broadcasting ---
SHAPES: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = (
    ((4, 5), (4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 1, 4), (3, 1)),
    ((5,), (1, 1, 5)),
    ((3, 4), (1, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
)
ARITHMETIC = [
    case(f"{op}_{i}", op, {"x": floats(*a), "y": floats(*b, low=0.5)})
    for op in ("add", "sub", "mul", "real_div", "maximum", "minimum", "floor_div", "mod")
    for i, (a, b) in enumerate(SHAPES)
    if op in ("add", "sub") or i in (1, 2)
] + [
    *(
        case(f"{op}_int", op, {"x": integers(3, 4), "y": integers(4, low=1)})
        for op in ("add", "sub", "mul", "floor_div", "mod", "maximum", "minimum")
    ),
    case("pow", "pow", {"x": floats(3, 4, low=0.1), "y": floats(4)}),
    case("pow_two", "pow", {"x": floats(3, 4)}, y=2.0),
    *(
        case(f"{op}_{kind}", op, {"x": make(3, 4), "y": make(4)})
        for op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
        for kind, make in (("float", lambda *s: np.round(floats(*s))), ("int", integers))
    ),
]


def bools(mb: Any, x: Any) -> Any:
    return mb.greater(x=x, y=0)


LOGIC = [
    *(
        Case(
            op,
            lambda mb, x, y, op=op: getattr(mb, op)(x=bools(mb, x), y=bools(mb, y)),
            {"x": integers(3, 4), "y": integers(4)},
        )
        for op in ("logical_and", "logical_or", "logical_xor")
    ),
    Case("logical_not", lambda mb, x: mb.logical_not(x=bools(mb, x)), {"x": integers(3, 4)}),
    Case(
        "select",
        lambda mb, c, a, b: mb.select(cond=bools(mb, c), a=a, b=b),
        {"c": integers(3, 4), "a": floats(3, 4), "b": floats(3, 4)},
    ),
    Case(
        "select_int",
        lambda mb, c, a, b: mb.select(cond=bools(mb, c), a=a, b=b),
        {"c": integers(3, 4), "a": integers(3, 4), "b": integers(3, 4)},
    ),
    Case("cast_int", lambda mb, x: mb.cast(x=x, dtype="int32"), {"x": floats(3, 4)}),
    Case("cast_float", lambda mb, x: mb.mul(x=mb.cast(x=x, dtype="fp32"), y=0.5), {"x": integers(3, 4)}),
    Case("cast_bool", lambda mb, x: mb.cast(x=x, dtype="bool"), {"x": np.array([0.0, 0.5, -2.0], np.float32)}),
    Case(
        "cast_int8",
        lambda mb, x: mb.cast(x=mb.cast(x=x, dtype="int8"), dtype="int32"),
        {"x": integers(9, low=-100, high=100)},
    ),
    Case(
        "cast_uint8",
        lambda mb, x: mb.cast(x=mb.cast(x=x, dtype="uint8"), dtype="int32"),
        {"x": integers(9, low=0, high=255)},
    ),
    Case(
        "cast_half",
        lambda mb, x: mb.cast(x=mb.cast(x=x, dtype="fp16"), dtype="fp32"),
        {"x": np.array([0.5, -2.25, 8.0], np.float32)},
    ),
]
