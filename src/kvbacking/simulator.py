"""Switches of the simulated Core ML (Linux only): make it misbehave, hide newer API, choose its freedoms, count.

Everything here is process-wide. Faults and options also go into this process's environment, so that child processes
(`prove` runs its predictions in one) start with them. On macOS importing this module raises UnsupportedPlatformError.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from kvbacking.errors import UnsupportedPlatformError

if sys.platform == "darwin":
    raise UnsupportedPlatformError(
        "[simulator] the simulator exists on Linux only; on macOS predictions run on Core ML, which takes no orders"
    )

from kvbacking import _simulator

FAULTS_VARIABLE = "KVBACKING_SIMULATOR_FAULTS"
OPTIONS_VARIABLE = "KVBACKING_SIMULATOR_OPTIONS"

FaultSetting = bool | str | int | Sequence[str] | Mapping[str, bool | str | int]
OptionValue = bool | int | str | None | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInfo:
    """One way to misbehave. `target`: what names in a setting mean. `default`: the parameter that `True` stands for."""

    name: str
    target: Literal["output", "input", "allocation", "none"]
    parameter: Literal["none", "choice", "milliseconds", "nth"]
    choices: tuple[str, ...]
    default: str
    summary: str


def _table() -> Mapping[str, FaultInfo]:
    rows = {}
    for name, target, parameter, choices, default, summary in _simulator.fault_table():
        rows[name] = FaultInfo(
            name=name,
            target=target,  # type: ignore[arg-type]
            parameter=parameter,  # type: ignore[arg-type]
            choices=tuple(choices),
            default=default,
            summary=summary,
        )
    return rows


KNOWN_FAULTS: Mapping[str, FaultInfo] = _table()
VERSION: str = _simulator.version


class Injection:
    """What `faults()` yields: `fired` counts each fault since the block began, and stays readable after it ended."""

    def __init__(self) -> None:
        self._final: Mapping[str, int] | None = None

    @property
    def fired(self) -> Mapping[str, int]:
        """Fault name -> how often it took effect; faults that never did are 0."""
        return dict(_simulator.fired_counts() if self._final is None else self._final)

    def _finish(self) -> None:
        self._final = _simulator.fired_counts()


_active: list[dict[str, object]] = []


def _merged() -> dict[str, object]:
    result: dict[str, object] = {}
    for settings in _active:
        result.update(settings)
    return result


def _export(variable: str, values: Mapping[str, object]) -> None:
    if values:
        os.environ[variable] = json.dumps(values)
    else:
        os.environ.pop(variable, None)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    return value


def _apply_faults() -> None:
    merged = _merged()
    _simulator.set_faults(json.dumps(merged))
    _export(FAULTS_VARIABLE, merged)


@contextmanager
def faults(*, after: int = 0, times: int | None = None, **settings: FaultSetting) -> Iterator[Injection]:
    """Misbehaves while the block runs. Blocks nest: an inner one adds to, or replaces by name, what the outer ones set.

    A setting is `True` (every output, default parameter), a parameter (`partial_write="head"`, `latency=20`), output
    names (`stale=("cross_v",)`), or both (`nan={"cross_v": "last"}`); `KNOWN_FAULTS` lists what each fault takes.
    The first `after` predictions pass unharmed, then `times` are harmed (None: all). Raises ValueError for an unknown
    fault, target or parameter, and then changes nothing. Entering and leaving a block sets the counters to zero.
    """
    chosen: dict[str, object] = {name: _plain(value) for name, value in settings.items()}
    if after:
        chosen["after"] = after
    if times is not None:
        chosen["times"] = times
    _active.append(chosen)
    injection = Injection()
    try:
        _apply_faults()
    except BaseException:
        _active.remove(chosen)
        raise
    try:
        yield injection
    finally:
        injection._finish()
        _active[:] = [entry for entry in _active if entry is not chosen]
        _apply_faults()


def options() -> Mapping[str, object]:
    """Every option and its value now."""
    values: Mapping[str, object] = json.loads(_simulator.options())
    return values


def configure(**values: OptionValue) -> None:
    """Changes options until `reset()`.

    `numerics`: "fp32" | "fp16", or a mapping of compute units to these; `backed_numerics`: what a prediction with an
    accepted backing uses (None: the same); the others are the names in `options()`. Models loaded earlier keep their
    numerics. Raises ValueError for an unknown name or value, and then changes nothing.
    """
    _simulator.configure(json.dumps({name: _plain(value) for name, value in values.items()}))
    _export(OPTIONS_VARIABLE, options())


@contextmanager
def configured(**values: OptionValue) -> Iterator[None]:
    """`configure()` for the length of a block."""
    before = options()
    configure(**values)
    try:
        yield
    finally:
        _simulator.configure(json.dumps(before))
        _export(OPTIONS_VARIABLE, before)


@contextmanager
def hide_api(newest: str) -> Iterator[None]:
    """Classes and selectors that appeared after macOS `newest` ("14", "14.4", "15") are absent while the block runs.

    Not for use while other threads call the framework. Raises ValueError for anything but a version from 14.
    """
    with configured(hide_api=newest):
        yield


def reset() -> None:
    """Every option as at the start of a process without environment, no fault, no hidden API, counters zero."""
    _active.clear()
    _apply_faults()
    _simulator.reset_options()
    _export(OPTIONS_VARIABLE, {})
    _simulator.reset_violations()


def live_counts() -> Mapping[str, int]:
    """The framework's native objects alive now: array, surface, pixel_buffer, pool, model, state."""
    return _simulator.live_counts()


def violations() -> Mapping[str, int]:
    """How often the client broke a rule of the documented contract (overlapping predictions, unpaired locks, ...)."""
    return _simulator.violations()


def reset_violations() -> None:
    """Counts violations from zero again."""
    _simulator.reset_violations()


def drain(timeout_s: float = 5.0) -> bool:
    """Lets the framework release at once what it holds for later; False when that did not finish in time."""
    if not 0 <= timeout_s <= 3600:
        raise ValueError(f"timeout_s must be 0 to 3600, got {timeout_s}")
    return _simulator.drain(int(timeout_s * 1000))
