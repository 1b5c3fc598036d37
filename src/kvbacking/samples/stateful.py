"""`stateful`: one decoder step whose K/V caches live in an MLState (macOS 15).

Each step writes the new K and V row at `position` into the states, attends over rows 0..position, and returns the
result and the rows it wrote. The states start at zero and keep what earlier steps wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.info import Array, InputSpec, SampleInfo
from kvbacking.samples.toolkit import convert, save, target_of, tools
from kvbacking.samples.transformer import MASKED


def draw_weights(rng: np.random.Generator, layers: int, heads: int, head_dim: int) -> dict[str, Array]:
    """query, key, value, out [layers, width, width] (out, in), float32 after rounding to fp16."""
    width = heads * head_dim
    scale = np.float32(1.0 / np.sqrt(width))
    return {
        name: (rng.standard_normal((layers, width, width), dtype=np.float32) * scale)
        .astype(np.float16)
        .astype(np.float32)
        for name in ("query", "key", "value", "out")
    }


def stateful(
    path: Path,
    rng: np.random.Generator,
    *,
    layers: int = 2,
    heads: int = 2,
    head_dim: int = 16,
    capacity: int = 32,
) -> SampleInfo:
    """hidden [1, 1, width], position int32 [1] -> step [1, 1, width] and the rows written this time, key_rows and
    value_rows [layers, heads, 1, head_dim]; states key_cache, value_cache [layers, heads, capacity, head_dim]. fp16."""
    t = tools()
    mb = t.mb
    width = heads * head_dim
    weights = draw_weights(rng, layers, heads, head_dim)
    half = {name: value.astype(np.float16) for name, value in weights.items()}
    cache_shape = (layers, heads, capacity, head_dim)
    rows = np.arange(capacity, dtype=np.int32).reshape(1, 1, 1, capacity)

    def write_row(cache: Any, row: Any, layer: int, position: Any) -> Any:
        after = mb.add(x=position, y=np.int32(1))
        begin = mb.concat(values=[np.array([layer, 0], np.int32), position, np.array([0], np.int32)], axis=0)
        end = mb.concat(values=[np.array([layer + 1, heads], np.int32), after, np.array([head_dim], np.int32)], axis=0)
        return mb.slice_update(x=cache, update=row, begin=begin, end=end)

    def of_layer(cache: Any, layer: int) -> Any:
        return mb.slice_by_index(x=cache, begin=[layer, 0, 0, 0], end=[layer + 1, heads, capacity, head_dim])

    def build(hidden: Any, position: Any, key_cache: Any, value_cache: Any) -> Any:
        seen = mb.greater_equal(x=mb.reshape(x=position, shape=[1, 1, 1, 1]), y=rows)
        mask = mb.select(cond=seen, a=np.zeros(rows.shape, np.float16), b=np.full(rows.shape, MASKED, np.float16))
        keys, values = mb.read_state(input=key_cache), mb.read_state(input=value_cache)
        x = hidden
        written: dict[str, list[Any]] = {"key": [], "value": []}
        for i in range(layers):
            heads_of = {
                name: mb.reshape(x=mb.linear(x=x, weight=half[name][i]), shape=[1, heads, 1, head_dim])
                for name in ("query", "key", "value")
            }
            written["key"].append(heads_of["key"])
            written["value"].append(heads_of["value"])
            keys = write_row(keys, heads_of["key"], i, position)
            values = write_row(values, heads_of["value"], i, position)
            mixed = mb.scaled_dot_product_attention(
                query=heads_of["query"], key=of_layer(keys, i), value=of_layer(values, i), attn_mask=mask
            )
            x = mb.add(x=x, y=mb.linear(x=mb.reshape(x=mixed, shape=[1, 1, width]), weight=half["out"][i]))
        mb.coreml_update_state(state=key_cache, value=keys)
        mb.coreml_update_state(state=value_cache, value=values)
        out = [mb.identity(x=x, name="step")]
        for name, each in written.items():
            extra = {"name": f"{name}_rows"}
            out.append(mb.concat(values=each, axis=0, **extra) if layers > 1 else mb.identity(x=each[0], **extra))
        return tuple(out)

    specs = [
        mb.TensorSpec(shape=(1, 1, width), dtype=t.types.fp16),
        mb.TensorSpec(shape=(1,), dtype=t.types.int32),
        mb.StateTensorSpec(shape=cache_shape, dtype=t.types.fp16),
        mb.StateTensorSpec(shape=cache_shape, dtype=t.types.fp16),
    ]
    target = "macOS15"
    program = mb.program(input_specs=specs, opset_version=target_of(target))(build)
    names = ("step", "key_rows", "value_rows")
    save(
        convert(program, target=target, outputs=[t.ct.TensorType(name=name, dtype=np.float16) for name in names]), path
    )
    return SampleInfo(
        kind="stateful",
        path=path,
        input_specs={
            "hidden": InputSpec(shape=(1, 1, width)),
            "position": InputSpec(shape=(1,), dtype="int32", high=capacity),
        },
        contract={
            "outputs": ("key_rows", "value_rows"), "live": 1, "axis": 2, "tail": "any", "unbacked": ("step",),
            "sensitive_to": ("hidden",),
        },
        options={"layers": layers, "heads": heads, "head_dim": head_dim, "capacity": capacity},
        weights=weights,
    )  # fmt: skip
