"""A hybrid decoder (qwen3_next: recurrent layers before attention) handed a static prefill of a right-padded window.

Rows of K and V beyond the prompt can be cut off; a recurrent state has no rows. A package that lets the padding into it
hands over a state of another text, and only what the decoder then says shows it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hybrid_prefill import write_hybrid

import kvbacking as kvb
import kvbacking.mlx

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)
pytest.importorskip("coremltools", reason="coremltools is not installed (extra samples)", exc_type=ImportError)

LIVE, TOKENS, CAPACITY, STEPS = 10, 14, 96, 64
EXACT, FAR = 1e-3, 1.0


class Recurrent:
    def __init__(self, folder: Path) -> None:
        # One recurrent layer, one with attention, one recurrent: each of their operations is unrolled over the window.
        self.decoder = kvb.mlx.random_decoder("qwen3_next", 3, num_hidden_layers=3, full_attention_interval=2)
        prompt = [int(t) for t in np.random.default_rng(103).integers(0, 512, LIVE + 1)]
        self.wanted = kvb.mlx.reference(self.decoder, prompt, STEPS)
        assert len(set(self.wanted.tokens)) > STEPS // 2, "a decoder that repeats itself proves nothing"
        self.inputs = {"input_ids": np.full((1, TOKENS), 7, np.int32), "live": np.array([LIVE], np.int32)}
        self.inputs["input_ids"][0, :LIVE] = prompt[:-1]
        self.packages = {}
        for masked in (True, False):
            path = folder / f"{'masked' if masked else 'padded'}.mlpackage"
            options = write_hybrid(self.decoder, path, tokens=TOKENS, capacity=CAPACITY, masked=masked)
            model = kvb.Model.load(path, compute_units="cpu_only")
            self.packages[masked] = model, kvb.KVContract.from_model(model, **options)

    def own(self) -> list[Any]:
        filled: list[Any] = caches.make_prompt_cache(self.decoder)
        mx.eval(self.decoder(mx.array([self.wanted.prompt[:-1]]), cache=filled), [c.state for c in filled])
        return filled

    def handed(self, masked: bool, live: int = LIVE) -> list[Any]:
        model, contract = self.packages[masked]
        filled: list[Any] = caches.make_prompt_cache(self.decoder)
        with kvb.Session(model, contract, mechanism="raw") as session:
            prediction = session.predict(self.inputs | {"live": np.array([live], np.int32)}, live=live)
            linear = [i for i, cache in enumerate(filled) if isinstance(cache, caches.ArraysCache)]
            kvb.mlx.handoff(prediction, filled, contract, states=[(f"conv_{i}", f"recurrent_{i}") for i in linear])
        return filled


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Recurrent:
    return Recurrent(tmp_path_factory.mktemp("hybrid"))


def test_the_masked_window_leaves_the_state_of_the_prompt(hybrid: Recurrent) -> None:
    for got, own in zip(hybrid.handed(masked=True), hybrid.own(), strict=True):
        if isinstance(own, caches.KVCache):
            pairs = [(a[:, :, :LIVE], b[:, :, :LIVE]) for a, b in ((got.keys, own.keys), (got.values, own.values))]
        else:
            pairs = list(zip(got.cache, own.cache, strict=True))
            assert got.cache[1].dtype == mx.float32
        for a, b in pairs:
            np.testing.assert_allclose(np.array(a), np.array(b), atol=EXACT)


def test_it_generates_what_an_uninterrupted_run_does(hybrid: Recurrent) -> None:
    found = kvb.mlx.agreement(hybrid.decoder, hybrid.handed(masked=True), hybrid.wanted)
    assert found.equal == STEPS
    assert found.max_logprob_difference < EXACT


def test_padding_in_the_recurrent_state_is_noticed(hybrid: Recurrent) -> None:
    found = kvb.mlx.agreement(hybrid.decoder, hybrid.handed(masked=False), hybrid.wanted)
    assert found.equal_before_difference < STEPS // 2
    assert found.max_logprob_difference > FAR


def test_the_padded_package_is_right_about_everything_else(hybrid: Recurrent) -> None:
    """Its rows of K and V are fit to be cut: with the masked package's states beside them it decodes rightly."""
    filled, right = hybrid.handed(masked=False), hybrid.handed(masked=True)
    for got, wanted in zip(filled, right, strict=True):
        if isinstance(got, caches.ArraysCache):
            got.cache = wanted.cache
    found = kvb.mlx.agreement(hybrid.decoder, filled, hybrid.wanted)
    assert found.equal == STEPS
    assert found.max_logprob_difference < EXACT


def test_a_state_one_token_short_is_noticed(hybrid: Recurrent) -> None:
    filled, short = hybrid.handed(masked=True), hybrid.handed(masked=True, live=LIVE - 1)
    for got, wrong in zip(filled, short, strict=True):
        if isinstance(got, caches.ArraysCache):
            got.cache = wrong.cache
    found = kvb.mlx.agreement(hybrid.decoder, filled, hybrid.wanted)
    assert found.equal_before_difference < STEPS // 2
    assert found.max_logprob_difference > FAR
