"""One state, two users at once: refused, never mixed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import kvbacking as kvb
from kvbacking import samples

if sys.platform == "darwin":
    pytest.skip("needs a framework that is slow on demand", allow_module_level=True)

from kvbacking.simulator import faults, reset_violations, violations


def test_a_state_in_use_is_refused_and_stays_right(package: Callable[..., samples.SampleInfo]) -> None:
    info = package("stateful")
    model = kvb.Model.load(info.path)
    state, control = model.new_state(), model.new_state()
    name, inputs = next(iter(model.states)), info.inputs(seed=1)
    finished: list[Any] = []
    reset_violations()
    with faults(latency=600):
        thread = threading.Thread(target=lambda: finished.append(model.predict(inputs, state=state)))
        thread.start()
        time.sleep(0.2)
        for use in (
            lambda: state.read(name),
            state.zero,
            state.snapshot,
            lambda: model.predict(inputs, state=state),
        ):
            with pytest.raises(kvb.BackingInUseError):
                use()
        thread.join()
    assert len(finished) == 1
    model.predict(inputs, state=control)
    assert (state.read(name) == control.read(name)).all()
    assert not any(violations().values())
