"""Single layers whose conversion meets rarer operations, traced from torch, against torch itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("coremltools")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_models import settle
from torch_packages import TensorType, largest_difference, save

import kvbacking as kvb

IMAGE, SEQUENCE = (2, 3, 9, 11), (2, 7, 6)


class Layer(nn.Module):
    def __init__(self, function: Callable[..., Tensor | tuple[Tensor, ...]], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.function(self, x)
        return found if isinstance(found, tuple) else (found,)


def sampled(mode: str, padding: str, corners: bool) -> Callable[[Layer, Tensor], Tensor]:
    def run(layer: Layer, x: Tensor) -> Tensor:
        grid = torch.tanh(layer.place(x)).permute(0, 2, 3, 1) * 1.5
        return functional.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)

    return run


def warped(layer: Layer, x: Tensor) -> Tensor:
    theta = layer.turn(x.mean((2, 3))).view(-1, 2, 3)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=True)
    return functional.grid_sample(x, grid, align_corners=True)


def resized(**how: object) -> Callable[[Layer, Tensor], Tensor]:
    return lambda layer, x: functional.interpolate(x, **how)


LAYERS: dict[str, tuple[Callable[[], Layer], tuple[int, ...]]] = {
    "lstm": (lambda: Layer(lambda m, x: m.net(x)[0], net=nn.LSTM(6, 5, batch_first=True)), SEQUENCE),
    "lstm_stack": (lambda: Layer(lambda m, x: m.net(x)[0], net=nn.LSTM(6, 5, 2, batch_first=True)), SEQUENCE),
    "lstm_both": (
        lambda: Layer(lambda m, x: m.net(x)[0], net=nn.LSTM(6, 5, bidirectional=True, batch_first=True)),
        SEQUENCE,
    ),
    "lstm_states": (lambda: Layer(lambda m, x: (m.net(x)[0], *m.net(x)[1]), net=nn.LSTM(6, 5)), SEQUENCE),
    "rnn": (lambda: Layer(lambda m, x: m.net(x)[0], net=nn.RNN(6, 5)), SEQUENCE),
    "sort": (lambda: Layer(lambda m, x: torch.sort(x, dim=1).values), SEQUENCE),
    "topk": (lambda: Layer(lambda m, x: torch.topk(x, 3, dim=1).values), SEQUENCE),
    "conv_transpose": (
        lambda: Layer(lambda m, x: m.net(x), net=nn.ConvTranspose2d(3, 6, 3, 2, padding=1, output_padding=1, groups=3)),
        IMAGE,
    ),
    "conv_transpose_dilated": (
        lambda: Layer(lambda m, x: m.net(x), net=nn.ConvTranspose2d(3, 4, 3, 2, padding=2, dilation=2)),
        IMAGE,
    ),
    **{
        f"grid_sample_{mode}_{padding}_{corners}": (
            lambda mode=mode, padding=padding, corners=corners: Layer(
                sampled(mode, padding, corners), place=nn.Conv2d(3, 2, 3, padding=1)
            ),
            IMAGE,
        )
        for mode, padding, corners in [
            ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", True),
            ("nearest", "zeros", True),
        ]
    },
    "affine_grid": (lambda: Layer(warped, turn=nn.Linear(3, 6)), IMAGE),
    "bilinear": (lambda: Layer(resized(size=(14, 5), mode="bilinear", align_corners=False)), IMAGE),
    "bilinear_corners": (lambda: Layer(resized(scale_factor=2.0, mode="bilinear", align_corners=True)), IMAGE),
    "nearest": (lambda: Layer(resized(scale_factor=3.0, mode="nearest")), IMAGE),
    "ceil_pool": (lambda: Layer(lambda m, x: functional.max_pool2d(x, 3, 2, 1, ceil_mode=True)), IMAGE),
    "average_pool": (lambda: Layer(lambda m, x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)), IMAGE),
    "average_ceil": (lambda: Layer(lambda m, x: functional.avg_pool2d(x, 2, 2, ceil_mode=True)), IMAGE),
    "group_norm": (
        lambda: Layer(lambda m, x: m.net(m.wide(x)), wide=nn.Conv2d(3, 8, 1), net=nn.GroupNorm(4, 8)), IMAGE,
    ),
    "instance_norm": (lambda: Layer(lambda m, x: m.net(x), net=nn.InstanceNorm2d(3, affine=True)), IMAGE),
    "prelu": (lambda: Layer(lambda m, x: m.net(x), net=nn.PReLU(3)), IMAGE),
    "pixel_shuffle": (
        lambda: Layer(lambda m, x: functional.pixel_shuffle(m.wide(x), 2), wide=nn.Conv2d(3, 8, 1)), IMAGE,
    ),
    "reflection_pad": (lambda: Layer(lambda m, x: functional.pad(x, (2, 1, 3, 0), mode="reflect")), IMAGE),
    "attention": (
        lambda: Layer(lambda m, x: m.net(x, x, x, need_weights=False)[0], net=nn.MultiheadAttention(6, 2)),
        SEQUENCE,
    ),
    "encoder_layer": (
        lambda: Layer(lambda m, x: m.net(x), net=nn.TransformerEncoderLayer(6, 2, 12, norm_first=True)),
        SEQUENCE,
    ),
}  # fmt: skip

# The converter ends a group norm in a batch norm of mean 0, variance 1 and epsilon 1e-5: five millionths too small.
TOLERANCE = {"group_norm": 3e-5}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(tmp_path: Path, name: str) -> None:
    make, shape = LAYERS[name]
    module, path = settle(make()), tmp_path / "layer.mlpackage"
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        wanted = module(x)
    save(
        module,
        [torch.zeros(shape)],
        path,
        inputs=[TensorType(name="x", shape=shape, dtype=np.float32)],
        outputs=[TensorType(name=f"y{i}") for i in range(len(wanted))],
        target="iOS17",
        precision="fp32",
    )
    got = kvb.Model.load(path).predict({"x": x.numpy()})
    for i, want in enumerate(wanted):
        assert largest_difference(got[f"y{i}"], want) < TOLERANCE.get(name, 1e-5), f"output {i}"
