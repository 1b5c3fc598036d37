"""`kvbacking bench`, `compare` and `experiment`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kvbacking.cli import (
    EXIT_INTERRUPTED,
    contract_of,
    contract_options,
    inputs_of,
    json_option,
    load_model,
    model_options,
)

if TYPE_CHECKING:
    from kvbacking.model import ComputeUnits


@click.command()
@model_options
@contract_options
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True)
@click.option("--warmup", type=click.IntRange(1), default=5, show_default=True, help="Unrecorded runs of every arm.")
@click.option("--order-seed", type=int, default=0, show_default=True, help="Of the order of arms and the bootstrap.")
@click.option("--verify", type=click.Choice(["layout", "scan"]), default="scan", show_default=True)
@click.option("--fresh", is_flag=True, help="Include allocation and wrapper creation in every timed stage.")
@click.option("--no-placement", is_flag=True, help="Do not load the model once more per compute unit.")
@click.option("--certificate", "certificate_path", type=click.Path(exists=True), help="Of prove: gives the reuse mode.")
@click.option("--task", metavar="MODULE:NAME", help="An end-to-end task (kvbacking.measure.session_arm.EndToEnd).")
@click.option("--whisper", "wav", type=click.Path(), help="Task: the text of this WAV; MODEL encodes for --checkpoint.")
@click.option("--checkpoint", type=click.Path(), help="A CTranslate2 Whisper checkpoint folder (with --whisper).")
@click.option("--promote", "promote_path", type=click.Path(), help="Write --certificate promoted, if --task allows it.")
@click.option("--out", type=click.Path(file_okay=False), required=True, help="Folder of the report.")
@json_option
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    model_path: str,
    function_name: str | None,
    compute_units: str,
    rounds: int,
    warmup: int,
    order_seed: int,
    verify: Any,
    fresh: bool,
    no_placement: bool,
    certificate_path: str | None,
    task: str | None,
    wav: str | None,
    checkpoint: str | None,
    promote_path: str | None,
    out: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Paired A/B of framework outputs with a checked copy against raw and surface backings.

    Writes report.json, report.html and samples.jsonl into --out; Ctrl-C ends it and still writes.
    """
    from kvbacking.certificate import Certificate

    from .bench import bench as run
    from .lazy import require
    from .progress import progress_bar
    from .promotion import promote

    require("matplotlib.figure")  # before the run, not after it
    if promote_path and not ((task or wav) and certificate_path):
        raise click.UsageError("--promote needs --task or --whisper, and --certificate")
    if (wav is None) != (checkpoint is None) or (wav and task):
        raise click.UsageError("--whisper and --checkpoint go together, and not with --task")
    end_to_end = _task(task) if task else None
    if wav and checkpoint:
        from kvbacking.whisper.task import open_speech

        speech = open_speech(checkpoint, model_path, wav, compute_units=cast("ComputeUnits", compute_units))
        model, contract, inputs = speech.model, speech.contract, speech.inputs()
        end_to_end, source = speech, Path(wav).name
    else:
        model = load_model(model_path, function_name, compute_units)
        contract = contract_of(model, options)
        inputs, _ = inputs_of(model, options)
        given = options["inputs_path"]
        source = Path(given).name if given else f"random, seed {options['seed']}"
    certificate = Certificate.load(certificate_path) if certificate_path else None
    with progress_bar("bench") as progress:
        report = run(
            model,
            inputs,
            contract,
            rounds=rounds,
            warmup=warmup,
            seed=order_seed,
            verify=verify,
            fresh=fresh,
            reuse=certificate.reuse if certificate and certificate.mechanism == "surface" else None,
            end_to_end=end_to_end,
            placement=not no_placement,
            progress=progress,
            inputs_source=source,
        )
    paths = report.write(out)
    if as_json:
        click.echo(json.dumps(report.document, indent=2, allow_nan=False))
    else:
        _print_report(report.document, paths["report.html"])
    if certificate and promote_path:
        promote(certificate, report).save(promote_path)
    ctx.exit(EXIT_INTERRUPTED if report.document["protocol"]["interrupted"] else 0)


@click.command()
@click.argument("first", type=click.Path(exists=True))
@click.argument("second", type=click.Path(exists=True))
@json_option
def compare(first: str, second: str, as_json: bool) -> None:
    """Two reports (folders or report.json) side by side; refused when they are about different things."""
    from .compare import compare as run
    from .report import Report

    result = run(Report.load(first), Report.load(second)).document()
    if as_json:
        click.echo(json.dumps(result, indent=2, allow_nan=False))
        return
    for name, (one, two) in result["environment"].items():
        click.echo(f"{name}: {one} | {two}")
    for row in result["arms"]:
        if row["first_decision"] or row["second_decision"]:
            sides = [f"{_difference(row[side])} {row[f'{side}_decision']}" for side in ("first", "second")]
            verdict = "agree" if row["agree"] else "do not agree"
            click.echo(f"{row['arm']} {row['interval']}: {sides[0]} | {sides[1]}: the decisions {verdict}")


@click.command()
@click.argument("name")
@model_options
@contract_options
@click.option("--rounds", type=click.IntRange(1), default=100, show_default=True)
@click.option("--order-seed", type=int, default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the answer there, as JSON.")
@json_option
def experiment(
    name: str,
    model_path: str,
    function_name: str | None,
    compute_units: str,
    rounds: int,
    order_seed: int,
    out: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """One of the open hypotheses as a one-variable experiment on MODEL.

    NAME: surface-vs-raw-staging, persistent-pool, autoreleasepool, accelerate-postprocess, placement-shift,
    many-large-vs-one-small.
    """
    from .experiments import EXPERIMENTS, run_experiment
    from .progress import progress_bar

    if name not in EXPERIMENTS:
        raise click.UsageError(f"{name!r} is not one of {', '.join(EXPERIMENTS)}")
    model = load_model(model_path, function_name, compute_units)
    contract = contract_of(model, options)
    inputs, _ = inputs_of(model, options)
    with progress_bar(name) as progress:
        document = run_experiment(name, model, inputs, contract, rounds=rounds, seed=order_seed, progress=progress)
    if out:
        Path(out).write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    for key in ("hypothesis", "variable", "held", "falsified_by"):
        click.echo(f"{key.replace('_', ' ')}: {document[key]}")
    for key, value in document["numbers"].items():
        click.echo(f"  {key.replace('_', ' ')}: {value}")
    label = " (simulated: says nothing about Apple hardware)" if document["simulated"] else ""
    click.echo(f"answer{label}: {document['answer']}: {document['because']}")


def _task(text: str) -> Any:
    """MODULE:NAME; a class or function of that name is called without arguments."""
    module, separator, name = text.partition(":")
    if not separator:
        raise click.UsageError(f"--task {text!r} must be MODULE:NAME")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"--task {text!r}: {error}") from error
    return found if hasattr(found, "run") and not isinstance(found, type) else found()


def _print_report(document: Mapping[str, Any], page: Path) -> None:
    if document["simulated"]:
        click.echo("Runtime: simulator. Nothing here speaks about Apple hardware.")
    differences = {(d["arm"], d["interval"]): d for d in document["differences"]}
    for decision in document["decisions"]:
        where = (decision["arm"], decision["interval"])
        numbers = _difference(differences.get(where))
        click.echo(f"{decision['arm']}, {decision['interval'].replace('_', ' ')}: {decision['decision']} {numbers}")
        for reason in dict.fromkeys(decision["reasons"]):
            click.echo(f"  {reason}")
    click.echo(f"wrote {page}")


def _difference(difference: dict[str, Any] | None) -> str:
    if difference is None:
        return "(not measured)"
    low, median, high = (difference[key] / 1e6 for key in ("low_ns", "median_ns", "high_ns"))
    relative = "" if difference["relative"] is None else f", {100 * difference['relative']:+.1f} %"
    return f"({median:+.3f} ms{relative}; 99 % interval {low:+.3f} to {high:+.3f} ms)"
