"""Convolutional networks of well-known shape, written in torch and converted, against torch itself.

The graphs are ours; layer kinds and wiring are those of a residual classifier (bottlenecks, strided 7x7 stem, global
pooling) and of a one-stage detector (pyramid pooling, upsampling, concatenation, transposed convolution, two heads).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("coremltools")

import torch
from torch_models import Detector, ResNet, settle
from torch_packages import TensorType, largest_difference, rounded, save

import kvbacking as kvb

SHAPE = (2, 3, 64, 96)
NETWORKS = {"resnet": (ResNet, ["scores"]), "detector": (Detector, ["fine", "coarse"])}
TOLERANCE = {"fp16": 2e-3, "fp32": 2e-6}


@pytest.mark.parametrize(
    ("target", "precision", "front_end"),
    [("iOS15", "fp32", "trace"), ("iOS17", "fp32", "export"), ("iOS18", "fp16", "trace")],
)
@pytest.mark.parametrize("network", NETWORKS)
def test_network(tmp_path: Path, network: str, target: str, precision: str, front_end: str) -> None:
    kind, names = NETWORKS[network]
    module, path = rounded(settle(kind())), tmp_path / "network.mlpackage"
    save(
        module,
        [torch.zeros(SHAPE)],
        path,
        inputs=[TensorType(name="image", shape=SHAPE, dtype=np.float32)],
        outputs=[TensorType(name=name, dtype=np.float32) for name in names],
        target=target,
        precision=precision,
        front_end=front_end,
    )
    image = torch.rand(SHAPE, generator=torch.Generator().manual_seed(4))
    got = kvb.Model.load(path).predict({"image": image.numpy()})
    with torch.inference_mode():
        wanted = module(image)
    for name, want in zip(names, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert want.abs().max() > 0.1
        assert largest_difference(got[name], want) < TOLERANCE[precision], name
