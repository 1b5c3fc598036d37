"""Convolutions, pools and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mil_make import case, floats


# --- convolution, pooling, resizing ---
def windows(
    x: np.ndarray,
    kernel: Sequence[int],
    stride: Sequence[int],
    pad: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    fill: float = 0.0,
) -> np.ndarray:
    """[n, c, out..., kernel...]"""
    x = np.pad(x, [(0, 0), (0, 0), *pad], constant_values=fill)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, extent, axis=tuple(range(2, x.ndim)))
    steps = (
        slice(None),
        slice(None),
        *(slice(None, None, s) for s in stride),
        *(slice(None, None, d) for d in dilation),
    )
    return view[steps]


def conv(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    stride: Any = None,
    pad: Any = None,
    dilation: Any = None,
    groups: int = 1,
) -> np.ndarray:
    rank = x.ndim - 2
    stride, dilation, pad = stride or [1] * rank, dilation or [1] * rank, pad or [(0, 0)] * rank
    seen = windows(x.astype(np.float64), weight.shape[2:], stride, pad, dilation)
    results = []
    for g in range(groups):
        part = seen[:, g * weight.shape[1] : (g + 1) * weight.shape[1]]
        own = weight[g * len(weight) // groups : (g + 1) * len(weight) // groups].astype(np.float64)
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        results.append(np.moveaxis(np.tensordot(part, own, (axes, list(range(1, rank + 2)))), -1, 1))
    result = np.concatenate(results, 1)
    return result if bias is None else result + bias.reshape((1, -1) + (1,) * rank)


def conv_transpose(
    x: np.ndarray, weight: np.ndarray, stride: Sequence[int], pad: Sequence[tuple[int, int]], groups: int = 1
) -> np.ndarray:
    """The definition: every input element adds its weighted kernel to the output."""
    rank, per = x.ndim - 2, weight.shape[1]
    spatial = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], stride, weight.shape[2:], strict=True)]
    out = np.zeros((x.shape[0], per * groups, *spatial))
    for index in np.ndindex(*x.shape[2:]):
        place = tuple(slice(i * s, i * s + k) for i, s, k in zip(index, stride, weight.shape[2:], strict=True))
        for g in range(groups):
            mine = slice(g * x.shape[1] // groups, (g + 1) * x.shape[1] // groups)
            out[(slice(None), slice(g * per, (g + 1) * per), *place)] += np.tensordot(
                x[(slice(None), mine, *index)], weight[mine], 1
            )
    crop = tuple(slice(a, n - b) for (a, b), n in zip(pad, spatial, strict=True))
    assert len(crop) == rank
    return out[(slice(None), slice(None), *crop)]


W1, B1 = floats(6, 4, 3), floats(6)
W3 = floats(3, 2, 2, 3, 2)
W2, W2G, W2D = floats(6, 4, 3, 2), floats(6, 2, 3, 3), floats(8, 1, 3, 3)
WT1, WT2 = floats(4, 3, 4), floats(4, 3, 3, 2)
CONV = [
    case("conv1d", "conv", {"x": floats(2, 4, 30)}, lambda x: conv(x, W1, B1), weight=W1, bias=B1),
    case(
        "conv1d_same", "conv", {"x": floats(1, 4, 30)}, lambda x: conv(x, W1, pad=[(1, 1)]), weight=W1, pad_type="same"
    ),
    case(
        "conv1d_stride",
        "conv",
        {"x": floats(1, 4, 31)},
        lambda x: conv(x, W1, stride=[2], pad=[(1, 1)]),
        weight=W1,
        strides=[2],
        pad_type="custom",
        pad=[1, 1],
    ),
    case(
        "conv1d_dilated",
        "conv",
        {"x": floats(1, 4, 31)},
        lambda x: conv(x, W1, dilation=[3], pad=[(2, 0)]),
        weight=W1,
        dilations=[3],
        pad_type="custom",
        pad=[2, 0],
    ),
    case("conv2d", "conv", {"x": floats(2, 4, 9, 11)}, lambda x: conv(x, W2), weight=W2),
    case(
        "conv2d_same",
        "conv",
        {"x": floats(2, 4, 9, 11)},
        lambda x: conv(x, W2, stride=[2, 2], pad=[(1, 1), (0, 1)]),
        weight=W2,
        strides=[2, 2],
        pad_type="same",
    ),
    case(
        "conv2d_same_lower",
        "conv",
        {"x": floats(2, 4, 9, 11)},
        lambda x: conv(x, W2, pad=[(1, 1), (1, 0)]),
        weight=W2,
        pad_type="same_lower",
    ),
    case(
        "conv2d_groups",
        "conv",
        {"x": floats(2, 4, 9, 11)},
        lambda x: conv(x, W2G, groups=2, pad=[(1, 1), (1, 1)]),
        weight=W2G,
        groups=2,
        pad_type="custom",
        pad=[1, 1, 1, 1],
    ),
    case(
        "conv2d_depthwise", "conv", {"x": floats(1, 8, 9, 11)}, lambda x: conv(x, W2D, groups=8), weight=W2D, groups=8
    ),
    case(
        "conv2d_pointwise",
        "conv",
        {"x": floats(2, 4, 9, 11)},
        lambda x: conv(x, W2[:, :, :1, :1]),
        weight=W2[:, :, :1, :1].copy(),
    ),
    case(
        "conv3d",
        "conv",
        {"x": floats(1, 2, 5, 6, 7)},
        lambda x: conv(x, W3, stride=[1, 2, 1]),
        weight=W3,
        strides=[1, 2, 1],
    ),
    case(
        "conv_transpose1d",
        "conv_transpose",
        {"x": floats(2, 4, 9)},
        lambda x: conv_transpose(x, WT1, [2], [(0, 0)]),
        weight=WT1,
        strides=[2],
    ),
    case(
        "conv_transpose2d",
        "conv_transpose",
        {"x": floats(2, 4, 5, 6)},
        lambda x: conv_transpose(x, WT2, [2, 1], [(1, 0), (0, 1)]),
        weight=WT2,
        strides=[2, 1],
        pad_type="custom",
        pad=[1, 0, 0, 1],
    ),
    case(
        "conv_transpose_groups",
        "conv_transpose",
        {"x": floats(1, 4, 5, 6)},
        lambda x: conv_transpose(x, WT2, [2, 2], [(0, 0), (0, 0)], 2),
        weight=WT2,
        strides=[2, 2],
        groups=2,
    ),
]


def pool(
    x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[tuple[int, int]], how: str
) -> np.ndarray:
    rank = x.ndim - 2
    axes = tuple(range(2 + rank, 2 + 2 * rank))
    if how == "max":
        return windows(x, kernel, stride, pad, [1] * rank, -np.inf).max(axes)
    if how == "l2":
        return np.sqrt((windows(x, kernel, stride, pad, [1] * rank) ** 2).sum(axes))
    seen = windows(x, kernel, stride, pad, [1] * rank, np.nan if how == "exclude" else 0.0)
    return np.nanmean(seen, axes)


def linear_resize(x: np.ndarray, at: Sequence[np.ndarray]) -> np.ndarray:
    from scipy.ndimage import map_coordinates

    grid = np.meshgrid(*at, indexing="ij")
    planes = [
        map_coordinates(plane.astype(np.float64), grid, order=1, mode="nearest")
        for plane in x.reshape(-1, *x.shape[-2:])
    ]
    return np.stack(planes).reshape(*x.shape[:-2], *grid[0].shape)


def half_pixel(size: int, out: int) -> np.ndarray:
    return np.clip((np.arange(out) + 0.5) * size / out - 0.5, 0, size - 1)


IMAGE = floats(1, 2, 5, 7)
POOL = [
    case(
        "max_pool",
        "max_pool",
        {"x": floats(2, 3, 9, 11)},
        lambda x: pool(x, [3, 2], [2, 2], [(0, 0), (0, 0)], "max"),
        kernel_sizes=[3, 2],
        strides=[2, 2],
        pad_type="valid",
    ),
    case(
        "max_pool_pad",
        "max_pool",
        {"x": floats(2, 3, 9)},
        lambda x: pool(x, [3], [1], [(1, 1)], "max"),
        kernel_sizes=[3],
        strides=[1],
        pad_type="custom",
        pad=[1, 1],
    ),
    case(
        "avg_pool",
        "avg_pool",
        {"x": floats(2, 3, 8, 8)},
        lambda x: pool(x, [2, 2], [2, 2], [(0, 0), (0, 0)], "mean"),
        kernel_sizes=[2, 2],
        strides=[2, 2],
        pad_type="valid",
    ),
    case(
        "avg_pool_pad",
        "avg_pool",
        {"x": floats(2, 3, 8, 8)},
        lambda x: pool(x, [3, 3], [2, 2], [(1, 1), (1, 1)], "mean"),
        kernel_sizes=[3, 3],
        strides=[2, 2],
        pad_type="custom",
        pad=[1, 1, 1, 1],
    ),
    case(
        "avg_pool_exclude",
        "avg_pool",
        {"x": floats(2, 3, 8, 8)},
        lambda x: pool(x, [3, 3], [2, 2], [(1, 1), (1, 1)], "exclude"),
        kernel_sizes=[3, 3],
        strides=[2, 2],
        pad_type="custom",
        pad=[1, 1, 1, 1],
        exclude_padding_from_average=True,
    ),
    case(
        "avg_pool_same",
        "avg_pool",
        {"x": floats(1, 2, 7, 7)},
        lambda x: pool(x, [2, 2], [2, 2], [(0, 1), (0, 1)], "exclude"),
        kernel_sizes=[2, 2],
        strides=[2, 2],
        pad_type="same",
        exclude_padding_from_average=True,
    ),
    case(
        "l2_pool",
        "l2_pool",
        {"x": floats(2, 3, 8)},
        lambda x: pool(x, [2], [2], [(0, 0)], "l2"),
        kernel_sizes=[2],
        strides=[2],
        pad_type="valid",
    ),
    case(
        "upsample_nearest",
        "upsample_nearest_neighbor",
        {"x": IMAGE},
        lambda x: x.repeat(2, 2).repeat(3, 3),
        scale_factor_height=2,
        scale_factor_width=3,
    ),
    case(
        "resize_nearest",
        "resize_nearest_neighbor",
        {"x": IMAGE},
        lambda x: x.repeat(2, 2).repeat(2, 3),
        target_size_height=10,
        target_size_width=14,
    ),
    case(
        "upsample_bilinear",
        "upsample_bilinear",
        {"x": IMAGE},
        lambda x: linear_resize(x, [half_pixel(5, 10), half_pixel(7, 21)]),
        scale_factor_height=2,
        scale_factor_width=3,
        align_corners=False,
    ),
    case(
        "upsample_corners",
        "upsample_bilinear",
        {"x": IMAGE},
        lambda x: linear_resize(x, [np.linspace(0, 4, 10), np.linspace(0, 6, 14)]),
        scale_factor_height=2,
        scale_factor_width=2,
        align_corners=True,
    ),
    case(
        "resize_bilinear",
        "resize_bilinear",
        {"x": IMAGE},
        lambda x: linear_resize(x, [half_pixel(5, 3), half_pixel(7, 4)]),
        target_size_height=3,
        target_size_width=4,
        sampling_mode="UNALIGN_CORNERS",
    ),
    case(
        "resize_default",
        "resize_bilinear",
        {"x": IMAGE},
        lambda x: linear_resize(x, [np.arange(10) * 0.5, np.arange(14) * 0.5]),
        target_size_height=10,
        target_size_width=14,
        sampling_mode="DEFAULT",
    ),
    case(
        "pixel_shuffle",
        "pixel_shuffle",
        {"x": floats(1, 8, 2, 3)},
        lambda x: x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6),
        upscale_factor=2,
    ),
    case(
        "pixel_unshuffle",
        "pixel_unshuffle",
        {"x": floats(1, 2, 4, 6)},
        lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 3),
        downscale_factor=np.uint32(2),
    ),
    case(
        "depth_to_space",
        "depth_to_space",
        {"x": floats(1, 8, 2, 3)},
        lambda x: x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6),
        block_size=2,
    ),
    case(
        "space_to_depth",
        "space_to_depth",
        {"x": floats(1, 2, 4, 6)},
        lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3),
        block_size=2,
    ),
]
