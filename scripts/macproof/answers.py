"""The open questions, answered from the evidence in a folder. What the evidence does not settle stays open."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from macproof.steps import UNITS

Evidence = Callable[[str], Any]
OPEN = "open"


def answer_all(folder: Path) -> list[dict[str, Any]]:
    """One entry per question of docs/first-run-on-a-mac.md, in its order."""

    def read(name: str) -> Any:
        path = folder / name
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return None

    proofs = {path.name: read(path.name) for path in sorted(folder.glob("prove-*.json"))}
    probes = {units: read(f"surface-probe-{units}.json") for units in UNITS}
    answers = {
        "runtime": _runtime(read("environment.json")),
        "input-lock": _probe_step(probes, "used as input"),
        "read-lock": _probe_step(probes, "read under lock"),
        "handler-read": _probe_step(probes, "read by handler"),
        "locked-backing-error": _locked_error(probes),
        "raw-accepted": _outcomes(proofs, "raw"),
        "surface-accepted": _outcomes(proofs, "surface"),
        "pool-accepted": _outcomes(proofs, "pool"),
        "reuse-mode": _reuse(proofs),
        "row-bytes": _row_bytes(probes),
        "faster": _benches(
            {
                path.parent.name: read(f"{path.parent.name}/report.json")
                for path in sorted(folder.glob("bench-*/report.json"))
            }
        ),
        "hypotheses": _experiments({path.name: read(path.name) for path in sorted(folder.glob("experiment-*.json"))}),
        "mlx-handoff": _handoff(read("handoff.json")),
        "same-tokens": _tokens(read("tokens.json")),
        "mlx-surface": None,  # not asked yet
    }
    return [{"question": name, "answer": answer or OPEN} for name, answer in answers.items()]


def as_markdown(document: Mapping[str, Any]) -> str:
    """README.md of the folder."""
    lines = ["# kvbacking: evidence from one machine", ""]
    if document["dry_run"]:
        lines += ["**Dry run on the simulator. Nothing here says anything about Apple hardware.**", ""]
    elif document["quick"]:
        lines += ["**Quick run: the steps work; the timings are too few to be scored.**", ""]
    lines += ["docs/first-run-on-a-mac.md says what each answer settles.", "", "| question | answer |", "|---|---|"]
    lines += [f"| {entry['question']} | {_cell(entry['answer'])} |" for entry in document["questions"]]
    lines += ["", "| step | status | seconds |", "|---|---|---|"]
    lines += [f"| {step['name']} | {step['status']} | {step.get('seconds', '')} |" for step in document["steps"]]
    return "\n".join(lines) + "\n"


def _cell(answer: Any) -> str:
    if isinstance(answer, Mapping):
        return "<br>".join(f"{name}: {_cell(value)}" for name, value in answer.items())
    return str(answer).replace("|", "/").replace("\n", " ")


def _runtime(environment: Any) -> Any:
    if not environment:
        return None
    runtime = environment["runtime"]
    return {name: runtime[name] for name in ("kind", "os", "os_build", "chip", "python_sdk")}


def _probe_step(probes: Mapping[str, Any], step: str) -> dict[str, str]:
    """Per compute units, the fate of a backing after the treatment; means something only if a fresh one is accepted."""
    found = {}
    for units, probe in probes.items():
        steps = {entry["step"]: entry for entry in probe["steps"]} if probe else {}
        if "fresh" not in steps or step not in steps:
            continue
        if steps["fresh"]["outcome"] != "accepted":
            found[units] = f"open: a fresh surface is {steps['fresh']['outcome']} here"
        else:
            found[units] = steps[step]["outcome"]
    return found


def _locked_error(probes: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for units, probe in probes.items():
        for entry in probe["steps"] if probe else ():
            if entry["step"] == "locked":
                error = (
                    f": {entry['domain']} {entry['code']}: {entry['message']}" if entry["outcome"] == "error" else ""
                )
                found[units] = entry["outcome"] + error
    return found


def _outcomes(proofs: Mapping[str, Any], mechanism: str) -> dict[str, str]:
    found = {}
    for name, verdict in proofs.items():
        for entry in verdict["mechanisms"] if verdict else ():
            if entry["mechanism"] == mechanism:
                rule = f" ({entry['rules'][0]['name']})" if entry["outcome"] == "rejected" and entry["rules"] else ""
                found[_label(name)] = entry["outcome"] + rule
    return found


def _reuse(proofs: Mapping[str, Any]) -> dict[str, str]:
    return {
        _label(name): str(entry["reuse"])
        for name, verdict in proofs.items()
        for entry in (verdict["mechanisms"] if verdict else ())
        if entry["mechanism"] == "surface" and entry["reuse"]
    }


def _row_bytes(probes: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for units, probe in probes.items():
        if probe and (sizes := {entry["bytes_per_row"] for entry in probe["steps"] if entry["bytes_per_row"]}):
            found[units] = f"{sorted(sizes)} for rows of {probe['output']['shape'][-1]} {probe['output']['dtype']}"
    return found


def _benches(reports: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: "; ".join(f"{d['arm']} {d['interval']}: {d['decision']}" for d in report["decisions"])
        for name, report in reports.items()
        if report
    }


def _handoff(document: Any) -> dict[str, str]:
    """Which ways work on this MLX, and where the cache of each lies after its first update."""
    found = {}
    measured = document["measurement"] if document else {"rows": ()}
    for row in measured["rows"]:
        if row["method"] != "memcpy":
            where, facts = row["reason"], row["facts"]
            if row["status"] == "measured":
                copied = facts["bytes_imported"] + facts["bytes_first_update"]
                where = (
                    f"{facts['at_producer_after_first_update']} of {facts['arrays']} arrays where they were written, "
                    f"{copied} bytes copied, {row['ratio_to_memcpy']:.2f} x memcpy"
                )
            found[f"{measured['device']} {row['method']} {row['live']}"] = where
    return found


def _tokens(document: Any) -> dict[str, str]:
    """How far a decoder with handed rows agrees with itself left alone, and what a known mistake looks like."""
    return {
        f"{row['decoder']} {row['live']}, {row['prefill']}": (
            f"{row['equal']} of {row['steps']} tokens equal, log-probabilities at most "
            f"{row['max_logprob_difference']:.2g} apart"
        )
        for row in (document["rows"] if document else ())
    }


def _experiments(documents: Mapping[str, Any]) -> dict[str, str]:
    return {d["name"]: f"{d['answer']}: {d['because']}" for d in documents.values() if d}


def _label(file_name: str) -> str:
    return file_name.removeprefix("prove-").removesuffix(".json")
