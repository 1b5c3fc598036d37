"""The fault suite runs on the simulator only: real Core ML cannot be told to misbehave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

if kvb.runtime_info().kind != "simulator":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def _well_behaved() -> Iterator[None]:
    """No test inherits or leaves a fault."""
    from kvbacking import simulator

    simulator.reset()
    yield
    simulator.reset()


@pytest.fixture
def inputs(small: samples.SampleInfo) -> dict[str, np.ndarray]:
    return small.inputs(seed=1)


@pytest.fixture
def other_inputs(small: samples.SampleInfo) -> dict[str, np.ndarray]:
    return small.inputs(seed=2)


@pytest.fixture(scope="session")
def control(model: kvb.Model, small: samples.SampleInfo) -> dict[str, np.ndarray]:
    """What the harmed prediction should have given: the framework's own outputs for seed 1."""
    return {name: array.copy() for name, array in model.predict(small.inputs(seed=1)).items()}
