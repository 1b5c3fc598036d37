"""The prompt pass of a small mlx-lm qwen3_next (gated delta rule before attention, dense MLPs) as a float32 package
with a static window, with the padding kept out of the recurrent state or not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.mlx.prefill import rope_of
from kvbacking.samples.toolkit import convert, quiet, save, target_of, tools
from kvbacking.samples.transformer import MASKED

TARGET = "macOS15"


class HybridPass:
    """Builds the operations of one window of `tokens`."""

    def __init__(self, model: Any, tokens: int) -> None:
        self.mb = tools().mb
        self.args, self.tokens = model.args, tokens

    @staticmethod
    def array(parameter: Any) -> np.ndarray:
        return np.array(parameter)

    def linear(self, x: Any, module: Any) -> Any:
        return self.mb.linear(x=x, weight=self.array(module.weight))

    def norm(self, x: Any, epsilon: float, gain: Any = None) -> Any:
        mb = self.mb
        mean = mb.reduce_mean(x=mb.mul(x=x, y=x), axes=[-1], keep_dims=True)
        scaled = mb.mul(x=x, y=mb.rsqrt(x=mean, epsilon=np.float32(epsilon)))
        return scaled if gain is None else mb.mul(x=scaled, y=self.array(gain))

    def part(self, x: Any, begin: int, end: int) -> Any:
        """x[..., begin:end] of a rank 4 value."""
        shape = [int(d) for d in x.shape]
        return self.mb.slice_by_index(x=x, begin=[0, 0, 0, begin], end=[*shape[:3], end])

    def shaped(self, x: Any, *shape: int) -> Any:
        return self.mb.reshape(x=x, shape=list(shape))

    def mlp(self, x: Any, module: Any) -> Any:
        gate = self.mb.silu(x=self.linear(x, module.gate_proj))
        return self.linear(self.mb.mul(x=gate, y=self.linear(x, module.up_proj)), module.down_proj)

    def attention(self, x: Any, module: Any) -> tuple[Any, Any, Any]:
        """Output, keys, values."""
        mb, a, t = self.mb, self.args, self.tokens
        size, rotated = a.head_dim, int(a.head_dim * a.partial_rotary_factor)
        heads, kv = a.num_attention_heads, a.num_key_value_heads
        both = self.shaped(self.linear(x, module.q_proj), 1, t, heads, 2 * size)
        query, gate = self.part(both, 0, size), self.shaped(self.part(both, size, 2 * size), 1, t, heads * size)
        key = self.shaped(self.linear(x, module.k_proj), 1, t, kv, size)
        value = self.shaped(self.linear(x, module.v_proj), 1, t, kv, size)
        cos, sin = rope_of(module.rope, t, rotated)

        def turned(h: Any, gain: Any) -> Any:
            h = mb.transpose(x=self.norm(h, a.rms_norm_eps, gain), perm=[0, 2, 1, 3])
            first, second = self.part(h, 0, rotated // 2), self.part(h, rotated // 2, rotated)
            return mb.concat(
                values=[
                    mb.sub(x=mb.mul(x=first, y=cos), y=mb.mul(x=second, y=sin)),
                    mb.add(x=mb.mul(x=second, y=cos), y=mb.mul(x=first, y=sin)),
                    self.part(h, rotated, size),
                ],
                axis=-1,
            )

        query, key = turned(query, module.q_norm.weight), turned(key, module.k_norm.weight)
        value = mb.transpose(x=value, perm=[0, 2, 1, 3])
        wide = [
            self.shaped(mb.tile(x=mb.expand_dims(x=c, axes=[2]), reps=[1, 1, heads // kv, 1, 1]), 1, heads, t, size)
            for c in (key, value)
        ]
        mask = np.triu(np.full((t, t), MASKED, np.float32), k=1)[None, None]
        mixed = mb.scaled_dot_product_attention(query=query, key=wide[0], value=wide[1], attn_mask=mask)
        joined = self.shaped(mb.transpose(x=mixed, perm=[0, 2, 1, 3]), 1, t, heads * size)
        return self.linear(mb.mul(x=joined, y=mb.sigmoid(x=gate)), module.o_proj), key, value

    def delta(self, x: Any, m: Any, live: Any) -> tuple[Any, Any, Any]:
        """Output, state of the convolution [1, kernel - 1, channels], recurrent state [1, heads, values, keys]. `live`
        is [1, tokens] of ones and zeros and the number of ones, or None."""
        mb, t = self.mb, self.tokens
        nk, nv, dk, dv = m.num_k_heads, m.num_v_heads, m.head_k_dim, m.head_v_dim
        group, kernel = nv // nk, m.conv_kernel_size
        whole = self.shaped(self.linear(x, m.in_proj_qkvz), 1, t, nk, -1)
        edges = np.cumsum([0, dk, dk, group * dv, group * dv])
        q, k, v, z = (self.part(whole, int(b), int(e)) for b, e in pairwise(edges))
        ba = self.shaped(self.linear(x, m.in_proj_ba), 1, t, nk, -1)
        b, a = (self.shaped(self.part(ba, i * group, (i + 1) * group), 1, t, nv) for i in (0, 1))
        mixed = mb.concat(values=[self.shaped(part, 1, t, -1) for part in (q, k, v)], axis=-1)
        beta = mb.sigmoid(x=b)
        rate = -np.exp(self.array(m.A_log))
        decay = mb.exp(x=mb.mul(x=mb.softplus(x=mb.add(x=a, y=self.array(m.dt_bias))), y=rate))
        if live is not None:
            mask, count = live
            column = mb.expand_dims(x=mask, axes=[-1])
            mixed, beta = mb.mul(x=mixed, y=column), mb.mul(x=beta, y=column)
            decay = mb.add(x=mb.mul(x=decay, y=column), y=mb.sub(x=np.float32(1), y=column))
        padded = mb.pad(x=mixed, pad=[0, 0, kernel - 1, 0, 0, 0], mode="constant", constant_val=np.float32(0))
        kept = np.arange(kernel - 1, dtype=np.int32)
        rows = t + kept if live is None else mb.add(x=count, y=kept)
        conv_state = mb.gather(x=padded, indices=rows, axis=1, validate_indices=False)
        weight = self.array(m.conv1d.weight)[:, :, 0]  # [channels, kernel]
        taps = [
            mb.mul(x=mb.slice_by_index(x=padded, begin=[0, i, 0], end=[1, i + t, weight.shape[0]]), y=weight[:, i])
            for i in range(kernel)
        ]
        summed = taps[0]
        for tap in taps[1:]:
            summed = mb.add(x=summed, y=tap)
        out = mb.silu(x=summed)
        sizes = np.cumsum([0, nk * dk, nk * dk, nv * dv])
        split = [mb.slice_by_index(x=out, begin=[0, 0, int(b)], end=[1, t, int(e)]) for b, e in pairwise(sizes)]
        scale = np.float32(dk**-0.5)
        q = mb.mul(x=self.norm(self.shaped(split[0], 1, t, nk, dk), 1e-6 * scale**2), y=scale**2)
        k = mb.mul(x=self.norm(self.shaped(split[1], 1, t, nk, dk), 1e-6 * scale**2), y=scale)
        v = self.shaped(split[2], 1, t, nv, dv)
        q, k = (
            self.shaped(mb.tile(x=mb.expand_dims(x=s, axes=[3]), reps=[1, 1, 1, group, 1]), 1, t, nv, dk)
            for s in (q, k)
        )
        state: Any = np.zeros((1, nv, dv, dk), np.float32)
        said = []
        for i in range(t):

            def at(s: Any, *shape: int, i: int = i) -> Any:
                return self.shaped(mb.gather(x=s, indices=np.array([i]), axis=1, validate_indices=False), *shape)

            key, query = at(k, 1, nv, 1, dk), at(q, 1, nv, 1, dk)
            state = mb.mul(x=at(decay, 1, nv, 1, 1), y=state)
            known = mb.reduce_sum(x=mb.mul(x=state, y=key), axes=[-1], keep_dims=True)
            new = mb.mul(x=mb.sub(x=at(v, 1, nv, dv, 1), y=known), y=at(beta, 1, nv, 1, 1))
            state = mb.add(x=state, y=mb.mul(x=new, y=key))
            said.append(self.shaped(mb.reduce_sum(x=mb.mul(x=state, y=query), axes=[-1]), 1, 1, nv, dv))
        heads = self.norm(mb.concat(values=said, axis=1), m.layer_norm_epsilon, m.norm.weight)
        gated = mb.mul(x=heads, y=mb.silu(x=self.shaped(z, 1, t, nv, dv)))
        return self.linear(self.shaped(gated, 1, t, nv * dv), m.out_proj), conv_state, state


def write_hybrid(model: Any, path: Path, *, tokens: int, capacity: int, masked: bool) -> dict[str, Any]:
    """input_ids int32 [1, tokens] and live int32 [1] -> key_cache, value_cache [1, kv_heads, capacity, head_dim] of the
    one attention layer, conv_i and recurrent_i of the others; with masked=False `live` is not looked at. Returns the
    arguments for a contract."""
    with quiet():
        t = tools()
        mb, build = t.mb, HybridPass(model, tokens)
        epsilon = model.args.rms_norm_eps

        def body(input_ids: Any, live: Any) -> Any:
            mask = None
            if masked:
                ones = mb.cast(x=mb.less(x=np.arange(tokens, dtype=np.int32)[None], y=live), dtype="fp32")
                mask = ones, live
            x = mb.gather(
                x=build.array(model.model.embed_tokens.weight), indices=input_ids, axis=0, validate_indices=False
            )
            rows, states = [], []
            for i, layer in enumerate(model.layers):
                normed = build.norm(x, epsilon, layer.input_layernorm.weight)
                if layer.is_linear:
                    out, conv, recurrent = build.delta(normed, layer.linear_attn, mask)
                    states += [mb.identity(x=conv, name=f"conv_{i}"), mb.identity(x=recurrent, name=f"recurrent_{i}")]
                else:
                    out, *kv = build.attention(normed, layer.self_attn)
                    pad = [0, 0, 0, 0, 0, capacity - tokens, 0, 0]
                    rows += [
                        mb.pad(x=c, pad=pad, mode="constant", constant_val=np.float32(0), name=f"{stem}_cache")
                        for stem, c in zip(("key", "value"), kv, strict=True)
                    ]
                x = mb.add(x=x, y=out)
                x = mb.add(x=x, y=build.mlp(build.norm(x, epsilon, layer.post_attention_layernorm.weight), layer.mlp))
            return (*rows, *states)

        specs = [mb.TensorSpec(shape=(1, tokens), dtype=t.types.int32), mb.TensorSpec(shape=(1,), dtype=t.types.int32)]
        program = mb.program(input_specs=specs, opset_version=target_of(TARGET))(body)
        linear = [i for i, layer in enumerate(model.layers) if layer.is_linear]
        states = tuple(name for i in linear for name in (f"conv_{i}", f"recurrent_{i}"))
        backed = ("key_cache", "value_cache")
        outputs = [t.ct.TensorType(name=name, dtype=np.float32) for name in (*backed, *states)]
        save(convert(program, target=TARGET, outputs=outputs, compute="fp32"), path)
    return {
        "outputs": backed, "live": tokens, "axis": 2, "tail": "any", "unbacked": states, "sensitive_to": ("input_ids",),
    }  # fmt: skip
