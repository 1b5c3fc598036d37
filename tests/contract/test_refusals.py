"""What is refused before any prediction, and the switches that turn backings off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples


def altered(contract: kvb.KVContract, **changes: Any) -> kvb.KVContract:
    return kvb.KVContract.from_dict({**contract.to_dict(), **changes})


def checks(error: kvb.KVBackingError) -> set[tuple[str, str]]:
    return {(f.output, f.check) for f in error.failures}


def test_every_mismatch_at_once(model: kvb.Model, mechanism: str) -> None:
    contract = kvb.KVContract(
        ("cross_k", "cross_kk"), {"cross_k": (2, 36, 97), "cross_kk": (2, 36, 96)}, "float16", 30, 1
    )
    for refused in (lambda: contract.check(model), lambda: kvb.Session(model, contract, mechanism=mechanism)):
        with pytest.raises(kvb.ContractError) as caught:
            refused()
        assert {f.output for f in caught.value.failures} == {"cross_k", "cross_kk", "cross_v"}
        assert isinstance(caught.value, ValueError)
        for failure in caught.value.failures:
            assert failure.output in str(caught.value)


def test_a_wrong_dtype(model: kvb.Model, contract: kvb.KVContract, mechanism: str) -> None:
    wrong = altered(contract, dtypes={"cross_k": "float16", "cross_v": "float32"})
    with pytest.raises(kvb.ContractError, match="cross_v") as caught:
        kvb.Session(model, wrong, mechanism=mechanism)
    assert {f.output for f in caught.value.failures} == {"cross_v"}


def test_an_output_that_is_neither_backed_nor_unbacked(model: kvb.Model, mechanism: str) -> None:
    contract = kvb.KVContract(("cross_k",), (2, 36, 96), "float16", 30, 1)
    with pytest.raises(kvb.ContractError, match="cross_v"):
        kvb.Session(model, contract, mechanism=mechanism)


def test_an_unknown_sensitive_input(model: kvb.Model, contract: kvb.KVContract, mechanism: str) -> None:
    with pytest.raises(kvb.ContractError, match="nope"):
        kvb.Session(model, altered(contract, sensitive_to=["nope"]), mechanism=mechanism)


def test_a_flexible_output_is_refused_and_predicts_through_the_control(
    package: Callable[..., samples.SampleInfo],
) -> None:
    info = package("flexible")
    model = kvb.Model.load(info.path)
    name = next(iter(model.outputs))
    assert not model.outputs[name].backable
    with pytest.raises(kvb.ContractError, match=name):
        kvb.KVContract.from_model(model)
    outputs = model.predict(info.inputs())
    assert all(isinstance(array, np.ndarray) for array in outputs.values())


def test_a_surface_beyond_the_limits_is_refused(package: Callable[..., samples.SampleInfo]) -> None:
    limit = kvb.runtime_info().surface_max_height
    if not 0 < limit <= 20_000:
        pytest.skip(f"the limit {limit} of this system is too large for a test")
    capacity = limit // 2 + 8
    info = package("turbo", layers=2, width=32, rows=capacity - 4, capacity=capacity)
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    for mechanism in ("surface", "pool"):
        with pytest.raises(kvb.ContractError, match=str(limit)):
            kvb.Session(model, contract, mechanism=mechanism)
    with kvb.Session(model, contract, mechanism="raw") as session:
        assert session.predict(info.inputs())["cross_k"].shape == (2, capacity, 32)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mechanism": "fast"}, ValueError, "mechanism"),
        ({"mechanism": None}, ValueError, "mechanism"),
        ({"depth": 0}, ValueError, "depth"),
        ({"depth": 65}, ValueError, "depth"),
        ({"depth": 2.0}, TypeError, "depth"),
        ({"depth": True}, TypeError, "depth"),
        ({"on_ignored": "retry"}, ValueError, "on_ignored"),
        ({"verify": "most"}, ValueError, "verify"),
        ({"reuse": "never"}, ValueError, "reuse"),
        ({"certificate": "/no/such/file"}, kvb.CertificateError, "No such file"),
    ],
)
def test_wrong_options(
    model: kvb.Model, contract: kvb.KVContract, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        kvb.Session(model, contract, **options)


def test_wrong_kinds_of_model_and_contract(model: kvb.Model, contract: kvb.KVContract) -> None:
    with pytest.raises(TypeError, match="model"):
        kvb.Session("turbo.mlpackage", contract)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="contract"):
        kvb.Session(model, {"outputs": ("cross_k",)})  # type: ignore[arg-type]


def test_the_switch_in_the_environment(
    model: kvb.Model, contract: kvb.KVContract, proposing: str, monkeypatch: pytest.MonkeyPatch, inputs: Any
) -> None:
    monkeypatch.setenv("KVBACKING_DISABLE_BACKINGS", "1")
    with kvb.Session(model, contract, mechanism=proposing) as session:
        assert session.mechanism == "framework"
        prediction = session.predict(inputs)
        assert prediction.path == "framework"
        assert not any(e.proposed for e in prediction.evidence.values())
        assert "KVBACKING_DISABLE_BACKINGS" in session.stats.degraded_reason
    monkeypatch.setenv("KVBACKING_DISABLE_BACKINGS", "0")
    with kvb.Session(model, contract, mechanism=proposing) as session:
        assert session.mechanism == proposing


def test_auto_without_a_certificate_is_the_control(model: kvb.Model, contract: kvb.KVContract, inputs: Any) -> None:
    with kvb.Session(model, contract) as session:
        assert session.predict(inputs).path == "framework"
        assert "certificate" in session.stats.degraded_reason


@pytest.mark.parametrize("name", ["missing.mlpackage", "notes.txt", "empty.mlpackage"])
def test_what_is_no_model(tmp_path: Any, name: str) -> None:
    path = tmp_path / name
    if name == "empty.mlpackage":
        path.mkdir()
    elif name == "notes.txt":
        path.write_text("hello")
    with pytest.raises(kvb.ModelError, match=name.split(".")[0]):
        kvb.Model.load(path)


def test_wrong_load_options(small: samples.SampleInfo) -> None:
    with pytest.raises(ValueError, match="compute_units"):
        kvb.Model.load(small.path, compute_units="gpu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="function"):
        kvb.Model.load(small.path, function=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Model\.load"):
        kvb.Model()
