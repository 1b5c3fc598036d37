"""`kvbacking handoff`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from kvbacking.cli import EXIT_INTERRUPTED, contract_of, inputs_of, json_option, load_model
from kvbacking.errors import ContractError
from kvbacking.payload import PRESETS, FixedPart, Item, Payload, Scales

F = TypeVar("F", bound=Callable[..., Any])
LENGTHS = (512, 2048, 8192)
METHODS = "slice,views,adopted,copied,owned,owned-stacked"  # arms.METHODS, without importing it for --help
_SHAPE_OPTIONS = ("layers", "kv_heads", "head_dim", "value_dim", "keys", "values", "scale_group")


def shape_options(function: F) -> F:
    """What describes K/V without a model."""
    for option in (
        click.option(
            "--fixed", multiple=True, metavar="NAME=LAYERSxN[xN...]:DTYPE",
            help="State without rows, recurrent for example; any number of times.",
        ),
        click.option("--capacity", type=click.IntRange(1), help="Rows allocated (default: 256 more than are live)."),
        click.option("--scale-group", type=click.IntRange(1), help="INT8 elements per float16 scale (default: a row)."),
        click.option("--values", type=click.Choice(get_args(Item)), help="Dtype of V (default: float16)."),
        click.option("--keys", type=click.Choice(get_args(Item)), help="Dtype of K (default: float16)."),
        click.option("--value-dim", type=click.IntRange(1), help="Of V, where it differs."),
        click.option("--head-dim", type=click.IntRange(1)),
        click.option("--kv-heads", type=click.IntRange(1)),
        click.option("--layers", type=click.IntRange(1)),
        click.option("--shape", type=click.Choice(list(PRESETS)), help="A known shape instead of a model."),
    ):  # fmt: skip
        function = option(function)
    return function


def model_options(function: F) -> F:
    """What belongs to MODEL."""
    for option in (
        click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs and the order."),
        click.option("--inputs", "inputs_path", type=click.Path(exists=True), help="Inputs of MODEL by name, .npz."),
        click.option("--family", type=click.Choice(["turbo", "distil"]), help="A known contract of MODEL."),
        click.option("--outputs", help="K and V of MODEL: k,v or k_0,k_1,...,v_0,v_1,... (default: its 4-D outputs)."),
        click.option("--function", "function_name", help="Function of a multi-function package."),
        click.option(
            "--compute-units", type=click.Choice(["all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"]), default="all"
        ),
    ):
        function = option(function)
    return click.argument("model_path", metavar="[MODEL]", required=False, type=click.Path())(function)


@click.command()
@model_options
@shape_options
@click.option(
    "--live", "lengths", metavar="N,N,...", help="Live rows (default: 512,2048,8192; MODEL: two less than fit)."
)
@click.option("--rounds", type=click.IntRange(1), default=11, show_default=True)
@click.option("--methods", default=METHODS, show_default=True)
@click.option(
    "--memory", "memory_gib", type=click.FloatRange(min=0, min_open=True), help="GiB that one length may need."
)
@click.option("--payload", "payload_only", is_flag=True, help="Sizes alone: needs no MLX and measures nothing.")
@click.option("--out", type=click.Path(file_okay=False), help="Folder for handoff.json (raw samples) and handoff.png.")
@json_option
@click.pass_context
def handoff(
    ctx: click.Context,
    /,
    model_path: str | None,
    lengths: str | None,
    rounds: int,
    methods: str,
    memory_gib: float | None,
    payload_only: bool,
    out: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Hand-off of K/V to MLX: sizes, copied bytes, latency.

    Of MODEL's own predictions, or of a shape: --shape, or --layers, --kv-heads and --head-dim.
    """
    described = [f"--{name.replace('_', '-')}" for name in _SHAPE_OPTIONS if options[name] is not None]
    given = [bool(model_path), options["shape"] is not None, bool(described)]
    if sum(given) != 1:
        raise click.UsageError("one of MODEL, --shape, and --layers with --kv-heads and --head-dim is needed")
    if model_path and (options["capacity"] or options["fixed"]):
        raise click.UsageError("--capacity and --fixed describe a shape; MODEL has its own")
    chosen = [name.strip() for name in methods.split(",") if name.strip()]
    if not chosen or set(chosen) - set(METHODS.split(",")) or len(set(chosen)) != len(chosen):
        raise click.UsageError(f"--methods must be some of {METHODS}, each once, got {methods!r}")
    live = _lengths(lengths)
    model = contract = None
    if model_path:
        model = load_model(model_path, options["function_name"], options["compute_units"])
        contract = _contract(model, options)
        payload = Payload.from_contract(contract, model.path.name)
    else:
        payload = _payload(options)
    live = live or _default_lengths(payload, bool(model_path))
    from .bench import Options
    from .run import measure_model, measure_shape, payload_document

    if payload_only:
        document = payload_document(payload, live)
    else:
        from ..lazy import require
        from ..progress import progress_bar

        if out:
            require("matplotlib.figure")  # before the run, not after it
        how = Options(
            methods=tuple(chosen),  # type: ignore[arg-type]  # checked above
            rounds=rounds,
            seed=options["seed"],
            memory_byte_count=None if memory_gib is None else int(memory_gib * 2**30),
        )
        with progress_bar("handoff") as progress:
            if model is not None:
                inputs, _ = inputs_of(model, options)
                document = measure_model(model, contract, inputs, payload, live, how, progress=progress)
            else:
                document = measure_shape(payload, live, how, progress=progress)
    written = _write(document, Path(out)) if out else []
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        _show(document, written)
    found = document["measurement"]
    ctx.exit(EXIT_INTERRUPTED if found and found["protocol"]["interrupted"] else 0)


def _payload(options: dict[str, Any]) -> Payload:
    from dataclasses import replace

    fixed = tuple(_fixed(text) for text in options["fixed"])
    try:
        if options["shape"]:
            preset = PRESETS[options["shape"]]
            return replace(preset, capacity=options["capacity"] or preset.capacity, fixed=fixed)
        missing = [f"--{n.replace('_', '-')}" for n in ("layers", "kv_heads", "head_dim") if options[n] is None]
        if missing:
            raise click.UsageError(f"a shape also needs {', '.join(missing)}")
        keys: Item = options["keys"] or "float16"
        values: Item = options["values"] or "float16"
        scales = Scales(group=options["scale_group"])
        if options["scale_group"] and "int8" not in (keys, values):
            raise click.UsageError("--scale-group belongs to int8 keys or values")
        return Payload(
            name="given",
            layers=options["layers"],
            kv_heads=options["kv_heads"],
            head_dim=options["head_dim"],
            value_dim=options["value_dim"],
            keys=keys,
            values=values,
            key_scales=scales if keys == "int8" else None,
            value_scales=scales if values == "int8" else None,
            capacity=options["capacity"],
            fixed=fixed,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _fixed(text: str) -> FixedPart:
    found = re.fullmatch(r"([^=]+)=(\d+)((?:x\d+)+):(\w+)", text)
    if not found:
        raise click.UsageError(f"--fixed {text!r} must be NAME=LAYERSxN[xN...]:DTYPE")
    sizes = tuple(int(n) for n in found[3].split("x")[1:])
    try:
        return FixedPart(name=found[1], layers=int(found[2]), shape=sizes, dtype=found[4])  # type: ignore[arg-type]
    except ValueError as error:
        raise click.UsageError(f"--fixed {text!r}: {error}") from error


def _contract(model: Any, options: dict[str, Any]) -> Any:
    """The family that matches; else the named outputs, else the ones with four dimensions, live rows on axis 2."""
    from kvbacking.contract import family_of

    wanted = options["outputs"]
    if wanted is None and options["family"] is None and family_of(model) is None:
        caches = [name for name, spec in model.outputs.items() if len(spec.shape) == 4]
        if not caches:
            raise ContractError(
                f"[handoff] {model.path.name} has no output [layers, heads, capacity, size] and is no known family: "
                f"name its K and V (--outputs), of {', '.join(model.outputs)}"
            )
        wanted = ",".join(sorted(caches, key=_natural))
    first = wanted.split(",")[0].strip() if wanted else None
    axis = 2 if first in model.outputs and len(model.outputs[first].shape) == 4 else 1
    rest = {"live": None, "axis": axis, "tail": "any", "max_abs": None, "max_rel": None, "sensitive_to": None}
    return contract_of(model, {**options, **rest, "outputs": wanted})


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part or 0), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _lengths(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or len(set(found)) != len(found):
        raise click.UsageError(f"--live must be different counts of rows: 512,2048, got {text!r}")
    return found


def _default_lengths(payload: Payload, of_model: bool) -> list[int]:
    if payload.rows is not None:
        return [payload.rows]
    if payload.capacity is None:
        return list(LENGTHS)
    fitting = [n for n in LENGTHS if n + 2 <= payload.capacity]
    return [max(1, payload.capacity - 2)] if of_model or not fitting else fitting


def _write(document: dict[str, Any], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "handoff.json"]
    written[0].write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    if document["measurement"]:
        from .picture import draw

        if draw([document], folder / "handoff.png"):
            written.append(folder / "handoff.png")
    return written


def _show(document: dict[str, Any], written: list[Path]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from .table import HEAD, LEGEND, methods, missing, payload_sentences, sentences, tables

    console = Console(highlight=False)
    found = document["measurement"]
    if found and found["simulated"]:
        console.print("Runtime: simulator. Nothing here speaks about Apple hardware.")
    lines = payload_sentences(document)
    if found:
        for line in lines:
            console.print(escape(line), soft_wrap=True)
        for title, rows in tables(document):
            table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
            for name in HEAD:
                table.add_column(name, justify="right" if name != HEAD[0] else "left", no_wrap=True)
            for row in rows:
                table.add_row(*map(escape, row))
            console.print(table)
        lines = [*LEGEND, *methods(document), *missing(document), *sentences(document)]
    for line in [*lines, *(f"wrote {path}" for path in written)]:
        console.print(escape(line), soft_wrap=True)
