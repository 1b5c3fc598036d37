"""scripts/test: runs every part, says which failed, and is never green without having run something."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
from conftest import ROOT


class Repository:
    """A folder with the real runner and made-up parts."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        (root / "scripts/parts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts/test", root / "scripts/test")
        self.script("scripts/setup", "exit 0")

    def script(self, name: str, body: str) -> None:
        path = self.root / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [self.root / "scripts/test", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> Repository:
    made = Repository(tmp_path)
    made.script("scripts/parts/10-first", 'echo "in $PWD with $KVB_PART_DIR"')
    made.script("scripts/parts/20-second", "exit 0")
    return made


def test_all_parts_run_and_are_timed(repository: Repository) -> None:
    result = repository.run()
    assert result.returncode == 0, result.stderr
    assert f"in {repository.root} with {repository.root}/build/parts/first" in result.stdout
    table = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in table if row[2:] == ["passed"]] == ["setup", "first", "second"]
    assert result.stdout.rstrip().endswith("\n3 passed, 0 failed")


def test_a_failing_part_is_named_and_the_others_still_run(repository: Repository) -> None:
    repository.script("scripts/parts/10-first", "exit 7")
    result = repository.run()
    assert result.returncode == 1
    assert "first FAILED (exit 7); again alone: scripts/test --only first" in result.stdout
    assert result.stdout.rstrip().endswith("\n2 passed, 1 failed")


def test_nothing_runs_after_a_failed_setup(repository: Repository) -> None:
    repository.script("scripts/setup", "exit 1")
    result = repository.run()
    assert result.returncode == 1
    assert result.stdout.rstrip().endswith("\n0 passed, 1 failed")


def test_a_part_that_cannot_run_here_is_counted_apart(repository: Repository) -> None:
    repository.script("scripts/parts/10-first", "exit 77")
    result = repository.run()
    assert result.returncode == 0
    assert "skipped: it says why above" in result.stdout
    assert result.stdout.rstrip().endswith("\n2 passed, 0 failed, 1 skipped")


def test_one_part_alone(repository: Repository) -> None:
    result = repository.run("--only", "second", "--skip-setup")
    assert result.returncode == 0
    assert result.stdout.rstrip().endswith("\n1 passed, 0 failed")
    assert repository.run("--list").stdout.split() == ["first", "second"]


@pytest.mark.parametrize("arguments", [("--only", "third"), ("--only",), ("--fast",)])
def test_wrong_arguments_are_refused(repository: Repository, arguments: tuple[str, ...]) -> None:
    result = repository.run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr
