"""Control flow, against the same in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from mil_engine import Case
from mil_make import floats

WEIGHT = floats(4, 4)


def choose(mb: Any, x: Any, y: Any) -> Any:
    """Either branch reads outer values, has constants of its own, and gives two results."""
    pred = mb.greater(x=mb.reduce_sum(x=x, keep_dims=False), y=np.float32(0))
    return mb.cond(
        pred=pred,
        _true_fn=lambda: (mb.linear(x=x, weight=WEIGHT), mb.add(x=y, y=np.float32(1))),
        _false_fn=lambda: (mb.mul(x=x, y=np.float32(-2)), mb.identity(x=y)),
    )


def choose_reference(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (x @ WEIGHT.T, y + 1) if x.sum() > 0 else (-2 * x, y)


def nested(mb: Any, x: Any, n: Any) -> Any:
    n = mb.squeeze(x=n)

    def inner() -> Any:
        return mb.cond(
            pred=mb.less(x=n, y=np.int32(3)),
            _true_fn=lambda: mb.add(x=x, y=np.float32(10)),
            _false_fn=lambda: mb.mul(x=x, y=mb.cast(x=n, dtype="fp32")),
        )

    return mb.cond(pred=mb.less(x=n, y=np.int32(7)), _true_fn=inner, _false_fn=lambda: mb.exp(x=x))


def nested_reference(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    if n[0] >= 7:
        return np.exp(x)
    return x + 10 if n[0] < 3 else x * n[0]


def count_up(mb: Any, x: Any, n: Any) -> Any:
    """x = x @ W / 2 + x, n times; returns the count and the sum of what it passed, too."""
    limit, zero = mb.squeeze(x=n), mb.const(val=np.int32(0))
    return mb.while_loop(
        _cond=lambda i, x, total: mb.less(x=i, y=limit),
        _body=lambda i, x, total: (
            mb.add(x=i, y=np.int32(1)),
            mb.add(x=mb.mul(x=mb.linear(x=x, weight=WEIGHT), y=np.float32(0.5)), y=x),
            mb.add(x=total, y=mb.reduce_sum(x=x, keep_dims=False)),
        ),
        loop_vars=(zero, x, mb.const(val=np.float32(0))),
    )


def count_up_reference(x: np.ndarray, n: np.ndarray) -> tuple[Any, np.ndarray, Any]:
    total, x = 0.0, x.astype(np.float64)
    for _ in range(n[0]):
        total, x = total + x.sum(), x @ WEIGHT.T * 0.5 + x
    return np.int32(n[0]), x, np.float64(total)


def loop_with_branch(mb: Any, x: Any) -> Any:
    """Collatz on each turn: a branch in a loop, until the value is 1."""
    start = mb.squeeze(x=x)

    def body(value: Any, steps: Any) -> Any:
        odd = mb.equal(x=mb.mod(x=value, y=np.int32(2)), y=np.int32(1))
        following = mb.cond(
            pred=odd,
            _true_fn=lambda: mb.add(x=mb.mul(x=value, y=np.int32(3)), y=np.int32(1)),
            _false_fn=lambda: mb.floor_div(x=value, y=np.int32(2)),
        )
        return following, mb.add(x=steps, y=np.int32(1))

    _, steps = mb.while_loop(
        _cond=lambda value, steps: mb.greater(x=value, y=np.int32(1)),
        _body=body,
        loop_vars=(start, mb.const(val=np.int32(0))),
    )
    return steps


def collatz(x: np.ndarray) -> np.int32:
    value, steps = int(x[0]), 0
    while value > 1:
        value, steps = (3 * value + 1 if value % 2 else value // 2), steps + 1
    return np.int32(steps)


UP = np.abs(floats(2, 4))
CONTROL = [
    Case("cond_true", choose, {"x": UP, "y": floats(3)}, choose_reference),
    Case("cond_false", choose, {"x": -UP, "y": floats(3)}, choose_reference),
    *(Case(f"nested_{n}", nested, {"x": floats(5), "n": np.array([n], np.int32)}, nested_reference) for n in (1, 5, 9)),
    *(
        Case(f"loop_{n}", count_up, {"x": UP, "n": np.array([n], np.int32)}, count_up_reference, 1e-4)
        for n in (0, 1, 6)
    ),
    Case("loop_branch", loop_with_branch, {"x": np.array([27], np.int32)}, collatz),
]
