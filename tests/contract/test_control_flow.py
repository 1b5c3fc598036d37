"""Programs with branches and loops, and classifiers, through the public interface."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("coremltools")

import coremltools as ct
from coremltools.converters.mil import Builder as mb  # noqa: N813
from coremltools.converters.mil.mil import types
from mil_engine import quiet

import kvbacking as kvb


def write(path: Path, build: Callable[[Any], Any], shape: tuple[int, ...], **options: Any) -> Path:
    with quiet():
        program = mb.program([mb.TensorSpec(shape, types.fp32)], opset_version=ct.target.iOS17)(build)
        model = ct.convert(
            program,
            convert_to="mlprogram",
            minimum_deployment_target=ct.target.iOS17,
            compute_precision=ct.precision.FLOAT32,
            skip_model_load=True,
            **options,
        )
        model.save(str(path))
        del model, program
        gc.collect()
    return path


def branch(x: Any) -> Any:
    return mb.cond(
        pred=mb.greater(x=mb.reduce_sum(x=x, keep_dims=False), y=np.float32(0)),
        _true_fn=lambda: mb.add(x=x, y=np.float32(1)),
        _false_fn=lambda: mb.mul(x=x, y=np.float32(2)),
        name="y",
    )


def test_a_branch_goes_into_backings_and_is_proven(tmp_path: Path) -> None:
    model = kvb.Model.load(write(tmp_path / "branch.mlpackage", branch, (6, 32)))
    contract = kvb.KVContract.from_model(model, outputs=("y",), live=6, axis=0)
    x = np.random.default_rng(0).random((6, 32), dtype=np.float32)
    with kvb.Session(model, contract, mechanism="raw") as session:
        for given, want in ((x, x + 1), (-x, -2 * x)):
            prediction = session.predict({"x": given})
            assert prediction.path == "backing"
            np.testing.assert_array_equal(prediction["y"], want)


def test_a_loop_without_end_is_an_error(tmp_path: Path) -> None:
    def forever(x: Any) -> Any:
        return mb.while_loop(
            _cond=lambda v: mb.less(x=mb.reduce_min(x=v, keep_dims=False), y=np.float32(1)),
            _body=lambda v: mb.mul(x=v, y=np.float32(0.5)),
            loop_vars=(x,),
        )

    model = kvb.Model.load(write(tmp_path / "forever.mlpackage", forever, (2,)))
    with pytest.raises(kvb.PredictionError, match=r"\(while_loop\): more than 20000 turns of loops"):
        model.predict({"x": np.zeros(2, np.float32)})
    (done,) = model.predict({"x": np.full(2, 3, np.float32)}).values()
    np.testing.assert_array_equal(done, [3, 3])


@pytest.mark.parametrize("labels", [["cat", "dog", "bird"], [10, 20, 30]], ids=["text", "numbers"])
def test_a_classifier_loads_and_its_outputs_are_refused_for_backings(tmp_path: Path, labels: list[Any]) -> None:
    def classify(x: Any) -> Any:
        return mb.softmax(x=mb.linear(x=x, weight=np.eye(3, 4, dtype=np.float32)), axis=-1, name="probs")

    config = ct.ClassifierConfig(labels, predicted_feature_name="label")
    path = write(tmp_path / "classifier.mlpackage", classify, (1, 4), classifier_config=config)
    model = kvb.Model.load(path)
    assert set(model.outputs) == {"label", "label_probs"}
    names = ("label", "label_probs")
    contract = kvb.KVContract(outputs=names, shapes=(1,), dtypes="float32", live=1, axis=0)
    with pytest.raises(kvb.ContractError) as refused:
        contract.check(model)
    for name in names:
        assert any(f.output == name and "which cannot have a backing" in f.actual for f in refused.value.failures)
    with pytest.raises(kvb.ContractError, match=r"(?s)not every output is an array.*label.*label_probs"):
        model.predict({"x": np.zeros((1, 4), np.float32)})
