"""`kvbacking sample KIND OUT`: the command line over `kvbacking.samples.write`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import click

from kvbacking import samples


def _parse_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    try:
        parsed = json.loads(value)
    except json.JSONDecodeError:
        parsed = value
    return name.replace("-", "_"), parsed


def _list_kinds(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value:
        return
    for kind in samples.KINDS:
        required = inspect.Parameter.empty
        options = (n if d is required else f"{n}={d}" for n, d in samples.options_of(kind).items())
        click.echo(f"{kind:14} {' '.join(options)}")
    context.exit(0)


@click.command("sample")
@click.argument("kind", type=click.Choice(list(samples.KINDS)))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random weights.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="An option of the kind; repeatable.")
@click.option("--per-layer", is_flag=True, help="prefill: one output per layer instead of one stacked cache.")
@click.option(
    "--checkpoint", type=click.Path(path_type=Path, file_okay=False), help="whisper: CTranslate2 checkpoint directory."
)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_kinds, help="Kinds, options.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def sample(
    kind: str,
    out: Path,
    seed: int,
    assignments: tuple[str, ...],
    per_layer: bool,
    checkpoint: Path | None,
    as_json: bool,
) -> None:
    """Write a real .mlpackage of KIND with seeded random weights to OUT."""
    options = dict(_parse_option(text) for text in assignments)
    if per_layer:
        options["per_layer"] = True
    if checkpoint is not None:
        options["checkpoint"] = checkpoint
    try:
        info = samples.write(kind, out, seed, **options)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(info.to_json()))
        return
    click.echo(f"wrote {info.path}")
    for name, spec in info.input_specs.items():
        click.echo(f"  input   {name} {spec.dtype} {list(spec.shape)}")
    if info.contract:
        click.echo("  backed  " + ", ".join(info.contract["outputs"]) + f"  live {info.contract['live']}")
