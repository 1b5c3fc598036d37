"""A host that is not this machine: virtual time, arms with planted effects, a probe that says what it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kvbacking.measure.analysis import Analysis, analyse
from kvbacking.measure.clock import VirtualClock
from kvbacking.measure.host import HostGate, HostState
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
