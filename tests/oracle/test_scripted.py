"""Branches and loops on data, scripted in torch, against torch itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("coremltools")

import torch
from torch import Tensor, nn
from torch_models import settle
from torch_packages import TensorType, largest_difference, save

import kvbacking as kvb


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x) if x.sum() > 0 else self.two(x).relu()
        return y + 1


class Halve(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.net(x)
        while bool(x.abs().sum() > 1.0):
            x = x * 0.5 + 0.001
        return x


@pytest.mark.parametrize("kind", [Branch, Halve])
def test_scripted(tmp_path: Path, kind: type[nn.Module]) -> None:
    module, path = settle(kind()), tmp_path / "scripted.mlpackage"
    save(
        module,
        [torch.zeros(3, 8)],
        path,
        inputs=[TensorType(name="x", shape=(3, 8), dtype=np.float32)],
        outputs=[TensorType(name="y")],
        target="iOS17",
        precision="fp32",
        front_end="script",
    )
    model = kvb.Model.load(path)
    base = torch.rand(3, 8, generator=torch.Generator().manual_seed(2))
    for x in (base, -base, base * 20, base * 0.001):
        with torch.inference_mode():
            want = module(x)
        assert largest_difference(model.predict({"x": x.numpy()})["y"], want) < 1e-5
