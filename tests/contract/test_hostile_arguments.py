"""What nobody should pass, through every public entry: the right class of error, words about it, and a session that
works afterwards."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples
from kvbacking.certificate import Certificate, content_digest


class Exporter:
    """Raises what it was given from __dlpack__."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __dlpack__(self, **options: Any) -> Any:
        raise self.error

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class NoCapsule(Exporter):
    def __dlpack__(self, **options: Any) -> Any:
        return 5


def released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


@pytest.mark.parametrize(
    "value",
    [
        Exporter(ValueError("no")),
        Exporter(KeyError("no")),
        Exporter(BufferError("no")),
        NoCapsule(ValueError()),
        released(),
        np.ma.masked_array(np.zeros((1, 30, 96), np.float16), mask=True),
    ],
    ids=["value", "key", "buffer", "capsule", "released", "masked"],
)
def test_an_exporter_that_fails_is_named_as_the_input_it_is(
    open_session: Callable[..., kvb.Session], inputs: dict[str, np.ndarray], mechanism: str, value: Any
) -> None:
    session = open_session(mechanism)
    for cast in (False, True):
        with pytest.raises(kvb.ContractError, match=r"features: type: expected a buffer") as caught:
            session.predict({"features": value}, cast=cast)
        assert [failure.check for failure in caught.value.failures] == ["type"]
    with pytest.raises(TypeError):
        kvb.scan(value)
    assert session.predict(inputs)["cross_k"].shape == (2, 36, 96)


def test_a_long_or_unprintable_name_is_short_and_escaped_in_the_message(
    model: kvb.Model, inputs: dict[str, np.ndarray]
) -> None:
    for name, shown in (("x" * 1_000_000, "(1000000 characters)"), ("a\0b", "'a\\x00b'"), ("\ud800", "'\\ud800'")):
        with pytest.raises(kvb.ContractError) as caught:
            model.predict({**inputs, name: inputs["features"]})
        assert shown in str(caught.value)
        assert len(str(caught.value)) < 400
        str(caught.value).encode()


def test_states_and_live_lengths_are_refused_before_native_code(
    open_session: Callable[..., kvb.Session], model: kvb.Model, inputs: dict[str, np.ndarray]
) -> None:
    session = open_session("raw")
    for state in (5, "x", object(), model):
        with pytest.raises(TypeError, match="state must be a kvbacking State"):
            session.predict(inputs, state=state)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="state must be a kvbacking State"):
            model.predict(inputs, state=state)  # type: ignore[arg-type]
    for live in (2**70, -(2**70)):
        with pytest.raises(ValueError, match="live must be 0 to"):
            session.predict(inputs, live=live)
    assert session.predict(inputs).live_count == 30


def test_integers_of_numpy_are_integers_and_bools_are_not(
    model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    with kvb.Session(model, contract, mechanism="raw", depth=np.int64(1), verify="layout") as session:  # type: ignore[arg-type]
        assert type(session.depth) is int
        prediction = session.predict(inputs, live=np.uint8(7))  # type: ignore[arg-type]
        assert prediction.live_count == 7
        assert prediction.live("cross_k").shape == (2, 7, 96)
        for wrong in (True, np.True_, 7.0, np.float32(7), np.array([7, 8])):
            with pytest.raises(TypeError, match="live must be an integer or None"):
                session.predict(inputs, live=wrong)  # type: ignore[arg-type]
    for wrong in (True, np.True_, 1.0, np.array([1, 2])):
        with pytest.raises(TypeError, match="depth must be an integer"):
            kvb.Session(model, contract, mechanism="raw", depth=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="repeats must be an integer"):
            kvb.prove(model, inputs, contract, repeats=wrong)  # type: ignore[arg-type]


def test_names_that_native_code_would_read_as_others_are_refused(model: kvb.Model, small: samples.SampleInfo) -> None:
    for name in ("cross_k\0", "\ud800"):
        with pytest.raises(ValueError, match="cannot be a name"):
            kvb.KVContract((name,), (2, 36, 96), "float16", 30, 1)
    with pytest.raises(ValueError, match="cannot be a name"):
        kvb.Model.load(small.path, function="main\0x")


def test_an_axis_that_does_not_exist_is_no_other_axis(model: kvb.Model) -> None:
    for axis in (9, -4, 2**70):
        with pytest.raises(ValueError, match="outside a shape of 3 dimensions"):
            kvb.KVContract.from_model(model, axis=axis)
    for wrong in ("1", None, 1.0, True):
        with pytest.raises(TypeError, match="axis must be an integer"):
            kvb.KVContract.from_model(model, axis=wrong)  # type: ignore[arg-type]


def test_values_beyond_what_native_code_counts_are_value_errors() -> None:
    for shape in ((2, 36, 2**70), (2, 36, 2**63)):
        with pytest.raises(ValueError, match="63 bits"):
            kvb.KVContract(("cross_k",), shape, "float16", 30, 1)
    with pytest.raises(ValueError, match="finite"):
        kvb.Tolerance(max_abs=10**400)
    for dtype in ("\0", "\ud800", "float"):
        with pytest.raises(ValueError, match="unknown dtype") as caught:
            kvb.KVContract(("cross_k",), (2, 36, 96), dtype, 30, 1)
        assert "float16" in str(caught.value)


def test_a_contract_document_says_what_is_wrong_with_it(contract: kvb.KVContract) -> None:
    document = contract.to_dict()
    assert kvb.KVContract.from_dict(document) == contract
    for wrong in ({}, {**document, "more": 1}, {n: v for n, v in document.items() if n != "live"}):
        with pytest.raises(ValueError, match="missing or unknown fields"):
            kvb.KVContract.from_dict(wrong)
    with pytest.raises(ValueError, match=r"KVContract\.tolerance: missing or unknown fields"):
        kvb.KVContract.from_dict({**document, "tolerance": {"a": 1}})
    for nothing in (None, 5, "x", []):
        with pytest.raises(TypeError, match="must be a mapping"):
            kvb.KVContract.from_dict(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("model_like", [None, 5, "model"])
def test_something_else_than_a_model_is_a_type_error(contract: kvb.KVContract, model_like: Any) -> None:
    for call in (kvb.KVContract.from_model, contract.mismatches, contract.check):
        with pytest.raises(TypeError, match=r"model must be a kvbacking\.Model"):
            call(model_like)


@pytest.mark.parametrize(
    "wrong",
    [{"live": 2**70}, {"axis": 2**70}, {"threads": 2**40}, {"fill_pattern": -1}, {"fill_pattern": 2**64}, {"live": -1}],
    ids=str,
)
def test_a_scan_refuses_numbers_out_of_range(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"\[scan\]"):
        kvb.scan(np.ones((4, 6), np.float16), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"live": True}, {"live": "x"}, {"axis": 1.0}, {"axis": None}, {"threads": None}, {"fill_pattern": 1.0},
     {"tolerance": 0.5}],
    ids=str,
)  # fmt: skip
def test_a_scan_refuses_other_types(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"\[scan\]"):
        kvb.scan(np.ones((4, 6), np.float16), **wrong)


@pytest.mark.parametrize("dtype", ["object", ">f2", "M8[s]", "complex64", "bool", "uint8"])
def test_a_scan_names_the_dtype_it_cannot_read(dtype: str) -> None:
    with pytest.raises(ValueError, match="must be float16, float32 or int8"):
        kvb.scan(np.zeros((2, 3), dtype))
    with pytest.raises(ValueError, match="reference must be"):
        kvb.scan(np.zeros((2, 3), np.float16), reference=np.zeros((2, 3), dtype))


def test_external_sets_are_mappings_of_the_contracts_names(model: kvb.Model, contract: kvb.KVContract) -> None:
    def good() -> dict[str, np.ndarray]:
        return {name: np.zeros(contract.shapes[name], np.float16) for name in contract.outputs}

    def external(storage: Any, **more: Any) -> kvb.Session:
        return kvb.Session(model, contract, mechanism="external", storage=storage, **more)

    for wrong in (5, "ab", [[1]], [{1: np.zeros(3)}]):
        with pytest.raises(TypeError, match="storage"):
            external(wrong)
    with pytest.raises(ValueError, match="at least one"):
        external([])
    with pytest.raises(ValueError, match="'more'"):
        external([{**good(), "more": np.zeros(3, np.float16)}])
    with pytest.raises(ValueError, match="holds 1 sets, depth is 2"):
        external([good()], depth=2)
    for mechanism, storage in (("external", None), ("raw", [good()]), ("auto", [good()])):
        with pytest.raises(ValueError, match="goes with mechanism 'external'"):
            kvb.Session(model, contract, mechanism=mechanism, storage=storage)
    external([good()]).close()


def test_paths_that_no_system_takes_are_model_errors(small: samples.SampleInfo, tmp_path: Path) -> None:
    for path in ("x" * 5000 + ".mlpackage", "\ud800.mlpackage", "a\0b.mlpackage"):
        with pytest.raises(kvb.ModelError, match=r"\[Model\.load\]") as caught:
            kvb.Model.load(path)
        assert len(str(caught.value)) < 400
    for cache in ("a\0b", "\ud800"):
        with pytest.raises(kvb.ModelError, match="cache folder"):
            kvb.Model.load(small.path, cache_dir=cache)
    looped = tmp_path / "looped.mlpackage"
    shutil.copytree(small.path, looped)
    (looped / "loop").symlink_to("loop")
    with pytest.raises(kvb.ModelError, match="leads nowhere"):
        kvb.Model.load(looped)


@pytest.mark.skipif(sys.platform == "darwin", reason="APFS takes UTF-8 names only")
def test_a_file_whose_name_is_no_text_is_part_of_the_fingerprint(small: samples.SampleInfo, tmp_path: Path) -> None:
    named = tmp_path / "named.mlpackage"
    shutil.copytree(small.path, named)
    before = kvb.Model.load(named).fingerprint
    (named / "\udcff").write_bytes(b"x")
    assert kvb.Model.load(named).fingerprint != before


def certificate_of(model: kvb.Model, contract: kvb.KVContract) -> dict[str, Any]:
    return Certificate.issue(model, contract, mechanism="raw", reuse="new", proof={"repeats": 8}).to_dict()


@pytest.mark.parametrize(
    "change",
    [{"proof": 5}, {"proof": None}, {"issued_at": 5}, {"bench": 5}, {"grade": []}, {"key": []},
     {"mechanism": "external"}, {"mechanism": ["raw"]}, {"mechanism": None}, {"reuse": "never"}, {"reuse": {}}],
    ids=str,
)  # fmt: skip
def test_a_certificate_of_other_types_is_refused_although_its_digest_fits(
    model: kvb.Model, contract: kvb.KVContract, change: dict[str, Any]
) -> None:
    document = certificate_of(model, contract)
    for name, value in change.items():
        if name in ("mechanism", "reuse"):
            document["key"][name] = value
        else:
            document[name] = value
    document["digest"] = content_digest(document)
    with pytest.raises(kvb.CertificateError):
        Certificate.from_dict(document)


def test_a_certificate_with_any_byte_changed_is_refused_or_says_the_same(
    model: kvb.Model, contract: kvb.KVContract, tmp_path: Path
) -> None:
    file = tmp_path / "certificate.json"
    certificate = Certificate.from_dict(certificate_of(model, contract))
    certificate.save(file)
    data = file.read_bytes()
    for at in range(len(data)):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            read = Certificate.load(file)
        except kvb.CertificateError:
            continue
        assert read == certificate, at  # white space


def test_a_certificate_nested_without_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 200_000)
    with pytest.raises(kvb.CertificateError):
        Certificate.load(file)


class Hostile:
    """Raises from every attribute that it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_object_that_raises_when_looked_at_is_named_as_the_input_it_is(
    open_session: Callable[..., kvb.Session], inputs: dict[str, np.ndarray]
) -> None:
    session = open_session("raw")
    for borrow in (False, True, "auto"):
        with pytest.raises(kvb.ContractError, match=r"features: type: expected a buffer"):
            session.predict({"features": Hostile()}, borrow=borrow)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Hostile"):
        kvb.scan(Hostile())
    assert session.predict(inputs).path == "backing"
