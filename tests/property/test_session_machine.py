"""Any order of calls on a session: a plain-Python model of the sets says what must happen, and views never change.

The short form always runs; the long one is marked slow (KVB_MACHINE_MINUTES, 10 by default).
"""

from __future__ import annotations

import gc
import os
import time
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import kvbacking as kvb
from kvbacking import samples

WRONG_INPUTS: tuple[Any, ...] = (
    None, 3, [], {}, {"features": None}, {"features": np.zeros((1, 30, 95), np.float16)},
    {"features": np.zeros((1, 30, 96), np.float64)}, {"features": np.zeros((1, 30, 96), np.float16), "more": 1},
    {"features": b"\x00" * 7}, {"features": np.array("text")}, {"features": np.zeros((0,), np.float16)}, {1: 2},
    {"features": memoryview(b"")}, {"features": [[0.0] * 96] * 30},
)  # fmt: skip
WRONG_OPTIONS: tuple[dict[str, Any], ...] = (
    {"live": -1}, {"live": 37}, {"live": "30"}, {"live": 2**70}, {"live": 1.5}, {"state": 3}, {"live": True},
)  # fmt: skip
REFUSED = (kvb.ContractError, ValueError, TypeError, OverflowError)


class Held:
    """A prediction with what its outputs were, and the views made from it."""

    def __init__(self, prediction: kvb.Prediction, seed: int) -> None:
        self.prediction: kvb.Prediction | None = prediction
        self.seed = seed
        self.released = False
        self.views: list[tuple[np.ndarray, np.ndarray]] = []
        self.is_of_the_quarantined_group = False

    @property
    def busy(self) -> bool:
        return bool(self.views) or (self.prediction is not None and not self.released)


class SessionMachine(RuleBasedStateMachine):
    """One session of random mechanism, depth and verify level."""

    model: ClassVar[kvb.Model]
    contract: ClassVar[kvb.KVContract]
    info: ClassVar[samples.SampleInfo]

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []
        self.expected: dict[int, dict[str, np.ndarray]] = {}

    @initialize(
        mechanism=st.sampled_from(["framework", "raw", "surface", "pool"]),
        depth=st.integers(1, 3),
        verify=st.sampled_from(["off", "layout", "scan", "full"]),
        reuse=st.sampled_from([None, "same", "rewrap", "new"]),
    )
    def open(self, mechanism: Any, depth: int, verify: Any, reuse: Any) -> None:
        self.depth = depth
        self.degraded = False
        self.session = kvb.Session(
            self.model, self.contract, mechanism=mechanism, depth=depth, verify=verify, reuse=reuse
        )

    def busy(self) -> int:
        self.held = [h for h in self.held if h.busy or h.prediction is not None]
        return sum(h.busy and not h.is_of_the_quarantined_group for h in self.held)

    @rule(seed=st.integers(0, 5), live=st.one_of(st.none(), st.integers(1, 30)))
    def predict(self, seed: int, live: int | None) -> None:
        inputs = self.info.inputs(seed=seed)
        if self.session.closed:
            with pytest.raises(ValueError, match="closed"):
                self.session.predict(inputs, live=live)
        elif self.busy() >= self.depth:
            with pytest.raises(kvb.BackingInUseError):
                self.session.predict(inputs, live=live)
        elif live not in (None, 30) and self.session.verify in ("scan", "full"):
            # A shorter live length makes rows of this model part of the tail, which must be zero and is not.
            with pytest.raises(kvb.IntegrityError) as caught:
                self.session.predict(inputs, live=live)
            assert {f.check for f in caught.value.failures} == {"tail_zero"}
            if self.session.stats.degraded_reason and not self.degraded:
                self.degraded = True  # from now on the control, which has sets of its own
                for held in self.held:
                    held.is_of_the_quarantined_group = True
        else:
            prediction = self.session.predict(inputs, live=live)
            assert prediction.live_count == (live or 30)
            self.held.append(Held(prediction, seed))

    @rule(wrong=st.sampled_from(WRONG_INPUTS))
    def predict_wrong_inputs(self, wrong: Any) -> None:
        with pytest.raises((*REFUSED, kvb.BackingInUseError)):
            self.session.predict(wrong)

    @rule(wrong=st.sampled_from(WRONG_OPTIONS))
    def predict_wrong_options(self, wrong: dict[str, Any]) -> None:
        with pytest.raises((*REFUSED, kvb.BackingInUseError)):
            self.session.predict(self.info.inputs(), **wrong)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), name=st.sampled_from(["cross_k", "cross_v"]), live=st.booleans())
    def look(self, data: st.DataObject, name: str, live: bool) -> None:
        held = data.draw(st.sampled_from(self.held))
        if held.prediction is None:
            return
        if held.released:
            with pytest.raises(kvb.BackingInUseError):
                _ = held.prediction[name]
            return
        view = held.prediction.live(name) if live else held.prediction[name]
        if held.seed not in self.expected:
            self.expected[held.seed] = self.model.predict(self.info.inputs(seed=held.seed))
        wanted = self.expected[held.seed][name]
        wanted = wanted[:, : held.prediction.live_count] if live else wanted
        np.testing.assert_array_equal(view, wanted)
        held.views.append((view, wanted))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        if held.prediction is not None:
            held.prediction.release()
            held.released = True

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop_prediction(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.held)).prediction = None

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop_views(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.held)).views.clear()

    @rule()
    def check_views(self) -> None:
        for held in self.held:
            for view, wanted in held.views:
                np.testing.assert_array_equal(view, wanted)

    @rule(name=st.sampled_from(["nope", "", 3, None]))
    def ask_for_nothing(self, name: Any) -> None:
        for held in self.held:
            if held.prediction is not None:
                with pytest.raises((KeyError, TypeError)):
                    _ = held.prediction[name]

    @rule()
    def read_everything_else(self) -> None:
        assert self.session.stats.predictions >= 0
        assert repr(self.session)
        for held in self.held:
            if held.prediction is not None:
                assert set(held.prediction.evidence) == {"cross_k", "cross_v"}
                assert repr(held.prediction)

    @precondition(lambda self: len(self.held) > 1)
    @rule()
    def close(self) -> None:
        self.session.close()

    def teardown(self) -> None:
        self.check_views()
        if hasattr(self, "session"):
            self.session.close()
            self.check_views()


@pytest.fixture
def machine(model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo) -> type[SessionMachine]:
    fields = {"model": model, "contract": contract, "info": small}
    return type("BoundSessionMachine", (SessionMachine,), fields)


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")
def test_any_order_of_calls(machine: type[SessionMachine]) -> None:
    rules = settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=CHECKS)
    run_state_machine_as_test(machine, settings=rules)
    gc.collect()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")
def test_any_order_of_calls_for_minutes(machine: type[SessionMachine]) -> None:
    until = time.monotonic() + 60 * float(os.environ.get("KVB_MACHINE_MINUTES", "10"))
    while time.monotonic() < until:
        rules = settings(max_examples=100, stateful_step_count=60, deadline=None, suppress_health_check=CHECKS)
        run_state_machine_as_test(machine, settings=rules)
