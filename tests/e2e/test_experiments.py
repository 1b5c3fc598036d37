"""Each hypothesis gets an answer with numbers, and the answer follows from them."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from quiet import QuietProbe

import kvbacking as kvb
from kvbacking import _native, samples
from kvbacking.measure import experiments
from kvbacking.measure.experiments import EXPERIMENTS, run_experiment


def answer(name: str, model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract, **options: Any) -> Any:
    document = run_experiment(
        name, model, small.inputs(seed=1), contract, **{"rounds": 20, "probe": QuietProbe(), **options}
    )
    return json.loads(json.dumps(document, allow_nan=False))


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_answers(
    name: str,
    model: kvb.Model,
    small: samples.SampleInfo,
    contract: kvb.KVContract,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiments, "POOL_CALLS", 5)
    document = answer(name, model, small, contract)
    assert document["answer"] in ("supported", "not supported", "inconclusive")
    assert document["because"]
    assert document["numbers"]
    assert document["simulated"] == (kvb.runtime_info().kind == "simulator")
    for key in ("hypothesis", "variable", "held", "falsified_by"):
        assert document[key]
    if name != "placement-shift":
        assert document["host"]["quiet"]
        assert "unscored" not in document["because"]


def test_the_six_hypotheses_are_all_there() -> None:
    assert list(EXPERIMENTS) == [
        "surface-vs-raw-staging",
        "persistent-pool",
        "autoreleasepool",
        "accelerate-postprocess",
        "placement-shift",
        "many-large-vs-one-small",
    ]


def test_equal_bits_everywhere_cannot_show_a_shift(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    if kvb.runtime_info().kind != "simulator":
        pytest.skip("only the simulator is known to give equal bits")
    document = answer("placement-shift", model, small, contract)
    assert document["answer"] == "inconclusive"
    assert document["numbers"]["arms agree bit by bit"] is True


def test_one_output_is_no_question_of_many(model: kvb.Model, small: samples.SampleInfo) -> None:
    contract = kvb.KVContract.from_model(model, ("cross_k",), 30, 1)
    document = answer("many-large-vs-one-small", model, small, contract)
    assert (document["answer"], document["because"]) == ("inconclusive", "the contract backs one output only")


def test_a_backing_that_is_not_used_supports_nothing(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVBACKING_DISABLE_BACKINGS", "1")
    for name in ("surface-vs-raw-staging", "persistent-pool", "accelerate-postprocess"):
        assert answer(name, model, small, contract)["answer"] == "inconclusive"


def test_the_pool_switch_holds_what_is_released_and_lets_go(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    """The wrappers of inputs die with the pool: with one pool per call at once, with a held one when it drains."""
    inputs = small.inputs(seed=1)

    def arrays(at_most: int) -> int:
        """Live arrays once the framework let go of what it may keep for about a second."""
        deadline = time.monotonic() + 5.0
        while _native.live_counts()["array"] > at_most and time.monotonic() < deadline:
            time.sleep(0.02)
        return _native.live_counts()["array"]

    with kvb.Session(model, contract, mechanism="raw", verify="layout") as session:
        owned = 2 * session.depth  # the session's own wrappers
        for _ in range(5):
            session.predict(inputs).release()
        assert arrays(owned) == owned
        for _ in range(2):  # idempotent
            _native.hold_autorelease_pool(True)
        try:
            for _ in range(5):
                session.predict(inputs).release()
            time.sleep(1.2)
            assert arrays(owned + 5) == owned + 5
        finally:
            for _ in range(2):
                _native.hold_autorelease_pool(False)
        assert arrays(owned) == owned
    assert arrays(0) == 0


def test_half_conversion_is_exact_and_refuses_what_it_cannot() -> None:
    half = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(256, 256)
    out = np.empty(half.shape, np.float32)
    _native.convert_half_to_float(half, out)
    np.testing.assert_array_equal(out, half.astype(np.float32))
    assert _native.half_conversion_engine() in ("vImage", "Highway")
    for source, target in ((half[:, ::2], out[:, ::2]), (half, out[:10]), (half, out.astype(np.float64))):
        with pytest.raises(ValueError, match="dense float16"):
            _native.convert_half_to_float(source, target)
