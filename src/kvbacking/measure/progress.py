"""A progress bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from .lazy import require
from .runner import Progress


@contextlib.contextmanager
def progress_bar(title: str, *, enabled: bool | None = None) -> Iterator[Progress | None]:
    """Yields what measure() calls after every round. `enabled` None: when stderr is a terminal. Writes to stderr."""
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield None
        return
    rich = require("rich.progress")
    console = require("rich.console").Console(stderr=True, force_terminal=True)
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("rounds,"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left; Ctrl-C ends and writes"),
    )
    # Refreshed by hand, at most once per round: a thread of its own would take the GIL inside timed parts.
    with rich.Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, refresh=True)

        yield advance
