"""The native side's own refusals, below the Python API that asks first: each stands on its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples


@pytest.mark.parametrize("wrong", ["name", "shape", "dtype", "missing"])
def test_inputs_that_do_not_fit(
    wrong: str, model: kvb.Model, contract: kvb.KVContract, inputs: dict[str, np.ndarray]
) -> None:
    features = inputs["features"]
    handed = {
        "name": {**inputs, "nope": features},
        "shape": {"features": features[:, :-1]},
        "dtype": {"features": features.astype(np.float32)},
        "missing": {},
    }[wrong]
    with kvb.Session(model, contract, mechanism="raw") as session:
        with pytest.raises(kvb.ContractError) as caught:
            session._native.predict(handed)
        assert {failure.check for failure in caught.value.failures} == {"inputs"}
        assert session.predict(inputs).path == "backing"


@pytest.mark.parametrize("mechanism", ["framework", "raw"])
def test_an_output_without_a_fixed_shape(mechanism: str, package: Callable[..., samples.SampleInfo]) -> None:
    info = package("flexible")
    model = kvb.Model.load(info.path)
    names = tuple(model.outputs)
    contract = kvb.KVContract(names, (1, 8, 8), "float16", 8, 1)
    with pytest.raises(kvb.ContractError, match="only the prediction decides") as caught:
        kvb.Session(model, contract, mechanism=mechanism)  # type: ignore[arg-type]
    assert {(failure.output, failure.check) for failure in caught.value.failures} >= {(n, "flexible") for n in names}
