"""One suite over every mechanism and over whatever runtime this is: nothing here may need the simulator.

On the simulator a proposal is accepted, so `expected_path` is exact; on Core ML a framework that ignores one is a
finding for `prove`, and the suite still demands right bytes and honest evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

MECHANISMS = ("framework", "raw", "surface", "pool")


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[m for m in MECHANISMS if m != "framework"])
def proposing(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def expected_paths() -> Callable[[str], tuple[str, ...]]:
    simulated = kvb.runtime_info().kind == "simulator"

    def paths(mechanism: str) -> tuple[str, ...]:
        if mechanism == "framework":
            return ("framework",)
        return ("backing",) if simulated else ("backing", "copy")

    return paths


@pytest.fixture
def inputs(small: samples.SampleInfo) -> dict[str, np.ndarray]:
    return small.inputs(seed=1)


@pytest.fixture
def other_inputs(small: samples.SampleInfo) -> dict[str, np.ndarray]:
    return small.inputs(seed=2)


@pytest.fixture
def expected(small: samples.SampleInfo) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """expected(inputs): K and V in float32 by NumPy, the tail zero."""

    def project(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        features = inputs["features"].astype(np.float32)
        outputs = {}
        for name, which in (("cross_k", "key"), ("cross_v", "value")):
            rows = np.einsum("brw,low->lro", features, small.weights[which])
            if which == "value":
                rows = rows + small.weights["value_bias"][:, None, :]
            tail = small.options["capacity"] - small.options["rows"]
            outputs[name] = np.pad(rows, ((0, 0), (0, tail), (0, 0)))
        return outputs

    return project


@pytest.fixture
def open_session(model: kvb.Model, contract: kvb.KVContract) -> Iterator[Callable[..., kvb.Session]]:
    """open_session(mechanism, **options): closed at the end of the test."""
    opened: list[kvb.Session] = []

    def make(mechanism: str, **options: Any) -> kvb.Session:
        opened.append(kvb.Session(model, contract, mechanism=mechanism, **options))
        return opened[-1]

    yield make
    for session in opened:
        session.close()


@pytest.fixture(autouse=True)
def _ignored_backings_are_no_failure_on_core_ml(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    if kvb.runtime_info().kind == "simulator":
        assert not [w for w in recwarn if issubclass(w.category, kvb.BackingIgnoredWarning)]
