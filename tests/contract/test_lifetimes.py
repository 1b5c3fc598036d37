"""Who keeps what alive: sets are busy while seen, views outlive everything, nothing leaks, nothing is a cycle."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

pytestmark = pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning")
Opener = Callable[..., kvb.Session]


def test_a_view_keeps_its_set_busy(open_session: Opener, mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism, depth=1)
    prediction = session.predict(inputs)
    view = prediction["cross_k"]
    part = view[0, :2]
    prediction.release()
    del prediction, view
    with pytest.raises(kvb.BackingInUseError, match="depth") as caught:
        session.predict(inputs)
    assert isinstance(caught.value, BufferError)
    assert session.stats.backing_in_use == 1
    del part
    session.predict(inputs)


def test_a_prediction_keeps_its_set_busy(open_session: Opener, mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism, depth=1)
    prediction = session.predict(inputs)
    with pytest.raises(kvb.BackingInUseError):
        session.predict(inputs)
    prediction.release()
    prediction.release()
    assert prediction.released
    assert session.predict(inputs) is not prediction


def test_after_release_access_raises_and_views_stay(open_session: Opener, mechanism: str, inputs: Any) -> None:
    prediction = open_session(mechanism).predict(inputs)
    view = prediction["cross_v"]
    before = view.copy()
    prediction.release()
    for access in (lambda: prediction["cross_v"], lambda: prediction.live("cross_k")):
        with pytest.raises(kvb.BackingInUseError, match="release"):
            access()
    np.testing.assert_array_equal(view, before)
    assert prediction.evidence["cross_v"].name == "cross_v"


def test_what_somebody_sees_is_never_overwritten(
    open_session: Opener, mechanism: str, inputs: Any, other_inputs: Any
) -> None:
    session = open_session(mechanism, depth=3)
    held = session.predict(inputs)
    view = held["cross_k"]
    before = view.copy()
    held.release()
    for _ in range(4):
        session.predict(other_inputs).release()
    np.testing.assert_array_equal(view, before)


def test_views_outlive_session_and_model(
    small: samples.SampleInfo, mechanism: str, inputs: Any, settled: Callable[..., dict[str, int]]
) -> None:
    before = settled()
    model = kvb.Model.load(small.path)
    session = kvb.Session(model, kvb.KVContract.from_model(model, **small.contract), mechanism=mechanism)
    prediction = session.predict(inputs)
    view = prediction["cross_k"]
    copy = view.copy()
    session.close()
    session.close()
    assert session.closed
    np.testing.assert_array_equal(prediction["cross_k"], copy)
    with pytest.raises(ValueError, match="closed"):
        session.predict(inputs)
    del session, model, prediction
    gc.collect()
    np.testing.assert_array_equal(view, copy)
    del view
    assert settled(before) == before


def test_nothing_accumulates(
    open_session: Opener, mechanism: str, inputs: Any, settled: Callable[..., dict[str, int]]
) -> None:
    session = open_session(mechanism)
    session.predict(inputs).release()
    before = settled()
    for _ in range(20):
        prediction = session.predict(inputs)
        assert prediction["cross_k"].shape
        del prediction
    assert settled(before) == before


def test_no_reference_cycles(open_session: Opener, mechanism: str, inputs: Any) -> None:
    """A cycle would keep a set busy until the collector happens to run."""
    session = open_session(mechanism, depth=1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            prediction = session.predict(inputs)
            view = prediction["cross_k"]
            assert prediction.evidence["cross_k"].name
            prediction_dies, view_dies = weakref.ref(prediction), weakref.ref(view)
            del prediction, view
            assert prediction_dies() is None
            assert view_dies() is None
        session_dies = weakref.ref(kvb.Session(session.model, session.contract, mechanism=mechanism))
        assert session_dies() is None
    finally:
        gc.enable()


def test_the_caller_s_arrays_are_let_go_of(open_session: Opener, mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism)
    array = inputs["features"].copy()
    count = sys.getrefcount(array)
    prediction = session.predict({"features": array})
    assert sys.getrefcount(array) == count
    del prediction


def test_inputs_may_change_right_after_the_call(
    open_session: Opener, mechanism: str, inputs: Any, expected: Any
) -> None:
    session = open_session(mechanism)
    wanted = expected(inputs)
    array = inputs["features"].copy()
    prediction = session.predict({"features": array})
    array[...] = 0
    np.testing.assert_allclose(prediction["cross_k"].astype(np.float32), wanted["cross_k"], rtol=4e-3, atol=4e-3)


def test_threads_share_one_session(
    open_session: Opener, mechanism: str, inputs: Any, other_inputs: Any, expected: Any
) -> None:
    session = open_session(mechanism, depth=4)
    cases = [(inputs, expected(inputs)), (other_inputs, expected(other_inputs))]
    problems: list[BaseException] = []

    def work(which: int) -> None:
        try:
            for _ in range(10):
                given, wanted = cases[which % 2]
                prediction = session.predict(given)
                np.testing.assert_allclose(
                    prediction["cross_v"].astype(np.float32), wanted["cross_v"], rtol=4e-3, atol=4e-3
                )
                prediction.release()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert not problems, problems
    assert session.stats.predictions == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_use_after_fork_raises(small: samples.SampleInfo, mechanism: str, tmp_path: Path) -> None:
    script = tmp_path / "fork.py"
    script.write_text(
        f"""
import os, sys, warnings
import kvbacking as kvb
from kvbacking.random_inputs import random_inputs
warnings.simplefilter("ignore")
model = kvb.Model.load({str(small.path)!r})
contract = kvb.KVContract.from_model(model, ("cross_k", "cross_v"), live=30)
inputs = random_inputs(model)
session = kvb.Session(model, contract, mechanism={mechanism!r})
held = session.predict(inputs)
child = os.fork()
if child == 0:
    code = 0
    for use in (lambda: session.predict(inputs), lambda: model.predict(inputs),
                lambda: kvb.Session(model, contract), lambda: kvb.Model.load({str(small.path)!r})):
        try:
            use()
            code = 1
        except kvb.UnsupportedPlatformError as error:
            code = code or (0 if "fork" in str(error) else 2)
    os._exit(code)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
session.predict(inputs)
print("fine")
"""
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().endswith("fine")
