"""A fault on any window ends in a clear error or in the control's text, never in another text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import whisper_checkpoints

import kvbacking as kvb
from kvbacking.whisper import Checkpoint, Transcriber
from kvbacking.whisper.package import cached_package

if sys.platform == "darwin":
    pytest.skip("faults are the simulator's: there is none on macOS", allow_module_level=True)
for module in ("mlx.core", "tokenizers", "coremltools"):
    pytest.importorskip(module, reason=f"{module} is not installed (extras whisper, samples)", exc_type=ImportError)
pytest.importorskip("mlx_whisper", reason="mlx-whisper is not installed (scripts/fetch-whisper --runtime)")

from kvbacking import simulator  # noqa: E402

# What does not concern a prediction's outputs, or ends a process (a child of `prove` meets these); and what cannot
# happen here, where predictions wait for each other, mel is no surface, and every prediction gets new surfaces.
ELSEWHERE = {"hang", "crash", "load_error", "compile_error", "allocation_failure", "latency"}
ELSEWHERE |= {"overlap", "input_lock", "sticky_after_cpu_lock"}
# What concerns proposals only, surfaces only, or memory with canaries and plain copies only.
PROPOSING, SURFACES, PLAIN = ("raw", "surface", "pool"), ("surface", "pool"), ("framework", "raw")
FIRES = {
    "disallow": PROPOSING, "ignore": PROPOSING, "ignore_same_address": PROPOSING, "swap_storage": PROPOSING,
    "locked_surface": SURFACES, "underrun": PLAIN,
}  # fmt: skip
TIMES = {"stale_previous": 2}  # the first time there is nothing previous
FAULTS = sorted(set(simulator.KNOWN_FAULTS) - ELSEWHERE)
WINDOW = 40 * 160


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(checkpoint, package) of a tiny random Whisper."""
    folder = tmp_path_factory.mktemp("whisper")
    checkpoint = whisper_checkpoints.write_checkpoint(folder / "checkpoint")
    return checkpoint, cached_package(Checkpoint.load(checkpoint), folder / "cache")


@pytest.fixture(scope="module")
def control(prepared: tuple[Path, Path]) -> list[tuple[int, ...]]:
    with Transcriber(*prepared, mechanism="framework") as transcriber:
        tokens = [window.tokens for window in transcriber.transcribe(sound()).windows]
    assert len(tokens) == 3
    assert len(set(tokens)) > 1
    return tokens


def sound() -> np.ndarray:
    """Three windows of a tone that climbs."""
    return (0.5 * np.sin(2e-5 * np.arange(int(2.2 * WINDOW)) ** 2)).astype(np.float32)


def strikes(window: int, fault: str) -> Any:
    times = TIMES.get(fault, 1)
    return simulator.faults(after=window + 1 - times, times=times, **{fault: True})


@pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")
@pytest.mark.parametrize("on_fault", ["raise", "control"])
@pytest.mark.parametrize("mechanism", ["framework", "raw", "surface", "pool"])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_becomes_wrong_text(
    prepared: tuple[Path, Path], control: list[tuple[int, ...]], fault: str, mechanism: str, on_fault: str
) -> None:
    with (
        Transcriber(*prepared, mechanism=mechanism, on_fault=on_fault) as transcriber,
        strikes(1, fault) as injected,
    ):
        try:
            said = [window.tokens for window in transcriber.transcribe(sound()).windows]
        except kvb.KVBackingError:
            said = None
    assert (injected.fired[fault] > 0) == (mechanism in FIRES.get(fault, (*PROPOSING, "framework")))
    assert said in (None, control)


FOUND = ("nan", "dirty_tail", "all_zero", "stale", "overrun", "stale_previous")


@pytest.mark.parametrize(("fault", "struck"), [(f, i) for f in FOUND for i in range(TIMES.get(f, 1) - 1, 3)])
def test_a_failed_check_names_itself_and_the_control_takes_over(
    prepared: tuple[Path, Path], control: list[tuple[int, ...]], fault: str, struck: int
) -> None:
    with Transcriber(*prepared, mechanism="raw") as transcriber, strikes(struck, fault):
        with pytest.raises(kvb.IntegrityError) as error:
            transcriber.transcribe(sound())
        assert error.value.failures
    with (
        Transcriber(*prepared, mechanism="raw", on_fault="control") as transcriber,
        strikes(struck, fault) as injected,
    ):
        result = transcriber.transcribe(sound())
        assert injected.fired[fault] > 0
        again = transcriber.transcribe(sound())
    assert [window.tokens for window in result.windows] == control
    assert [window.fault is not None for window in result.windows] == [window == struck for window in range(3)]
    assert result.windows[struck].path == "framework"
    assert "IntegrityError" in str(result.windows[struck].fault)
    # The set is quarantined: the session goes on with the control and says why.
    assert {window.path for window in again.windows} == {"framework"}
    assert again.degraded_reason
    assert [window.tokens for window in again.windows] == control


def test_an_ignored_backing_is_copied_and_said(prepared: tuple[Path, Path], control: list[tuple[int, ...]]) -> None:
    with (
        Transcriber(*prepared, mechanism="raw") as transcriber,
        simulator.faults(ignore=True, after=1, times=1),
        pytest.warns(kvb.BackingIgnoredWarning, match="cross_k, cross_v"),
    ):
        result = transcriber.transcribe(sound())
    assert [window.path for window in result.windows] == ["backing", "copy", "backing"]
    assert [window.tokens for window in result.windows] == control
    assert result.windows[1].evidence["cross_k"].bytes_copied > 0
