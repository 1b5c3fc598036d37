"""The page of failure modes is the table's, word for word."""

from __future__ import annotations

from pathlib import Path

from .document import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "failure-modes.md"


def test_the_page_is_printed_from_the_table() -> None:
    assert PAGE.read_text() == page(), "print it again: python -m tests.faults.document > docs/failure-modes.md"
