"""The snippets of docs/handoff.md, run as they stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking import samples

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)
pytest.importorskip("coremltools", reason="coremltools is not installed (extra samples)", exc_type=ImportError)

TEXT = (Path(__file__).parents[2] / "docs" / "handoff.md").read_text()
OWNED, STATE = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
PROMPT = (5, 17, 300, 42, 9, 411)


def test_a_prompt_through_core_ml_is_decoded_by_mlx_lm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoder, n = kvb.mlx.random_decoder("llama", 4), len(PROMPT) - 1
    info = kvb.mlx.write_prefill(decoder, tmp_path / "m.mlpackage", tokens=8, capacity=32, dtype="float32")
    model = kvb.Model.load(info.path, compute_units="cpu_only")
    inputs = {"input_ids": np.array([[*PROMPT[:-1], 7, 7, 7]], np.int32)}
    contract = kvb.KVContract.from_model(model, **info.contract)
    names: dict[str, Any] = {"decoder": decoder, "model": model, "contract": contract, "inputs": inputs, "n": n}
    exec(OWNED, names)
    if names["report"].layers[0].method != "owned":
        pytest.skip("this framework ignores the backing")
    assert capsys.readouterr().out == "0 True\n"
    wanted = kvb.mlx.reference(decoder, PROMPT, 8)
    assert kvb.mlx.agreement(decoder, names["caches"], wanted).rate == 1.0


@pytest.mark.skipif(not kvb.runtime_info().supports_state, reason="the sample needs MLState (macOS 15)")
def test_the_rows_of_mlx_lm_continue_in_a_state(package: Callable[..., samples.SampleInfo]) -> None:
    info = package("stateful")
    model = kvb.Model.load(info.path)
    layers, heads, _, size = model.states["key_cache"].shape
    filled = [caches.KVCache() for _ in range(layers)]
    rng = np.random.default_rng(2)
    for cache in filled:
        cache.update_and_fetch(*mx.array(rng.standard_normal((2, 1, heads, 5, size)).astype(np.float16)))
    with kvb.Session(model, kvb.KVContract.from_model(model, **info.contract), mechanism="raw") as session:
        names: dict[str, Any] = {"model": model, "caches": filled, "session": session}
        exec(STATE, {**names, "inputs": info.inputs() | {"position": np.array([5], np.int32)}}, names)
    for name, side in (("key_cache", "keys"), ("value_cache", "values")):
        got = names["state"].read(name)
        for layer, cache in enumerate(filled):
            np.testing.assert_array_equal(got[layer, :, :5], np.array(getattr(cache, side))[0, :, :5])
            assert got[layer, :, 5].any()  # the step's own row came behind them
