"""The clock of a bench. Injected, so that planted effects can be tested on virtual time."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    @property
    def name(self) -> str: ...

    def now_ns(self) -> int: ...


class SystemClock:
    """mach_absolute_time on macOS (CLOCK_UPTIME_RAW), CLOCK_MONOTONIC_RAW on Linux: neither is slewed by NTP."""

    def __init__(self) -> None:
        # Read by name: each constant exists on one of the two systems only.
        self._name = "CLOCK_UPTIME_RAW" if sys.platform == "darwin" else "CLOCK_MONOTONIC_RAW"
        self._id: int = getattr(time, self._name)

    @property
    def name(self) -> str:
        return self._name

    def now_ns(self) -> int:
        return time.clock_gettime_ns(self._id)


@dataclass(slots=True)
class VirtualClock:
    """Time that moves only when told to."""

    ns: int = 0
    name: str = "virtual"

    def now_ns(self) -> int:
        return self.ns

    def advance(self, ns: int) -> None:
        if ns < 0:
            raise ValueError(f"time cannot go back: advance({ns})")
        self.ns += ns
