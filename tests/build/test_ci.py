"""What CI runs is what a person runs."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

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


def test_what_needs_an_extra_runs_in_the_part_that_installs_it() -> None:
    """.venv has the extra `dev` only, so that the part `python` skips all of these."""
    needing = {"70-whisper": r'"mlx_whisper', "75-mlx": r'importorskip\("mlx\.'}
    for part, need in needing.items():
        script = (ROOT / "scripts/parts" / part).read_text()
        assert "scripts/install-extra" in script
        patterns = re.findall(r"tests/[\w/*.]+\.py", script)
        tests = [path for path in (ROOT / "tests").rglob("test_*.py") if re.search(need, path.read_text())]
        names = {str(path.relative_to(ROOT)) for path in tests} - {str(Path(__file__).relative_to(ROOT))}
        if part == "75-mlx":
            names = {name for name in names if "whisper" not in name}
        assert len(names) > 3
        assert [name for name in sorted(names) if not any(fnmatch.fnmatch(name, p) for p in patterns)] == []
