"""The faults that are no matter of one prediction: opening, loading, allocating, hanging, dying, overlapping."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import _native, samples, simulator


def open_and_predict(
    model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray], mechanism: Any, times: int = 1
) -> None:
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        for _ in range(times):
            session.predict(inputs).release()


@pytest.mark.parametrize("mechanism", ["raw", "surface", "pool"])
def test_a_disallowed_backing_is_refused_before_any_prediction(
    mechanism: str, model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    with simulator.faults(disallow=("cross_v",)), pytest.raises(kvb.ContractError, match="isAllowedValue") as caught:
        open_and_predict(model, contract, inputs, mechanism)
    assert [(failure.output, failure.check) for failure in caught.value.failures] == [("cross_v", "allowed")]


def test_a_load_error_is_a_model_error_with_the_framework_s_text(small: samples.SampleInfo) -> None:
    with simulator.faults(load_error=True) as injection, pytest.raises(kvb.ModelError, match="simulated"):
        kvb.Model.load(small.path)
    assert injection.fired["load_error"] > 0
    kvb.Model.load(small.path)


def test_an_exception_while_loading_is_a_model_error(small: samples.SampleInfo) -> None:
    with simulator.faults(exception="load"), pytest.raises(kvb.ModelError):
        kvb.Model.load(small.path)
    kvb.Model.load(small.path)


def test_a_compile_error_leaves_nothing_in_the_cache(small: samples.SampleInfo, tmp_path: Path) -> None:
    with simulator.faults(compile_error=True) as injection, pytest.raises(kvb.ModelError, match="simulated"):
        kvb.Model.load(small.path, cache_dir=tmp_path)
    assert injection.fired["compile_error"] == 1
    assert not list(tmp_path.rglob("*.mlmodelc"))
    kvb.Model.load(small.path, cache_dir=tmp_path)
    assert list(tmp_path.rglob("*.mlmodelc"))


@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [("surface", "surface"), ("pixel_buffer", "surface"), ("pool", "pool"), ("pixel_buffer", "pool")],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_allocation_that_fails_is_an_allocation_error_and_the_next_attempt_works(
    kind: str,
    mechanism: str,
    nth: int,
    model: kvb.Model,
    contract: kvb.KVContract,
    inputs: dict[str, np.ndarray],
    settled: Callable[..., dict[str, int]],
) -> None:
    before = settled()
    with simulator.faults(allocation_failure={kind: nth}) as injection:
        message = ""
        try:
            open_and_predict(model, contract, inputs, mechanism, times=3)
        except kvb.AllocationError as error:
            message = str(error)
        assert ("surface" in message) is (injection.fired["allocation_failure"] > 0)
    open_and_predict(model, contract, inputs, mechanism)
    simulator.drain()
    kept = ("allocation", "input")  # buffers that wait for the next prediction's inputs
    after = settled({**before, **{name: settled()[name] for name in kept}})
    assert {k: v for k, v in after.items() if k not in kept} == {k: v for k, v in before.items() if k not in kept}


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_memory_that_cannot_be_had_is_an_allocation_error(
    nth: int, model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    _native.Allocation.fail_nth_create(nth)
    try:
        with pytest.raises(kvb.AllocationError, match="bytes"):
            open_and_predict(model, contract, inputs, "raw")
    finally:
        _native.Allocation.fail_nth_create(0)
    with kvb.Session(model, contract, mechanism="raw", depth=2) as session:
        assert session.predict(inputs).path == "backing"


@pytest.mark.parametrize("fault", ["hang", "crash"])
def test_prove_turns_a_hang_or_a_crash_into_a_termination_failure(
    fault: str, model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    with simulator.faults(**{fault: True}):
        verdict = kvb.prove(model, inputs, contract, mechanisms=("raw",), timeout_s=10)
    assert not verdict.proven
    assert "termination" in verdict.to_json()


@pytest.mark.parametrize("part", ["one_element", "middle"])
@pytest.mark.parametrize("mechanism", ["raw", "surface"])
def test_prove_sees_a_single_element_that_was_not_written(
    part: str, mechanism: str, model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    with simulator.faults(partial_write={"cross_v": part}):
        verdict = kvb.prove(model, inputs, contract, mechanisms=(mechanism,))  # type: ignore[arg-type]
    assert not verdict.proven
    assert "cross_v" in verdict.to_json()
    assert "complete" in verdict.to_json()


def test_predictions_on_one_model_wait_for_each_other(
    model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    simulator.reset_violations()
    failures: list[BaseException] = []
    with simulator.faults(overlap=True, latency=2) as injection:

        def work() -> None:
            try:
                with kvb.Session(model, contract, mechanism="raw", depth=1) as session:
                    for _ in range(5):
                        session.predict(inputs).release()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert injection.fired["overlap"] == 0
    assert simulator.violations()["overlap"] == 0


def test_a_surface_locked_by_being_an_input_fails_where_the_session_allows_it(
    package: Callable[..., samples.SampleInfo],
) -> None:
    info = package("stateful")
    model = kvb.Model.load(info.path)
    others = tuple(name for name in model.outputs if name != "step")
    contract = kvb.KVContract.from_model(model, outputs=("step",), live=1, axis=1, tail="any", unbacked=others)
    given = info.inputs(seed=3)
    surface = kvb.Surface(contract.shapes["step"])
    surface.write(given["hidden"])
    with simulator.faults(input_lock=True) as injection:
        model.predict({**given, "hidden": surface})
        assert injection.fired["input_lock"] > 0
        with kvb.Session(
            model, contract, mechanism="external", storage=[{"step": surface}], allow_input_surfaces=True
        ) as session:
            with pytest.raises(kvb.PredictionError, match="locked"):
                session.predict(given)
            assert session.stats.failed == 1
    simulator.drain()
    with kvb.Session(
        model, contract, mechanism="external", storage=[{"step": surface}], allow_input_surfaces=True
    ) as session:
        assert session.predict(given).path == "backing"  # locked only until the framework let go of the input


@pytest.mark.parametrize("verify", ["off", "layout", "scan", "full"])
@pytest.mark.parametrize("mechanism", ["framework", "raw", "surface"])
def test_a_lent_input_that_changes_meanwhile_is_noticed_where_bytes_are_read(
    mechanism: Any, verify: Any, model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    memory = kvb.page_aligned(inputs["features"].shape)
    memory[...] = inputs["features"]
    done = threading.Event()

    def keep_writing() -> None:
        bits = memory.view(np.uint16)
        while not done.wait(0.005):
            bits[0, 0, 0] = (bits[0, 0, 0] + 1) % 1024

    writer = threading.Thread(target=keep_writing)
    with kvb.Session(model, contract, mechanism=mechanism, verify=verify) as session:
        with simulator.faults(latency=300):
            writer.start()
            try:
                if verify in ("scan", "full"):
                    with pytest.raises(kvb.IntegrityError, match="lent input changed") as caught:
                        session.predict({"features": memory}, borrow=True)
                    assert [(f.output, f.check) for f in caught.value.failures] == [("features", "unchanged")]
                else:
                    prediction = session.predict({"features": memory}, borrow=True)
                    assert prediction.inputs["features"].unchanged is None  # not looked at
            finally:
                done.set()
                writer.join()
        memory[...] = inputs["features"]  # it says nothing against the backings: the session goes on with them
        assert session.predict({"features": memory}, borrow=True).path == (
            "framework" if mechanism == "framework" else "backing"
        )
        assert session.stats.degraded_reason == ""
