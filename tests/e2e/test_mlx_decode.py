"""A prompt prefilled by Core ML and decoded by mlx-lm, against mlx-lm alone with the same weights.

The decoder is fed fixed tokens: a random model with tied embeddings repeats itself, and equal tokens would say little.
Log-probabilities are compared instead; the prefill computes in float16, so they agree closely and not bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking import samples

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
caches = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)
llama = pytest.importorskip("mlx_lm.models.llama", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)

LAYERS, LIVE, CAPACITY, VOCAB, STEPS = 3, 20, 48, 64, 16
OPTIONS = {
    "layers": LAYERS, "heads": 4, "kv_heads": 2, "head_dim": 32, "hidden": 64, "vocab": VOCAB, "tokens": 24,
    "capacity": CAPACITY,
}  # fmt: skip
CLOSE, FAR = 0.05, 0.5  # largest difference of log-probabilities: float16 prefill gave 0.006, wrong caches 2.9 to 28

NAMES = {
    "self_attn.q_proj": "query", "self_attn.k_proj": "key", "self_attn.v_proj": "value", "self_attn.o_proj": "out",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down", "input_layernorm": "attention_norm",
    "post_attention_layernorm": "mlp_norm",
}  # fmt: skip


def decoder_of(info: samples.SampleInfo) -> Any:
    """mlx-lm's Llama in float32 with the package's weights."""
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": LAYERS, "intermediate_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "vocab_size": VOCAB,
        "rope_theta": 10000.0, "rope_traditional": False, "tie_word_embeddings": True,
    }  # fmt: skip
    model = llama.Model(llama.ModelArgs.from_dict(config))
    weights = {
        "model.embed_tokens.weight": info.weights["embedding"],
        "model.norm.weight": info.weights["final_norm"],
        **{
            f"model.layers.{i}.{theirs}.weight": info.weights[ours][i]
            for i in range(LAYERS)
            for theirs, ours in NAMES.items()
        },
    }
    model.load_weights([(name, mx.array(value)) for name, value in weights.items()])
    return model


class Run:
    """One prompt: Core ML's side, mlx-lm's decoder, and what the decoder says when it did the prefill itself."""

    def __init__(self, info: samples.SampleInfo) -> None:
        self.decoder = decoder_of(info)
        self.model = kvb.Model.load(info.path)
        self.contract = kvb.KVContract.from_model(self.model, **info.contract)
        self.inputs = info.inputs(seed=1)
        self.inputs["last_token"][:] = LIVE - 1
        self.fed = np.random.default_rng(5).integers(0, VOCAB, STEPS)
        own = self.new_caches()
        self.own_logits = np.array(self.decoder(mx.array(self.inputs["input_ids"][:, :LIVE]), cache=own)[0, -1])
        self.wanted = self.decoded(own)

    def new_caches(self) -> list[Any]:
        return [caches.KVCache() for _ in range(LAYERS)]

    def decoded(self, filled: list[Any]) -> np.ndarray:
        """Log-probabilities [steps, vocab] of the tokens after each that is fed."""
        rows = []
        for token in self.fed:
            logits = self.decoder(mx.array([[int(token)]]), cache=filled)[0, -1]
            rows.append(np.array(logits - mx.logsumexp(logits)))
        return np.stack(rows)

    def handed(self, owned: bool) -> list[Any]:
        filled = self.new_caches()
        options: dict[str, Any] = {"dtype": mx.float32, "model_dtype": mx.float32}
        if owned:
            backings = kvb.mlx.owned_backings(self.contract)
            prediction = backings.session(self.model).predict(self.inputs, live=LIVE)
            kvb.mlx.handoff(prediction, filled, self.contract, owned=backings, **options)
        else:
            with kvb.Session(self.model, self.contract, mechanism="raw") as session:
                kvb.mlx.handoff(session.predict(self.inputs, live=LIVE), filled, self.contract, **options)
        return filled

    def difference(self, filled: list[Any]) -> float:
        got = self.decoded(filled)
        return float("inf") if np.isnan(got).any() else float(np.abs(got - self.wanted).max())


@pytest.fixture(scope="module", params=[False, True], ids=["stacked", "per layer"])
def run(request: pytest.FixtureRequest, package: Callable[..., samples.SampleInfo]) -> Run:
    return Run(package("prefill", per_layer=request.param, **OPTIONS))


def test_the_prefill_is_the_model_that_decodes(run: Run) -> None:
    got = run.model.predict(run.inputs)["logits"][0].astype(np.float32)
    np.testing.assert_allclose(got, run.own_logits, atol=0.1)


@pytest.mark.parametrize("owned", [False, True], ids=["copied", "owned"])
def test_it_decodes_as_if_it_had_prefilled_itself(run: Run, owned: bool) -> None:
    filled = run.handed(owned)
    assert run.difference(filled) < CLOSE
    assert all(cache.offset == LIVE + STEPS for cache in filled)


def test_poison_beyond_the_live_rows_never_matters(run: Run) -> None:
    filled = run.handed(owned=False)
    for cache in filled:
        for array in (cache.keys, cache.values):
            assert array.shape[2] > LIVE
            array[:, :, LIVE:] = float("nan")
    assert run.difference(filled) < CLOSE


def spoil_offset(filled: list[Any]) -> None:
    for cache in filled:
        cache.offset = CAPACITY


def spoil_rows(filled: list[Any]) -> None:
    for cache in filled:
        cache.keys, cache.values = (mx.roll(a, 1, axis=2) for a in (cache.keys, cache.values))


def spoil_layers(filled: list[Any]) -> None:
    first, last = filled[0], filled[-1]
    first.keys, last.keys, first.values, last.values = last.keys, first.keys, last.values, first.values


def spoil_sides(filled: list[Any]) -> None:
    for cache in filled:
        cache.keys, cache.values = cache.values, cache.keys


@pytest.mark.parametrize("spoil", [spoil_offset, spoil_rows, spoil_layers, spoil_sides])
def test_a_wrong_hand_off_is_noticed(run: Run, spoil: Callable[[list[Any]], None]) -> None:
    filled = run.handed(owned=False)
    spoil(filled)
    assert run.difference(filled) > FAR
