"""What a caller may hand over, what is refused, and that everything wrong is said at once."""

from __future__ import annotations

import array as stdlib_array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples

pytestmark = pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning")
Opener = Callable[..., kvb.Session]


class OnlyDlpack:
    """Memory that only speaks DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def fields_of_a_record(array: np.ndarray) -> np.ndarray:
    """The same values, strides that are no multiple of the element size."""
    record = np.zeros(array.shape, dtype=[("pad", "u1"), ("value", array.dtype)])
    record["value"] = array
    return record["value"]


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "contiguous": lambda a: a,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "fortran": np.asfortranarray,
    "negative": lambda a: np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1],
    "stepped": lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
    "record field": fields_of_a_record,
    "memoryview": lambda a: memoryview(np.ascontiguousarray(a)),
    "dlpack": OnlyDlpack,
}


@pytest.mark.parametrize("form", FORMS)
def test_any_form_gives_the_same_outputs(open_session: Opener, mechanism: str, inputs: Any, form: str) -> None:
    session = open_session(mechanism)
    reference = session.predict(inputs)
    prediction = session.predict({"features": FORMS[form](inputs["features"])})
    for name in reference:
        np.testing.assert_array_equal(prediction[name], reference[name])


def test_casting_only_when_asked(open_session: Opener, mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism)
    given = {"features": inputs["features"].astype(np.float64)}
    with pytest.raises(kvb.ContractError, match="float64"):
        session.predict(given)
    prediction = session.predict(given, cast=True)
    reference = session.predict(inputs)
    for name in reference:
        np.testing.assert_array_equal(prediction[name], reference[name])
    assert given["features"].dtype == np.float64


def test_the_caller_s_mapping_and_arrays_are_untouched(open_session: Opener, mechanism: str, inputs: Any) -> None:
    given = {"features": inputs["features"].astype(np.float32)}
    before = given["features"]
    copy = before.copy()
    open_session(mechanism).predict(given, cast=True)
    assert list(given) == ["features"]
    assert given["features"] is before
    assert given["features"].dtype == np.float32
    np.testing.assert_array_equal(before, copy)


def test_everything_wrong_is_one_error(package: Callable[..., samples.SampleInfo], mechanism: str) -> None:
    info = package("prefill")
    model = kvb.Model.load(info.path)
    names = list(model.inputs)
    assert len(names) >= 2
    contract = kvb.KVContract.from_model(model, **info.contract)
    given = info.inputs()
    first = model.inputs[names[0]]
    given[names[0]] = np.zeros((*first.shape, 2), first.dtype)
    missing = names[1]
    del given[missing]
    given["no_such_input"] = np.zeros(3, np.float16)
    with kvb.Session(model, contract, mechanism=mechanism) as session:
        for call in (session.predict, model.predict):
            with pytest.raises(kvb.ContractError) as caught:
                call(given)
            assert {f.output for f in caught.value.failures} == {names[0], missing, "no_such_input"}
            for failure in caught.value.failures:
                assert failure.output in str(caught.value)
        assert session.stats.predictions == 0


@pytest.mark.parametrize("wrong", [None, 3, [[1.0]], "features", object()])
def test_what_is_no_array_is_refused(open_session: Opener, mechanism: str, wrong: Any) -> None:
    with pytest.raises(kvb.ContractError, match="features"):
        open_session(mechanism).predict({"features": wrong})


@pytest.mark.parametrize("wrong", [None, 3, [("features", 1)], "features"])
def test_what_is_no_mapping_is_refused(open_session: Opener, mechanism: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match="mapping"):
        open_session(mechanism).predict(wrong)


def test_byte_order_and_element_types_are_checked(open_session: Opener, mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism)
    swapped = inputs["features"].astype(inputs["features"].dtype.newbyteorder())
    for wrong in (swapped, inputs["features"].astype(np.uint8), inputs["features"].astype(np.complex64)):
        with pytest.raises(kvb.ContractError, match="dtype"):
            session.predict({"features": wrong})
    np.testing.assert_array_equal(
        session.predict({"features": swapped}, cast=True)["cross_k"], session.predict(inputs)["cross_k"]
    )


def test_integers_by_the_buffer_protocol(package: Callable[..., samples.SampleInfo]) -> None:
    info = package("integers")
    model = kvb.Model.load(info.path)
    values = info.inputs()["ids"]
    flat = stdlib_array.array("i", values.reshape(-1).tolist())
    given = memoryview(flat).cast("B").cast("i", values.shape)
    np.testing.assert_array_equal(model.predict({"ids": given})["next_ids"], values + 1)
