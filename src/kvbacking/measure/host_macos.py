"""The host gate's probe on macOS. Native code asks the system; `pmset` tells about the battery."""

from __future__ import annotations

import os
import subprocess

from kvbacking import _native

from .host import HostState


class MacProbe:
    """Public API only: NSProcessInfo for heat and low power mode, host_statistics for CPU time."""

    def __init__(self) -> None:
        self._last: tuple[int, int, float] | None = None

    def read(self) -> HostState:
        conditions = _native.host_conditions()
        return HostState(
            load_1m=os.getloadavg()[0],
            cpus=os.cpu_count() or 1,
            foreign_cpu=self._foreign_cpu(conditions.busy_ticks, conditions.total_ticks),
            thermal=conditions.thermal,
            low_power=conditions.low_power,
            on_battery=on_battery(_pmset()),
        )

    def _foreign_cpu(self, busy: int, total: int) -> float | None:
        times = os.times()
        own = (times.user + times.system + times.children_user + times.children_system) * os.sysconf("SC_CLK_TCK")
        last, self._last = self._last, (busy, total, own)
        if last is None or total <= last[1]:
            return None
        return max(0.0, (busy - last[0] - (own - last[2])) / (total - last[1]))


def on_battery(text: str) -> bool | None:
    """From what `pmset -g batt` prints: its first line names the source. None when it does not."""
    first = text.splitlines()[0] if text else ""
    if "'Battery Power'" in first or "'UPS Power'" in first:
        return True
    return False if "'AC Power'" in first else None


def _pmset() -> str:
    try:
        return subprocess.run(["/usr/bin/pmset", "-g", "batt"], capture_output=True, text=True, timeout=5).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
