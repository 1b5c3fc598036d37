"""The README's quick start runs as it stands, its size and promises hold; the pages name what is public."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
from conftest import ROOT

import kvbacking.mlx
import kvbacking.whisper

README = (ROOT / "README.md").read_text()


def quick_start() -> str:
    (block,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return block


def test_the_quick_start_runs(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-W", "error", "-c", quick_start()]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)}
    )
    assert result.returncode == 0, result.stderr
    shape_line, verdict_line = result.stdout.splitlines()
    assert shape_line == "(4, 1536, 1280) backing True"
    assert verdict_line.startswith("Proven (")


def test_it_is_short() -> None:
    assert len(README.encode()) < 6 * 1024
    assert len(quick_start().splitlines()) <= 12 + 2  # the two imports are not counted


def test_the_scripts_and_files_it_names_exist() -> None:
    for name in re.findall(r"`?(scripts/[\w-]+|CONTRIBUTING\.md|\.github/[\w/.]+)", README):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("module", [kvbacking, kvbacking.mlx, kvbacking.whisper], ids=lambda module: module.__name__)
def test_every_public_name_is_in_the_documentation(module: types.ModuleType) -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in module.__all__ if not re.search(rf"\b{name}\b", pages)] == []


def test_every_header_is_in_the_page_on_embedding() -> None:
    page = (ROOT / "docs/embedding.md").read_text()
    headers = [path.name for path in (ROOT / "src/native/include/kvbacking").glob("*.h")]
    assert len(headers) > 10
    assert [name for name in headers if f"`{name}`" not in page] == []
