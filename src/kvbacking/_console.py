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
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    return table


def _runtime_line(console: Console, runtime: Mapping[str, Any]) -> None:
    if runtime["kind"] == "simulator":
        console.print(SIMULATED)
    else:
        console.print(escape(f"Runtime: Core ML on {runtime['os']} ({runtime['os_build']}), {runtime['chip']}."))


def _verdict(console: Console, document: Mapping[str, Any]) -> None:
    runtime = document["runtime"]
    _runtime_line(console, runtime)
    console.print(
        escape(
            f"Model {document['model']['path']} {document['model']['fingerprint'][:23]}..., compute units "
            f"{document['model']['compute_units']}. Built for {runtime['deployment_target']} against "
            f"{runtime['build_sdk']}; OS {runtime['os']} ({runtime['os_build']}); "
            f"kvbacking {runtime['kvbacking_version']}."
        )
    )
    questions = _table("The five questions", "mechanism", "outcome", *document["mechanisms"][0]["answers"], "reuse")
    for verdict in document["mechanisms"]:
        answers = [_word(answer["value"]) for answer in verdict["answers"].values()]
        questions.add_row(verdict["mechanism"], _word(verdict["outcome"]), *answers, _word(verdict["reuse"]))
    console.print(questions)
    fields = (
        "accepted",
        "same_object",
        "same_storage",
        "in_range",
        "layout_ok",
        "finite",
        "non_zero",
        "tail_zero",
        "canaries_intact",
        "fresh",
        "distinct",
        "direct_write",
    )
    for verdict in document["mechanisms"]:
        if not verdict["evidence"]:
            continue
        table = _table(
            f"Evidence, {verdict['mechanism']} (last of {verdict['predictions']} predictions)",
            "field",
            *(e["name"] for e in verdict["evidence"]),
        )
        for field in fields:
            table.add_row(field, *(_word(e[field]) for e in verdict["evidence"]))
        table.add_row("digest", *(escape(str(e["digest"] or "-")) for e in verdict["evidence"]))
        console.print(table)
        for check in verdict["checks"]:
            if check["passed"] is not True or check["name"] in ("parity", "repeatability", "complete"):
                console.print(f"  {_word(check['passed'])} {escape(check['name'])}: {escape(check['detail'])}")
    for verdict in document["mechanisms"]:
        for failure in verdict["failures"]:
            console.print(
                f"[red]failed[/] {escape(verdict['mechanism'])}: {escape(failure['output'])} "
                f"{escape(failure['check'])}: expected {escape(failure['expected'])}, got {escape(failure['actual'])}"
            )
        if verdict["outcome"] == "rejected":
            rule = verdict["rules"][0]
            console.print(f"{escape(verdict['mechanism'])}: {escape(rule['name'])}: {escape(rule['because'])}")
            console.print(f"  rule: {escape(rule['text'])}")
    console.print(escape(document["sentence"]), style="bold")


def _inspection(console: Console, document: Mapping[str, Any]) -> None:
    console.print(escape(f"{document['path']}  {document['fingerprint']}"))
    console.print(escape(f"compute units {document['compute_units']}; family {document['family'] or 'none'}"))
    if document["functions"]:
        console.print(escape(f"functions: {', '.join(document['functions'])}"))
    table = _table("Features", "kind", "name", "shape", "dtype", "flexible", "optional")
    for kind in ("inputs", "outputs", "states"):
        for spec in document[kind]:
            shape = " x ".join(map(str, spec["shape"])) or "-"
            row = (kind[:-1], spec["name"], shape, str(spec["dtype"] or spec["kind"]))
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
