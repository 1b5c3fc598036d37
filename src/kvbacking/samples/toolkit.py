"""coremltools behind one door: imported on first use, silenced, and turned into `save(program)`.

Nothing here runs at import. coremltools logs and draws progress bars while it is imported and while it converts; both
happen inside `quiet()`, which `kvbacking.samples.write` holds around a whole writer, so that a caller who prints one
JSON document on stdout prints nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TARGETS = ("macOS13", "macOS14", "macOS15", "macOS26")


class SamplesUnavailableError(ImportError):
    """coremltools cannot be imported; the message says which extra installs it."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallows what coremltools logs, prints and warns about; exceptions pass."""
    sink = io.StringIO()
    logger = logging.getLogger("coremltools")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(sink), contextlib.redirect_stdout(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


@functools.cache
def tools() -> Any:
    """coremltools, its MIL builder and its types as `.ct`, `.mb`, `.types`; raises SamplesUnavailableError."""
    try:
        with quiet():
            import coremltools as ct
            from coremltools.converters.mil import Builder as mb  # noqa: N813
            from coremltools.converters.mil.mil import types
            from coremltools.converters.mil.mil.program import get_new_symbol
    except ImportError as error:
        raise SamplesUnavailableError(
            f"writing sample packages needs coremltools ({error}): pip install 'kvbacking[samples]'"
        ) from error
    return SimpleNamespace(ct=ct, mb=mb, types=types, new_symbol=get_new_symbol)


def target_of(name: str) -> Any:
    """The coremltools deployment target of that name."""
    if name not in TARGETS:
        raise ValueError(f"target {name!r} is not one of {', '.join(TARGETS)}")
    return getattr(tools().ct.target, name)


def convert(
    program: Any,
    *,
    target: str,
    outputs: Sequence[Any] | None = None,
    inputs: Sequence[Any] | None = None,
    compute: str = "fp16",
) -> Any:
    """A coremltools model of the program, not loaded (loading needs macOS). Called inside `quiet()`."""
    ct = tools().ct
    if compute not in ("fp16", "fp32"):
        raise ValueError(f"compute {compute!r} is not one of fp16, fp32")
    return ct.convert(
        program,
        convert_to="mlprogram",
        minimum_deployment_target=target_of(target),
        compute_precision={"fp16": ct.precision.FLOAT16, "fp32": ct.precision.FLOAT32}[compute],
        inputs=inputs,
        outputs=outputs,
        skip_model_load=True,
    )


def save(model: Any, path: Path) -> None:
    """Writes the package; an existing package at `path` is replaced. Called inside `quiet()`."""
    model.save(str(path))
