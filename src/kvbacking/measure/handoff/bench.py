"""Every method at one length in the same rounds; and one method at two lengths in the same rounds, for the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvbacking._integers import as_integer
from kvbacking.payload import Payload

from ..clock import Clock
from ..host import HostGate
from ..runner import Measurement, Progress, measure
from ..sample import STAGE, Arm
from .arms import MEMCPY, MEMCPY_BYTES, METHODS, WORDS, Adopt, HandoffArm, MemcpyArm, Method
from .producer import PredictedProducer, Producer
from .rows import BUDGET_LONG, BUDGET_SHORT, budget_of, row_of, samples_of

ROOM = 256  # rows beyond the live ones, as mlx-lm grows its caches
WARMUP = 1
# Whole sets of K and V that a method needs at once, beside the producer's own.
_EXTRA_SETS: Mapping[Method, int] = {"slice": 1, "views": 2, "adopted": 1, "copied": 1, "owned": 1, "owned-stacked": 2}
_OWN_MEMORY = ("owned", "owned-stacked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Of one run. `memory_byte_count`: the most that one length may need (None: half of what is available)."""

    methods: tuple[Method, ...] = METHODS
    rounds: int = 11
    seed: int = 0
    memory_byte_count: int | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.methods) - set(METHODS)):
            raise ValueError(f"methods must be some of {', '.join(METHODS)}, got {', '.join(unknown)}")
        if not self.methods:
            raise ValueError(f"methods must be some of {', '.join(METHODS)}, got none")
        for name, least in (("rounds", 1), ("memory_byte_count", 1)):
            value = getattr(self, name)
            if value is not None and as_integer(name, value) < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")


def capacity_of(payload: Payload, live: int) -> int:
    """Rows that are allocated for `live` ones."""
    return payload.capacity or live + ROOM


def needed_byte_count(payload: Payload, capacity: int, live: int, method: Method, beside_source: bool) -> int:
    """Bytes that a method holds at its highest point, with the producer's own set if `beside_source`."""
    extra = 1 if method == "owned-stacked" and payload.kind == "cross" else _EXTRA_SETS[method]
    buffers = 2 * min(live * payload.bytes_per_position, MEMCPY_BYTES)
    return (extra + beside_source) * capacity * payload.bytes_per_position + buffers


@dataclass(slots=True, kw_only=True)
class Bench:
    """What stays the same over the lengths of one document."""

    payload: Payload
    options: Options
    bound: int
    producer: Callable[[int], Producer]
    adopt: Adopt | None
    adopt_label: str
    clock: Clock
    gate: HostGate
    progress: Progress | None
    interrupted: bool = False

    def length(self, live: int) -> list[dict[str, Any]]:
        """Rows of one length, memcpy first; none after an interruption."""
        if self.interrupted:
            return []
        methods, capacity = self.options.methods, capacity_of(self.payload, live)
        sourced = any(m not in _OWN_MEMORY and self._needs(live, m, True) <= self.bound for m in methods)
        need = {m: self._needs(live, m, m not in _OWN_MEMORY or sourced) for m in methods}
        fitting = [m for m in methods if need[m] <= self.bound]
        made = self.producer(live) if fitting else None
        arms = {m: HandoffArm(method=m, producer=made, clock=self.clock, adopt=self.adopt) for m in fitting if made}
        try:
            run = self._run([MemcpyArm(live * self.payload.bytes_per_position, self.clock), *arms.values()])
        finally:
            _close(made)
        copy_ns = samples_of(run, MEMCPY).get(STAGE, [])
        words = "the C library's copy of the live rows"
        rows = [row_of(live, capacity, MEMCPY, words, run, None, 0, self.bound, copy_ns)]
        for method in methods:
            stands_in = f" ({self.adopt_label})" if method == "adopted" and self.adopt else ""
            arm, words = arms.get(method), WORDS[method] + stands_in
            rows.append(row_of(live, capacity, method, words, run, arm, need[method], self.bound, copy_ns))
        return rows

    def budget(self, lengths: Sequence[int]) -> dict[str, Any]:
        """The two lengths of the budget once more, MLX-owned per layer alone and in turns: what a busy host adds, it
        adds to both. Not measured unless both are among `lengths` and fit."""
        pair = (BUDGET_SHORT, BUDGET_LONG)
        wanted = "owned" in self.options.methods and set(pair) <= set(lengths) and not self.interrupted
        if not wanted or self._needs(BUDGET_LONG, "owned", False) > self.bound:
            return budget_of({})
        made = [self.producer(live) for live in pair]
        arms = [HandoffArm(method="owned", producer=each, clock=self.clock, name=str(each.live)) for each in made]
        try:
            run = self._run(arms)
        finally:
            for each in made:
                _close(each)
        return budget_of({live: samples_of(run, str(live)) for live in pair})

    def _needs(self, live: int, method: Method, beside_source: bool) -> int:
        return needed_byte_count(self.payload, capacity_of(self.payload, live), live, method, beside_source)

    def _run(self, arms: Sequence[Arm]) -> Measurement:
        """The arms in turns, the first of them the one without which a run ends."""
        if len(arms) < 2:
            return Measurement(rounds_planned=0, warmup=0, seed=self.options.seed, clock=self.clock.name)
        run = measure(
            arms,
            control=arms[0].name,
            rounds=self.options.rounds,
            seed=self.options.seed,
            clock=self.clock,
            gate=self.gate,
            warmup=WARMUP,
            progress=self.progress,
        )
        self.interrupted |= run.interrupted
        return run


def _close(producer: Producer | None) -> None:
    if isinstance(producer, PredictedProducer):
        producer.close()
