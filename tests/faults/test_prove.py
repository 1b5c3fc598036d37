"""What only `prove` asks: does the same input give the same values again, and do native objects accumulate."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import _native, _recipe
from kvbacking._request import Request, save_arrays


@pytest.fixture
def recipe(
    model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray], tmp_path: Any
) -> tuple[_recipe.Recipe, io.StringIO]:
    path = tmp_path / "inputs.npz"
    save_arrays(path, inputs)
    request = Request(
        path=str(model.path),
        fingerprint=model.fingerprint,
        function=None,
        events="",
        compute_units="all",
        cache_dir=str(tmp_path),
        contract=contract.to_dict(),
        mechanism="raw",
        first=str(path),
        second=str(path),
        repeats=2,
    )
    events = io.StringIO()
    return _recipe.Recipe(request, events), events


def failed(events: io.StringIO) -> set[tuple[str, str]]:
    found = set()
    for line in events.getvalue().splitlines():
        for failure in json.loads(line).get("failures", []):
            found.add((failure["output"], failure["check"]))
    return found


@pytest.mark.parametrize("check", ["repeatable", "parity"])
def test_other_values_for_the_same_input_are_refused(
    check: str,
    recipe: tuple[_recipe.Recipe, io.StringIO],
    model: kvb.Model,
    contract: kvb.KVContract,
    inputs: dict[str, np.ndarray],
) -> None:
    subject, events = recipe
    with kvb.Session(model, contract, mechanism="raw") as session:
        prediction = session.predict(inputs)
        same = prediction["cross_v"].copy()
        subject.compare(check, prediction, "cross_v", same)
        assert not failed(events)
        same[0, 3, 5] += np.float16(1)
        with pytest.raises(_recipe.RejectedError):
            subject.compare(check, prediction, "cross_v", same)
    assert failed(events) == {("cross_v", check)}


def test_native_objects_that_accumulate_are_found_by_live_counts(
    recipe: tuple[_recipe.Recipe, io.StringIO],
    model: kvb.Model,
    contract: kvb.KVContract,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, events = recipe
    monkeypatch.setattr(_recipe, "SETTLE_S", 0.1)
    before = _native.live_counts()
    subject.no_growth(model, before)
    assert not failed(events)
    with kvb.Session(model, contract, mechanism="raw"):
        subject.no_growth(model, before)
    assert failed(events) == {("*", "live_counts")}
