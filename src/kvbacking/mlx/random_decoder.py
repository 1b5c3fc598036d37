"""Tiny decoders of mlx-lm with random weights: models to try a hand-off with, made offline in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvbacking.mlx.arrays import core, optional_module

_SIZES: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "vocab_size": 512, "rope_theta": 10000.0,
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    # Three recurrent layers (gated delta rule) before each one with attention.
    "qwen3_next": {
        "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
        "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 0, "num_experts_per_tok": 1,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64, "partial_rotary_factor": 0.25, "norm_topk_prob": True,
    },
}  # fmt: skip


def random_decoder(family: str, seed: int = 0, **options: Any) -> Any:
    """A float32 model of mlx_lm.models.<family> ("llama", "qwen3", "qwen3_next"), sizes as in its config.json through
    `options`. Weights are exact in float16 too, so that a package of that dtype has the same.

    Its spread is sqrt(6 / fan_in): with less, a random model says the same token whatever its context, and no
    comparison of tokens could fail. Raises ValueError, MlxUnavailableError.
    """
    if family not in _FAMILIES:
        raise ValueError(f"family {family!r} is not one of {', '.join(_FAMILIES)}")
    mx = core()
    module = optional_module(f"mlx_lm.models.{family}")
    config = {"model_type": family, **_SIZES, **_FAMILIES[family], **options}
    model = module.Model(module.ModelArgs.from_dict(config))
    rng = np.random.default_rng(seed)
    drawn = []
    for name, value in optional_module("mlx.utils").tree_flatten(model.parameters()):
        if value.ndim == 1:  # gains of norms; decay and time step of a recurrence
            new = rng.uniform(0.5, 1.5, value.shape)
        else:
            new = rng.standard_normal(value.shape) * np.sqrt(6 * value.shape[0] / value.size)
        drawn.append((name, mx.array(new.astype(np.float16).astype(np.float32))))
    model.load_weights(drawn)
    mx.eval(model.parameters())
    return model
