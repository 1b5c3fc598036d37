"""The command line's documents as a person reads them. Colour only on a terminal (rich decides)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

SIMULATED = "Runtime: simulator. Nothing here speaks about Apple hardware."
_COLOURS = {"yes": "green", "no": "red", "unknown": "yellow", "proven": "green", "rejected": "red"}


def show(kind: str, document: Mapping[str, Any]) -> None:
    """Prints one document."""
    console = Console(highlight=False, soft_wrap=False)
    _RENDERERS[kind](console, document)


def _word(value: object) -> str:
    text = "-" if value is None else ("no", "yes")[value] if isinstance(value, bool) else str(value)
    colour = _COLOURS.get(text)
    return f"[{colour}]{escape(text)}[/]" if colour else escape(text)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(escape(column), overflow="fold", no_wrap=index == 0)
    return table


def _runtime_line(console: Console, runtime: Mapping[str, Any]) -> None:
    if runtime["kind"] == "simulator":
        console.print(SIMULATED)
    else:
        console.print(escape(f"Runtime: Core ML on {runtime['os']} ({runtime['os_build']}), {runtime['chip']}."))


def _line(console: Console, text: str, style: str | None = None) -> None:
    """A sentence: the terminal wraps it, a file keeps it on one line."""
    console.print(text, style=style, soft_wrap=True)


_EVIDENCE_ROWS = (
    "allowed", "same_object", "same_storage", "accepted", "in_range", "layout_ok", "finite", "non_zero", "tail_zero",
    "canaries_intact", "row_gaps_touched", "complete", "fresh", "distinct", "bytes_copied", "direct_write",
)  # fmt: skip


def _verdict(console: Console, document: Mapping[str, Any]) -> None:
    runtime, model, mechanisms = document["runtime"], document["model"], document["mechanisms"]
    _runtime_line(console, runtime)
    _line(console, escape(f"Model {model['path']}, {model['fingerprint']}, compute units {model['compute_units']}."))
    built = f"Built for {runtime['deployment_target']} against {runtime['build_sdk']}"
    _line(
        console,
        escape(f"{built}; OS {runtime['os']} ({runtime['os_build']}); kvbacking {runtime['kvbacking_version']}."),
    )
    questions = _table("The five questions", "", *(m["mechanism"] for m in mechanisms))
    for question in mechanisms[0]["answers"]:
        questions.add_row(question, *(_word(m["answers"][question]["value"]) for m in mechanisms))
    questions.add_row("reuse mode", *(_word(m["reuse"]) for m in mechanisms))
    questions.add_row("predictions", *(_word(m["predictions"]) for m in mechanisms))
    questions.add_row("verdict", *(_word(m["outcome"]) for m in mechanisms))
    console.print(questions)
    seen = [(m["mechanism"], e) for m in mechanisms for e in m["evidence"] if e["proposed"]]
    if seen:
        table = _table("Evidence of the last prediction", "", *(f"{name} {e['name']}" for name, e in seen))
        for field in _EVIDENCE_ROWS:
            table.add_row(field, *(_word(e[field]) for _, e in seen))
        console.print(table)
        for name, evidence in seen:
            _line(console, escape(f"digest {name} {evidence['name']}: {evidence['digest'] or '-'}"))
    for verdict in mechanisms:
        for check in verdict["checks"]:
            if check["passed"] is not True or check["name"] in ("parity", "repeatable", "complete"):
                word = _word(check["passed"])
                _line(
                    console, f"{word} {escape(verdict['mechanism'])} {escape(check['name'])}: {escape(check['detail'])}"
                )
    for verdict in mechanisms:
        for failure in verdict["failures"]:
            where = escape(f"{verdict['mechanism']}: {failure['output']} {failure['check']}")
            _line(
                console, f"[red]failed[/] {where}: {escape(failure['expected'])} expected, {escape(failure['actual'])}"
            )
        if verdict["outcome"] == "rejected":
            rule = verdict["rules"][0]
            _line(console, escape(f"{verdict['mechanism']}: {rule['name']}: {rule['because']}"))
            _line(console, escape(f"  the rule: {rule['text']}"))
    _line(console, escape(document["sentence"]), style="bold")


def _inspection(console: Console, document: Mapping[str, Any]) -> None:
    console.print(escape(f"{document['path']}  {document['fingerprint']}"))
    console.print(escape(f"compute units {document['compute_units']}; family {document['family'] or 'none'}"))
    if document["functions"]:
        console.print(escape(f"functions: {', '.join(document['functions'])}"))
    table = _table("Features", "kind", "name", "shape", "dtype", "bytes", "flexible", "optional")
    for kind in ("inputs", "outputs", "states"):
        for spec in document[kind]:
            shape = " x ".join(map(str, spec["shape"])) or "-"
            row = (kind[:-1], spec["name"], shape, str(spec["dtype"] or spec["kind"]), str(spec["byte_count"] or "-"))
            table.add_row(*map(escape, row), _word(spec["flexible"]), _word(spec["optional"]))
    console.print(table)
    if program := document["program"]:
        console.print(
            escape(
                f"specification {program['specification_version']}, opset {', '.join(program['opsets']) or '-'}; "
                f"program {program['program_byte_count']} bytes, weights {program['weight_byte_count']} bytes; "
                f"compression {', '.join(program['compression']) or 'none'}"
            )
        )
        counts = sorted(program["operations"].items(), key=lambda item: (-item[1], item[0]))
        console.print(escape("operations: " + ", ".join(f"{name} {count}" for name, count in counts)))
    for warning in document["warnings"]:
        console.print(f"[yellow]note[/] {escape(warning)}")


def _sample(console: Console, document: Mapping[str, Any]) -> None:
    console.print(escape(f"wrote {document['path']} ({document['kind']})"))
    for name, spec in document["inputs"].items():
        console.print(escape(f"  input {name}: {spec['dtype']}{spec['shape']}"))
    if document["contract"]:
        console.print(escape(f"  contract: {document['contract']}"))


def _doctor(console: Console, document: Mapping[str, Any]) -> None:
    _runtime_line(console, document["runtime"])
    table = _table("Runtime", "what", "value")
    for name, value in document["runtime"].items():
        table.add_row(escape(name), _word(value))
    for name, value in document["packages"].items():
        table.add_row(escape(name), escape(value or "not installed"))
    table.add_row("cache", escape(document["cache_dir"]))
    table.add_row("backings disabled", _word(document["backings_disabled"]))
    console.print(table)
    for title, key in (("Can be proven here:", "can_prove"), ("Cannot be proven here:", "cannot_prove")):
        console.print(title)
        for line in document[key]:
            console.print(f"  - {escape(line)}")


def _transcription(console: Console, document: Mapping[str, Any]) -> None:
    """The text alone: what else there is to say is in --json."""
    console.print(escape(document["text"]), soft_wrap=True)


_RENDERERS: Mapping[str, Callable[[Console, Mapping[str, Any]], None]] = {
    "verdict": _verdict,
    "inspection": _inspection,
    "sample": _sample,
    "doctor": _doctor,
    "transcription": _transcription,
}
