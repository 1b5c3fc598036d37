"""What CI runs is what a person runs."""

from __future__ import annotations

import re

from conftest import ROOT


def test_ci_run_calls_scripts_test_and_nothing_else() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set "))]
    assert len(commands) == 1
    assert re.fullmatch(r'exec "\$\(dirname "\$\{BASH_SOURCE\[0\]\}"\)/\.\./scripts/test"', commands[0])


def test_the_workflow_says_that_it_has_never_run() -> None:
    first = (ROOT / ".github/workflows/ci.yml").read_text().splitlines()[0]
    assert first.startswith("# This workflow has never run yet")


def test_every_script_and_part_is_executable() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix == ""]
    parts = list((ROOT / "scripts/parts").glob("[0-9]*"))
    assert {"setup", "test", "demo", "build-darwin"} <= {path.name for path in scripts}
    assert len(parts) >= 8
    for path in [*scripts, *parts]:
        assert path.stat().st_mode & 0o111, path
        assert path.read_text().startswith("#!"), path
