"""Converting an mlx-lm model's prompt pass: which models are refused, and that nothing is left out of those that are
not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
import kvbacking.mlx
from kvbacking.mlx.prefill import rope_of, weights_of

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
nn = pytest.importorskip("mlx.nn", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)


def test_every_weight_arrives_as_it_is() -> None:
    model = kvb.mlx.random_decoder("qwen3", 1)
    form, weights = weights_of(model)
    assert (form.layers, form.heads, form.kv_heads, form.head_dim, form.vocab) == (3, 4, 2, 32, 512)
    assert form.epsilon == 1e-5
    layer = model.model.layers[2]
    for ours, theirs in (
        ("query", layer.self_attn.q_proj),
        ("key_norm", layer.self_attn.k_norm),
        ("query_norm", layer.self_attn.q_norm),
        ("down", layer.mlp.down_proj),
        ("mlp_norm", layer.post_attention_layernorm),
    ):
        np.testing.assert_array_equal(weights[ours][2], np.array(theirs.weight))
    np.testing.assert_array_equal(weights["unembedding"], np.array(model.lm_head.weight))
    assert len(weights) == 14


def test_tied_embeddings_and_bfloat16() -> None:
    model = kvb.mlx.random_decoder("llama", tie_word_embeddings=True)
    model.set_dtype(mx.bfloat16)
    _, weights = weights_of(model)
    assert "unembedding" not in weights
    assert {w.dtype.name for w in weights.values()} == {"float32"}
    np.testing.assert_array_equal(
        weights["embedding"], np.array(model.model.embed_tokens.weight.astype(mx.float32))
    )  # fmt: skip


LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 4.0}, LLAMA3])
def test_angles_are_those_of_the_model(scaling: dict[str, Any] | None) -> None:
    model = kvb.mlx.random_decoder("llama", rope_scaling=scaling, rope_theta=5000.0)
    cos, sin = rope_of(model.layers[0].self_attn.rope, 300, 32)
    x = np.random.default_rng(0).standard_normal((300, 32), dtype=np.float32)
    wanted = np.array(model.layers[0].self_attn.rope(mx.array(x[None, None])))[0, 0]
    a, b = x[:, :16], x[:, 16:]
    np.testing.assert_allclose(np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1), wanted, atol=1e-6)
    plain = np.cos(np.arange(300)[:, None] * 5000.0 ** (-np.arange(16) / 16))
    assert (np.abs(cos - plain).max() < 1e-4) == (scaling is None)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_next", {}, "'qwen3_next' cannot be converted: llama, qwen3 can"),
    ("llama", {"attention_bias": True}, "attention_bias is True"),
    ("llama", {"mlp_bias": True}, "mlp_bias is True"),
    ("llama", {"rope_traditional": True}, "rope_traditional is True"),
    ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling is dynamic"),
    (
        "llama",
        {"sliding_window": 8, "layer_types": ["full_attention", *["sliding_attention"] * 2]},
        "sliding_window is 8",
    ),
]


@pytest.mark.parametrize(("family", "options", "message"), REFUSED)
def test_a_model_that_would_come_out_different_is_refused(
    tmp_path: Path, family: str, options: dict[str, Any], message: str
) -> None:
    model = kvb.mlx.random_decoder(family, **options)
    with pytest.raises(kvb.ContractError, match=re.escape(message)):
        kvb.mlx.write_prefill(model, tmp_path / "m.mlpackage", tokens=4, capacity=8)
    assert not list(tmp_path.iterdir())


def test_quantised_and_foreign_parameters_are_refused() -> None:
    model = kvb.mlx.random_decoder("llama")
    nn.quantize(model, group_size=32, bits=4)
    with pytest.raises(kvb.ContractError, match="quantised weights cannot be converted"):
        weights_of(model)
    model = kvb.mlx.random_decoder("llama")
    model.model.layers[1].self_attn.extra_norm = nn.RMSNorm(8)
    with pytest.raises(kvb.ContractError, match=r"would ignore: model\.layers\.1\.self_attn\.extra_norm\.weight"):
        weights_of(model)
    with pytest.raises(kvb.ContractError, match="a model of type None"):
        weights_of(object())


def test_arguments_are_checked_first(tmp_path: Path) -> None:
    model = kvb.mlx.random_decoder("llama")
    with pytest.raises(ValueError, match="must end in"):
        kvb.mlx.write_prefill(model, tmp_path / "m", tokens=4, capacity=8)
    with pytest.raises(ValueError, match="'bfloat16' is not one of float16, float32"):
        kvb.mlx.write_prefill(model, tmp_path / "m.mlpackage", tokens=4, capacity=8, dtype="bfloat16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'gpt' is not one of llama, qwen3, qwen3_next"):
        kvb.mlx.random_decoder("gpt")
    with pytest.raises(ValueError, match="at least 2 tokens and 1 step, got 1 and 4"):
        kvb.mlx.reference(model, [1], 4)
