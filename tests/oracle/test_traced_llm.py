"""An LLM's prefill and its stateful decoder, written in torch and converted, against torch itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("coremltools")

import torch
from torch_models import LlamaPrefill, LlamaSizes, StatefulDecoder, settle
from torch_packages import RangeDim, StateType, TensorType, largest_difference, rounded, save

import kvbacking as kvb

SIZES = LlamaSizes()
TOKENS, CAPACITY = 12, 32
# An fp16 program holds the tables of the rotation rounded to fp16; an fp32 one does not.
TOLERANCE = {"fp16": 4e-3, "fp32": 2e-5}


def output_names(per_layer: bool, logits: bool) -> list[str]:
    parts = [f"_{layer}" for layer in range(SIZES.layers)] if per_layer else [""]
    return [f"{kind}_cache{part}" for kind in ("key", "value") for part in parts] + ["logits"] * logits


def write(module: LlamaPrefill, path: Path, names: list[str], target: str, **options: str) -> None:
    example = [torch.zeros(1, TOKENS, dtype=torch.int32)]
    inputs = [TensorType(name="tokens", shape=(1, TOKENS), dtype=np.int32)]
    outputs = [TensorType(name=name, dtype=np.float32) for name in names]
    save(module, example, path, inputs=inputs, outputs=outputs, target=target, **options)


@pytest.mark.parametrize("per_layer", [False, True], ids=["stacked", "per_layer"])
@pytest.mark.parametrize(
    ("target", "precision", "logits", "front_end"),
    [
        ("iOS16", "fp16", True, "trace"),
        ("iOS17", "fp32", False, "export"),
        ("iOS18", "fp16", False, "trace"),
        ("iOS26", "fp32", True, "export"),
    ],
)
def test_prefill(tmp_path: Path, per_layer: bool, target: str, precision: str, logits: bool, front_end: str) -> None:
    path, names = tmp_path / "prefill.mlpackage", output_names(per_layer, logits)
    module = rounded(settle(LlamaPrefill(SIZES, CAPACITY, per_layer, logits)))
    write(module, path, names, target, precision=precision, front_end=front_end)
    model = kvb.Model.load(path)
    tokens = torch.randint(SIZES.vocabulary, (1, TOKENS), generator=torch.Generator().manual_seed(8), dtype=torch.int32)
    got = model.predict({"tokens": tokens.numpy()})
    assert sorted(got) == sorted(names)
    with torch.inference_mode():
        for name, want in zip(names, module(tokens), strict=True):
            assert largest_difference(got[name], want) < TOLERANCE[precision], name
            if "cache" in name:
                assert not got[name][..., TOKENS:, :].any(), f"{name}: rows beyond the prompt"


def test_a_wrong_rotation_is_seen(tmp_path: Path) -> None:
    path, names = tmp_path / "prefill.mlpackage", output_names(False, False)
    module = rounded(settle(LlamaPrefill(SIZES, CAPACITY, False, False)))
    write(module, path, names, "iOS17", precision="fp32")
    tokens = torch.arange(TOKENS, dtype=torch.int32)[None]
    got = kvb.Model.load(path).predict({"tokens": tokens.numpy()})
    with torch.inference_mode():
        keys, _ = module(tokens)
    half = SIZES.head_dim // 2
    swapped = torch.cat([keys[..., half:], keys[..., :half]], dim=-1)
    assert largest_difference(got["key_cache"], swapped) > 0.1


@pytest.fixture(scope="module", params=["iOS18", "iOS26"])
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[StatefulDecoder, Path]:
    module = rounded(settle(StatefulDecoder(SIZES, CAPACITY)))
    path = tmp_path_factory.mktemp("decoder") / "decoder.mlpackage"
    end = RangeDim(lower_bound=1, upper_bound=CAPACITY, default=1)
    shape = tuple(module.key_cache.shape)
    save(
        module,
        [torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 1, 1, 5)],
        path,
        inputs=[
            TensorType(name="token", shape=(1, 1), dtype=np.int32),
            TensorType(name="mask", shape=(1, 1, 1, end), dtype=np.float16),
        ],
        outputs=[TensorType(name="logits", dtype=np.float32)],
        states=[
            StateType(wrapped_type=TensorType(shape=shape, dtype=np.float16), name=name)
            for name in ("key_cache", "value_cache")
        ],
        target=request.param,
    )
    return module, path


def inputs(token: int, end: int) -> dict[str, np.ndarray]:
    return {"token": np.array([[token]], np.int32), "mask": np.zeros((1, 1, 1, end), np.float16)}


def step(module: StatefulDecoder, token: int, end: int) -> torch.Tensor:
    """One step of torch's; its cache is rounded to fp16 afterwards, as a state is."""
    with torch.inference_mode():
        logits = module(torch.tensor([[token]], dtype=torch.int32), torch.zeros(1, 1, 1, end))
        for cache in (module.key_cache, module.value_cache):
            cache.copy_(cache.half().float())
        return logits


def test_stateful_decoder_over_steps(decoder: tuple[StatefulDecoder, Path]) -> None:
    module, path = decoder
    model = kvb.Model.load(path)
    state, fresh = model.new_state(), model.new_state()
    module.key_cache.zero_()
    module.value_cache.zero_()
    for position, token in enumerate([3, 90, 17, 17, 42, 5, 61, 8]):
        want = step(module, token, position + 1)
        got = model.predict(inputs(token, position + 1), state=state)["logits"]
        assert largest_difference(got, want) < 5e-3, f"step {position}"
    # The caches themselves, and that the comparison would have seen a state that was not kept.
    for name, cache in (("key_cache", module.key_cache), ("value_cache", module.value_cache)):
        assert largest_difference(state.read(name), cache) < 5e-3
        assert not state.read(name)[..., 8:, :].any()
    assert largest_difference(model.predict(inputs(8, 8), state=fresh)["logits"], want) > 0.05
