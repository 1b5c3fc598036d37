"""Sampling, sorting, batch and space, recurrent layers: where coremltools infers no value, the definition in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from mil_cases_vision import half_pixel, linear_resize
from mil_engine import Case
from mil_make import case, floats, integers


def index_in(i: np.ndarray, size: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """The pixel that stands for index i, and whether it is the constant outside."""
    if mode == "constant":
        return np.clip(i, 0, size - 1), (i < 0) | (i >= size)
    row = np.pad(np.arange(size), 40, mode={"border": "edge", "reflection": "reflect", "symmetric": "symmetric"}[mode])
    return row[np.clip(i, -40, size + 39) + 40], np.zeros(i.shape, bool)


def sample(
    plane: np.ndarray, y: np.ndarray, x: np.ndarray, *, near: bool = False, mode: str = "constant", outside: float = 0.0
) -> np.ndarray:
    def pixel(row: np.ndarray, column: np.ndarray) -> np.ndarray:
        row, out_r = index_in(row.astype(int), plane.shape[0], mode)
        column, out_c = index_in(column.astype(int), plane.shape[1], mode)
        return np.where(out_r | out_c, outside, plane[row, column].astype(np.float64))

    if near:
        return pixel(np.rint(y), np.rint(x))
    r, c = np.floor(y), np.floor(x)
    return (
        pixel(r, c) * (1 - (y - r)) * (1 - (x - c))
        + pixel(r, c + 1) * (1 - (y - r)) * (x - c)
        + pixel(r + 1, c) * (y - r) * (1 - (x - c))
        + pixel(r + 1, c + 1) * (y - r) * (x - c)
    )


def to_pixels(at: np.ndarray, size: int, scale: str, corners: bool) -> np.ndarray:
    at = at.astype(np.float64)
    if scale == "unnormalized":
        return at
    share = (at + 1) / 2 if scale == "normalized_minus_one_to_one" else at
    return share * (size - 1) if corners else share * size - 0.5


def resampled(scale: str, corners: bool, **how: Any) -> Callable[..., np.ndarray]:
    def reference(x: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        columns = to_pixels(coordinates[..., 0], x.shape[3], scale, corners)
        rows = to_pixels(coordinates[..., 1], x.shape[2], scale, corners)
        return np.stack(
            [np.stack([sample(p, r, c, **how) for p in image]) for image, r, c in zip(x, rows, columns, strict=True)]
        )

    return reference


def resample_case(
    name: str, scale: str, corners: bool, at: np.ndarray, near: bool = False, mode: str = "constant"
) -> Case:
    return case(
        f"resample_{name}",
        "resample",
        {"x": floats(2, 3, 5, 7), "coordinates": at},
        resampled(scale, corners, near=near, mode=mode, outside=1.5),
        sampling_mode="nearest" if near else "bilinear",
        padding_mode=mode,
        padding_value=1.5,
        coordinates_mode=scale,
        align_corners=corners,
    )


ONE = "normalized_minus_one_to_one"
RESAMPLE = [
    *(resample_case(mode, ONE, False, floats(2, 4, 3, 2, low=-2, high=2), mode=mode)
      for mode in ("constant", "border", "reflection", "symmetric")),
    resample_case("corners", ONE, True, floats(2, 4, 3, 2, low=-1.5, high=1.5)),
    resample_case("zero_to_one", "normalized_zero_to_one", False, floats(2, 4, 3, 2, low=-0.5, high=1.5)),
    resample_case("pixels", "unnormalized", False, floats(2, 4, 3, 2, low=-2, high=8)),
    resample_case("integers", "unnormalized", False, integers(2, 4, 3, 2, low=-2, high=8)),
    resample_case("nearest", ONE, True, floats(2, 4, 3, 2, low=-1.5, high=1.5), near=True, mode="border"),
    replace(
        resample_case("far", "unnormalized", False, np.full((2, 1, 1, 2), 1e30, np.float32)),
        reference=lambda x, coordinates: np.full((2, 3, 1, 1), 1.5),
    ),
]  # fmt: skip


def transformed(x: np.ndarray, transform_matrix: np.ndarray) -> np.ndarray:
    ys, xs = np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 6), indexing="ij")
    found = []
    for image, m in zip(x, np.broadcast_to(transform_matrix, (len(x), 6)).astype(np.float64), strict=True):
        column = to_pixels(m[0] * xs + m[1] * ys + m[2], x.shape[3], ONE, True)
        row = to_pixels(m[3] * xs + m[4] * ys + m[5], x.shape[2], ONE, True)
        found.append(np.stack([sample(plane, row, column) for plane in image]))
    return np.stack(found)


def affine_case(name: str, matrices: int) -> Case:
    return case(
        name,
        "affine",
        {"x": floats(2, 3, 5, 7), "transform_matrix": floats(matrices, 6, low=-1.2, high=1.2)},
        transformed,
        output_height=4,
        output_width=6,
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=0.0,
        coordinates_mode=ONE,
        align_corners=True,
    )


def places(mode: str, first: float, last: float, n: int) -> np.ndarray:
    extent, i = last - first, np.arange(n)
    if "ALIGN_CORNERS" in mode and not mode.startswith("UN"):
        alone = first if mode.startswith("STRICT") else (first + last) / 2
        return np.linspace(first, last, n) if n > 1 else np.array([alone])
    if mode == "DEFAULT":
        return first + i * (extent + 1) / n
    if mode == "OFFSET_CORNERS":
        return first + (i + 0.5) * max(1.0, extent) / n
    return first + (i + 0.5) * (extent + 1) / n - 0.5


def cropped(
    x: np.ndarray, boxes: np.ndarray, which: np.ndarray, *, mode: str = "ALIGN_CORNERS", size: tuple[int, int] = (3, 4),
    normalized: bool = False, scale: float = 1.0, order: str = "CORNERS_HEIGHT_FIRST", outside: float = 0.0,
) -> np.ndarray:  # fmt: skip
    found = []
    for box, k in zip(boxes.astype(np.float64) * scale, which, strict=True):
        a, b, c, d = box if "HEIGHT" in order else box[[1, 0, 3, 2]]
        top, left, bottom, right = (a - c / 2, b - d / 2, a + c / 2, b + d / 2) if "CENTER" in order else (a, b, c, d)
        h, w = x.shape[2] - 1, x.shape[3] - 1
        if normalized:
            top, left, bottom, right = top * h, left * w, bottom * h, right * w
        rows, columns = np.meshgrid(
            places(mode, top, bottom, size[0]), places(mode, left, right, size[1]), indexing="ij"
        )
        beyond = (rows < 0) | (rows > h) | (columns < 0) | (columns > w)
        planes = [np.where(beyond, outside, sample(p, rows, columns, mode="border")) for p in x[k]]
        found.append(np.stack(planes))
    return np.stack(found)


BOXES = np.array([[0.5, 1, 3, 5.5], [1, 0, 4, 6], [-1, 2, 2.5, 7]], np.float32)
WHICH = np.array([1, 0, 1], np.int32)


def crop_case(name: str, mode: str = "ALIGN_CORNERS", boxes: np.ndarray = BOXES, **how: Any) -> Case:
    size = how.get("size", (3, 4))
    fixed: dict[str, Any] = {"pad_value": how["outside"]} if "outside" in how else {}
    return Case(
        f"crop_resize_{name}",
        lambda mb, x, boxes, which: mb.crop_resize(
            x=x, boxes=boxes, box_indices=which, target_height=size[0], target_width=size[1], sampling_mode=mode,
            normalized_coordinates=how.get("normalized", False), spatial_scale=how.get("scale", 1.0),
            box_coordinate_mode=how.get("order", "CORNERS_HEIGHT_FIRST"), **fixed,
        ),
        {"x": floats(2, 2, 5, 7), "boxes": boxes, "which": WHICH},
        lambda x, boxes, which: cropped(x, boxes, which, mode=mode, **how),
    )  # fmt: skip


CROPS = [
    *(crop_case(mode.lower(), mode) for mode in (
        "ALIGN_CORNERS", "STRICT_ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS")),
    crop_case("one_pixel", size=(1, 1)),
    crop_case("normalized", boxes=BOXES / 8, normalized=True),
    crop_case("scaled", boxes=BOXES * 4, scale=0.25),
    crop_case("width_first", order="CORNERS_WIDTH_FIRST"),
    crop_case("center", order="CENTER_SIZE_HEIGHT_FIRST"),
    crop_case("center_width_first", order="CENTER_SIZE_WIDTH_FIRST"),
    crop_case("padded", outside=2.5),
]  # fmt: skip

IMAGE = floats(1, 2, 5, 7)
SAMPLING = [
    *RESAMPLE,
    affine_case("affine", 2),
    affine_case("affine_shared", 1),
    *CROPS,
    case("crop", "crop", {"x": floats(2, 3, 6, 7)}, lambda x: x[..., 1:4, 3:], crop_height=[1, 2], crop_width=[3, 0]),
    case(
        "resize_like_bilinear", "resize", {"x": IMAGE},
        lambda x: linear_resize(x, [half_pixel(5, 10), half_pixel(7, 4)]),
        shape=[10, 4], resized_dims=np.uint32(2), sampling_mode="UNALIGN_CORNERS",
    ),
    case(
        "resize_one_dimension", "resize", {"x": IMAGE},
        lambda x: linear_resize(x, [np.arange(5), np.linspace(0, 6, 9)]),
        shape=[3, 9], resized_dims=np.uint32(1), sampling_mode="STRICT_ALIGN_CORNERS",
    ),
    case(
        "resize_nearest_dims", "resize", {"x": IMAGE}, lambda x: x.repeat(3, 3), shape=[1, 0, 21],
        resized_dims=np.uint32(2), interpolation_mode="NEAREST_NEIGHBOR",
    ),
]  # fmt: skip


def space_to_batch(x: np.ndarray) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), (1, 2), (0, 1)])
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 3, 3).transpose(3, 5, 0, 1, 2, 4).reshape(n * 6, c, h // 2, w // 3)


def batch_to_space(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    whole = x.reshape(2, 3, n // 6, c, h, w).transpose(2, 3, 4, 0, 5, 1).reshape(n // 6, c, h * 2, w * 3)
    return whole[:, :, 1 : whole.shape[2] - 2, 2:]


def reversed_lines(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    out = x.copy()
    for i, length in enumerate(lengths):
        out[:, i, :length] = x[:, i, :length][:, ::-1]
    return out


MOVES = [
    case("argsort", "argsort", {"x": floats(3, 9)}),
    case("argsort_up", "argsort", {"x": floats(4, 5, 2)}, axis=1, ascending=True),
    case(
        "argsort_ties", "argsort", {"x": integers(3, 9, low=0, high=3)},
        lambda x: np.argsort(-x, axis=-1, kind="stable"),
    ),
    case(
        "argsort_nan", "argsort", {"x": np.array([3, np.nan, 1, np.nan, 2], np.float32)},
        lambda x: np.array([2, 4, 0, 1, 3], np.int32), ascending=True,
    ),
    case(
        "space_to_batch", "space_to_batch", {"x": floats(2, 3, 5, 8)}, space_to_batch, block_shape=[2, 3],
        paddings=[[1, 2], [0, 1]],
    ),
    case(
        "batch_to_space", "batch_to_space", {"x": floats(12, 3, 4, 3)}, batch_to_space, block_shape=[2, 3],
        crops=[[1, 2], [2, 0]],
    ),
    case(
        "reverse_sequence", "reverse_sequence", {"x": floats(2, 3, 5), "lengths": np.array([0, 5, 3], np.int32)},
        reversed_lines, seq_axis=2, batch_axis=1,
    ),
    case(
        "reverse_sequence_int", "reverse_sequence",
        {"x": integers(2, 3, 5), "lengths": np.array([4, 1, 2], np.int32)}, reversed_lines, seq_axis=-1, batch_axis=-2,
    ),
]  # fmt: skip


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(
    x: np.ndarray, h: np.ndarray, c: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray, p: np.ndarray | None,
    reverse: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """One direction; gates in the order input, forget, output, cell."""
    n, steps = h.shape[1], range(len(x))
    all_h = np.zeros((len(x), *h.shape))
    for t in reversed(steps) if reverse else steps:
        i, f, o, z = np.split((x[t] @ w.T + h @ u.T + b).astype(np.float64), 4, axis=1)
        if p is not None:
            i, f = i + p[:n] * c, f + p[n : 2 * n] * c
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
        h = sigmoid(o + (0 if p is None else p[2 * n :] * c)) * np.tanh(c)
        all_h[t] = h
    return all_h, h, c


N, IN = 5, 4
WI, WH, WB = floats(4 * N, IN, low=-1, high=1), floats(4 * N, N, low=-1, high=1), floats(4 * N)
WI2, WH2, WB2 = floats(4 * N, IN, low=-1, high=1), floats(4 * N, N, low=-1, high=1), floats(4 * N)
PEEP = floats(3 * N, low=-1, high=1)


def lstm_case(name: str, sequence: bool, direction: str = "forward", peephole: np.ndarray | None = None) -> Case:
    both = direction == "bidirectional"
    fixed: dict[str, Any] = {"weight_ih": WI, "weight_hh": WH, "bias": WB, "direction": direction}
    if peephole is not None:
        fixed["peephole"] = peephole
    if both:
        fixed |= {"weight_ih_back": WI2, "weight_hh_back": WH2, "bias_back": WB2}

    def reference(x: np.ndarray, initial_h: np.ndarray, initial_c: np.ndarray) -> tuple[np.ndarray, ...]:
        parts = [lstm(x, initial_h[:, :N], initial_c[:, :N], WI, WH, WB, peephole, direction == "reverse")]
        if both:
            parts.append(lstm(x, initial_h[:, N:], initial_c[:, N:], WI2, WH2, WB2, None, True))
        every, h, c = (np.concatenate(p, axis=-1) for p in zip(*parts, strict=True))
        return (every if sequence else h[None]), h, c

    width = 2 * N if both else N
    inputs = {"x": floats(6, 3, IN), "initial_h": floats(3, width, low=-1), "initial_c": floats(3, width, low=-1)}
    return case(name, "lstm", inputs, reference, output_sequence=sequence, **fixed)


def rnn(x: np.ndarray, initial_h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, found = initial_h, np.zeros((len(x), *initial_h.shape))
    for t in reversed(range(len(x))):
        found[t] = h = np.maximum(x[t] @ WI[:N].T + h @ WH[:N].T + WB[:N], 0)
    return found, h


RECURRENT = [
    lstm_case("lstm", sequence=True),
    lstm_case("lstm_last", sequence=False),
    lstm_case("lstm_reverse", sequence=True, direction="reverse"),
    lstm_case("lstm_both", sequence=True, direction="bidirectional"),
    lstm_case("lstm_both_last", sequence=False, direction="bidirectional"),
    lstm_case("lstm_peephole", sequence=True, peephole=PEEP),
    case(
        "rnn", "rnn", {"x": floats(6, 3, IN), "initial_h": floats(3, N)}, rnn, weight_ih=WI[:N], weight_hh=WH[:N],
        bias=WB[:N], direction="reverse", output_sequence=True, activation="relu",
    ),
]  # fmt: skip
