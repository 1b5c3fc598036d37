"""Runs the schedule and keeps every raw sample. Knows arms, a clock, a host gate and nothing of Core ML."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .clock import Clock
from .host import HostGate
from .sample import Arm, Record, judge
from .schedule import randomised_blocks

MemoryProbe = Callable[[], Mapping[str, int]]
Progress = Callable[[int, int], None]

GATE_EVERY_NS = 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    arm: str
    round: int
    values: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class Measurement:
    """What a run left behind, whole or cut short."""

    rounds_planned: int
    warmup: int
    seed: int
    clock: str
    rounds_done: int = 0
    interrupted: bool = False
    records: list[Record] = field(default_factory=list)
    memory: list[MemoryReading] = field(default_factory=list)
    withdrawn: dict[str, str] = field(default_factory=dict)  # arm -> why it was not run any further
    overhead_ns: list[int] = field(default_factory=list)  # per round: the round's time outside its arms


def measure(
    arms: Sequence[Arm],
    *,
    control: str,
    rounds: int,
    seed: int,
    clock: Clock,
    gate: HostGate,
    warmup: int = 5,
    memory: MemoryProbe | None = None,
    memory_every: int = 10,
    progress: Progress | None = None,
) -> Measurement:
    """Every round runs every arm once, in the order of the seeded schedule.

    An arm that raises, or whose warm-up is not valid, is withdrawn with the reason; without its control a run ends.
    KeyboardInterrupt ends the run and is not raised again: `interrupted` says so and everything measured is kept.
    """
    by_name = {arm.name: arm for arm in arms}
    schedule = randomised_blocks([arm.name for arm in arms], rounds, seed)
    if control not in by_name:
        raise ValueError(f"the control {control!r} is not among the arms {', '.join(by_name)}")
    run = Measurement(rounds_planned=rounds, warmup=warmup, seed=seed, clock=clock.name)
    try:
        with _collector_outside() as collect:
            gate.before()
            _warm_up(run, by_name, warmup)
            gate.during()
            origin = gated = clock.now_ns()
            for index, order in enumerate(schedule):
                if control in run.withdrawn:
                    break
                collect()
                started = clock.now_ns()
                inside = 0
                for position, name in enumerate(order):
                    if name not in run.withdrawn:
                        inside += _run_one(run, by_name[name], index, position, clock, origin)
                        if memory is not None and index % memory_every == 0:
                            run.memory.append(MemoryReading(arm=name, round=index, values=memory()))
                run.rounds_done = index + 1
                run.overhead_ns.append(clock.now_ns() - started - inside)
                if clock.now_ns() - gated >= GATE_EVERY_NS:
                    gate.during()
                    gated = clock.now_ns()
                if progress is not None:
                    progress(index + 1, rounds)
            gate.during()
    except KeyboardInterrupt:
        run.interrupted = True
    return run


def _warm_up(run: Measurement, arms: Mapping[str, Arm], count: int) -> None:
    """Unrecorded runs that also find out which arms are worth running: a rejected arm is never timed."""
    for _ in range(count):
        for name, arm in arms.items():
            if name in run.withdrawn:
                continue
            try:
                problem = judge(arm, arm.run_once())
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem is not None:
                run.withdrawn[name] = f"rejected in warm-up: {problem}"


def _run_one(run: Measurement, arm: Arm, index: int, position: int, clock: Clock, origin: int) -> int:
    """One record, valid or not. Returns how long the arm had control."""
    before = clock.now_ns()
    try:
        sample = arm.run_once()
    except Exception as error:
        after = clock.now_ns()
        problem = f"{type(error).__name__}: {error}"
        run.withdrawn[arm.name] = f"failed in round {index}: {problem}"
        intervals: Mapping[str, int] = {}
        path, why = "none", str(problem)
    else:
        after = clock.now_ns()
        intervals, path, why = sample.intervals, sample.path, judge(arm, sample) or ""
    run.records.append(
        Record(
            round=index,
            position=position,
            arm=arm.name,
            started_ns=before - origin,
            intervals=dict(intervals),
            path=path,
            valid=not why,
            problem=why or None,
        )
    )
    return after - before


@contextlib.contextmanager
def _collector_outside() -> Iterator[Callable[[], int]]:
    """Garbage is collected between rounds and never inside one; what existed before is left out of the collections."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
