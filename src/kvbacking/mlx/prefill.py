"""The prompt pass of an mlx-lm model as a Core ML package: the other half of a hand-off, from the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.errors import ContractError
from kvbacking.mlx.arrays import core, optional_module
from kvbacking.samples.info import Array, SampleInfo
from kvbacking.samples.toolkit import quiet, tools
from kvbacking.samples.transformer import DTypeName, Transformer, write_transformer

FAMILIES = ("llama", "qwen3")

# the writer's name -> the parameter's in mlx-lm
_OF_LAYER = {
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "out": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm", "query_norm": "self_attn.q_norm", "key_norm": "self_attn.k_norm",
}  # fmt: skip
_OF_MODEL = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "unembedding": "lm_head"}


def write_prefill(
    model: Any,
    path: str | Path,
    *,
    tokens: int,
    capacity: int,
    dtype: DTypeName = "float16",
    per_layer: bool = True,
    logits: bool = False,
    target: str = "macOS15",
) -> SampleInfo:
    """Writes the package: input_ids int32 [1, tokens] -> K/V of `capacity` rows for every layer of `model`, which is a
    Model of mlx_lm.models.llama or .qwen3, unquantised and with half-split RoPE.

    Angles are read off the model's own rotation, scaled or not, and keys leave the package rotated and normalised as
    mlx-lm keeps them, so `handoff` may fill the model's own caches. The window is static: fill input_ids behind the
    prompt with any token, pass the prompt's length as `live`. Weights are rounded to `dtype`, in which the package
    computes and answers; in float16 no activation may exceed 65504. Weights are held in memory a few times over. Needs
    the `samples` extra. Raises ContractError for a model that the package could not reproduce, ValueError,
    SamplesUnavailableError, MlxUnavailableError.
    """
    target_path = Path(path)
    if target_path.suffix != ".mlpackage":
        raise ValueError(f"{target_path.name!r} must end in .mlpackage")
    if dtype not in ("float16", "float32"):
        raise ValueError(f"dtype {dtype!r} is not one of float16, float32")
    form, weights = weights_of(model)
    tools()
    target_path.parent.mkdir(parents=True, exist_ok=True)
    with quiet():
        return write_transformer(
            target_path, form, weights, tokens=tokens, capacity=capacity, per_layer=per_layer, logits=logits,
            target=target, dtype=dtype, rope=rope_of(model.layers[0].self_attn.rope, tokens, form.head_dim),
            scaled_norms=dtype == "float16",
        )  # fmt: skip


def weights_of(model: Any) -> tuple[Transformer, dict[str, Array]]:
    """Sizes and float32 weights of an mlx-lm model as `write_transformer` takes them. Raises ContractError."""
    args: Any = getattr(model, "args", None)
    family = getattr(args, "model_type", None)
    if family not in FAMILIES:
        raise ContractError(f"[mlx.prefill] a model of type {family!r} cannot be converted: {', '.join(FAMILIES)} can")
    unlike = {
        "attention_bias": False, "mlp_bias": False, "rope_traditional": False, "sliding_window": None,
    }  # fmt: skip
    for name, plain in unlike.items():
        given = getattr(args, name, plain)
        if given != plain:
            raise ContractError(f"[mlx.prefill] {name} is {given!r}, only {plain!r} can be converted")
    scaling = getattr(args, "rope_scaling", None) or {}
    if "dynamic" in (scaling.get("type"), scaling.get("rope_type")):
        raise ContractError("[mlx.prefill] rope_scaling is dynamic: angles that move with the length are in no table")
    form = Transformer(
        layers=args.num_hidden_layers,
        heads=args.num_attention_heads,
        kv_heads=args.num_key_value_heads,
        head_dim=args.head_dim or args.hidden_size // args.num_attention_heads,
        hidden=args.hidden_size,
        vocab=args.vocab_size,
        epsilon=args.rms_norm_eps,
    )
    parameters = dict(optional_module("mlx.utils").tree_flatten(model.parameters()))
    mx = core()

    def array(name: str) -> Array:
        value = parameters.pop(name)
        if not mx.issubdtype(value.dtype, mx.floating):
            raise ContractError(f"[mlx.prefill] {name} is {value.dtype}: quantised weights cannot be converted")
        return np.array(value.astype(mx.float32))

    weights = {ours: array(f"{name}.weight") for ours, name in _OF_MODEL.items() if f"{name}.weight" in parameters}
    for ours, name in _OF_LAYER.items():
        names = [f"model.layers.{i}.{name}.weight" for i in range(form.layers)]
        if names[0] in parameters:
            weights[ours] = np.stack([array(name) for name in names])
    if parameters:
        raise ContractError(f"[mlx.prefill] parameters that the package would ignore: {', '.join(sorted(parameters))}")
    return form, weights


def rope_of(rotation: Any, tokens: int, size: int) -> tuple[Array, Array]:
    """cos and sin [tokens, size // 2] of positions 0 to tokens - 1, as a model's own layer of `size` rotated dimensions
    makes them: it rotates (1, 0) in every plane."""
    mx = core()
    half = size // 2
    planes = mx.concatenate([mx.ones((1, 1, tokens, half)), mx.zeros((1, 1, tokens, half))], axis=-1)
    rotated = np.array(rotation(planes))[0, 0]
    return rotated[:, :half], rotated[:, half:]
