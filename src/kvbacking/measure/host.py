"""Is this host quiet enough for its timings to mean something? Asked before and during a run; it only ever marks."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """One reading. None: this host does not tell."""

    load_1m: float | None = None
    cpus: int = 1
    foreign_cpu: float | None = None  # share of all CPU time since the last reading that was not ours (with steal)
    frequency_ratio: float | None = None  # fastest core now over its maximum
    thermal: str | None = None  # "nominal", "fair", "serious", "critical", or "throttled"
    low_power: bool | None = None
    on_battery: bool | None = None


class HostProbe(Protocol):
    def read(self) -> HostState: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietLimits:
    """Beyond any of these a report is marked unscored."""

    load_per_cpu: float = 0.35  # before the run only: during it the load is ours
    foreign_cpu: float = 0.15
    frequency_drop: float = 0.20  # below the highest ratio seen in the run


class HostGate:
    """Collects readings and the reasons why the run must not be scored. Not thread-safe."""

    def __init__(self, probe: HostProbe, limits: QuietLimits | None = None) -> None:
        self._probe = probe
        self.limits = limits or QuietLimits()
        self.readings: list[HostState] = []
        self._reasons: dict[str, str] = {}
        self._highest_frequency = 0.0

    @property
    def reasons(self) -> list[str]:
        return list(self._reasons.values())

    def before(self) -> None:
        """Reads the host before warm-up: the only moment at which the load average is not our own work."""
        state = self._read()
        if state.load_1m is not None and state.load_1m / state.cpus > self.limits.load_per_cpu:
            self._object(
                "load",
                f"load average {state.load_1m:.2f} on {state.cpus} CPUs before the run "
                f"(limit {self.limits.load_per_cpu * state.cpus:.2f})",
            )
        self._power(state, "before")

    def during(self) -> None:
        """Reads the host between rounds."""
        state = self._read()
        if state.foreign_cpu is not None and state.foreign_cpu > self.limits.foreign_cpu:
            self._object(
                "foreign",
                f"other processes took {state.foreign_cpu:.0%} of the CPU during the run "
                f"(limit {self.limits.foreign_cpu:.0%})",
            )
        if state.frequency_ratio is not None:
            self._highest_frequency = max(self._highest_frequency, state.frequency_ratio)
            if state.frequency_ratio < self._highest_frequency * (1.0 - self.limits.frequency_drop):
                self._object(
                    "frequency",
                    f"CPU frequency fell from {self._highest_frequency:.0%} to {state.frequency_ratio:.0%} of its top",
                )
        self._power(state, "during")

    def unknown(self) -> list[str]:
        """Names of what no reading could tell."""
        fields = [asdict(state) for state in self.readings]
        return [name for name in HostState.__slots__ if all(f[name] is None for f in fields)] if fields else []

    def document(self) -> dict[str, Any]:
        return {
            "quiet": not self._reasons,
            "reasons": self.reasons,
            "unknown": self.unknown(),
            "limits": asdict(self.limits),
            "readings": [asdict(state) for state in self.readings],
        }

    def _read(self) -> HostState:
        state = self._probe.read()
        self.readings.append(state)
        return state

    def _power(self, state: HostState, when: str) -> None:
        if state.thermal not in (None, "nominal"):
            self._object("thermal", f"thermal state {state.thermal!r} {when} the run")
        if state.low_power:
            self._object("low_power", f"low power mode is on ({when} the run)")
        if state.on_battery:
            self._object("battery", f"the machine runs on battery ({when} the run)")

    def _object(self, key: str, reason: str) -> None:
        self._reasons.setdefault(key, reason)


class LinuxProbe:
    """/proc and /sys. Throttling is a rise of the kernel's throttle counters since the first reading."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._last: tuple[int, int, float] | None = None
        self._throttles: int | None = None

    def read(self) -> HostState:
        throttles = self._throttle_count()
        if self._throttles is None:
            self._throttles = throttles
        hot = throttles is not None and self._throttles is not None and throttles > self._throttles
        return HostState(
            load_1m=self._load(),
            cpus=os.cpu_count() or 1,
            foreign_cpu=self._foreign_cpu(),
            frequency_ratio=self._frequency_ratio(),
            thermal=None if throttles is None else ("throttled" if hot else "nominal"),
            on_battery=self._on_battery(),
        )

    def _load(self) -> float | None:
        text = _text(self._root / "proc/loadavg")
        return float(text.split()[0]) if text else None

    def _foreign_cpu(self) -> float | None:
        text = _text(self._root / "proc/stat")
        if not text:
            return None
        ticks = [int(value) for value in text.splitlines()[0].split()[1:9]]
        total, idle = sum(ticks), ticks[3] + ticks[4]
        times = os.times()
        # os.times() is this process and its waited-for children, in seconds; /proc/stat counts clock ticks.
        own = (times.user + times.system + times.children_user + times.children_system) * os.sysconf("SC_CLK_TCK")
        last, self._last = self._last, (total, total - idle, own)
        if last is None or total <= last[0]:
            return None
        foreign = (total - idle - last[1]) - (own - last[2])
        return max(0.0, foreign / (total - last[0]))

    def _frequency_ratio(self) -> float | None:
        ratios = []
        for folder in (self._root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"):
            now, top = _text(folder / "scaling_cur_freq"), _text(folder / "cpuinfo_max_freq")
            if now and top and int(top):
                ratios.append(int(now) / int(top))
        return max(ratios) if ratios else None

    def _throttle_count(self) -> int | None:
        files = (self._root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
        counts = [int(text) for text in map(_text, files) if text]
        return sum(counts) if counts else None

    def _on_battery(self) -> bool | None:
        online = [_text(path) for path in (self._root / "sys/class/power_supply").glob("*/online")]
        values = [text for text in online if text]
        return "1" not in values if values else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def system_probe() -> HostProbe:
    """The probe of this system."""
    if sys.platform == "darwin":
        from .host_macos import MacProbe

        return MacProbe()
    return LinuxProbe()
