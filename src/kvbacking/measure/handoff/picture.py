"""Cost against context length, one panel per shape that grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..lazy import require
from ..sample import STAGE
from .arms import MEMCPY

_COLOURS = {
    MEMCPY: "#8a8a8a", "slice": "#b5651d", "views": "#c0392b", "adopted": "#7d3c98", "copied": "#1f618d",
    "owned": "#1e8449", "owned-stacked": "#d4ac0d",
}  # fmt: skip
_WIDTH_IN, _HEIGHT_IN, _DPI = 4.4, 3.5, 110


def draw(documents: Sequence[Mapping[str, Any]], path: str | Path) -> bool:
    """Writes a PNG of import and first update together, both axes logarithmic, and says whether there was anything to
    draw: shapes of one fixed length have no such curve. Needs matplotlib (extra `bench`)."""
    growing = [d for d in documents if d["payload"]["kind"] == "growing" and _series(d)]
    if not growing:
        return False
    figure_module, backend = require("matplotlib.figure"), require("matplotlib.backends.backend_agg")
    figure = figure_module.Figure(figsize=(_WIDTH_IN * len(growing), _HEIGHT_IN + 0.5), layout="constrained", dpi=_DPI)
    backend.FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(growing), sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axes, document in zip(panels, growing, strict=True):
        for method, (words, lengths, ms) in _series(document).items():
            (line,) = axes.plot(
                lengths,
                ms,
                marker="o",
                markersize=4,
                linewidth=1.6,
                linestyle="--" if method == MEMCPY else "-",
                color=_COLOURS[method],
            )
            handles.setdefault(words, line)
        ticks = sorted({row["live"] for row in document["measurement"]["rows"]})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(n) for n in ticks], rotation=45, fontsize=8)
        axes.minorticks_off()
        payload = document["payload"]
        axes.set_title(f"{payload['name']}, {payload['bytes_per_position'] / 1024:g} KiB per position", fontsize=9)
        axes.set_xlabel("live rows", fontsize=8)
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel("import + first update, ms", fontsize=8)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncol=2,
        fontsize=8,
        frameon=False,
        handlelength=1.8,
    )
    figure.savefig(path, format="png", metadata={"Software": None})
    return True


def _series(document: Mapping[str, Any]) -> dict[str, tuple[str, list[int], list[float]]]:
    """Method -> (words, lengths, milliseconds) of what was measured."""
    found: dict[str, tuple[str, list[int], list[float]]] = {}
    for row in document["measurement"]["rows"]:
        if STAGE in row["medians_ns"]:
            words = f"{MEMCPY}: {row['words']}" if row["method"] == MEMCPY else row["words"]
            _, lengths, ms = found.setdefault(row["method"], (words, [], []))
            lengths.append(row["live"])
            ms.append(row["medians_ns"][STAGE] / 1e6)
    return found
