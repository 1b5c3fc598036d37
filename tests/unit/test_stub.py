"""The committed stub is what the module says about itself."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

import kvbacking
from kvbacking import _native

COMMAND = "python -m nanobind.stubgen -m kvbacking._native -o src/kvbacking/_native.pyi"


def test_the_stub_is_current() -> None:
    stubgen = pytest.importorskip("nanobind.stubgen")
    generator = stubgen.StubGen(_native)
    generator.put(_native)
    committed = (Path(kvbacking.__file__).parent / "_native.pyi").read_text().strip().splitlines()
    current = generator.get().strip().splitlines()
    difference = "\n".join(difflib.unified_diff(committed, current, "committed", "current", lineterm=""))
    assert not difference, f"{difference}\n\nregenerate it: {COMMAND}"


def test_every_public_name_is_there() -> None:
    for name in kvbacking.__all__:
        assert hasattr(kvbacking, name), name
