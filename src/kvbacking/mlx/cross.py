"""Read-only cross-attention K/V as MLX arrays: adopted, or MLX's own memory, or else the live rows copied once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvbacking._integers import as_integer
from kvbacking.errors import ContractError
from kvbacking.mlx.arrays import AdoptionRefusedError, address_of, core, to_mlx
from kvbacking.mlx.handoff import LayerHandoff, Method
from kvbacking.mlx.owned import OwnedBackings
from kvbacking.session import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossRows:
    """`arrays`: keys and values of each layer, [1, live, width], evaluated, in the dtype that they came in. `layers`
    says what became of each, by measured addresses; `import_ns` is nanoseconds."""

    arrays: tuple[tuple[Any, Any], ...]
    layers: tuple[LayerHandoff, ...]
    live: int
    import_ns: int
    mlx_version: str

    @property
    def bytes_copied(self) -> int:
        """Bytes copied into memory of MLX; 0 where everything was adopted or MLX's own."""
        return sum(layer.bytes_copied for layer in self.layers)


def cross(
    outputs: Mapping[str, np.ndarray],
    live: int | None = None,
    *,
    keys: str = "cross_k",
    values: str = "cross_v",
    copy: bool | None = None,
    unsafe: bool = False,
    owned: OwnedBackings | None = None,
) -> CrossRows:
    """The first `live` rows of two outputs [layers, rows, width], for a decoder that only reads them: what
    `mlx_whisper` keeps as cross-attention cache. Rows from `live` on are in no array.

    `outputs` is a Prediction (live: its own by default) or NumPy arrays by name. copy=None adopts whole layers as
    `to_mlx` does and copies the live rows of a layer where that is refused; False raises AdoptionRefusedError instead;
    True copies. Adopted arrays, and whatever is made of them and not evaluated, keep the prediction's set busy; copies
    are complete on return. `owned`: the backings that the prediction was made into. If the framework wrote into them
    the arrays are views of that memory and nothing is copied; their session is closed and the prediction released.
    Raises ContractError when outputs or rows do not fit, KeyError for a name that is none.
    """
    if live is None:
        if not isinstance(outputs, Prediction):
            raise TypeError("live= is needed with outputs that are no Prediction")
        live = outputs.live_count
    live = as_integer("live", live)
    mx = core()
    started = time.perf_counter_ns()
    names = keys, values
    views = [outputs[name] for name in names]
    for name, view in zip(names, views, strict=True):
        if not isinstance(view, np.ndarray):
            raise TypeError(f"[mlx.cross] {name} must be a NumPy array, got {type(view).__name__}")
        if view.ndim != 3 or view.shape[0] < 1 or view.shape[0] != views[0].shape[0]:
            raise ContractError(
                f"[mlx.cross] {name}: expected [layers, rows, width] with as many layers as {keys}, got "
                f"{list(view.shape)}"
            )
        if not 0 < live <= view.shape[1]:
            raise ContractError(f"[mlx.cross] {name} has {view.shape[1]} rows, {live} live ones are wanted")
    sources = [[int(view[layer].ctypes.data) for view in views] for layer in range(views[0].shape[0])]
    taken: list[Any] = []
    if owned is not None and isinstance(outputs, Prediction) and outputs.path == "backing":
        for name, view in zip(names, views, strict=True):
            if owned.addresses.get(name) != view.ctypes.data:
                raise ContractError(f"[mlx.cross] {name} was not predicted into these backings")
        views.clear()
        del view
        outputs.release()
        arrays_by_name = owned.take()
        taken = [arrays_by_name[name] for name in names]
    if taken:
        made: list[tuple[list[Any], Method, int]] = [
            ([whole[index : index + 1, :live] for whole in taken], "owned", 0) for index in range(len(sources))
        ]
    else:
        made = [
            _layer([view[index : index + 1] for view in views], live, copy, unsafe) for index in range(len(sources))
        ]
    mx.eval([pair for pair, _, _ in made])
    layers = tuple(
        LayerHandoff(
            index=index,
            keys=keys,
            values=values,
            method=method,
            source_addresses=(addresses[0], addresses[1]),
            cache_addresses=(address_of(pair[0]), address_of(pair[1])),
            bytes_copied=byte_count,
        )
        for index, (addresses, (pair, method, byte_count)) in enumerate(zip(sources, made, strict=True))
    )
    return CrossRows(
        arrays=tuple((pair[0], pair[1]) for pair, _, _ in made),
        layers=layers,
        live=live,
        import_ns=time.perf_counter_ns() - started,
        mlx_version=str(mx.__version__),
    )


def _layer(views: list[np.ndarray], live: int, copy: bool | None, unsafe: bool) -> tuple[list[Any], Method, int]:
    """(arrays, how, bytes copied): keys and values of one layer, adopted whole and then sliced, or their live rows
    copied."""
    if copy is not True:
        try:
            return [to_mlx(view, copy=False, unsafe=unsafe).array[:, :live] for view in views], "adopted", 0
        except AdoptionRefusedError:
            if copy is False:
                raise
    rows = [view[:, :live] for view in views]
    return [to_mlx(view, copy=True).array for view in rows], "copied", sum(view.nbytes for view in rows)
