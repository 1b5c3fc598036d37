"""Steady state: memory stays flat and native objects do not accumulate, whatever the mechanism.

The long form is the budget: 10,000 predictions, the median footprint of the last 1,000 at most 1 MiB above that of
predictions 1,000 to 2,000. The short form runs always: 500 predictions, the last 100 against 100 to 200.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

import kvbacking as kvb
from kvbacking import _native, samples

MIB = 1 << 20
COMFORTABLE = 8  # input buffers that a model keeps when nothing lags
MECHANISMS = ("framework", "raw", "surface", "pool")


@pytest.fixture
def run(
    model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo, settled: Callable[..., Any]
) -> Callable[[str, int], None]:
    return lambda mechanism, count: predict_many(model, contract, small, mechanism, count, settled)


def predict_many(
    model: kvb.Model,
    contract: kvb.KVContract,
    info: samples.SampleInfo,
    mechanism: str,
    count: int,
    settled: Callable[..., Any],
) -> None:
    inputs = [info.inputs(seed=seed) for seed in range(4)]
    window = count // 10
    footprints: list[int] = []
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        for index in range(count):
            if index == window:
                before = settled()
            prediction = session.predict(inputs[index % len(inputs)])
            live = prediction.live("cross_k")
            assert live.shape[1] == contract.live
            del live, prediction
            if _native.live_counts()["input"] > 2 * COMFORTABLE:
                time.sleep(0.005)  # the framework's own thread lags on a busy machine; what it still holds is no growth
            footprints.append(_native.memory_footprint_byte_count())
        assert settled(before) == before
        assert session.stats.predictions == count
        assert session.stats.failed == 0
    grown = statistics.median(footprints[-window:]) - statistics.median(footprints[window : 2 * window])
    assert grown <= MIB, f"{grown / MIB:.2f} MiB more over {count} predictions"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")
def test_five_hundred_predictions(run: Callable[[str, int], None], mechanism: str) -> None:
    run(mechanism, 500)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")
def test_ten_thousand_predictions(run: Callable[[str, int], None], mechanism: str) -> None:
    run(mechanism, 10_000)
