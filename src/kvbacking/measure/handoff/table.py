"""The document as tables and sentences, for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..sample import STAGE
from .arms import COLD, FIRST, IMPORT, MEMCPY, SECOND

HEAD = ("method", "import", "first", "second", "cold", "MiB", "ratio", "origin", "kept")
LEGEND = (
    "import, first and second update (reads, of read-only K/V), cold (import and first update into fresh pages): ms.",
    "MiB: copied on import and in the first update. ratio: import and first update over a memcpy of the live rows.",
    "origin: arrays, two a layer, that lie where the producer wrote after the first update; kept: that stayed in it.",
)
_MIB = 1 << 20


def tables(document: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """A title and rows under HEAD for every length; a method without figures has empty cells."""
    found: dict[int, list[tuple[str, ...]]] = {}
    for row in document["measurement"]["rows"]:
        found.setdefault(row["live"], []).append(_cells(row))
    per_position = document["payload"]["bytes_per_position"]
    return [(f"{live} live rows, {live * per_position / _MIB:.1f} MiB", rows) for live, rows in found.items()]


def markdown(document: Mapping[str, Any]) -> str:
    """One table of all lengths, in Markdown."""
    lines = [_line(("live rows", "MiB live", *HEAD)), _line(["---"] * (len(HEAD) + 2))]
    per_position = document["payload"]["bytes_per_position"]
    for row in document["measurement"]["rows"]:
        size = f"{row['live'] * per_position / _MIB:.0f}"
        lines.append(_line((str(row["live"]), size, *_cells(row))))
    return "\n".join(lines)


def methods(document: Mapping[str, Any]) -> list[str]:
    """What each method does."""
    words = {row["method"]: row["words"] for row in document["measurement"]["rows"]}
    return [f"{method}: {text}" for method, text in words.items()]


def missing(document: Mapping[str, Any]) -> list[str]:
    """Why some methods have no figures."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in document["measurement"]["rows"]:
        if row["status"] != "measured":
            found.setdefault((row["method"], f"{row['status']}: {row['reason']}"), []).append(str(row["live"]))
    return [f"{method} at {', '.join(lives)} rows: {why}" for (method, why), lives in found.items()]


def sentences(document: Mapping[str, Any]) -> list[str]:
    """Conditions, the bound on memory, and the budget's answer."""
    found = document["measurement"]
    versions = ", ".join(f"{name.replace('_', '-')} {version}" for name, version in found["versions"].items())
    protocol, host = found["protocol"], found["host"]
    loads = [r["load_1m"] for r in host["readings"] if r["load_1m"] is not None]
    bound = f"{protocol['memory_bound_byte_count'] / 2**30:.2f} GiB ({protocol['memory_bound_reason']})"
    lines = [
        f"K and V {found['producer']}; MLX on its {found['device']} backend; {versions}.",
        f"Medians of {protocol['rounds']} interleaved rounds; a length may need at most {bound}.",
        f"Load average {min(loads):.1f} to {max(loads):.1f}." if loads else "Load average unknown.",
        *(f"Not quiet: {reason}." for reason in host["reasons"]),
    ]
    if protocol["interrupted"]:
        lines.append("Interrupted: what was measured until then.")
    if (budget := found["budget"]) is not None:
        lines.append(budget_sentence(budget))
    return lines


def budget_sentence(budget: Mapping[str, Any]) -> str:
    """yes, no, or not measured."""
    if budget["met"] is None:
        return f"{budget['what']}, at most {budget['limit']}: not measured (both lengths are needed)."
    ratios = f"import {budget['import_ratio']:.2f}, with the first update {budget['stage_ratio']:.2f}"
    return f"{budget['what']}, at most {budget['limit']}: {'yes' if budget['met'] else 'no'} ({ratios})."


def payload_sentences(document: Mapping[str, Any]) -> list[str]:
    """The payload model in words."""
    payload = document["payload"]
    per = payload["bytes_per_position"]
    sizes = payload["head_dim"], payload["value_dim"] or payload["head_dim"]
    sides = f"K {payload['keys']} x {sizes[0]}, V {payload['values']} x {sizes[1]}"
    lines = [
        f"{payload['name']}: {payload['layers']} layers x {payload['kv_heads']} heads, {sides}: {per} bytes "
        f"({per / 1024:g} KiB) per position"
    ]
    for part in payload["fixed"]:
        lines.append(f"fixed: {part['name']}, {part['layers']} layers of {list(part['shape'])} {part['dtype']}")
    if payload["fixed"]:
        lines.append(f"fixed parts: {payload['fixed_bytes']} bytes at every length")
    for row in document["lengths"]:
        lines.append(
            f"{row['live']} rows: {row['live_bytes'] / _MIB:.2f} MiB; {row['capacity']} rows allocated: "
            f"{row['allocated_bytes'] / _MIB:.2f} MiB"
        )
    return lines


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    found = row["medians_ns"]
    facts = row["facts"] if row["status"] == "measured" else None
    copied = "" if facts is None else f"{(facts['bytes_imported'] + facts['bytes_first_update']) / _MIB:.1f}"
    return (
        row["method"],
        _ms(found.get(STAGE if row["method"] == MEMCPY else IMPORT)),
        _ms(found.get(FIRST)),
        _ms(found.get(SECOND)),
        _ms(found.get(COLD)),
        copied,
        "" if row["ratio_to_memcpy"] is None else f"{row['ratio_to_memcpy']:.2f}",
        _share(facts, "at_producer_after_first_update"),
        _share(facts, "kept_by_first_update"),
    )


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in row) + " |"


def _ms(nanoseconds: int | None) -> str:
    if nanoseconds is None:
        return ""
    ms = nanoseconds / 1e6
    return f"{ms:.2f}" if ms < 10 else f"{ms:.0f}"


def _share(facts: Mapping[str, int] | None, name: str) -> str:
    return "" if facts is None else f"{facts[name]}/{facts['arrays']}"
