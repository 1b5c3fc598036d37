"""What comes back: the right bytes, as read-only views of memory we own, with honest evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

pytestmark = pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning")
CLOSE = {"rtol": 4e-3, "atol": 4e-3}  # fp16 outputs of fp16 or fp32 arithmetic over 96 products
Opener = Callable[..., kvb.Session]


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_the_outputs_are_right(
    open_session: Opener, mechanism: str, inputs: Any, expected: Any, expected_paths: Any, contract: kvb.KVContract
) -> None:
    prediction = open_session(mechanism).predict(inputs)
    assert prediction.path in expected_paths(mechanism)
    assert list(prediction) == ["cross_k", "cross_v"]
    assert len(prediction) == 2
    wanted = expected(inputs)
    for name, array in prediction.items():
        assert array.dtype == np.float16
        assert array.shape == contract.shapes[name]
        np.testing.assert_allclose(array.astype(np.float32), wanted[name], **CLOSE)
        assert not array[:, contract.live :].view(np.int16).any()


def test_every_mechanism_gives_the_control_s_bytes(
    open_session: Opener, proposing: str, inputs: Any, model: kvb.Model
) -> None:
    control = open_session("framework").predict(inputs)
    prediction = open_session(proposing).predict(inputs)
    plain = model.predict(inputs)
    for name, array in prediction.items():
        np.testing.assert_array_equal(array, control[name])
        np.testing.assert_array_equal(array, plain[name])
        assert prediction.evidence[name].digest == control.evidence[name].digest == kvb.scan(plain[name]).digest


def test_views_are_read_only_and_copy_nothing(open_session: Opener, mechanism: str, inputs: Any) -> None:
    prediction = open_session(mechanism).predict(inputs)
    first, second = prediction["cross_k"], prediction["cross_k"]
    assert address(first) == address(second)
    assert not first.flags.writeable
    assert not first.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0, 0] = 1
    with pytest.raises(ValueError, match=r"."):
        first.flags.writeable = True
    assert address(prediction["cross_v"]) != address(first)


def test_a_raw_view_is_the_backing_s_own_memory(open_session: Opener, inputs: Any, other_inputs: Any) -> None:
    session = open_session("raw", depth=1)
    prediction = session.predict(inputs)
    if prediction.path != "backing":
        pytest.skip("this framework ignores raw backings")
    where = {name: address(array) for name, array in prediction.items()}
    prediction.release()
    del prediction
    again = session.predict(other_inputs)
    assert {name: address(array) for name, array in again.items()} == where
    assert all(at % 16384 == 0 for at in where.values())


def test_live_is_a_view_of_the_live_rows(
    open_session: Opener, mechanism: str, inputs: Any, contract: kvb.KVContract
) -> None:
    prediction = open_session(mechanism).predict(inputs)
    whole, live = prediction["cross_v"], prediction.live("cross_v")
    assert live.shape == (contract.shapes["cross_v"][0], contract.live, contract.shapes["cross_v"][2])
    assert address(live) == address(whole)
    assert not live.flags.writeable
    np.testing.assert_array_equal(live, whole[:, : contract.live])
    with pytest.raises(KeyError):
        prediction.live("nope")


def test_an_unknown_name_is_a_key_error(open_session: Opener, mechanism: str, inputs: Any) -> None:
    prediction = open_session(mechanism).predict(inputs)
    with pytest.raises(KeyError):
        prediction["nope"]
    assert "nope" not in prediction
    assert prediction.get("nope") is None


def test_evidence_of_a_proposal(open_session: Opener, proposing: str, inputs: Any, contract: kvb.KVContract) -> None:
    prediction = open_session(proposing).predict(inputs)
    for name, evidence in prediction.evidence.items():
        assert evidence.name == name
        assert evidence.mechanism == proposing
        assert evidence.proposed
        assert evidence.allowed is True
        assert evidence.accepted is (prediction.path == "backing")
        assert evidence.accepted is (evidence.same_object and evidence.same_storage)
        assert evidence.shape == contract.shapes[name]
        assert evidence.dtype == contract.dtypes[name]
        assert evidence.layout_ok is True
        assert evidence.direct_write == "unknown"
        assert (evidence.bytes_copied == 0) is (prediction.path == "backing")
        assert evidence.finite is True
        assert evidence.non_zero is True
        assert evidence.tail_zero is True
        assert evidence.distinct is True
        assert evidence.fresh is None  # nothing to compare the first prediction with
        assert evidence.min is not None
        assert evidence.max is not None
        assert evidence.min < 0 < evidence.max
        if prediction.path == "backing":
            assert evidence.in_range is True
            assert evidence.complete is True
        assert evidence.canaries_intact is (True if proposing == "raw" else None)


def test_evidence_of_the_control_claims_nothing_about_proposals(open_session: Opener, inputs: Any) -> None:
    prediction = open_session("framework").predict(inputs)
    for evidence in prediction.evidence.values():
        assert evidence.mechanism == "framework"
        assert not evidence.proposed
        for field in ("allowed", "accepted", "same_object", "same_storage", "canaries_intact", "row_gaps_touched"):
            assert getattr(evidence, field) is None, field
        assert evidence.bytes_copied > 0
        assert evidence.direct_write == "unknown"


def test_evidence_is_a_json_document(open_session: Opener, mechanism: str, inputs: Any) -> None:
    prediction = open_session(mechanism).predict(inputs)
    for evidence in prediction.evidence.values():
        document = json.loads(evidence.to_json())
        assert document == evidence.to_dict()
        assert document["shape"] == list(evidence.shape)
    with pytest.raises(AttributeError):
        prediction.evidence["cross_k"].finite = None  # type: ignore[misc]


def test_evidence_reports_the_layout_that_came_back(open_session: Opener, mechanism: str, inputs: Any) -> None:
    prediction = open_session(mechanism).predict(inputs)
    for name, evidence in prediction.evidence.items():
        if prediction.path == "backing":
            array = prediction[name]
            assert tuple(n * array.itemsize for n in evidence.strides) == array.strides


def test_fresh_is_known_from_the_second_prediction_on(
    open_session: Opener, mechanism: str, inputs: Any, other_inputs: Any
) -> None:
    session = open_session(mechanism)
    first = session.predict(inputs)
    second = session.predict(other_inputs)
    assert all(e.fresh is True for e in second.evidence.values())
    assert first.evidence["cross_k"].digest != second.evidence["cross_k"].digest
    first.release()
    third = session.predict(other_inputs)
    assert all(e.fresh is None for e in third.evidence.values())  # the inputs did not change either
    assert third.evidence["cross_k"].digest == second.evidence["cross_k"].digest


BYTE_CHECKS = ("digest", "finite", "non_zero", "min", "max", "tail_zero", "complete", "canaries_intact")
LAYOUT_CHECKS = ("layout_ok", "distinct")  # where the storage lies belongs to acceptance, which is always known


@pytest.mark.parametrize("verify", ["off", "layout", "scan", "full"])
def test_each_level_evaluates_what_it_says(open_session: Opener, verify: str, inputs: Any) -> None:
    prediction = open_session("raw", verify=verify).predict(inputs)
    for evidence in prediction.evidence.values():
        for field in BYTE_CHECKS:
            assert (getattr(evidence, field) is not None) is (verify in ("scan", "full")), field
        for field in LAYOUT_CHECKS:
            assert (getattr(evidence, field) is not None) is (verify != "off"), field
        assert ("parity" in evidence.checked) is (verify == "full")


def test_times_are_reported(open_session: Opener, mechanism: str, inputs: Any) -> None:
    prediction = open_session(mechanism).predict(inputs)
    assert prediction.predict_ns > 0
    assert prediction.verify_ns > 0
    assert (prediction.copy_ns > 0) or prediction.path == "backing"


def test_stats_count(open_session: Opener, mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism)
    for _ in range(3):
        session.predict(inputs).release()
    stats = session.stats
    assert stats.predictions == 3
    assert stats.failed == 0
    assert stats.proposed == (0 if mechanism == "framework" else 6)
    assert stats.accepted + stats.ignored == stats.proposed
    assert stats.input_bytes_copied == 3 * inputs["features"].nbytes
    assert stats.quarantined == 0
    assert stats.degraded_reason == ""
    assert stats.to_dict()["predictions"] == 3


def test_outputs_without_backing_are_copied_and_returned(
    package: Callable[..., samples.SampleInfo], mechanism: str
) -> None:
    info = package("prefill", logits=True)
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    assert contract.unbacked
    inputs = info.inputs(seed=1)
    plain = model.predict(inputs)
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        prediction = session.predict(inputs)
        assert set(prediction) == set(model.outputs)
        for name in contract.unbacked:
            assert not prediction.evidence[name].proposed
            assert not prediction[name].flags.writeable
            np.testing.assert_array_equal(prediction[name], plain[name])
            with pytest.raises(KeyError):
                prediction.live(name)
        for name in contract.outputs:
            live = (slice(None),) * contract.axis + (slice(0, contract.live),)
            np.testing.assert_array_equal(prediction[name][live], plain[name][live])


def test_live_length_of_one_call(package: Callable[..., samples.SampleInfo], mechanism: str) -> None:
    info = package("prefill")
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        prediction = session.predict(info.inputs(seed=1), live=3)
        assert prediction.live_count == 3
        name = contract.outputs[0]
        assert prediction.live(name).shape[contract.axis] == 3
        for wrong in (-1, contract.shapes[name][contract.axis] + 1):
            with pytest.raises(ValueError, match="live"):
                session.predict(info.inputs(seed=1), live=wrong)
        with pytest.raises(TypeError, match="live"):
            session.predict(info.inputs(seed=1), live="3")  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "options"), [("fp32io", {}), ("int8out", {}), ("integers", {})])
def test_other_element_types(
    package: Callable[..., samples.SampleInfo], mechanism: str, kind: str, options: dict[str, Any]
) -> None:
    info = package(kind, **options)
    try:
        model = kvb.Model.load(info.path)
    except (kvb.ModelError, kvb.UnsupportedPlatformError) as error:
        pytest.skip(f"this system does not load {kind}: {error}")
    contract = kvb.KVContract.from_model(model, **info.contract)
    surfaces_hold = all(dtype in ("float16", "int8") for dtype in contract.dtypes.values())
    if mechanism in ("surface", "pool") and not surfaces_hold:
        with pytest.raises(kvb.ContractError, match=r"float16|Float16"):
            kvb.Session(model, contract, mechanism=mechanism)
        return
    inputs = info.inputs(seed=3)
    plain = model.predict(inputs)
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        prediction = session.predict(inputs)
        for name in contract.outputs:
            assert prediction[name].dtype == contract.dtypes[name]
            np.testing.assert_array_equal(prediction[name], plain[name])
