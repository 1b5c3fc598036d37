"""A host that is not this machine: virtual time, arms with planted effects, a probe that says what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from kvbacking.measure.analysis import Analysis, analyse
from kvbacking.measure.clock import VirtualClock
from kvbacking.measure.host import HostGate, HostState
from kvbacking.measure.report import Report, Subject, build_report
from kvbacking.measure.runner import Measurement, measure
from kvbacking.measure.sample import COPY, PREDICTION, STAGE, VERIFICATION, PathName, Sample

MILLISECOND = 1_000_000
BASE_NS = 20 * MILLISECOND
Noise = Callable[[np.random.Generator, int], float]  # (generator, virtual time) -> factor on the prediction


def realistic(rng: np.random.Generator, _now: int) -> float:
    """A few per cent of skewed jitter, and now and then a preemption of a third."""
    factor = float(rng.lognormal(0.0, 0.025))
    return factor * 1.35 if rng.random() < 0.03 else factor


def bimodal(rng: np.random.Generator, now: int) -> float:
    """Two clusters of cores, 30 % apart, four times in ten the slow one."""
    return realistic(rng, now) * (1.3 if rng.random() < 0.4 else 1.0)


@dataclass(slots=True)
class PlantedArm:
    """Takes BASE_NS times `factor` times the noise, on the virtual clock."""

    name: str
    clock: VirtualClock
    rng: np.random.Generator
    expects: PathName = "backing"
    factor: float = 1.0
    noise: Noise = realistic
    path: PathName | None = None  # what really happens, when it is not what is expected
    ignored_every: int = 0
    verified: bool = True
    runs: int = field(default=0)

    def run_once(self) -> Sample:
        self.runs += 1
        start = self.clock.now_ns()
        prediction = round(BASE_NS * self.factor * self.noise(self.rng, start))
        verification, copy = 2 * MILLISECOND, 3 * MILLISECOND if self.expects == "framework" else 0
        self.clock.advance(prediction + verification + copy)
        ignored = self.ignored_every and self.runs % self.ignored_every == 0
        path: PathName = self.path or ("copy" if ignored else self.expects)
        return Sample(
            intervals={
                PREDICTION: prediction,
                VERIFICATION: verification,
                COPY: copy,
                STAGE: self.clock.now_ns() - start,
            },
            path=path,
            verified=self.verified,
        )


@dataclass(slots=True)
class TellingProbe:
    """Returns the state it is given, or a sequence of them (the last one stays)."""

    states: list[HostState] = field(
        default_factory=lambda: [HostState(load_1m=0.1, cpus=8, foreign_cpu=0.01, thermal="nominal", low_power=False)]
    )

    def read(self) -> HostState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def arms(seed: int, *, raw: float = 1.0, surface: float = 1.0, noise: Noise = realistic) -> list[PlantedArm]:
    """The four arms of a bench. Without a planted effect all four take the same time, copy included."""
    clock = VirtualClock()
    rng = np.random.default_rng(seed)
    control = PlantedArm("framework", clock, rng, expects="framework", noise=noise)
    duplicate = PlantedArm("framework again", clock, rng, expects="framework", noise=noise)
    # The control copies for 3 ms; a backed arm without an effect spends them in the prediction.
    stage = BASE_NS + 5 * MILLISECOND
    backed = [
        PlantedArm(name, clock, rng, factor=(stage * effect - 2 * MILLISECOND) / BASE_NS, noise=noise)
        for name, effect in (("raw", raw), ("surface", surface))
    ]
    return [control, duplicate, *backed]


def run(planted: list[PlantedArm], *, rounds: int = 120, seed: int = 1, gate: HostGate | None = None) -> Measurement:
    return measure(
        planted,
        control="framework",
        rounds=rounds,
        seed=seed,
        clock=planted[0].clock,
        gate=gate or HostGate(TellingProbe()),
        warmup=1,
    )


def analysed(measurement: Measurement, *, gate: HostGate | None = None, resamples: int = 2_000) -> Analysis:
    return analyse(
        measurement,
        control="framework",
        duplicate="framework again",
        scored=("raw", "surface"),
        host_reasons=gate.reasons if gate else (),
        bootstrap_seed=7,
        resamples=resamples,
    )


def words(analysis: Analysis) -> dict[str, str]:
    return {decision.arm: decision.word for decision in analysis.decisions}


RUNTIME = {
    "kind": "simulator",
    "runtime_version": "0.1.0",
    "os": "Linux",
    "os_build": "6.1",
    "chip": "x86_64",
    "page_size": 4096,
}
FINGERPRINT = "sha256:" + "5e" * 32


def evidence(mechanism: str, *, accepted: bool = True) -> list[dict[str, Any]]:
    backed = mechanism != "framework"
    return [
        {
            "name": name,
            "mechanism": mechanism,
            "proposed": backed,
            "allowed": True if backed else None,
            "accepted": accepted if backed else None,
            "same_object": accepted if backed else None,
            "same_storage": accepted if backed else None,
            "in_range": True,
            "shape": [4, 1500, 20, 64],
            "strides": [1920000, 1280, 64, 1],
            "dtype": "float16",
            "layout_ok": True,
            "direct_write": "unknown",
            "bytes_copied": 0 if backed and accepted else 15360000,
            "digest": "8c1f6f3a9d2b4e5f8c1f6f3a9d2b4e5f",
            "finite": True,
            "non_zero": True,
            "min": -3.1,
            "max": 3.4,
            "tail_zero": True,
            "canaries_intact": True if mechanism == "raw" else None,
            "complete": True,
            "fresh": None,
            "distinct": True,
        }
        for name in ("cross_k", "cross_v")
    ]


def report(
    planted: list[PlantedArm],
    *,
    rounds: int = 120,
    seed: int = 1,
    gate: HostGate | None = None,
    gates: dict[str, dict[str, bool]] | None = None,
    **subject: Any,
) -> Report:
    """A whole report of planted arms, as a bench would write it."""
    gate = gate or HostGate(TellingProbe())
    level = iter(range(10**6))
    measurement = measure(
        planted,
        control="framework",
        rounds=rounds,
        seed=seed,
        clock=planted[0].clock,
        gate=gate,
        warmup=2,
        memory=lambda: {"footprint_byte_count": 380_000_000 + 4096 * (next(level) % 7), "live_allocations": 8},
    )
    described: dict[str, Any] = {
        "runtime": RUNTIME,
        "model": {
            "name": "whisper_turbo_kv.mlpackage",
            "fingerprint": FINGERPRINT,
            "function": None,
            "compute_units": "all",
        },
        "contract": {"outputs": ["cross_k", "cross_v"], "live": 1500, "axis": 1, "tail": "zero"},
        "inputs": {"digest": "xxh3:0123", "source": "seeded random", "seed": 0},
        "verify": "scan",
        "fresh": False,
        "kvbacking_version": "0.1.0",
    }
    described.update(subject)
    names = ("framework", "framework again", "raw", "surface")
    mechanisms = dict(zip(names, ("framework", "framework", "raw", "surface"), strict=True))
    return build_report(
        subject=Subject(**described),
        run=measurement,
        analysis=analysed(measurement, gate=gate),
        gate=gate,
        control="framework",
        duplicate="framework again",
        scored=("raw", "surface"),
        bootstrap_seed=7,
        resamples=2_000,
        mechanisms=mechanisms,
        evidence={name: evidence(mechanisms[name]) for name in names if name != "framework again"},
        counters={name: {"predictions": measurement.rounds_done, "bytes_copied": 0} for name in names},
        gates=gates,
        created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
