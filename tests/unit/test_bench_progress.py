"""A bar on a terminal, nothing elsewhere; and no thread of its own, which would take the GIL inside timed parts."""

from __future__ import annotations

import threading

import pytest

from kvbacking.measure.progress import progress_bar


def test_nothing_is_drawn_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("bench") as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")


def test_rounds_and_time_left_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    threads = threading.active_count()
    with progress_bar("bench", enabled=True) as progress:
        assert progress is not None
        for done in range(1, 4):
            progress(done, 40)
            assert threading.active_count() == threads
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3/40" in captured.err
    assert "rounds" in captured.err
