"""Figures of a report as inline SVG whose colours are CSS variables, so that one file serves light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .lazy import require
from .sample import COPY, PREDICTION, STAGE, VERIFICATION, Record

# matplotlib wants real colours; each of these stands for a CSS variable and is replaced in the finished SVG.
INK, MUTED, GRID, GOOD = "#010a01", "#010a02", "#010a03", "#010a04"
_ARM_COLOURS = ("#010b01", "#010b02", "#010b03", "#010b04")
_PART_COLOURS = ("#010c01", "#010c02", "#010c03", "#010c04")
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    GOOD: "--band",
    **{colour: f"--arm-{index}" for index, colour in enumerate(_ARM_COLOURS)},
    **{colour: f"--part-{index}" for index, colour in enumerate(_PART_COLOURS)},
}
_WIDTH_IN = 4.5  # narrow on purpose: on a phone the text keeps nearly its size
_MS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    title: str
    description: str  # what a reader who does not see it needs to know
    svg: str


def figures(document: Mapping[str, Any], records: Sequence[Record]) -> list[Figure]:
    """The figures for which the report has data. Needs matplotlib."""
    made = []
    if any(record.valid for record in records):
        made.append(_distribution(document, records))
    if any(d["interval"] == STAGE for d in document["differences"]):
        made.append(_paired(document, records))
    if any(arm["intervals"] for arm in document["arms"]):
        made.append(_breakdown(document))
    if any(record.valid for record in records):
        made.append(_timeline(document, records))
    return made


def _arm_colours(document: Mapping[str, Any]) -> dict[str, str]:
    return {arm["name"]: _ARM_COLOURS[i % len(_ARM_COLOURS)] for i, arm in enumerate(document["arms"])}


def _stage_ms(records: Sequence[Record], arm: str) -> dict[int, float]:
    return {r.round: r.intervals[STAGE] * _MS for r in records if r.arm == arm and r.valid}


def _distribution(document: Mapping[str, Any], records: Sequence[Record]) -> Figure:
    colours = _arm_colours(document)
    series = {name: np.array(list(_stage_ms(records, name).values())) for name in colours}
    series = {name: values for name, values in series.items() if len(values)}
    edge = max(float(np.percentile(values, 99)) for values in series.values()) * 1.04
    low = min(float(values.min()) for values in series.values())
    low -= (edge - low) * 0.06
    figure, axes = _axes(0.62 * len(series) + 0.75)
    rng = np.random.default_rng(0)
    parts = []
    for row, (name, values) in enumerate(series.items()):
        inside = values[values <= edge]
        jitter = row + rng.uniform(-0.24, 0.24, size=len(inside))
        axes.scatter(inside, jitter, s=7, color=colours[name], alpha=0.45, linewidths=0)
        p50, p90, p99 = np.percentile(values, (50, 90, 99), method="inverted_cdf")
        axes.plot([p50, p50], [row - 0.36, row + 0.36], color=INK, linewidth=2.2)
        axes.plot([p90, p90], [row - 0.22, row + 0.22], color=INK, linewidth=1.1)
        beyond = len(values) - len(inside)
        if beyond:
            axes.text(edge, row - 0.42, f"{beyond} beyond →", ha="right", va="center", fontsize=7, color=MUTED)
        parts.append(f"{name}: median {p50:.2f} ms, p90 {p90:.2f} ms, p99 {p99:.2f} ms, {beyond} beyond the edge")
    axes.set_xlim(low, edge)
    _rows(axes, list(series))
    axes.set_xlabel("whole stage, ms (thick: median, thin: p90)")
    return Figure(name="distribution", title="Every sample", description="; ".join(parts), svg=_svg(figure, "d"))


def _paired(document: Mapping[str, Any], records: Sequence[Record]) -> Figure:
    colours = _arm_colours(document)
    control = _stage_ms(records, document["protocol"]["control"])
    shown = [d for d in document["differences"] if d["interval"] == STAGE]
    figure, axes = _axes(0.66 * len(shown) + 0.75)
    reach = 0.0
    parts = []
    rng = np.random.default_rng(0)
    for row, difference in enumerate(shown):
        name = difference["arm"]
        values = np.array([v - control[i] for i, v in _stage_ms(records, name).items() if i in control])
        median, low, high = (difference[key] * _MS for key in ("median_ns", "low_ns", "high_ns"))
        reach = max(reach, abs(low), abs(high), *(abs(np.percentile(values, (6, 94))) if len(values) else (0.0,)))
        jitter = row + rng.uniform(-0.26, 0.26, size=len(values))
        axes.scatter(values, jitter, s=6, color=colours[name], alpha=0.28, linewidths=0)
        axes.plot([low, high], [row, row], color=INK, linewidth=2.6, solid_capstyle="butt")
        axes.plot([median], [row], marker="o", markersize=6, color=colours[name], markeredgecolor=INK)
        parts.append(f"{name}: median {median:+.3f} ms, 99 % interval {low:+.3f} to {high:+.3f} ms")
    floors = [d["floor_ns"] for d in document["decisions"] if d["interval"] == STAGE and d["floor_ns"] is not None]
    if floors:
        axes.axvspan(-floors[0] * _MS, floors[0] * _MS, color=GOOD, linewidth=0, zorder=0)
        parts.append(f"the noise floor reaches from {-floors[0] * _MS:+.3f} to {floors[0] * _MS:+.3f} ms")
    axes.axvline(0.0, color=MUTED, linewidth=1, linestyle=(0, (3, 2)))
    axes.set_xlim(-reach * 1.15, reach * 1.15)
    _rows(axes, [d["arm"] for d in shown])
    axes.set_xlabel("← faster · arm minus control in a round, ms · slower →")
    return Figure(name="paired", title="Paired differences", description="; ".join(parts), svg=_svg(figure, "p"))


def _breakdown(document: Mapping[str, Any]) -> Figure:
    arms = [arm for arm in document["arms"] if arm["intervals"]]
    figure, axes = _axes(0.5 * len(arms) + 1.05)
    names = (PREDICTION, VERIFICATION, COPY, "rest of the stage")
    parts = []
    for row, arm in enumerate(arms):
        medians = {name: summary["p50_ns"] * _MS for name, summary in arm["intervals"].items()}
        known = [medians.get(name, 0.0) for name in names[:3]]
        widths = [*known, max(0.0, medians.get(STAGE, 0.0) - sum(known))]
        left = 0.0
        for index, width in enumerate(widths):
            axes.barh(
                row, width, left=left, height=0.62, color=_PART_COLOURS[index], label=names[index] if not row else None
            )
            left += width
        parts.append(f"{arm['name']}: " + ", ".join(f"{n} {w:.2f} ms" for n, w in zip(names, widths, strict=True)))
    _rows(axes, [arm["name"] for arm in arms])
    axes.set_xlabel("medians, ms")
    axes.legend(loc="upper center", bbox_to_anchor=(0.42, -0.42 / (0.5 * len(arms)) - 0.08), ncol=4, frameon=False,
                fontsize=7.5, handlelength=1.0, columnspacing=1.0, labelcolor=INK)  # fmt: skip
    return Figure(name="breakdown", title="Where the stage goes", description="; ".join(parts), svg=_svg(figure, "b"))


def _timeline(document: Mapping[str, Any], records: Sequence[Record]) -> Figure:
    colours = _arm_colours(document)
    figure, axes = _axes(2.3)
    tops = []
    for name, colour in colours.items():
        points = _stage_ms(records, name)
        if points:
            axes.plot(list(points), list(points.values()), ".", markersize=3, color=colour, label=name, alpha=0.75)
            tops.append(float(np.percentile(list(points.values()), 99)) * 1.06)
    axes.set_ylim(top=max(tops))
    axes.set_ylabel("whole stage, ms")
    axes.set_xlabel("round")
    axes.legend(loc="upper center", bbox_to_anchor=(0.48, -0.24), ncol=4, frameon=False, fontsize=7.5, markerscale=2.5,
                handlelength=0.8, columnspacing=1.0, labelcolor=INK)  # fmt: skip
    description = (
        "The whole stage of every arm round by round: slow changes of the host show as a slope or a step in all arms."
    )
    return Figure(name="timeline", title="Over the run", description=description, svg=_svg(figure, "t"))


def _axes(height_in: float) -> tuple[Any, Any]:
    # Figure and canvas by hand: pyplot would pick a display backend and keep global state.
    backend, figure_module = require("matplotlib.backends.backend_svg"), require("matplotlib.figure")
    figure = figure_module.Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    backend.FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(GRID)
    axes.tick_params(colors=INK, labelsize=8.5, length=0)
    axes.xaxis.label.set(color=MUTED, fontsize=8.5)
    axes.yaxis.label.set(color=MUTED, fontsize=8.5)
    axes.grid(True, axis="both", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(False, axis="y")


def _svg(figure: Any, salt: str) -> str:
    """Without prologue, metadata and fixed fonts; ids unique per figure, so that several fit in one document."""
    matplotlib = require("matplotlib")
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"kvbacking-{salt}"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 var(--sans)", text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{salt}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{salt}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{salt}-\1"', text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.strip()
