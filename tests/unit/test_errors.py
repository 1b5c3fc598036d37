"""One root, attributes, failures; pickling keeps them."""

from __future__ import annotations

import pickle

import pytest

import kvbacking as kvb

CLASSES = [
    kvb.UnsupportedPlatformError,
    kvb.ModelError,
    kvb.ContractError,
    kvb.AllocationError,
    kvb.BackingInUseError,
    kvb.BackingIgnoredError,
    kvb.IntegrityError,
    kvb.PredictionError,
    kvb.CertificateError,
]
FAILURE = kvb.CheckFailure(output="cross_v", check="tail_zero", expected="zero", actual="3 dirty")


@pytest.mark.parametrize("cls", CLASSES)
def test_each_class_carries_message_failures_and_details(cls: type[kvb.KVBackingError]) -> None:
    error = cls("[place] text", failures=(FAILURE,), details={"byte_count": 7, "outputs": ["a"]})
    assert isinstance(error, kvb.KVBackingError)
    assert error.message == str(error) == "[place] text"
    assert error.failures == (FAILURE,)
    assert error.byte_count == 7
    assert error.details == {"byte_count": 7, "outputs": ["a"]}
    with pytest.raises(AttributeError, match="nope"):
        _ = error.nope
    with pytest.raises(TypeError):
        error.details["byte_count"] = 8  # type: ignore[index]


@pytest.mark.parametrize("cls", CLASSES)
def test_pickling_keeps_everything(cls: type[kvb.KVBackingError]) -> None:
    error = pickle.loads(pickle.dumps(cls("text", failures=(FAILURE,), details={"code": -3})))
    assert type(error) is cls
    assert str(error) == "text"
    assert error.failures == (FAILURE,)
    assert error.details == {"code": -3}


@pytest.mark.parametrize(
    ("cls", "base"),
    [(kvb.ContractError, ValueError), (kvb.AllocationError, MemoryError), (kvb.BackingInUseError, BufferError)],
)
def test_builtin_bases(cls: type[kvb.KVBackingError], base: type[Exception]) -> None:
    assert issubclass(cls, base)


def test_prediction_errors_name_the_nserror() -> None:
    error = kvb.PredictionError("text", details={"domain": "com.apple.CoreML", "code": 0, "description": "as it said"})
    assert (error.domain, error.code, error.description) == ("com.apple.CoreML", 0, "as it said")
    bare = kvb.PredictionError("text")
    assert (bare.domain, bare.code, bare.description) == (None, None, None)


def test_a_failure_reads_as_a_sentence() -> None:
    assert str(FAILURE) == "cross_v: tail_zero: expected zero, got 3 dirty"
    assert FAILURE.to_dict() == {"output": "cross_v", "check": "tail_zero", "expected": "zero", "actual": "3 dirty"}
