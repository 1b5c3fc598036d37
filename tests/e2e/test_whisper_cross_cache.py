"""Cross-attention K/V of a Core ML package in mlx-whisper's cache, against the K/V that mlx-whisper projects itself.

Where each row of the features holds one number, every product is exact whatever the order of its sums: the package's
K/V are then mlx-whisper's bit for bit, and so must be all logits. mlx-whisper masks no cross-attention rows: zeros
behind row 1500 move the logits without changing a token, which is why logits are compared here and not tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking import samples

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
whisper = pytest.importorskip(
    "mlx_whisper.whisper",
    reason="mlx-whisper is not installed (scripts/fetch-whisper --runtime)",
    exc_type=ImportError,
)
pytest.importorskip("coremltools", reason="coremltools is not installed (extra samples)", exc_type=ImportError)
utils = pytest.importorskip("mlx.utils")

LAYERS, WIDTH, HEADS, LIVE, CAPACITY, VOCAB = 2, 64, 4, 1500, 1536, 256
PROMPT, STEPS = (1, 2, 3, 4), 12
SIZES = {"layers": LAYERS, "width": WIDTH, "rows": LIVE, "capacity": CAPACITY}
OUTPUTS = ("cross_k", "cross_v")
Pairs = list[tuple[Any, Any]]


@dataclass(frozen=True)
class Said:
    """Logits of the prompt and of every step, and the tokens that were chosen."""

    logits: np.ndarray
    tokens: list[int]
    cache: list[Any]


class Text:
    """mlx-whisper's decoder in float32 with random weights and the package's projections."""

    def __init__(self, info: samples.SampleInfo) -> None:
        self.decoder = whisper.TextDecoder(VOCAB, 64, WIDTH, HEADS, LAYERS, mx.float32)
        rng = np.random.default_rng(2)
        drawn = {}
        for name, value in utils.tree_flatten(self.decoder.parameters()):
            spread = math.sqrt(6 / value.shape[-1]) if value.ndim == 2 else 0.05
            if name == "positional_embedding":
                spread = 3.0  # else every token would call for itself again: the embedding is the output matrix, too
            drawn[name] = rng.standard_normal(value.shape) * spread + name.endswith("ln.weight")
        drawn = {name: mx.array(value.astype(np.float32)) for name, value in drawn.items()}
        for i in range(LAYERS):
            for which, name in (("key", "key.weight"), ("value", "value.weight"), ("value_bias", "value.bias")):
                drawn[f"blocks.{i}.cross_attn.{name}"] = mx.array(info.weights[which][i])
        self.decoder.load_weights(list(drawn.items()))
        mx.eval(self.decoder.parameters())

    def alone(self, features: np.ndarray, forced: list[int] | None = None) -> Said:
        """It projects K/V from the features by itself."""
        return self._run(mx.array(features.astype(np.float32)), None, forced)

    def seeded(self, pairs: Pairs, forced: list[int] | None = None) -> Said:
        """It is given K and V of each layer and never sees the features."""
        empty = mx.zeros((1, 0, WIDTH))
        return self._run(mx.zeros((1, 1, WIDTH)), [((empty, empty), pair) for pair in pairs], forced)

    def _run(self, features: Any, cache: Any, forced: list[int] | None) -> Said:
        logits, cache, _ = self.decoder(mx.array([PROMPT]), features, cache)
        rows, tokens = [np.array(logits[0])], [int(mx.argmax(logits[0, -1]))]
        for step in range(STEPS):
            fed = tokens[-1] if forced is None else forced[step]
            logits, cache, _ = self.decoder(mx.array([[fed]]), features, cache)
            rows.append(np.array(logits[0]))
            tokens.append(int(mx.argmax(logits[0, -1])))
        return Said(np.concatenate(rows), tokens, cache)


def separate(seed: int) -> np.ndarray:
    """[1, 1500, width]: one power of two per row, the rest zero."""
    rng = np.random.default_rng(seed)
    features = np.zeros((1, LIVE, WIDTH), np.float32)
    features[0, np.arange(LIVE), rng.integers(0, WIDTH, LIVE)] = rng.choice([-2, -1, -0.5, 0.5, 1, 2], LIVE)
    return features


def in_float32(rows: kvb.mlx.CrossRows) -> Pairs:
    return [(k.astype(mx.float32), v.astype(mx.float32)) for k, v in rows.arrays]


class Run:
    def __init__(self, info: samples.SampleInfo, features: np.ndarray) -> None:
        self.text = Text(info)
        self.model = kvb.Model.load(info.path)
        self.contract = kvb.KVContract.from_model(self.model, **info.contract)
        self.features = features
        self.inputs = {"features": features.astype(self.contract.dtypes["cross_k"])}
        self.alone = self.text.alone(features)
        assert len(set(self.alone.tokens)) > STEPS // 2, "a decoder that repeats itself proves nothing"

    def handed(self, mechanism: str) -> Pairs:
        with kvb.Session(self.model, self.contract, mechanism=mechanism) as session:
            return in_float32(kvb.mlx.cross(session.predict(self.inputs)))

    def whole(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Per layer K and V with all 1536 rows."""
        got = self.model.predict(self.inputs)
        k, v = (got[name].astype(np.float32) for name in OUTPUTS)
        return [(k[i : i + 1], v[i : i + 1]) for i in range(LAYERS)]


@pytest.fixture(scope="module")
def exact(package: Callable[..., samples.SampleInfo]) -> Run:
    """Float32 throughout, features whose products are exact."""
    return Run(package("fp32io", compute="fp32", **SIZES), separate(1))


@pytest.fixture(scope="module")
def rounded(package: Callable[..., samples.SampleInfo]) -> Run:
    """A float16 package of the Turbo family and features as they come."""
    features = np.random.default_rng(3).standard_normal((1, LIVE, WIDTH)).astype(np.float16)
    return Run(package("turbo", **SIZES), features.astype(np.float32))


@pytest.mark.parametrize("memory", ["copied", "owned", "adopted"])
def test_every_logit_is_the_one_that_mlx_whisper_makes_alone(
    exact: Run, memory: str, request: pytest.FixtureRequest
) -> None:
    if kvb.runtime_info().kind != "simulator":
        pytest.skip("bits are promised by the simulator's arithmetic only")
    owned = kvb.mlx.owned_backings(exact.contract) if memory == "owned" else None
    if memory == "adopted":
        request.getfixturevalue("adopting")
    options: dict[str, Any] = {"mechanism": "raw"} if owned is None else {"mechanism": "external", "storage": owned}
    with kvb.Session(exact.model, exact.contract, **options) as session:
        rows = kvb.mlx.cross(session.predict(exact.inputs), copy=memory == "copied" or None, owned=owned)
        assert {layer.method for layer in rows.layers} == {memory}
        assert {tuple(a.shape) for pair in rows.arrays for a in pair} == {(1, LIVE, WIDTH)}
        got = exact.text.seeded(list(rows.arrays))
        np.testing.assert_array_equal(got.logits, exact.alone.logits)
        assert got.logits.shape == (len(PROMPT) + STEPS, VOCAB)
        assert got.tokens == exact.alone.tokens
        # The rows were read where they lie until the end: Core ML's own memory, unless they were copied.
        kept = [tuple(kvb.mlx.address_of(a) for a in cross) for _, cross in got.cache]
        assert kept == [layer.cache_addresses for layer in rows.layers]
        assert all(layer.same_address == (memory != "copied") for layer in rows.layers)


@pytest.mark.parametrize("mechanism", ["raw", "surface", "pool", "framework"])
def test_a_float16_package_moves_the_logits_by_its_rounding_only(rounded: Run, mechanism: str) -> None:
    """Bound: rounding mlx-whisper's own K/V to float16 moves the logits as far, but for a few last bits that the order
    of a sum decides."""
    own = [cross for _, cross in rounded.alone.cache]
    halved = [(k.astype(mx.float16).astype(mx.float32), v.astype(mx.float16).astype(mx.float32)) for k, v in own]
    tokens = rounded.alone.tokens
    floor = np.abs(rounded.text.seeded(halved, tokens).logits - rounded.alone.logits).max()
    got = rounded.text.seeded(rounded.handed(mechanism), tokens)
    found = np.abs(got.logits - rounded.alone.logits).max()
    assert 0 < found < 2 * floor < 0.01
    assert got.tokens == tokens


@pytest.mark.parametrize("run", ["exact", "rounded"])
def test_zero_rows_move_the_logits_and_no_token(run: str, request: pytest.FixtureRequest) -> None:
    """What a comparison of tokens would miss."""
    chosen: Run = request.getfixturevalue(run)
    whole = chosen.whole()
    assert all(not a[:, LIVE:].any() for pair in whole for a in pair)
    got = chosen.text.seeded([(mx.array(k), mx.array(v)) for k, v in whole])
    sliced = chosen.text.seeded([(mx.array(k[:, :LIVE]), mx.array(v[:, :LIVE])) for k, v in whole])
    assert got.tokens == sliced.tokens == chosen.alone.tokens
    moved = np.abs(got.logits - chosen.alone.logits).max()
    noise = np.abs(sliced.logits - chosen.alone.logits).max()
    assert moved > 1e-3
    assert moved > 10 * noise


def test_nan_rows_destroy_every_logit(exact: Run) -> None:
    pairs = []
    for k, v in exact.whole():
        k[:, LIVE:], v[:, LIVE:] = math.nan, math.nan
        pairs.append((mx.array(k), mx.array(v)))
    assert np.isnan(exact.text.seeded(pairs).logits).all()


def test_nan_in_core_mls_memory_behind_the_live_rows_never_arrives(exact: Run) -> None:
    contract = exact.contract
    storage = {n: np.zeros(contract.shapes[n], contract.dtypes[n]) for n in contract.outputs}
    with kvb.Session(exact.model, contract, mechanism="external", storage=[storage]) as session:
        prediction = session.predict(exact.inputs)
        if prediction.path != "backing":
            pytest.skip("this framework ignores the backing")
        for array in storage.values():
            array[:, LIVE:] = math.nan
        got = exact.text.seeded(in_float32(kvb.mlx.cross(prediction)))
    np.testing.assert_array_equal(got.logits, exact.alone.logits)


def swap_layers(pairs: Pairs) -> Pairs:
    return pairs[::-1]


def swap_sides(pairs: Pairs) -> Pairs:
    return [(v, k) for k, v in pairs]


def lose_a_row(pairs: Pairs) -> Pairs:
    return [(k[:, :-1], v[:, :-1]) for k, v in pairs]


def shift_keys(pairs: Pairs) -> Pairs:
    """Keys no longer belong to their values. (Rows moved together would go unnoticed, rightly: their order is in no
    rotation here.)"""
    return [(mx.roll(k, 1, axis=1), v) for k, v in pairs]


@pytest.mark.parametrize("spoil", [swap_layers, swap_sides, lose_a_row, shift_keys])
def test_a_wrong_hand_off_moves_the_logits(rounded: Run, spoil: Callable[[Pairs], Pairs]) -> None:
    tokens = rounded.alone.tokens
    right = np.abs(rounded.text.seeded(rounded.handed("raw"), tokens).logits - rounded.alone.logits).max()
    wrong = np.abs(rounded.text.seeded(spoil(rounded.handed("raw")), tokens).logits - rounded.alone.logits).max()
    assert wrong > 2 * right
