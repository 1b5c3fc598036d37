"""torch modules to packages by coremltools' own front ends, and what torch says that they compute."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mil_engine import quiet
from torch import nn

with quiet():
    import coremltools as ct

TensorType, StateType, RangeDim = ct.TensorType, ct.StateType, ct.RangeDim


def save(
    module: nn.Module,
    example: Sequence[torch.Tensor],
    path: Path,
    *,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    target: str,
    precision: str = "fp16",
    states: Sequence[Any] = (),
    front_end: str = "trace",
) -> Path:
    """`module` as `path`; `inputs`, `outputs` and `states` are coremltools' descriptions. `precision` is what the
    program declares its weights and intermediate values to be."""
    with quiet(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if front_end == "trace":
            program = torch.jit.trace(module, tuple(example), check_trace=False)
        elif front_end == "script":
            program = torch.jit.script(module)
        else:
            program = torch.export.export(module, tuple(example)).run_decompositions({})
        given = {"inputs": list(inputs)} | ({"states": list(states)} if states else {})
        model = ct.convert(
            program,
            convert_to="mlprogram",
            outputs=list(outputs),
            minimum_deployment_target=getattr(ct.target, target),
            compute_precision=ct.precision.FLOAT16 if precision == "fp16" else ct.precision.FLOAT32,
            skip_model_load=True,
            **given,
        )
        model.save(str(path))
        del model, program
        gc.collect()
    return path


def rounded(module: nn.Module) -> nn.Module:
    """Every weight through fp16, so that a package with fp16 weights holds the same numbers."""
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            if value.is_floating_point():
                value.copy_(value.half().float())
    return module


def largest_difference(got: np.ndarray, want: torch.Tensor) -> float:
    expected = want.detach().numpy().astype(np.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, torch has {expected.shape}"
    assert np.isfinite(got).all(), "not finite"
    return float(np.abs(got.astype(np.float64) - expected).max())
