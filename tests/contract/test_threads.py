"""Many threads on one session, many sessions on one model: right bytes, no deadlock, nothing left over.

The short form always runs; the long one (2,000 predictions each way) is marked slow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

pytestmark = pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning")
THREADS = 8


def run_threads(work: Callable[[int], None], timeout_s: float) -> None:
    problems: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def guarded(index: int) -> None:
        try:
            start.wait(timeout=30)
            work(index)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=(index,), daemon=True) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=timeout_s)
        assert not thread.is_alive(), "a thread did not come back: deadlock"
    assert not problems, problems


def one_session(
    model: kvb.Model, contract: kvb.KVContract, info: samples.SampleInfo, mechanism: str, each: int
) -> None:
    inputs = [info.inputs(seed=seed) for seed in range(4)]
    wanted = [model.predict(given) for given in inputs]
    refusals: list[int] = []
    with kvb.Session(model, contract, mechanism=mechanism, depth=4) as session:  # fewer sets than threads

        def work(index: int) -> None:
            done = refused = 0
            while done < each:
                which = (index + done) % len(inputs)
                try:
                    prediction = session.predict(inputs[which])
                except kvb.BackingInUseError:
                    refused += 1
                    continue
                view = prediction["cross_v"]
                prediction.release()
                np.testing.assert_array_equal(view, wanted[which]["cross_v"])
                del view
                done += 1
            refusals.append(refused)

        run_threads(work, timeout_s=600)
        stats = session.stats
        assert stats.predictions == THREADS * each
        assert stats.backing_in_use == sum(refusals)
        assert stats.failed == 0


def many_sessions(
    model: kvb.Model, contract: kvb.KVContract, info: samples.SampleInfo, mechanism: str, each: int
) -> None:
    inputs = [info.inputs(seed=seed) for seed in range(4)]
    wanted = [model.predict(given) for given in inputs]

    def work(index: int) -> None:
        with kvb.Session(model, contract, mechanism=mechanism, depth=1) as session:
            for done in range(each):
                which = (index + done) % len(inputs)
                prediction = session.predict(inputs[which])
                np.testing.assert_array_equal(prediction["cross_k"], wanted[which]["cross_k"])
                prediction.release()
            assert session.stats.predictions == each

    run_threads(work, timeout_s=600)


@pytest.mark.parametrize("run", [one_session, many_sessions])
def test_two_hundred_predictions(
    model: kvb.Model,
    contract: kvb.KVContract,
    small: samples.SampleInfo,
    mechanism: str,
    run: Callable[..., None],
    settled: Any,
) -> None:
    before = settled()
    run(model, contract, small, mechanism, 25)
    assert settled(before) == before


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("run", [one_session, many_sessions])
def test_two_thousand_predictions(
    model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo, mechanism: str, run: Callable[..., None]
) -> None:
    run(model, contract, small, mechanism, 250)


def test_loading_and_closing_at_once(small: samples.SampleInfo, settled: Any) -> None:
    before = settled()

    def work(index: int) -> None:
        model = kvb.Model.load(small.path)
        contract = kvb.KVContract.from_model(model, **small.contract)
        for mechanism in ("framework", "raw", "surface", "pool"):
            with kvb.Session(model, contract, mechanism=mechanism) as session:
                view = session.predict(small.inputs(seed=index))["cross_k"]
            assert view.any()

    run_threads(work, timeout_s=120)
    assert settled(before) == before
