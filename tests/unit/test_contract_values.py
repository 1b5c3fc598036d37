"""KVContract and Tolerance as values: what they refuse, how they compare, what they look like as JSON."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import kvbacking as kvb
from kvbacking.contract import FAMILIES


def contract(**changes: Any) -> kvb.KVContract:
    fields: dict[str, Any] = {"outputs": ("k", "v"), "shapes": (2, 8, 4), "dtypes": "float16", "live": 6, "axis": 1}
    return kvb.KVContract(**{**fields, **changes})


def test_the_families_are_those_of_the_specification() -> None:
    assert kvb.TURBO.shapes == {"cross_k": (4, 1536, 1280), "cross_v": (4, 1536, 1280)}
    assert kvb.DISTIL.shapes == {"cross_k": (2, 1536, 1280), "cross_v": (2, 1536, 1280)}
    for family in FAMILIES.values():
        assert family.outputs == ("cross_k", "cross_v")
        assert set(family.dtypes.values()) == {"float16"}
        assert (family.live, family.axis, family.tail) == (1500, 1, "zero")
        assert not family.allow_all_zero


def test_one_shape_and_dtype_are_spread_and_axes_normalised() -> None:
    value = contract(axis=-2, shapes=[2, 8, 4])
    assert value.shapes == {"k": (2, 8, 4), "v": (2, 8, 4)}
    assert value.dtypes == {"k": "float16", "v": "float16"}
    assert value.axis == 1
    assert value == contract()
    assert hash(value) == hash(contract())
    assert value != contract(live=5)
    assert value.sensitive_to is None


def test_outputs_of_different_ranks_share_an_axis_that_both_have() -> None:
    value = contract(shapes={"k": (2, 8, 4), "v": (2, 8)})
    assert value.axis == 1
    assert value.shapes["v"] == (2, 8)


def test_json_and_pickle_round_trip() -> None:
    value = contract(
        shapes={"k": (2, 8, 4), "v": (3, 8, 4)}, dtypes={"k": "float16", "v": "int8"}, tail="any",
        tolerance=kvb.Tolerance(max_abs=0.5, max_rel=0.25), unbacked=("logits",), sensitive_to=("x",),
        allow_all_zero=True,
    )  # fmt: skip
    assert kvb.KVContract.from_dict(json.loads(json.dumps(value.to_dict()))) == value
    assert pickle.loads(pickle.dumps(value)) == value


def test_it_cannot_be_changed() -> None:
    value = contract()
    with pytest.raises(AttributeError):
        value.live = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        value.shapes["k"] = (1,)  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"outputs": ()}, ValueError, "outputs"),
        ({"outputs": "k"}, TypeError, "outputs"),
        ({"outputs": ("k", "k")}, ValueError, "twice"),
        ({"outputs": ("k", 3)}, TypeError, "outputs"),
        ({"outputs": ("k", "")}, TypeError, "outputs"),
        ({"shapes": {"k": (2, 8, 4)}}, ValueError, "shapes"),
        ({"shapes": (2, 0, 4)}, ValueError, "positive"),
        ({"shapes": (2, 8.0, 4)}, TypeError, "integer"),
        ({"shapes": ()}, ValueError, "positive"),
        ({"shapes": {"k": (2, 8, 4), "v": (2, 8)}, "axis": -1}, ValueError, "axis"),
        ({"shapes": {"k": (2, 8, 4), "v": (2, 8)}, "axis": 2}, ValueError, "axis"),
        ({"dtypes": "bfloat16"}, ValueError, "bfloat16"),
        ({"dtypes": 16}, TypeError, "dtype"),
        ({"dtypes": ["float16", "float16"]}, TypeError, "dtypes"),
        ({"live": 0}, ValueError, "live"),
        ({"live": 9}, ValueError, "live"),
        ({"live": True}, TypeError, "live"),
        ({"live": 2.5}, TypeError, "live"),
        ({"axis": 3}, ValueError, "axis"),
        ({"axis": -4}, ValueError, "axis"),
        ({"tail": "some"}, ValueError, "tail"),
        ({"tolerance": 0.1}, TypeError, "tolerance"),
        ({"unbacked": ("v",)}, ValueError, "unbacked"),
        ({"sensitive_to": "x"}, TypeError, "sensitive_to"),
        ({"allow_all_zero": 1}, TypeError, "allow_all_zero"),
    ],
)
def test_wrong_values_are_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        contract(**changes)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"max_abs": -1.0}, ValueError),
        ({"max_rel": float("nan")}, ValueError),
        ({"max_abs": float("inf")}, ValueError),
        ({"max_abs": "0"}, TypeError),
        ({"max_rel": True}, TypeError),
    ],
)
def test_wrong_tolerances_are_refused(values: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="Tolerance"):
        kvb.Tolerance(**values)
