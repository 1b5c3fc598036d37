"""Shapes, movers, indexing, scatters, shapes that only values tell, and updates of slices."""

from __future__ import annotations

from typing import Any

import numpy as np
from mil_engine import Case
from mil_make import case, floats, integers

# --- shapes and movers ---
SHAPE = [
    case("identity", "identity", {"x": floats(2, 3)}),
    case("reshape", "reshape", {"x": floats(2, 3, 4)}, shape=[4, -1]),
    case("reshape_zero", "reshape", {"x": floats(2, 3, 4)}, lambda x: x.reshape(2, 6, 2), shape=[0, -1, 2]),
    case("expand_dims", "expand_dims", {"x": floats(2, 3)}, axes=[0, -1]),
    case("squeeze", "squeeze", {"x": floats(1, 3, 1, 2)}, axes=[0, -2]),
    case("squeeze_all", "squeeze", {"x": floats(1, 3, 1, 2)}),
    case("flatten2d", "flatten2d", {"x": floats(2, 3, 4)}, axis=-1),
    case("transpose", "transpose", {"x": floats(2, 3, 4, 5)}, perm=[0, 2, 1, 3]),
    case("transpose_last", "transpose", {"x": floats(33, 65)}, perm=[1, 0]),
    case("transpose_all", "transpose", {"x": floats(2, 3, 4, 5)}, perm=[3, 1, 0, 2]),
    case("transpose_negative", "transpose", {"x": floats(2, 3, 4)}, perm=[-1, -3, -2]),
    case("transpose_ones", "transpose", {"x": floats(1, 3, 1, 5)}, perm=[2, 1, 0, 3]),
    case("transpose_int", "transpose", {"x": integers(3, 70)}, perm=[1, 0]),
    Case("concat", lambda mb, x, y: mb.concat(values=[x, y], axis=1), {"x": floats(2, 3, 4), "y": floats(2, 5, 4)}),
    Case(
        "concat_negative", lambda mb, x, y: mb.concat(values=[x, y, x], axis=-1), {"x": floats(2, 3), "y": floats(2, 1)}
    ),
    Case("concat_first", lambda mb, x, y: mb.concat(values=[x, y], axis=0), {"x": integers(2, 3), "y": integers(1, 3)}),
    Case(
        "concat_scalars",
        lambda mb, x, y: mb.concat(values=[mb.squeeze(x=x), mb.squeeze(x=y), mb.const(val=np.int32(4))], axis=0),
        {"x": integers(1), "y": integers(1, 1)},
        lambda x, y: np.array([x.item(), y.item(), 4], np.int32),
    ),
    Case(
        "interleave",
        lambda mb, x, y: mb.concat(values=[x, y], axis=1, interleave=True),
        {"x": floats(2, 3, 2), "y": floats(2, 3, 2)},
        lambda x, y: np.stack([x, y], axis=2).reshape(2, 6, 2),
    ),
    Case("stack", lambda mb, x, y: mb.stack(values=[x, y], axis=-1), {"x": floats(2, 3), "y": floats(2, 3)}),
    case("pad", "pad", {"x": floats(2, 3, 4)}, pad=[1, 2, 0, 3], mode="constant", constant_val=1.5),
    case("pad_last", "pad", {"x": floats(2, 3)}, pad=[0, 2], mode="constant", constant_val=0.0),
    case("pad_reflect", "pad", {"x": floats(2, 5, 6)}, pad=[2, 1, 3, 4], mode="reflect"),
    case("pad_replicate", "pad", {"x": floats(2, 5, 6)}, pad=[2, 1, 3, 4], mode="replicate"),
    case("split", "split", {"x": floats(2, 6, 3)}, num_splits=3, axis=1),
    case("split_sizes", "split", {"x": floats(2, 6)}, split_sizes=[1, 2, 3], axis=-1),
    case("tile", "tile", {"x": floats(2, 3)}, reps=[2, 3]),
    case("tile_int", "tile", {"x": integers(2, 1, 3)}, reps=[1, 4, 1]),
    case("reverse", "reverse", {"x": floats(2, 3, 4)}, axes=[0, -1]),
    Case("shape", lambda mb, x: mb.add(x=mb.shape(x=x), y=np.array([1, 0, 0], np.int32)), {"x": floats(2, 3, 4)}),
    Case(
        "reshape_like",
        lambda mb, x, r: mb.reshape_like(x=x, ref_tensors=[r], begins=[0], ends=[2], end_masks=[False]),
        {"x": floats(6), "r": floats(2, 3)},
        lambda x, r: x.reshape(2, 3),
    ),
    Case(
        "sliding_windows",
        lambda mb, x: mb.sliding_windows(x=x, axis=1, size=3, stride=2),
        {"x": floats(2, 7)},
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=1)[:, ::2],
    ),
]

INDEX = [
    case("gather", "gather", {"x": floats(5, 3)}, indices=np.array([4, 0, 2], np.int32), axis=0),
    case("gather_runtime", "gather", {"x": floats(5, 3), "indices": integers(2, 2, low=0, high=3)}, axis=1),
    case(
        "gather_negative",
        "gather",
        {"x": floats(2, 5, 3)},
        lambda x: x.take([1, 3], -2),
        indices=np.array([1, 3], np.int32),
        axis=-2,
    ),
    case("gather_scalar", "gather", {"x": floats(5, 3)}, indices=np.int32(2), axis=0),
    case(
        "gather_batch",
        "gather",
        {"x": floats(2, 4, 3), "indices": integers(2, 2, low=0, high=4)},
        lambda x, indices: np.stack([x[i][indices[i]] for i in range(2)]),
        axis=1,
        batch_dims=1,
    ),
    case("gather_int", "gather", {"x": integers(5), "indices": integers(3, low=0, high=5)}, axis=0),
    case(
        "gather_along_axis", "gather_along_axis", {"x": floats(3, 4), "indices": integers(3, 6, low=0, high=4)}, axis=1
    ),
    case(
        "gather_nd",
        "gather_nd",
        {"x": floats(3, 4, 2), "indices": integers(5, 2, low=0, high=3)},
        lambda x, indices: x[indices[:, 0], indices[:, 1]],
    ),
    case(
        "gather_nd_batch",
        "gather_nd",
        {"x": floats(2, 3, 4), "indices": integers(2, 5, 1, low=0, high=3)},
        lambda x, indices: np.stack([x[i][indices[i, :, 0]] for i in range(2)]),
        batch_dims=1,
    ),
    case("slice", "slice_by_index", {"x": floats(5, 6, 7)}, begin=[1, 0, 2], end=[4, 6, 7], stride=[1, 2, 3]),
    case("slice_negative", "slice_by_index", {"x": floats(5, 6)}, begin=[-4, -3], end=[-1, 6]),
    case("slice_backwards", "slice_by_index", {"x": floats(5, 6)}, begin=[4, 5], end=[1, 0], stride=[-1, -2]),
    case(
        "slice_masks",
        "slice_by_index",
        {"x": floats(5, 6)},
        begin=[2, 2],
        end=[3, 3],
        begin_mask=[True, False],
        end_mask=[False, True],
    ),
    case(
        "slice_squeeze",
        "slice_by_index",
        {"x": floats(5, 6, 7)},
        begin=[1, 2, -1],
        end=[2, 5, 0],
        squeeze_mask=[True, False, True],
    ),
    case("slice_by_size", "slice_by_size", {"x": floats(5, 6)}, begin=[1, 2], size=[3, -1]),
    Case(
        "slice_by_size_runtime",
        lambda mb, x, b: mb.slice_by_size(x=x, begin=b, size=[2, 3]),
        {"x": floats(5, 6), "b": np.array([2, 1], np.int32)},
        lambda x, b: x[2:4, 1:4],
    ),
    case(
        "scatter",
        "scatter",
        {"data": floats(4, 3), "indices": np.array([1, 3, 1], np.int32), "updates": floats(3, 3)},
        lambda data, indices, updates: add_at(data, (indices,), updates),
        axis=0,
        mode="add",
    ),
    case(
        "scatter_along_axis",
        "scatter_along_axis",
        {"data": floats(3, 4), "indices": np.array([[0, 3], [1, 2], [3, 0]], np.int32), "updates": floats(3, 2)},
        axis=1,
        mode="update",
    ),
    case(
        "scatter_nd",
        "scatter_nd",
        {"data": floats(4, 3), "indices": np.array([[0, 1], [3, 2], [0, 1]], np.int32), "updates": floats(3)},
        lambda data, indices, updates: add_at(data, (indices[:, 0], indices[:, 1]), updates),
        mode="add",
    ),
    case(
        "one_hot",
        "one_hot",
        {"indices": integers(2, 3, low=0, high=4)},
        lambda indices: np.eye(4, dtype=np.float32)[indices] * 2 - 1,
        one_hot_vector_size=4,
        axis=-1,
        on_value=1.0,
        off_value=-1.0,
    ),
    case("band_part", "band_part", {"x": floats(2, 4, 5)}, lower=1, upper=-1),
    case("fill_like", "fill_like", {"ref_tensor": floats(2, 3)}, value=2.5),
    Case("fill", lambda mb, x: mb.add(x=x, y=mb.fill(shape=[2, 3], value=0.5)), {"x": floats(2, 3)}),
    Case("range", lambda mb, x: mb.add(x=x, y=mb.range_1d(start=1, end=9, step=2)), {"x": integers(4)}),
    case("cumsum", "cumsum", {"x": floats(3, 4)}, axis=-1),
    case(
        "cumsum_exclusive",
        "cumsum",
        {"x": floats(3, 4)},
        lambda x: np.cumsum(x[::-1], 0)[::-1] - x,
        axis=0,
        exclusive=True,
        reverse=True,
    ),
    case("topk", "topk", {"x": floats(3, 9)}, k=4, axis=-1),
    case("topk_ascending", "topk", {"x": floats(9, 2)}, k=3, axis=0, ascending=True),
]


def add_at(data: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
    result = data.copy()
    np.add.at(result, index, updates)
    return result


# Shapes that only the values tell: the engine plans and runs such programs node by node.
RUNTIME_SHAPES = [
    Case(
        "slice_runtime",
        lambda mb, x, b: mb.slice_by_index(x=x, begin=b, end=mb.add(x=b, y=np.array([2, 2], np.int32))),
        {"x": floats(5, 6), "b": np.array([2, 1], np.int32)},
        lambda x, b: x[2:4, 1:3],
    ),
    Case("non_zero", lambda mb, x: mb.non_zero(x=x), {"x": np.array([[0, 1, 2], [3, 0, 0]], np.float32)}),
    Case(
        "runtime_reshape",
        lambda mb, x, s: mb.reshape(x=x, shape=s),
        {"x": floats(2, 6), "s": np.array([3, 4], np.int32)},
        lambda x, s: x.reshape(3, 4),
    ),
    Case(
        "after_runtime",
        lambda mb, x, s: mb.add(x=mb.relu(x=mb.reshape(x=x, shape=s)), y=1.0),
        {"x": floats(2, 6), "s": np.array([4, 3], np.int32)},
        lambda x, s: np.maximum(x, 0).reshape(4, 3) + 1,
    ),
    Case(
        "beside_runtime",
        lambda mb, x: mb.matmul(x=mb.softmax(x=x), y=mb.transpose(x=x, perm=[1, 0])),
        {"x": floats(5, 6)},
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True) @ x.T,
    ),
]


# --- iOS 18: slice_update; quantised activations ---
def updated(x: np.ndarray, update: np.ndarray, *index: Any) -> np.ndarray:
    result = x.copy()
    result[index] = update
    return result


UPDATE = [
    case("slice_update", "slice_update", {"x": floats(5, 6), "update": floats(2, 3)}, begin=[1, 2], end=[3, 5]),
    case(
        "slice_update_stride",
        "slice_update",
        {"x": floats(5, 6), "update": floats(2, 3)},
        begin=[0, 0],
        end=[4, 6],
        stride=[2, 2],
    ),
    case(
        "slice_update_masks",
        "slice_update",
        {"x": floats(5, 6), "update": floats(2, 6)},
        begin=[1, 0],
        end=[3, 0],
        begin_mask=[False, True],
        end_mask=[False, True],
    ),
    Case(
        "slice_update_runtime",
        lambda mb, x, u, p: mb.slice_update(
            x=x,
            update=u,
            begin=mb.concat(values=[p, np.array([0], np.int32)], axis=0),
            end=mb.concat(values=[mb.add(x=p, y=1), np.array([6], np.int32)], axis=0),
        ),
        {"x": floats(5, 6), "u": floats(1, 6), "p": np.array([3], np.int32)},
        lambda x, u, p: updated(x, u, slice(3, 4)),
    ),
    Case(
        "quantize",
        lambda mb, x: mb.dequantize(
            input=mb.quantize(input=x, scale=0.1, zero_point=np.int8(3), output_dtype="int8"),
            scale=0.1,
            zero_point=np.int8(3),
        ),
        {"x": np.linspace(-9, 9, 50, dtype=np.float32)},
        lambda x: (np.clip(np.round(x / np.float32(0.1)) + 3, -128, 127) - 3) * np.float32(0.1),
    ),
]
