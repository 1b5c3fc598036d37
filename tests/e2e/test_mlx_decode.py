"""A prompt prefilled by Core ML and decoded by mlx-lm, against mlx-lm alone with the same weights.

In the simulator's fp32 mode the generated tokens must be equal. In its fp16 mode they need not be, as between two
devices: there the numbers must only be nowhere near those of a wrong hand-off (benchmarks/tokens.py prints them).
"""

from __future__ import annotations

import math
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
generate = pytest.importorskip("mlx_lm.generate", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)
pytest.importorskip("coremltools", reason="coremltools is not installed (extra samples)", exc_type=ImportError)
simulated = kvb.runtime_info().kind == "simulator"
if simulated:
    from kvbacking import simulator

LIVE, TOKENS, CAPACITY, STEPS = 48, 56, 160, 64
SEEDS = {"llama": 4, "qwen3": 5}  # any will do whose reference has no near tie: see `Side.__init__`
EXACT = 1e-3  # log-probabilities: fp32 gave 8e-5
FAR = 1.0  # fp16 gave 0.01 to 0.22, wrong hand-offs 4 to 30


class Side:
    """A random decoder and what it says by itself after one prompt."""

    def __init__(self, family: str) -> None:
        self.decoder = kvb.mlx.random_decoder(family, SEEDS[family])
        vocab = self.decoder.args.vocab_size
        prompt = [int(t) for t in np.random.default_rng(100 + SEEDS[family]).integers(0, vocab, LIVE + 1)]
        self.wanted = kvb.mlx.reference(self.decoder, prompt, STEPS)
        assert len(set(self.wanted.tokens)) > STEPS // 2, "a decoder that repeats itself proves nothing"
        assert self.wanted.smallest_margin > 10 * EXACT
        self.inputs = {
            "input_ids": np.full((1, TOKENS), 7, np.int32), "last_token": np.array([LIVE - 1], np.int32),
        }  # fmt: skip
        self.inputs["input_ids"][0, :LIVE] = prompt[:-1]

    def new_caches(self) -> list[Any]:
        made: list[Any] = caches.make_prompt_cache(self.decoder)
        return made

    def own_caches(self) -> tuple[list[Any], Any]:
        """The caches and the last logits of mlx-lm's own prefill."""
        own = self.new_caches()
        logits = self.decoder(mx.array([self.wanted.prompt[:-1]]), cache=own)
        mx.eval(logits, [c.state for c in own])
        return own, logits[0, -1]

    def generated(self, filled: list[Any]) -> tuple[int, ...]:
        """What mlx-lm generates over filled caches, fed with the prompt's last token only."""
        steps = generate.generate_step(
            mx.array(self.wanted.prompt[-1:]), self.decoder, max_tokens=STEPS, prompt_cache=filled
        )
        return tuple(int(token) for token, _ in steps)

    def agreement(self, filled: list[Any]) -> kvb.mlx.Agreement:
        return kvb.mlx.agreement(self.decoder, filled, self.wanted)


class Prefill:
    """A side's prompt pass as a package, loaded with the numerics that are asked for."""

    def __init__(self, side: Side, info: samples.SampleInfo, numerics: str) -> None:
        self.side = side
        if simulated:
            with simulator.configured(numerics=numerics):
                self.model = kvb.Model.load(info.path)
        else:
            self.model = kvb.Model.load(info.path, compute_units="cpu_only")
        self.contract = kvb.KVContract.from_model(self.model, **info.contract)

    def handed(self, memory: str) -> list[Any]:
        filled = self.side.new_caches()
        options: dict[str, Any] = {"dtype": mx.float32, "model_dtype": mx.float32}
        if memory == "owned":
            backings = kvb.mlx.owned_backings(self.contract)
            session = kvb.Session(self.model, self.contract, mechanism="external", storage=backings)
            prediction = session.predict(self.side.inputs, live=LIVE)
            report = kvb.mlx.handoff(prediction, filled, self.contract, owned=backings, **options)
            if report.per_layer and prediction.path == "backing":
                assert {layer.method for layer in report.layers} == {"owned"}
        else:
            with kvb.Session(self.model, self.contract, mechanism="raw") as session:
                kvb.mlx.handoff(session.predict(self.side.inputs, live=LIVE), filled, self.contract, **options)
        return filled


@pytest.fixture(scope="module")
def side() -> Callable[[str], Side]:
    made: dict[str, Side] = {}

    def get(family: str) -> Side:
        return made.setdefault(family, made.get(family) or Side(family))

    return get


@pytest.fixture(scope="module")
def prefill(tmp_path_factory: pytest.TempPathFactory, side: Callable[[str], Side]) -> Callable[..., Prefill]:
    """prefill(family, dtype=, per_layer=, numerics=); every package is written once."""
    folder: Path = tmp_path_factory.mktemp("prefill")
    written: dict[str, samples.SampleInfo] = {}

    def get(
        family: str, *, dtype: str = "float32", per_layer: bool = True, numerics: str = "fp32"
    ) -> Prefill:  # fmt: skip
        name = f"{family}-{dtype}-{'layers' if per_layer else 'stacked'}"
        if name not in written:
            written[name] = kvb.mlx.write_prefill(
                side(family).decoder, folder / f"{name}.mlpackage", tokens=TOKENS, capacity=CAPACITY, dtype=dtype,
                per_layer=per_layer, logits=True,
            )  # fmt: skip
        return Prefill(side(family), written[name], numerics)

    return get


families = pytest.mark.parametrize("family", list(SEEDS))
memories = pytest.mark.parametrize("memory", ["copied", "owned"])
layouts = pytest.mark.parametrize("per_layer", [True, False], ids=["per layer", "stacked"])


@families
def test_the_package_is_the_model_that_decodes(family: str, prefill: Callable[..., Prefill]) -> None:
    run = prefill(family)
    own, logits = run.side.own_caches()
    got = run.model.predict(run.side.inputs)
    np.testing.assert_allclose(got["logits"][0], np.array(logits), atol=EXACT)
    for i, cache in enumerate(own):
        for stem, array in (("key", cache.keys), ("value", cache.values)):
            np.testing.assert_allclose(got[f"{stem}_cache_{i}"][:, :, :LIVE], np.array(array[:, :, :LIVE]), atol=EXACT)


@families
@layouts
@memories
def test_the_generated_tokens_are_those_of_an_uninterrupted_run(
    family: str, per_layer: bool, memory: str, prefill: Callable[..., Prefill]
) -> None:
    run = prefill(family, per_layer=per_layer)
    assert run.side.generated(run.handed(memory)) == run.side.wanted.tokens
    filled = run.handed(memory)
    found = run.side.agreement(filled)
    assert (found.equal, found.equal_before_difference, found.rate) == (STEPS, STEPS, 1.0)
    assert found.max_logprob_difference < EXACT
    assert all(cache.offset == LIVE + STEPS for cache in filled)


def test_the_reference_agrees_with_itself_exactly(side: Callable[[str], Side]) -> None:
    llama = side("llama")
    found = llama.agreement(llama.own_caches()[0])
    assert (found.equal, found.max_logprob_difference) == (STEPS, 0.0)


@families
@pytest.mark.parametrize("numerics", ["fp32", "fp16"])
@memories
def test_a_float16_prefill_stays_close(
    family: str, numerics: str, memory: str, prefill: Callable[..., Prefill]
) -> None:
    """Not equal: two devices that round differently need not choose the same token in a near tie."""
    run = prefill(family, dtype="float16", numerics=numerics)
    found = run.side.agreement(run.handed(memory))
    assert found.max_chosen_difference <= found.max_logprob_difference < FAR
    assert found.rate > 0.9


def test_float16_arithmetic_is_another_answer_than_float16_outputs(prefill: Callable[..., Prefill]) -> None:
    if not simulated:
        pytest.skip("needs a framework whose arithmetic can be chosen")
    runs = [prefill("qwen3", dtype="float16", numerics=numerics) for numerics in ("fp32", "fp16")]
    rounded, computed = (run.side.agreement(run.handed("copied")) for run in runs)
    assert 0 < rounded.max_logprob_difference < computed.max_logprob_difference


@families
@memories
def test_poison_beyond_the_live_rows_never_matters(
    family: str, memory: str, prefill: Callable[..., Prefill]
) -> None:  # fmt: skip
    run = prefill(family)
    filled = run.handed(memory)
    for cache in filled:
        for array in (cache.keys, cache.values):
            assert array.shape[2] >= LIVE + STEPS  # every row that will be decoded into begins as NaN
            array[:, :, LIVE:] = math.nan
    assert run.side.generated(filled) == run.side.wanted.tokens


@layouts
def test_poison_in_core_mls_memory_never_arrives(per_layer: bool, prefill: Callable[..., Prefill]) -> None:
    run = prefill("llama", per_layer=per_layer)
    contract = run.contract
    storage = {n: np.zeros(contract.shapes[n], contract.dtypes[n]) for n in contract.outputs}
    with kvb.Session(run.model, contract, mechanism="external", storage=[storage]) as session:
        prediction = session.predict(run.side.inputs, live=LIVE)
        if prediction.path != "backing":
            pytest.skip("this framework ignores the backing")
        for array in storage.values():
            array[:, :, LIVE:] = math.nan
        filled = run.side.new_caches()
        kvb.mlx.handoff(prediction, filled, contract)
    assert run.side.generated(filled) == run.side.wanted.tokens


def spoil_offset(filled: list[Any]) -> None:
    for cache in filled:
        cache.offset = cache.keys.shape[2]


def spoil_rows(filled: list[Any]) -> None:
    """Row 0 is empty, the last live row is lost. (Live rows in another order would rightly go unnoticed: attention does
    not see the order of keys that are rotated already.)"""
    for cache in filled:
        cache.keys, cache.values = (
            mx.concatenate([mx.zeros_like(a[:, :, :1]), a[:, :, :-1]], axis=2) for a in (cache.keys, cache.values)
        )


def spoil_layers(filled: list[Any]) -> None:
    first, last = filled[0], filled[-1]
    first.keys, last.keys, first.values, last.values = last.keys, first.keys, last.values, first.values


def spoil_sides(filled: list[Any]) -> None:
    for cache in filled:
        cache.keys, cache.values = cache.values, cache.keys


def spoil_everything(filled: list[Any]) -> None:
    """K/V of another prompt, as far as the decoder can tell: the same spread, no relation."""
    for cache in filled:
        cache.keys, cache.values = (
            mx.random.normal(a.shape, key=mx.random.key(1)) * mx.std(a[:, :, :LIVE]) for a in (cache.keys, cache.values)
        )


def spoil_padding(filled: list[Any]) -> None:
    """The whole window is handed over as if it were the prompt."""
    for cache in filled:
        cache.offset = TOKENS


@pytest.mark.parametrize(("family", "memory"), [("llama", "owned"), ("qwen3", "copied")])
@pytest.mark.parametrize(
    "spoil", [spoil_offset, spoil_rows, spoil_layers, spoil_sides, spoil_everything, spoil_padding]
)
def test_a_wrong_hand_off_is_noticed(
    family: str, memory: str, spoil: Callable[[list[Any]], None], prefill: Callable[..., Prefill]
) -> None:
    run = prefill(family)
    filled = run.handed(memory)
    spoil(filled)
    found = run.side.agreement(filled)
    assert found.equal_before_difference < STEPS // 2
    assert found.max_logprob_difference > FAR


def test_values_that_are_not_finite_never_agree(prefill: Callable[..., Prefill]) -> None:
    run = prefill("llama")
    filled = run.handed("copied")
    filled[0].values[:, :, LIVE - 1] = math.nan
    found = run.side.agreement(filled)
    assert (found.equal, found.max_logprob_difference) == (0, math.inf)


def test_float16_survives_activations_whose_squares_do_not(tmp_path: Path) -> None:
    """One loud channel of 3000, as trained models have them; MLX's own rows in float32 are what to come near to."""
    decoder = kvb.mlx.random_decoder("qwen3", 5)
    loud = np.array(decoder.model.embed_tokens.weight)
    loud[:, 3] = np.copysign(3000, loud[:, 3])
    decoder.model.embed_tokens.weight = mx.array(loud)
    info = kvb.mlx.write_prefill(decoder, tmp_path / "m.mlpackage", tokens=LIVE, capacity=LIVE, dtype="float16")
    prompt = info.inputs(seed=2)
    own = caches.make_prompt_cache(decoder)
    mx.eval(decoder(mx.array(prompt["input_ids"]), cache=own), [c.state for c in own])
    if simulated:
        with simulator.configured(numerics="fp16"):
            model = kvb.Model.load(info.path)
    else:
        model = kvb.Model.load(info.path)
    got = model.predict(prompt)
    for i, cache in enumerate(own):
        for stem, array in (("key", cache.keys), ("value", cache.values)):
            wanted = np.array(array[:, :, :LIVE])
            apart = np.linalg.norm(got[f"{stem}_cache_{i}"].astype(np.float32) - wanted)
            assert apart < 0.02 * np.linalg.norm(wanted)
