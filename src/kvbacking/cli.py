"""The command line. Exit codes: 0 done or proven, 1 rejected, 2 usage, 3 model or contract, 4 platform."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast
from zipfile import BadZipFile

import click

from kvbacking._version import __version__
from kvbacking.errors import KVBackingError, UnsupportedPlatformError

EXIT_REJECTED, EXIT_USAGE, EXIT_MODEL, EXIT_PLATFORM, EXIT_INTERRUPTED = 1, 2, 3, 4, 130
# Commands whose modules are imported when they are asked for.
LAZY_COMMANDS = dict.fromkeys(("bench", "compare", "experiment"), "kvbacking.measure.cli") | {
    "handoff": "kvbacking.measure.handoff.cli"
}
F = TypeVar("F", bound=Callable[..., Any])


class _Commands(click.Group):
    """Errors are one line on stderr and an exit code; --debug shows the traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *LAZY_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if module := LAZY_COMMANDS.get(cmd_name):
            return cast(click.Command, getattr(importlib.import_module(module), cmd_name))
        return super().get_command(ctx, cmd_name)

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        arguments = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        cause: Exception | None = None
        try:
            code = super().main(arguments, **extra)
        except click.ClickException as error:
            message, code = error.format_message(), EXIT_USAGE
        except click.Abort:
            message, code = "interrupted", EXIT_INTERRUPTED
        except (UnsupportedPlatformError, ImportError) as error:
            message, code, cause = str(error), EXIT_PLATFORM, error
        except (KVBackingError, OSError, ValueError) as error:
            message, code, cause = str(error), EXIT_MODEL, error
        except Exception as error:  # a fault of ours; 1 would read as a verdict
            message, code, cause = (
                f"unexpected {type(error).__name__}: {error} (--debug shows where)",
                EXIT_MODEL,
                error,
            )
        else:
            sys.exit(code if isinstance(code, int) else 0)
        if cause is not None and "--debug" in arguments:
            traceback.print_exception(cause)
        click.echo(f"kvbacking: {' '.join(message.split())}", err=True)
        sys.exit(code)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout and nothing else.")(
        function
    )


def model_options(function: F) -> F:
    function = click.option(
        "--compute-units", type=click.Choice(["all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"]), default="all"
    )(function)
    function = click.option("--function", "function_name", help="Function of a multi-function package.")(function)
    return click.argument("model_path", metavar="MODEL", type=click.Path(exists=False))(function)


def contract_options(function: F) -> F:
    for option in (
        click.option("--sensitive-to", help="Inputs that must change the outputs: a,b (default: all)."),
        click.option("--max-rel", type=float, default=None, help="Parity tolerance, relative."),
        click.option("--max-abs", type=float, default=None, help="Parity tolerance, absolute."),
        click.option("--tail", type=click.Choice(["zero", "any"]), default="zero", show_default=True),
        click.option("--axis", type=int, default=1, show_default=True, help="The axis that --live counts along."),
        click.option("--live", type=int, help="Live elements along --axis (default: the whole axis)."),
        click.option("--outputs", help="Outputs to back: a,b (default: all)."),
        click.option(
            "--family", type=click.Choice(["turbo", "distil"]), help="A known contract (default: what matches)."
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs."),
        click.option("--inputs", "inputs_path", type=click.Path(exists=True), help="Inputs by name, .npz."),
    ):
        function = option(function)
    return function


@click.group(cls=_Commands, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Tracebacks instead of one line.")
@click.version_option(__version__, prog_name="kvbacking")
def main(debug: bool) -> None:
    """Proposes, proves and checks preallocated Core ML output memory."""


@main.command()
@model_options
@json_option
def inspect(model_path: str, function_name: str | None, compute_units: str, as_json: bool) -> None:
    """Inputs, outputs, states, functions, fingerprint, family, layout warnings."""
    from kvbacking.inspection import describe

    document = describe(load_model(model_path, function_name, compute_units))
    _show(document, as_json, "inspection")


@main.command()
@click.argument("kind")
@click.argument("out", type=click.Path())
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--option", "-o", "options", multiple=True, metavar="NAME=VALUE", help="An option of this kind.")
@click.option("--per-layer", is_flag=True, help="One output per layer (prefill).")
@click.option("--checkpoint", type=click.Path(exists=True), help="A CTranslate2 Whisper checkpoint folder (whisper).")
@json_option
def sample(
    kind: str, out: str, seed: int, options: tuple[str, ...], per_layer: bool, checkpoint: str | None, as_json: bool
) -> None:
    """Writes a real .mlpackage with seeded random weights. KIND: turbo, distil, badtail, prefill, stateful, ..."""
    from kvbacking import samples

    if kind not in samples.KINDS:
        raise click.UsageError(f"{kind!r} is not one of {', '.join(samples.KINDS)}")
    values = dict(_option(text) for text in options)
    if taken := sorted({"kind", "path", "seed"} & set(values)):
        raise click.UsageError(f"{', '.join(taken)}: an argument of its own, not an --option")
    if per_layer:
        values["per_layer"] = True
    if checkpoint:
        values["checkpoint"] = Path(checkpoint)
    try:
        info = samples.write(kind, out, seed=seed, **values)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error
    _show(info.to_json(), as_json, "sample")


@main.command()
@model_options
@contract_options
@click.option("--mechanism", default="raw,surface,pool", show_default=True, help="Some of raw,surface,pool.")
@click.option("--repeats", type=int, default=8, show_default=True)
@click.option("--timeout", "timeout_s", type=float, default=300.0, show_default=True, help="Seconds per mechanism.")
@click.option(
    "--certificate", "certificate_path", type=click.Path(), help="Write a certificate of the first proven one."
)
@json_option
@click.pass_context
def prove(
    ctx: click.Context,
    /,
    model_path: str,
    function_name: str | None,
    compute_units: str,
    mechanism: str,
    repeats: int,
    timeout_s: float,
    certificate_path: str | None,
    as_json: bool,
    **contract_options: Any,
) -> None:
    """The falsification recipe and its verdict. Exit 0: at least one mechanism is proven; 1: rejected."""
    from kvbacking.prove import MAX_TIMEOUT_S, MECHANISMS, certify
    from kvbacking.prove import prove as run

    mechanisms = [name.strip() for name in mechanism.split(",") if name.strip()]
    if not mechanisms or set(mechanisms) - set(MECHANISMS):
        raise click.UsageError(f"--mechanism must be some of {','.join(MECHANISMS)}, got {mechanism!r}")
    if repeats < 4:
        raise click.UsageError("--repeats must be at least 4")
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise click.UsageError(f"--timeout must be above 0 and at most {MAX_TIMEOUT_S:g} seconds, got {timeout_s:g}")
    model = load_model(model_path, function_name, compute_units)
    contract = contract_of(model, contract_options)
    first, second = inputs_of(model, contract_options)
    verdict = run(
        model, first, contract, mechanisms=mechanisms, other_inputs=second, repeats=repeats, timeout_s=timeout_s
    )
    if certificate_path and verdict.outcome == "proven":
        certify(model, contract, verdict).save(certificate_path)
    _show(verdict.to_dict(), as_json, "verdict")
    ctx.exit(0 if verdict.outcome == "proven" else EXIT_REJECTED)


@main.command()
@click.argument("wav", type=click.Path())
@click.option("--checkpoint", required=True, type=click.Path(), help="A CTranslate2 Whisper checkpoint folder.")
@click.option("--package", type=click.Path(), help="Encoder package (default: made from the checkpoint, in the cache).")
@click.option("--mechanism", type=click.Choice(["auto", "framework", "raw", "surface", "pool"]), default="auto")
@click.option("--verify", type=click.Choice(["off", "layout", "scan", "full"]), default="scan", show_default=True)
@click.option("--certificate", type=click.Path(), help="For --mechanism auto: a promoted certificate.")
@click.option("--compute-units", type=click.Choice(["all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"]), default="all")
@click.option("--language", default="en", show_default=True, help="A code, or auto.")
@click.option(
    "--on-fault", type=click.Choice(["raise", "control"]), default="raise", show_default=True,
    help="A window whose K/V failed a check: stop, or encode it again through the control.",
)  # fmt: skip
@json_option
def transcribe(
    wav: str,
    checkpoint: str,
    package: str | None,
    language: str,
    certificate: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """The text of a WAV file, through a Whisper encoder in Core ML and our K/V."""
    from kvbacking.whisper import Transcriber

    with Transcriber(checkpoint, package, certificate=certificate, **options) as transcriber:
        result = transcriber.transcribe(wav, language=None if language == "auto" else language)
    _show(result.to_dict(), as_json, "transcription")


@main.command()
@json_option
def doctor(as_json: bool) -> None:
    """Platform, versions, page size, what can and cannot be proven here."""
    from kvbacking.doctor import diagnose

    _show(diagnose(), as_json, "doctor")


def load_model(path: str, function: str | None, compute_units: str) -> Any:
    from kvbacking.model import ComputeUnits, Model

    return Model.load(path, function=function, compute_units=cast(ComputeUnits, compute_units))


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def contract_of(model: Any, options: dict[str, Any]) -> Any:
    """The named family, else the one that matches, else what the options say about the model."""
    from kvbacking.contract import FAMILIES, KVContract, Tolerance, family_of

    described = any(options[name] is not None for name in ("outputs", "live"))
    if options["family"] and described:
        raise click.UsageError("--family and --outputs/--live exclude each other")
    family = options["family"] or (None if described else family_of(model))
    if family:
        return FAMILIES[family]
    tolerance = Tolerance(max_abs=options["max_abs"] or 0.0, max_rel=options["max_rel"] or 0.0)
    return KVContract.from_model(
        model,
        _names(options["outputs"]),
        options["live"],
        options["axis"],
        tail=options["tail"],
        tolerance=tolerance,
        sensitive_to=_names(options["sensitive_to"]),
    )


def inputs_of(model: Any, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """(inputs, other inputs or None): from the file, else seeded and random."""
    import numpy as np

    from kvbacking.random_inputs import random_inputs

    if options["inputs_path"]:
        path = options["inputs_path"]
        try:
            loaded = np.load(path)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise ValueError("one array without a name; save it with numpy.savez")
            with loaded as archive:
                return {name: archive[name] for name in archive.files}, None
        except (ValueError, EOFError, BadZipFile) as error:
            raise ValueError(f"--inputs {path}: no archive of arrays (.npz): {error}") from error
    return random_inputs(model, options["seed"]), random_inputs(model, options["seed"] + 1)


def _option(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON where it is JSON."""
    name, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"--option {text!r} must be NAME=VALUE")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value


def _show(document: dict[str, Any], as_json: bool, kind: str) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    from kvbacking import _console

    _console.show(kind, document)
