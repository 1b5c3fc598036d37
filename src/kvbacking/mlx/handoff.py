"""A prediction's K/V into a list of caches, layer by layer, with a report of what it took."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from kvbacking.contract import KVContract
from kvbacking.errors import ContractError
from kvbacking.mlx.arrays import AdoptionRefusedError, address_of, copied_rows, core, to_mlx
from kvbacking.mlx.caches import arrays_in, check, fill, rows_wanted
from kvbacking.mlx.owned import OwnedBackings
from kvbacking.session import Prediction

Method = Literal["copied", "adopted", "owned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerHandoff:
    """One layer: the outputs it came from, where their rows lay and where the cache's arrays lie now (addresses
    measured after evaluation; QuantizedKVCache has three arrays a side, the first is given), and the bytes that were
    written."""

    index: int
    keys: str
    values: str
    method: Method
    source_addresses: tuple[int, int]
    cache_addresses: tuple[int, int]
    bytes_copied: int

    @property
    def same_address(self) -> bool:
        """Whether K and V of the cache begin where Core ML wrote them."""
        return self.source_addresses == self.cache_addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReport:
    """What a hand-off did. Bytes are bytes, times nanoseconds. `bytes_copied` counts rows copied into MLX memory, and
    the size of every array of a cache that evaluation put elsewhere (conversion, quantisation, reordering)."""

    layers: tuple[LayerHandoff, ...]
    live: int
    per_layer: bool
    bytes_copied: int
    import_ns: int
    fill_ns: int
    evaluate_ns: int
    mlx_version: str

    @property
    def total_ns(self) -> int:
        """Import, fill and evaluation together."""
        return self.import_ns + self.fill_ns + self.evaluate_ns

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return {**asdict(self), "total_ns": self.total_ns}


def handoff(
    prediction: Prediction,
    caches: Sequence[Any],
    contract: KVContract,
    *,
    keys: Sequence[str] | None = None,
    values: Sequence[str] | None = None,
    copy: bool | None = True,
    dtype: Any = None,
    model_dtype: Any = None,
    unsafe: bool = False,
    owned: OwnedBackings | None = None,
) -> HandoffReport:
    """Fills one cache per layer with the live rows of `prediction` and evaluates them.

    Outputs are one pair [layers, heads, capacity, size], or one pair per layer [1, heads, capacity, size] named
    `..._0`, `..._1` and so on; `keys` and `values` name them, in order of the layers, where the names do not say which
    is which. copy=True copies the live rows once into memory of MLX with room to decode; False and None adopt as
    `to_mlx` does. `owned`: the backings that the prediction was made into. Where each layer has outputs of its own and
    the framework wrote into them, the caches get those very arrays, nothing is copied, their session is closed and the
    prediction released; else the live rows are copied as if it were not given (`method` says which).

    On return nothing of a copy is pending: the prediction may be released and its set written again. Adopted arrays
    keep the set busy. Hybrid models: hand over the attention layers' caches here and the others with `fill`. Raises
    ContractError when outputs, layers, shapes or dtypes do not fit, before any cache is touched; TypeError for an
    unknown cache class; BackingInUseError for a released prediction; AdoptionRefusedError.
    """
    mx = core()
    pairs, per_layer = _pairs(contract, keys, values)
    live = prediction.live_count
    if len(pairs) != len(caches):
        raise ContractError(f"[mlx.handoff] the outputs are {len(pairs)} layers, caches are {len(caches)}")
    if len({id(cache) for cache in caches}) != len(caches):
        raise ContractError("[mlx.handoff] one cache object stands for more than one layer")
    for ((k, v), index), cache in zip(pairs, caches, strict=True):
        shapes = contract.shapes[k], contract.shapes[v]
        dtypes = getattr(mx, contract.dtypes[k]), getattr(mx, contract.dtypes[v])
        one = shapes if index is None else ((1, *shapes[0][1:]), (1, *shapes[1][1:]))
        check(cache, one, dtypes, live, dtype, model_dtype=model_dtype)
    started = time.perf_counter_ns()
    sources = [tuple(_layer(prediction[name], index) for name in names) for names, index in pairs]
    addresses = [tuple(int(view.ctypes.data) for view in views) for views in sources]
    in_place = owned is not None and per_layer and prediction.path == "backing"
    if in_place and owned is not None:
        for (names, _), found in zip(pairs, addresses, strict=True):
            for name, address in zip(names, found, strict=True):
                if address != owned.addresses.get(name):
                    raise ContractError(f"[mlx.handoff] {name} was not predicted into these backings")
    imported: list[tuple[Any, Any]] = []
    methods: list[Method] = []
    copied: list[int] = []
    if in_place and owned is not None:
        sources.clear()
        prediction.release()
        arrays = owned.take()
        imported = [(arrays[names[0]], arrays[names[1]]) for names, _ in pairs]
        methods, copied = ["owned"] * len(pairs), [0] * len(pairs)
    else:
        for views, cache in zip(sources, caches, strict=True):
            got, count = _import(views, cache, live, copy, unsafe)
            imported.append((got[0], got[1]))
            methods.append("copied" if count else "adopted")
            copied.append(count)
    imported_ns = time.perf_counter_ns()
    spans = [[(address_of(a), a.nbytes) for a in pair] for pair in imported]
    measured_ns = time.perf_counter_ns()
    for cache, (k, v) in zip(caches, imported, strict=True):
        fill(cache, k, v, live, dtype, model_dtype=model_dtype)
    filled_ns = time.perf_counter_ns()
    held = [arrays_in(cache) for cache in caches]
    mx.eval(held)
    evaluated_ns = time.perf_counter_ns()
    layers = []
    for index, ((names, _), arrays_held) in enumerate(zip(pairs, held, strict=True)):
        places = [address_of(a) for a in arrays_held]
        elsewhere = sum(
            a.nbytes
            for a, place in zip(arrays_held, places, strict=True)
            if not any(start <= place < start + size for start, size in spans[index])
        )
        layers.append(
            LayerHandoff(
                index=index,
                keys=names[0],
                values=names[1],
                method=methods[index],
                source_addresses=(addresses[index][0], addresses[index][1]),
                cache_addresses=(places[0], places[len(places) // 2]),
                bytes_copied=copied[index] + elsewhere,
            )
        )
    return HandoffReport(
        layers=tuple(layers),
        live=live,
        per_layer=per_layer,
        bytes_copied=sum(layer.bytes_copied for layer in layers),
        import_ns=imported_ns - started,
        fill_ns=filled_ns - measured_ns,
        evaluate_ns=evaluated_ns - filled_ns,
        mlx_version=str(mx.__version__),
    )


def _layer(view: np.ndarray, index: int | None) -> np.ndarray:
    return view if index is None else view[index : index + 1]


def _import(
    views: tuple[np.ndarray, ...], cache: Any, live: int, copy: bool | None, unsafe: bool
) -> tuple[list[Any], int]:
    """(arrays, bytes copied); each view is adopted or has its live rows copied."""
    arrays, copied = [], 0
    for view in views:
        result = None
        if copy is not True:
            try:
                result = to_mlx(view, copy=False, unsafe=unsafe)
            except AdoptionRefusedError:
                if copy is False:
                    raise
        if result is None:
            array = copied_rows(view, live, rows_wanted(cache, live))
            copied += view[:, :, :live].nbytes
        else:
            array = result.array
        arrays.append(array)
    return arrays, copied


def _pairs(
    contract: KVContract, keys: Sequence[str] | None, values: Sequence[str] | None
) -> tuple[list[tuple[tuple[str, str], int | None]], bool]:
    """((key output, value output), index on axis 0 or None) per layer, and whether each layer has outputs of its
    own."""
    if (keys is None) != (values is None):
        raise ContractError("[mlx.handoff] name both, keys and values, or neither")
    k_names = _named(contract, {"k", "key", "keys"}, "keys") if keys is None else list(keys)
    v_names = _named(contract, {"v", "value", "values"}, "values") if values is None else list(values)
    if len(k_names) != len(v_names) or not k_names:
        raise ContractError(f"[mlx.handoff] {len(k_names)} outputs of keys, {len(v_names)} of values")
    for name in (*k_names, *v_names):
        shape = contract.shapes.get(name)
        if shape is None:
            raise ContractError(f"[mlx.handoff] {name!r} is no backed output of the contract: {contract.outputs}")
        if len(shape) != 4 or contract.axis != 2:
            raise ContractError(
                f"[mlx.handoff] {name}: expected [layers, heads, capacity, size] with live rows on axis 2, got "
                f"{list(shape)} with axis {contract.axis}"
            )
    for k, v in zip(k_names, v_names, strict=True):
        if contract.shapes[k][:3] != contract.shapes[v][:3]:
            raise ContractError(f"[mlx.handoff] {k} {contract.shapes[k]} and {v} {contract.shapes[v]} do not fit")
    if len(k_names) == 1 and contract.shapes[k_names[0]][0] > 1:
        return [((k_names[0], v_names[0]), i) for i in range(contract.shapes[k_names[0]][0])], False
    for name in (*k_names, *v_names):
        if contract.shapes[name][0] != 1:
            raise ContractError(f"[mlx.handoff] {name}: an output per layer begins with 1, got {contract.shapes[name]}")
    return [((k, v), None) for k, v in zip(k_names, v_names, strict=True)], True


def _named(contract: KVContract, words: set[str], what: str) -> list[str]:
    """Outputs with one of `words` in their name, by their number: `key_cache_0`, `key_cache_1`, or `key_cache`
    alone."""
    found: dict[int, str] = {}
    for name in contract.outputs:
        if words & set(re.split(r"[_.\d]+", name.lower())):
            number = re.search(r"(\d+)$", name)
            index = int(number[1]) if number else 0
            if index in found:
                raise ContractError(
                    f"[mlx.handoff] {found[index]} and {name} both look like {what}: name them ({what}=)"
                )
            found[index] = name
    if sorted(found) != list(range(len(found))) or not found:
        raise ContractError(
            f"[mlx.handoff] {list(contract.outputs)}: no run of outputs 0, 1, ... for {what}: name them ({what}=)"
        )
    return [found[i] for i in range(len(found))]
