"""The report as one self-contained HTML page: no script, no request, readable in light, dark, and on a phone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .plots import Figure, figures
from .report import Report
from .sample import END_TO_END, STAGE

_NONE = "\N{EN DASH}"
_TONES = {"saving shown": "saving", "slower": "slower", "no saving shown": "none", "unscored": "unscored"}
_QUANTILES = ("min", "p50", "p90", "p99", "max")
_CHECKS = (
    ("proposed", "proposed"),
    ("allowed", "allowed by the model"),
    ("accepted", "accepted"),
    ("same_object", "same object came back"),
    ("same_storage", "storage is ours"),
    ("in_range", "in range"),
    ("layout_ok", "shape and strides"),
    ("canaries_intact", "canaries intact"),
    ("finite", "finite"),
    ("non_zero", "not all zero"),
    ("tail_zero", "tail zero"),
    ("complete", "every row written"),
    ("fresh", "fresh"),
    ("distinct", "no overlap"),
    ("direct_write", "direct write"),
    ("bytes_copied", "bytes copied"),
    ("digest", "digest"),
)


def render(report: Report) -> str:
    """The page. Needs matplotlib."""
    document = report.document
    sections = [
        _verdicts(document),
        _evidence(document),
        _figures(figures(document, report.records)),
        _timings(document),
        _differences(document),
        _memory(document),
        _placement(document),
        _environment(document),
        _limits(document),
    ]
    title = _headline(document)
    css = Path(__file__).with_name("page.css").read_text()
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<style>{css}</style></head>\n"
        '<body><a class="skip" href="#main">Skip to the verdict</a>\n'
        f"{_header(document, title)}\n"
        f'<main id="main">{"".join(sections)}</main>\n'
        f"<footer>kvbacking {escape(str(document['kvbacking_version']))}, {escape(str(document['created']))}. "
        "Raw samples: <code>samples.jsonl</code>; this page as data: <code>report.json</code>, both beside this file."
        "</footer></body></html>\n"
    )


def _headline(document: Mapping[str, Any]) -> str:
    words = [(d["arm"], d["decision"]) for d in document["decisions"] if d["interval"] == STAGE]
    if not words:
        return "Nothing was scored"
    if len({word for _, word in words}) == 1:
        arms = " and ".join(arm for arm, _ in words)
        return f"{words[0][1].capitalize()}: {arms}"
    return "; ".join(f"{arm}: {word}" for arm, word in words)


def _header(document: Mapping[str, Any], title: str) -> str:
    model, protocol = document["model"], document["protocol"]
    notices = []
    if document["simulated"]:
        notices.append(
            '<div class="notice" role="note"><p><strong>Simulated.</strong> '
            "These timings come from the simulator of the public API on a CPU. "
            "They show that the experiment works and say nothing about Apple hardware.</p></div>"
        )
    if document["objections"]:
        notices.append(
            '<div class="notice" role="note"><p><strong>Not scored, because:</strong></p>'
            f"<ul>{_items(document['objections'])}</ul></div>"
        )
    eyebrow = (
        f"{model['name']} · {model['compute_units']} · {protocol['rounds_done']} rounds · "
        f"{protocol['buffers']} buffers · verify {protocol['verify']}"
    )
    return f'<header><p class="eyebrow">{escape(eyebrow)}</p><h1>{escape(title)}</h1>{"".join(notices)}</header>'


def _verdicts(document: Mapping[str, Any]) -> str:
    differences = {(d["arm"], d["interval"]): d for d in document["differences"]}
    cards = []
    for decision in document["decisions"]:
        arm, interval = decision["arm"], decision["interval"]
        difference = differences.get((arm, interval))
        label = "whole stage" if interval == STAGE else "end to end" if interval == END_TO_END else interval
        body = ""
        if difference is not None:
            relative = difference["relative"]
            share = "" if relative is None else f" ({_sign(100 * relative, 1)} %)"
            body = (
                f'<p class="figure">{_ms(difference["median_ns"], signed=True)} ms{share}</p>'
                f'<p class="small">99 % interval {_ms(difference["low_ns"], signed=True)} to '
                f"{_ms(difference['high_ns'], signed=True)} ms over {difference['rounds']} paired rounds"
            )
            if decision["floor_ns"] is not None:
                body += f"; noise floor ±{_ms(decision['floor_ns'])} ms"
            body += f"; Wilcoxon p = {difference['wilcoxon_p']:.2g}</p>"
        cards.append(
            f'<article class="card verdict tone-{_TONES[decision["decision"]]}">'
            f'<p class="name">{escape(arm)}, {escape(label)}</p>'
            f'<p class="word">{escape(decision["decision"])}</p>{body}'
            f'<p class="small">{escape(_own_reasons(decision, document["objections"]))}</p></article>'
        )
    rule = f"<details><summary>The rule</summary><p>{escape(document['protocol']['rule'])}</p></details>"
    return f'<section aria-label="Verdict"><div class="grid">{"".join(cards)}</div>{rule}{_gates(document)}</section>'


def _own_reasons(decision: Mapping[str, Any], objections: Sequence[str]) -> str:
    """Without those that the page says above for the whole run."""
    own = [reason for reason in dict.fromkeys(decision["reasons"]) if reason not in objections]
    return "; ".join([*own, *(["the reasons above"] if len(own) < len(set(decision["reasons"])) else [])])


def _gates(document: Mapping[str, Any]) -> str:
    end = document["end_to_end"]
    if end is None:
        return (
            '<p class="small">No end-to-end task was given: nothing here can promote a certificate, '
            "whatever the stage shows.</p>"
        )
    rows = [[arm, gate, _mark(passed)] for arm, passed_by in end["gates"].items() for gate, passed in passed_by.items()]
    return _table("Quality gates of the end-to-end task", ["arm", "gate", "passed"], rows, raw_from=2)


def _evidence(document: Mapping[str, Any]) -> str:
    columns = [(arm, evidence) for arm in document["arms"] for evidence in arm["evidence"]]
    rejected = [
        f"<li><strong>{escape(arm['name'])}</strong>: {escape('; '.join(arm['reasons']))}</li>"
        for arm in document["arms"]
        if arm["status"] != "valid"
    ]
    notes = (
        '<div class="notice" role="note"><p>Rejected arms are not timed as if they were valid:</p>'
        f"<ul>{''.join(rejected)}</ul></div>"
        if rejected
        else ""
    )
    if not columns:
        return f'<section><h2>Evidence</h2>{notes}<p class="small">No evidence was recorded.</p></section>'
    head = ["check", *(f"{arm['name']} · {evidence['name']}" for arm, evidence in columns)]
    rows = [
        [label, *(_mark(evidence.get(key), informs=key == "proposed") for _, evidence in columns)]
        for key, label in _CHECKS
    ]
    table = _table("What the last valid sample of each arm proved; a dash was not evaluated", head, rows, raw_from=1)
    return f"<section><h2>Evidence</h2>{notes}{table}</section>"


def _figures(made: Sequence[Figure]) -> str:
    cards = []
    for figure in made:
        svg = figure.svg.replace(
            "<svg", f'<svg role="img" aria-labelledby="{figure.name}-title {figure.name}-text" focusable="false"', 1
        )
        cards.append(
            f'<figure class="card"><h3 id="{figure.name}-title">{escape(figure.title)}</h3>{svg}'
            f"<details><summary>In words: {escape(figure.title.lower())}</summary>"
            f'<p class="small" id="{figure.name}-text">{escape(figure.description)}</p></details></figure>'
        )
    return f'<section><h2>Time</h2><div class="grid figures">{"".join(cards)}</div></section>' if cards else ""


def _timings(document: Mapping[str, Any]) -> str:
    groups = {}
    for arm in document["arms"]:
        rows = [
            [name.replace("_", " "), *(_ms(summary[f"{key}_ns"]) for key in _QUANTILES), str(summary["count"])]
            for name, summary in arm["intervals"].items()
        ]
        groups[arm["name"]] = rows or [["rejected", *[_NONE] * (len(_QUANTILES) + 1)]]
    table = _grouped("Milliseconds; percentiles are observed values", ["", *_QUANTILES, "samples"], groups)
    return f"<section><h2>Intervals</h2>{table}</section>"


def _differences(document: Mapping[str, Any]) -> str:
    groups: dict[str, list[list[str]]] = {}
    for d in document["differences"]:
        groups.setdefault(d["arm"], []).append(
            [
                d["interval"].replace("_", " "),
                *(_ms(d[key], signed=True) for key in ("median_ns", "low_ns", "high_ns")),
                _NONE if d["relative"] is None else f"{_sign(100 * d['relative'], 2)} %",
                f"{d['wilcoxon_p']:.2g}",
                str(d["rounds"]),
            ]
        )
    if not groups:
        return ""
    head = ["", "median", "99 % low", "99 % high", "relative", "Wilcoxon p", "rounds"]
    caption = f"Arm minus {document['protocol']['control']} in the same round, milliseconds"
    return f"<section><h2>Paired differences</h2>{_grouped(caption, head, groups)}</section>"


def _memory(document: Mapping[str, Any]) -> str:
    groups = {}
    for arm in document["arms"]:
        rows = [
            [name.replace("_", " "), *(_count(value[key]) for key in ("first", "last", "highest"))]
            for name, value in arm["memory"].items()
        ]
        rows += [
            [f"{name.replace('_', ' ')} (whole run)", _NONE, _count(count), _NONE]
            for name, count in arm["counters"].items()
        ]
        if rows:
            groups[arm["name"]] = rows
    if not groups:
        return '<section><h2>Memory</h2><p class="small">No memory telemetry was recorded.</p></section>'
    caption = "Read between samples, whole process; counters are of this arm's session"
    return f"<section><h2>Memory</h2>{_grouped(caption, ['', 'first', 'last', 'highest'], groups)}</section>"


def _placement(document: Mapping[str, Any]) -> str:
    placement = dict(document["placement"])
    result = str(placement.pop("result"))
    why = str(placement.pop("why", ""))
    details = "".join(f"<dt>{escape(str(k))}</dt><dd>{_value(v)}</dd>" for k, v in placement.items())
    body = f"<p><strong>{escape(result)}</strong>{': ' + escape(why) if why else ''}</p>"
    return (
        f'<section><h2>Placement</h2><div class="card">{body}{f"<dl>{details}</dl>" if details else ""}</div></section>'
    )


def _environment(document: Mapping[str, Any]) -> str:
    host = dict(document["host"])
    readings = host.pop("readings")
    quiet = "quiet" if host.pop("quiet") else "not quiet"
    protocol = {k: v for k, v in document["protocol"].items() if k != "rule"}
    overhead = document["harness"]["overhead_ns_per_round_p50"]
    if overhead is not None:
        protocol["harness_overhead_per_round"] = f"{overhead / 1000:.0f} us (median, outside the timed parts)"
    cards = [
        ("Runtime", document["runtime"]),
        ("Model", document["model"]),
        ("Contract", document["contract"]),
        ("Inputs", document["inputs"]),
        ("Protocol", protocol),
        (f"Host: {quiet}", {**host, "readings": len(readings), **({"last": readings[-1]} if readings else {})}),
    ]
    html = "".join(
        f'<div class="card"><h3>{escape(title)}</h3><dl>'
        + "".join(f"<dt>{escape(str(k).replace('_', ' '))}</dt><dd>{_value(v)}</dd>" for k, v in values.items())
        + "</dl></div>"
        for title, values in cards
    )
    return f'<section><h2>Environment</h2><div class="grid">{html}</div></section>'


def _limits(document: Mapping[str, Any]) -> str:
    return f"<section><h2>Limits</h2><ul>{_items(document['limits'])}</ul></section>"


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, raw_from: int | None = None) -> str:
    """Cells are text; from column `raw_from` on they are HTML already."""
    body = "".join(
        _row([cell if raw_from and i >= raw_from else escape(cell) for i, cell in enumerate(r)]) for r in rows
    )
    return _region(caption, head, f"<tbody>{body}</tbody>")


def _grouped(caption: str, head: Sequence[str], groups: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """One body per group, under the group's name; the rows that decide are set in bold."""
    bodies = []
    for name, rows in groups.items():
        lines = "".join(
            _row([escape(cell) for cell in row], "key" if row[0].replace(" ", "_") in (STAGE, END_TO_END) else "")
            for row in rows
        )
        title = f'<tr class="head"><th scope="rowgroup">{escape(name)}</th><td colspan="{len(head) - 1}"></td></tr>'
        bodies.append(f"<tbody>{title}{lines}</tbody>")
    return _region(caption, head, "".join(bodies))


def _row(cells: Sequence[str], kind: str = "") -> str:
    first, *rest = cells
    data = "".join(f"<td>{cell}</td>" for cell in rest)
    attribute = f' class="{kind}"' if kind else ""
    return f'<tr{attribute}><th scope="row">{first}</th>{data}</tr>'


def _region(caption: str, head: Sequence[str], bodies: str) -> str:
    """The region scrolls, so it takes the focus."""
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' if cell else "<td></td>" for cell in head)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>{bodies}</table></div>"
    )


def _mark(value: Any, *, informs: bool = False) -> str:
    """`informs`: a "no" is no failure (nothing is proposed in the control)."""
    if value is True:
        return '<span class="yes">yes</span>'
    if value is False:
        return "no" if informs else '<span class="no">no</span>'
    if value is None:
        return f'<span class="na">{_NONE}</span>'
    text = str(value)
    return f'<span class="mono" title="{escape(text)}">{escape(text[:10])}…</span>' if len(text) > 14 else escape(text)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(k).replace('_', ' '))}: {_value(v)}" for k, v in value.items()) or _NONE
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(v) for v in value) or _NONE
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def _ms(ns: float, *, signed: bool = False) -> str:
    value = ns / 1e6
    digits = 4 if abs(value) < 0.1 else 3 if abs(value) < 10 else 2
    return _sign(value, digits) if signed else f"{value:.{digits}f}"


def _sign(value: float, digits: int) -> str:
    """With a real minus sign, and without the sign of a zero."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def _count(value: int) -> str:
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
