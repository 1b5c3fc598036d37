"""A prediction's K/V into a list of caches, layer by layer, with a report of what it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from kvbacking.contract import KVContract
from kvbacking.errors import ContractError
from kvbacking.mlx.arrays import (
    AdoptionRefusedError,
    address_of,
    copied_byte_count,
    copied_rows,
    core,
    to_mlx,
)
from kvbacking.mlx.caches import arrays_in, check, check_state, fill, rows_wanted
from kvbacking.mlx.layers import layers_of, scales_of, states_of
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
    the size of every array of a cache that evaluation put elsewhere (conversion, quantisation, reordering), which
    `bytes_converted` gives alone."""

    layers: tuple[LayerHandoff, ...]
    live: int
    per_layer: bool
    bytes_copied: int
    bytes_converted: int
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
    scales: Sequence[str] | None = None,
    states: Sequence[tuple[str, str]] | None = None,
    copy: bool | None = True,
    dtype: Any = None,
    model_dtype: Any = None,
    unsafe: bool = False,
    owned: OwnedBackings | None = None,
) -> HandoffReport:
    """Fills one cache per layer with the live rows of `prediction` and evaluates them.

    Outputs are one pair [layers, heads, capacity, size], or one pair per layer [1, heads, capacity, size] named
    `..._0`, `..._1` and so on; `keys` and `values` name them, in order of the layers, where the names do not say which
    is which. INT8 values need `scales`, one output [layers, heads, capacity, 1] for each of theirs, and become keys'
    dtype in MLX. An ArraysCache among the caches gets the next pair of `states`, (convolution, recurrent), whole and in
    their own dtypes; they may be unbacked outputs. Scales and states too are found by name (`value_scale_0`, `conv_0`,
    `recurrent_0`).

    copy=True copies once into memory of MLX with room to decode: the live rows, or, where they are most of dense
    memory, all of it. False and None adopt as `to_mlx` does (with its `unsafe`), a layer as a whole. `dtype` (an mlx
    dtype) converts rows, never states; without it rows that are not of `model_dtype`, where that is given, or of what
    a cache held are refused: name what the decoder computes in, many are bfloat16. `owned`: the backings that the
    prediction was made into. Where each layer has outputs of its own and the framework wrote into them, the caches get
    those very arrays, nothing is copied, their session is closed and the prediction released; else it is as if `owned`
    were not given (`method` says which).

    On return nothing of a copy is pending: the prediction may be released and its set written again. Adopted arrays
    keep the set busy. Raises ContractError when outputs, layers, shapes or dtypes do not fit, before any cache is
    touched; TypeError for an unknown cache class and arguments of another kind; BackingInUseError for a released
    prediction; AdoptionRefusedError.
    """
    mx = core()
    _check_kinds(prediction, contract, copy, dtype, owned)
    pairs, per_layer = layers_of(contract, keys, values)
    scaled_by = scales_of(contract, pairs, scales)
    recurrent = [type(cache).__name__ == "ArraysCache" for cache in caches]
    state_names = states_of(contract, sum(recurrent), states)
    live = prediction.live_count
    if len(pairs) != len(caches) - sum(recurrent):
        raise ContractError(
            f"[mlx.handoff] the outputs are {len(pairs)} layers, caches are {len(caches) - sum(recurrent)}"
        )
    if len({id(cache) for cache in caches}) != len(caches):
        raise ContractError("[mlx.handoff] one cache object stands for more than one layer")
    rows_left, states_left = iter(zip(pairs, scaled_by, strict=True)), iter(state_names)
    layers: list[_Layer] = []
    for cache, is_state in zip(caches, recurrent, strict=True):
        if is_state:
            layers.append(_Layer(cache, next(states_left), None, state=True))
            continue
        (names, index), scale = next(rows_left)
        layers.append(_Layer(cache, (*names, scale) if scale else names, index, state=False))
        k, v = (contract.shapes[name] if index is None else (1, *contract.shapes[name][1:]) for name in names)
        k_dtype, v_dtype = (getattr(mx, contract.dtypes[name]) for name in names)
        check(cache, (k, v), (k_dtype, k_dtype if scale else v_dtype), live, dtype, model_dtype=model_dtype)
    started = time.perf_counter_ns()
    for layer in layers:
        layer.sources = [_part(prediction[name], layer.index) for name in layer.names]
        layer.addresses = [int(view.ctypes.data) for view in layer.sources]
        if layer.state:
            check_state(layer.cache, layer.sources)
    if owned is not None and per_layer and prediction.path == "backing":
        _check_owned(layers, contract, owned)
        for layer in layers:  # outputs that are not backed are nobody's but the prediction's
            if not set(layer.names) <= set(contract.outputs):
                layer.bring(live, copy, unsafe)
            layer.sources.clear()
        prediction.release()
        taken = owned.take()
        for layer in layers:
            if not layer.imported:
                layer.imported, layer.method = [taken[name] for name in layer.names], "owned"
    else:
        wanted = [layer.bring(live, copy, unsafe) for layer in layers]
        copies = iter(copied_rows([one for rows in wanted for one in rows], live))
        for layer, rows in zip(layers, wanted, strict=True):
            layer.imported = [next(copies) for _ in rows] or layer.imported
            layer.sources.clear()
        wanted.clear()
    imported_ns = time.perf_counter_ns()
    spans = [[(address_of(a), a.nbytes) for a in layer.imported] for layer in layers]
    measured_ns = time.perf_counter_ns()
    for layer in layers:
        layer.fill(live, dtype, model_dtype)
    filled_ns = time.perf_counter_ns()
    held = [arrays_in(cache) for cache in caches]
    mx.eval(held)
    evaluated_ns = time.perf_counter_ns()
    reported, converted_total = [], 0
    for position, (layer, arrays, span) in enumerate(zip(layers, held, spans, strict=True)):
        places = [address_of(a) for a in arrays]
        converted = sum(
            a.nbytes
            for a, place in zip(arrays, places, strict=True)
            if not any(start <= place < start + size for start, size in span)
        )
        converted_total += converted
        reported.append(
            LayerHandoff(
                index=position,
                keys=layer.names[0],
                values=layer.names[1],
                method=layer.method,
                source_addresses=(layer.addresses[0], layer.addresses[1]),
                cache_addresses=(places[0], places[len(places) // 2]),
                bytes_copied=layer.byte_count + converted,
            )
        )
    return HandoffReport(
        layers=tuple(reported),
        live=live,
        per_layer=per_layer,
        bytes_copied=sum(layer.bytes_copied for layer in reported),
        bytes_converted=converted_total,
        import_ns=imported_ns - started,
        fill_ns=filled_ns - measured_ns,
        evaluate_ns=evaluated_ns - filled_ns,
        mlx_version=str(mx.__version__),
    )


class _Layer:
    """One cache, the outputs that it gets (keys, values and perhaps scales; or convolution and recurrent state), and
    what became of them."""

    def __init__(self, cache: Any, names: tuple[str, ...], index: int | None, *, state: bool) -> None:
        self.cache, self.names, self.index, self.state = cache, names, index, state
        self.sources: list[np.ndarray] = []
        self.addresses: list[int] = []
        self.imported: list[Any] = []
        self.method: Method = "copied"
        self.byte_count = 0

    def bring(self, live: int, copy: bool | None, unsafe: bool) -> list[tuple[np.ndarray, int]]:
        """Makes arrays of the sources, all adopted or all copied; or says which rows are to be copied, and with room
        for how many, which is cheaper for all layers at once."""
        adopted = _adopted(self.sources, copy, unsafe)
        if adopted is not None:
            self.imported, self.method = adopted, "adopted"
        elif self.state:
            self.imported = [to_mlx(view, copy=True).array for view in self.sources]
            self.byte_count = sum(view.nbytes for view in self.sources)
        else:
            rows = rows_wanted(self.cache, live, self.sources[0].shape[2])
            self.byte_count = sum(copied_byte_count(view, live, rows) for view in self.sources)
            return [(view, rows) for view in self.sources]
        return []

    def fill(self, live: int, dtype: Any, model_dtype: Any) -> None:
        """Gives the cache its arrays and forgets them: a second holder would keep it from updating in place."""
        first, second, *scales = self.imported
        self.imported = []
        if self.state:
            fill(self.cache, first, second, live)
            return
        if scales:
            second = (second.astype(scales[0].dtype) * scales[0]).astype(dtype or first.dtype)
        fill(self.cache, first, second, live, dtype, model_dtype=model_dtype)


def _check_kinds(prediction: object, contract: object, copy: object, dtype: Any, owned: object) -> None:
    """Before anything is released or taken, which cannot be undone."""
    for name, value, kind in (("prediction", prediction, Prediction), ("contract", contract, KVContract)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    if copy is not None and not isinstance(copy, bool):
        raise TypeError(f"copy must be True, False or None, got {copy!r}")
    if owned is not None and not isinstance(owned, OwnedBackings):
        raise TypeError(f"owned must be OwnedBackings or None, got {type(owned).__name__}")
    mx = core()
    if dtype is not None and not (isinstance(dtype, mx.Dtype) and mx.issubdtype(dtype, mx.floating)):
        raise TypeError(f"dtype must be a floating point dtype of mlx or None, got {dtype!r}")


def _check_owned(layers: Sequence[_Layer], contract: KVContract, owned: OwnedBackings) -> None:
    for layer in layers:
        for name, address in zip(layer.names, layer.addresses, strict=True):
            if name in contract.outputs and address != owned.addresses.get(name):
                raise ContractError(f"[mlx.handoff] {name} was not predicted into these backings")


def _part(view: np.ndarray, index: int | None) -> np.ndarray:
    return view if index is None else view[index : index + 1]


def _adopted(views: Sequence[np.ndarray], copy: bool | None, unsafe: bool) -> list[Any] | None:
    """All of a layer's memory as arrays, or None when some of it has to be copied: K and V need equal rows."""
    if copy is True:
        return None
    try:
        return [to_mlx(view, copy=False, unsafe=unsafe).array for view in views]
    except AdoptionRefusedError:
        if copy is False:
            raise
        return None
