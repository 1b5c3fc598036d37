"""Puts K/V rows into the cache objects of mlx-lm, every class that it has.

Sets attributes (keys, values, offset, _idx, ...), which have been the same for years, not `state`, whose form changed
with mlx-lm 0.32. The caller guarantees what no code can see: keys are rotated (half-split RoPE) and normalised as the
model does it, at positions 0 to live - 1; the token to feed next is number `live`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvbacking._integers import as_integer
from kvbacking.errors import ContractError
from kvbacking.mlx.arrays import core, optional_module

# Copying all rows costs one pass; copying some into memory of more rows first has to clear that: at this share of live
# rows the two cost the same.
WHOLE = 0.75
STEP = 256  # mlx-lm grows a cache by this many rows; a cache that still has one spare row is updated in place


def fill(
    cache: Any,
    keys: Any,
    values: Any,
    live: int,
    dtype: Any = None,
    *,
    model_dtype: Any = None,
    ring: bool = False,
) -> None:
    """Fills `cache`, replacing what it held, with the first `live` rows of keys and values [batch, heads, rows, size].

    Rows beyond `live` are room to decode into; what they hold never matters. Lazy: evaluate the cache before the memory
    behind the arrays is written again. `dtype` (an mlx dtype) converts; without it K and V that are not of one dtype,
    not of `model_dtype` (many models compute in bfloat16), or not of the dtype that the cache held are refused.
    `ring=True`: the rows already are a RotatingKVCache's ring, row i % max_size holding position i. CacheList: keys and
    values are sequences, one entry per member. ArraysCache: keys is the convolution's state, values the recurrent one,
    whole and in their own dtypes (the recurrent state is float32 by design). Raises ContractError, TypeError for an
    unknown class.
    """
    name = _known_name(cache)
    live = as_integer("live", live)
    if name == "CacheList":
        if not len(cache.caches) == len(keys) == len(values):
            raise ContractError(
                f"[mlx.fill] CacheList: expected keys and values for {len(cache.caches)} members, got {len(keys)} and "
                f"{len(values)}"
            )
        for member in cache.caches:
            _known_name(member)
        for member, k, v in zip(cache.caches, keys, values, strict=True):
            fill(member, k, v, live, dtype, model_dtype=model_dtype, ring=ring and hasattr(member, "max_size"))
        return
    if name == "ArraysCache":
        _fill_arrays(cache, keys, values, live)
        return
    check(
        cache,
        (tuple(keys.shape), tuple(values.shape)),
        (keys.dtype, values.dtype),
        live,
        dtype,
        model_dtype=model_dtype,
        ring=ring,
    )
    if dtype is not None:
        keys, values = keys.astype(dtype), values.astype(dtype)
    if ring:
        _fill_ring(cache, keys, values, live)
        return
    _WRITERS[name](cache, keys, values, live)


def arrays_in(cache: Any) -> list[Any]:
    """Every MLX array that a cache holds rows or state in."""
    if type(cache).__name__ == "CacheList":
        return [array for member in cache.caches for array in arrays_in(member)]
    if type(cache).__name__ == "ArraysCache":
        return [array for array in cache.cache if array is not None]
    held: list[Any] = []
    for side in (cache.keys, cache.values):
        held += [side] if side is not None and not isinstance(side, (tuple, list)) else list(side or ())
    return held


def rows_wanted(cache: Any, live: int, capacity: int) -> int:
    """Rows to give a cache that gets `live` of `capacity` rows, so that the next token needs no growth."""
    if type(cache).__name__ in ("ConcatenateKVCache", "QuantizedKVCache"):  # they keep the live rows only
        return live
    limit = getattr(cache, "max_size", None)
    if isinstance(limit, int):
        return max(live, min((live // STEP + 1) * STEP, limit))
    if WHOLE * capacity <= live < capacity:
        return capacity
    return (live // STEP + 1) * STEP


def _known_name(cache: Any) -> str:
    module = optional_module("mlx_lm.models.cache")
    name = type(cache).__name__
    known = (*_WRITERS, "CacheList", "ArraysCache")
    if name not in known or type(cache) is not getattr(module, name, None):
        raise TypeError(
            f"[mlx.fill] {type(cache).__module__}.{name} is no cache class that this version knows how to fill: "
            f"{', '.join(known)}"
        )
    return name


def check(
    cache: Any,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    dtypes: tuple[Any, Any],
    live: int,
    dtype: Any,
    *,
    model_dtype: Any = None,
    ring: bool = False,
) -> None:
    """What `fill` refuses of keys and values of these shapes and mlx dtypes, without them and without touching the
    cache."""
    name = _known_name(cache)
    if name in ("CacheList", "ArraysCache"):
        raise TypeError(f"[mlx.fill] a {name} takes no single pair of rows: fill() it by itself")
    k, v = shapes
    if len(k) != 4 or len(v) != 4 or k[:3] != v[:3]:
        raise ContractError(
            f"[mlx.fill] keys and values must be [batch, heads, rows, size] and agree but for size, got {k} and {v}"
        )
    if ring:
        _check_ring(cache, k[2], live)
    elif not 0 < live <= k[2]:
        raise ContractError(f"[mlx.fill] live must be 1 to {k[2]} (the rows of the arrays), got {live}")
    if name.startswith("Batch"):
        if cache.left_padding.size != k[0]:
            raise ContractError(
                f"[mlx.fill] {name} has left padding for {cache.left_padding.size} sequences, the rows are of {k[0]}"
            )
        if cache.keys is not None:  # its left padding may have moved with its rows
            raise ContractError(f"[mlx.fill] this {name} holds rows already: fill a new one")
    mx = core()
    for what, given in zip(("keys", "values"), dtypes, strict=True):
        if not mx.issubdtype(given, mx.floating):
            raise ContractError(f"[mlx.fill] {what} are {given}: multiply them with their scales first")
    if dtype is not None:
        return
    if dtypes[0] != dtypes[1]:
        raise ContractError(f"[mlx.fill] keys are {dtypes[0]}, values {dtypes[1]}: dtype= converts them")
    held = getattr(cache.keys, "dtype", None)
    for wanted, source in ((model_dtype, "the model computes in"), (held, "the cache held")):
        if wanted is not None and wanted != dtypes[0]:
            raise ContractError(f"[mlx.fill] {source} {wanted}, the rows are {dtypes[0]}: dtype= converts them")


def _check_ring(cache: Any, rows: int, live: int) -> None:
    if type(cache).__name__ != "RotatingKVCache" or cache.keep != 0:
        raise ContractError("[mlx.fill] ring=True is for a RotatingKVCache with keep 0")
    if rows != cache.max_size:
        raise ContractError(f"[mlx.fill] ring=True needs exactly max_size {cache.max_size} rows, got {rows}")
    if live < rows:  # a ring that has turned has seen at least as many positions as it has rows
        raise ContractError(f"[mlx.fill] ring=True needs live of at least {rows} (the rows of the ring), got {live}")


def _fill_growing(cache: Any, keys: Any, values: Any, live: int) -> None:
    cache.keys, cache.values, cache.offset = keys, values, live


def _fill_concatenating(cache: Any, keys: Any, values: Any, live: int) -> None:
    # Its offset is the number of rows: there is no room for spare ones.
    cache.keys, cache.values, cache.offset = keys[:, :, :live], values[:, :, :live], live


def _fill_quantized(cache: Any, keys: Any, values: Any, live: int) -> None:
    mx = core()
    quantized = [mx.quantize(a[:, :, :live], group_size=cache.group_size, bits=cache.bits) for a in (keys, values)]
    cache.keys, cache.values, cache.offset = quantized[0], quantized[1], live


def _window(array: Any, live: int, size: int, keep: int) -> Any:
    """At most `size` rows in the order of their positions: when the middle falls out, the first `keep` and the last."""
    if live <= size:
        return array if array.shape[2] <= size else array[:, :, :size]  # spare rows beyond it would push live ones out
    last = array[:, :, live - (size - keep) : live]
    return last if keep == 0 else core().concatenate([array[:, :, :keep], last], axis=2)


def _fill_rotating(cache: Any, keys: Any, values: Any, live: int) -> None:
    size, keep = cache.max_size, cache.keep
    cache.keys, cache.values = _window(keys, live, size, keep), _window(values, live, size, keep)
    cache.offset, cache._idx = live, min(live, size)


def _fill_ring(cache: Any, keys: Any, values: Any, live: int) -> None:
    size = cache.max_size
    cache.keys, cache.values, cache.offset, cache._idx = keys, values, live, live % size or size


def _fill_chunked(cache: Any, keys: Any, values: Any, live: int) -> None:
    start = max(0, live - cache.chunk_size)
    cache.keys = keys[:, :, start:] if start else keys
    cache.values = values[:, :, start:] if start else values
    cache.offset, cache.start_position = live, start


def _fill_batch(cache: Any, keys: Any, values: Any, live: int) -> None:
    cache.keys, cache.values, cache._idx = keys, values, live
    cache.offset = live - cache.left_padding


def _fill_batch_rotating(cache: Any, keys: Any, values: Any, live: int) -> None:
    size = cache.max_size
    cache.offset = live - cache.left_padding
    if live > size:  # the rows that fall out take their share of the padding along
        cache.left_padding = cache.left_padding - (live - size)
    cache.keys, cache.values = _window(keys, live, size, 0), _window(values, live, size, 0)
    cache._idx, cache._offset, cache.rotated = min(live, size), live, False


def _fill_arrays(cache: Any, convolution: Any, recurrent: Any, live: int) -> None:
    if live <= 0:
        raise ContractError(f"[mlx.fill] live must be positive, got {live}")
    check_state(cache, (convolution, recurrent))
    cache[0], cache[1] = convolution, recurrent


def check_state(cache: Any, given: Sequence[Any]) -> None:
    """What `fill` refuses of a convolution's and a recurrent state (MLX's or NumPy's) for an ArraysCache."""
    _known_name(cache)
    if len(cache.cache) != 2:
        raise ContractError(f"[mlx.fill] ArraysCache of {len(cache.cache)} arrays; one of 2 can be filled")
    for held, new in zip(cache.cache, given, strict=True):
        if held is not None and (_dtype_name(held), tuple(held.shape)) != (_dtype_name(new), tuple(new.shape)):
            raise ContractError(
                f"[mlx.fill] ArraysCache held {_dtype_name(held)} {tuple(held.shape)}, got {_dtype_name(new)} "
                f"{tuple(new.shape)}"
            )


def _dtype_name(array: Any) -> str:
    return str(array.dtype).rpartition(".")[2]


_WRITERS: dict[str, Callable[[Any, Any, Any, int], None]] = {
    "KVCache": _fill_growing,
    "ConcatenateKVCache": _fill_concatenating,
    "QuantizedKVCache": _fill_quantized,
    "RotatingKVCache": _fill_rotating,
    "ChunkedKVCache": _fill_chunked,
    "BatchKVCache": _fill_batch,
    "BatchRotatingKVCache": _fill_batch_rotating,
}
