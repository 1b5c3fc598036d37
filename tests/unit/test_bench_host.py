"""The host gate's readings, from text as the systems give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbacking.measure.host import HostGate, HostState, LinuxProbe, system_probe
from kvbacking.measure.host_macos import on_battery


def _host(root: Path, *, busy: int = 0, idle: int = 0, steal: int = 0) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/loadavg").write_text("1.25 0.80 0.40 2/345 6789\n")
    (root / "proc/stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_foreign_work_is_what_was_busy_and_not_ours(tmp_path: Path) -> None:
    _host(tmp_path, busy=1_000_000, idle=1_000_000)
    probe = LinuxProbe(tmp_path)
    first = probe.read()
    assert (first.load_1m, first.foreign_cpu) == (1.25, None)
    _host(tmp_path, busy=1_400_000, idle=1_500_000, steal=100_000)
    second = probe.read()
    assert second.foreign_cpu == pytest.approx(0.5, abs=0.01), "busy and stolen time; ours is nearly nothing"


def test_our_own_work_is_not_foreign() -> None:
    probe = system_probe()
    probe.read()
    total = 0
    for _ in range(30):
        total += sum(range(200_000))
    state = probe.read()
    assert state.foreign_cpu is None or 0.0 <= state.foreign_cpu <= 1.0


def test_frequency_power_and_throttling(tmp_path: Path) -> None:
    _host(tmp_path)
    cpu = tmp_path / "sys/devices/system/cpu"
    _write(cpu / "cpu0/cpufreq/scaling_cur_freq", "1500000\n")
    _write(cpu / "cpu0/cpufreq/cpuinfo_max_freq", "3000000\n")
    _write(cpu / "cpu1/cpufreq/scaling_cur_freq", "2700000\n")
    _write(cpu / "cpu1/cpufreq/cpuinfo_max_freq", "3000000\n")
    _write(cpu / "cpu0/thermal_throttle/core_throttle_count", "7\n")
    _write(tmp_path / "sys/class/power_supply/AC/online", "0\n")
    probe = LinuxProbe(tmp_path)
    state = probe.read()
    assert state.frequency_ratio == pytest.approx(0.9), "the fastest core"
    assert (state.thermal, state.on_battery) == ("nominal", True)
    _write(cpu / "cpu0/thermal_throttle/core_throttle_count", "9\n")
    assert probe.read().thermal == "throttled"


def test_a_host_that_tells_nothing_is_unknown_and_not_quiet_by_invention(tmp_path: Path) -> None:
    state = LinuxProbe(tmp_path).read()
    assert (state.load_1m, state.foreign_cpu, state.frequency_ratio) == (None, None, None)
    assert (state.thermal, state.low_power, state.on_battery) == (None, None, None)

    class Silent:
        def read(self) -> HostState:
            return state

    gate = HostGate(Silent())
    gate.before()
    gate.during()
    assert gate.reasons == []
    assert gate.document()["unknown"] == [
        "load_1m", "foreign_cpu", "frequency_ratio", "thermal", "low_power", "on_battery",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t100%; charged; 0:00 remaining present: true\n",
            False,
        ),
        ("Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t71%; discharging; 4:01 remaining\n", True),
        ("Now drawing from 'UPS Power'\n", True),
        ("", None),
        ("something else\n", None),
    ],
)
def test_what_pmset_says_about_the_battery(text: str, expected: bool | None) -> None:
    assert on_battery(text) is expected


def test_every_reason_is_given_once() -> None:
    class Hot:
        def read(self) -> HostState:
            return HostState(load_1m=9.0, cpus=2, thermal="serious", low_power=True)

    gate = HostGate(Hot())
    gate.before()
    gate.during()
    gate.during()
    assert len(gate.reasons) == 3
    assert len(gate.readings) == 3
