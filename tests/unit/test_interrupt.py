"""Ctrl-C while a prediction runs: it is said after the framework returned, and the session is as usable as before."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

import kvbacking as kvb
from kvbacking import samples

if sys.platform == "darwin":
    pytest.skip("needs a framework that is slow on demand", allow_module_level=True)

from kvbacking.simulator import faults


@pytest.mark.parametrize("mechanism", ["framework", "raw", "surface", "pool"])
def test_an_interrupted_prediction_leaves_its_set_free(
    model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo, mechanism: str
) -> None:
    inputs = small.inputs()

    def predict_and_notice() -> None:
        session.predict(inputs)
        for _ in range(1000):  # the handler runs at a bytecode after the native call came back
            pass

    with kvb.Session(model, contract, mechanism=mechanism, depth=1) as session:
        with faults(latency=400):
            timer = threading.Timer(0.1, os.kill, args=(os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                predict_and_notice()
            timer.join()
        assert not session.closed
        prediction = session.predict(inputs)
        assert prediction["cross_k"].any()
