"""Runs every method at every length that fits into memory, and says what came out as one JSON document."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.errors import ContractError
from kvbacking.mlx.arrays import core, optional_module
from kvbacking.payload import Payload
from kvbacking.runtime import runtime_info

from ..clock import Clock, SystemClock
from ..host import HostGate, HostProbe, system_probe
from ..runner import Measurement, Progress, measure
from ..sample import STAGE
from .arms import MEMCPY, MEMCPY_BYTES, METHODS, WORDS, Adopt, HandoffArm, MemcpyArm, Method
from .producer import PredictedProducer, Producer
from .rows import budget_of, row_of, samples_of

SCHEMA = "kvbacking.handoff/1"
ROOM = 256  # rows beyond the live ones, as mlx-lm grows its caches
WARMUP = 1
# Whole sets of K and V that a method needs at once, beside the producer's own.
_EXTRA_SETS: Mapping[Method, int] = {"slice": 1, "views": 2, "adopted": 1, "copied": 1, "owned": 1, "owned-stacked": 2}
_OWN_MEMORY = ("owned", "owned-stacked")
LIMITS = (
    "A device cpu, or a simulated runtime, says nothing about Apple hardware.",
    "Bytes are counted by the addresses of arrays before and after, not inside MLX.",
    "The ratio divides import and first update together by a memcpy of the live rows: a copy that is put off counts.",
    "Whether the producer's device wrote straight into the memory is unknown.",
)


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
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")


def bound_of(options: Options) -> tuple[int, str]:
    """(bytes that one length may need, why)."""
    if options.memory_byte_count is not None:
        return options.memory_byte_count, "asked for"
    available = _available_byte_count()
    return available // 2, f"half of the {available / 2**30:.1f} GiB available"


def needed_byte_count(payload: Payload, capacity: int, live: int, method: Method, beside_source: bool) -> int:
    """Bytes that a method holds at its highest point, with the producer's own set if `beside_source`."""
    extra = 1 if method == "owned-stacked" and payload.kind == "cross" else _EXTRA_SETS[method]
    buffers = 2 * min(live * payload.bytes_per_position, MEMCPY_BYTES)
    return (extra + beside_source) * capacity * payload.bytes_per_position + buffers


def measure_shape(
    payload: Payload,
    lengths: Sequence[int],
    options: Options | None = None,
    *,
    adopt: Adopt | None = None,
    adopt_label: str = "",
    probe: HostProbe | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The document of a payload without a model: NumPy wrote the rows.

    Growing K/V gets `payload.capacity` rows, or 256 more than are live. `adopt(view) -> array` stands in for adoption
    where MLX refuses it, and the rows say so (`adopt_label`). Raises MlxUnavailableError; ContractError for K/V that no
    cache takes (int8) and lengths beyond the capacity.
    """
    options = options or Options()
    _check(payload, lengths)

    def producer(live: int) -> Producer:
        return Producer(payload=payload, capacity=capacity_of(payload, live), live=live)

    return _document(payload, lengths, options, producer, (adopt, adopt_label), probe, clock, progress, None)


def measure_model(
    model: Any,
    contract: Any,
    inputs: Mapping[str, np.ndarray],
    payload: Payload,
    lengths: Sequence[int],
    options: Options | None = None,
    *,
    probe: HostProbe | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The document of a model: its outputs, predicted through sessions. Also raises what a session raises."""
    options = options or Options()
    _check(payload, lengths)

    def producer(live: int) -> Producer:
        return PredictedProducer(
            payload=payload,
            capacity=capacity_of(payload, live),
            live=live,
            model=model,
            made_for=contract,
            inputs=inputs,
        )

    about = {"name": model.path.name, "fingerprint": model.fingerprint, "contract": contract.to_dict()}
    return _document(payload, lengths, options, producer, (None, ""), probe, clock, progress, about)


def capacity_of(payload: Payload, live: int) -> int:
    """Rows that are allocated for `live` ones."""
    return payload.capacity or live + ROOM


def payload_rows(payload: Payload, lengths: Iterable[int]) -> list[dict[str, int]]:
    """Bytes at every length: live rows, and what is allocated for them."""
    return [
        {
            "live": live,
            "capacity": capacity_of(payload, live),
            "live_bytes": payload.bytes_at(live),
            "allocated_bytes": payload.bytes_at(capacity_of(payload, live)),
        }
        for live in lengths
    ]


def payload_document(payload: Payload, lengths: Sequence[int]) -> dict[str, Any]:
    """The payload model alone: needs no MLX."""
    _check_lengths(payload, lengths)
    return {
        "schema": SCHEMA,
        "created": _now(),
        "kvbacking_version": runtime_info().kvbacking_version,
        "payload": payload.to_dict(),
        "lengths": payload_rows(payload, lengths),
        "measurement": None,
    }


def _document(
    payload: Payload,
    lengths: Sequence[int],
    options: Options,
    producer: Any,
    adopt: tuple[Adopt | None, str],
    probe: HostProbe | None,
    clock: Clock | None,
    progress: Progress | None,
    model: dict[str, Any] | None,
) -> dict[str, Any]:
    mx = core()
    optional_module("mlx_lm.models.cache")
    clock = clock or SystemClock()
    gate = HostGate(probe or system_probe())
    bound, why = bound_of(options)
    rows: list[dict[str, Any]] = []
    interrupted = False
    old_limit = mx.set_cache_limit(2 * bound)  # what a method freed must be there when it runs again
    try:
        for live in lengths:
            if interrupted:
                break
            found, interrupted = _length(producer, payload, live, options, bound, adopt, clock, gate, progress)
            rows += found
    finally:
        mx.set_cache_limit(old_limit)
        mx.clear_cache()
    label = PredictedProducer.label if model else Producer.label
    return {
        **payload_document(payload, lengths),
        "measurement": {
            "runtime": runtime_info().to_dict(),
            "simulated": runtime_info().kind == "simulator",
            "device": "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu",
            "versions": {
                "mlx": str(mx.__version__),
                "mlx_lm": importlib.metadata.version("mlx-lm"),
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
            "producer": label,
            "model": model,
            "protocol": {
                "order": "randomised blocks",
                "rounds": options.rounds,
                "warmup": WARMUP,
                "seed": options.seed,
                "clock": clock.name,
                "memory_bound_byte_count": bound,
                "memory_bound_reason": why,
                "memcpy_buffer_byte_count": MEMCPY_BYTES,
                "interrupted": interrupted,
            },
            "host": gate.document(),
            "rows": rows,
            "budget": budget_of(rows) if payload.kind == "growing" else None,
            "limits": list(LIMITS),
        },
    }


def _length(
    producer: Any,
    payload: Payload,
    live: int,
    options: Options,
    bound: int,
    adopt: tuple[Adopt | None, str],
    clock: Clock,
    gate: HostGate,
    progress: Progress | None,
) -> tuple[list[dict[str, Any]], bool]:
    """Rows of one length, memcpy first, and whether the run was interrupted."""
    capacity = capacity_of(payload, live)

    def needs(method: Method, beside: bool) -> int:
        return needed_byte_count(payload, capacity, live, method, beside)

    sourced = [m for m in options.methods if m not in _OWN_MEMORY and needs(m, True) <= bound]
    need = {m: needs(m, m not in _OWN_MEMORY or bool(sourced)) for m in options.methods}
    fitting = [m for m in options.methods if need[m] <= bound]
    made: Producer | None = producer(live) if fitting else None
    measured = {m: HandoffArm(method=m, producer=made, clock=clock, adopt=adopt[0]) for m in fitting if made}
    run = Measurement(rounds_planned=0, warmup=0, seed=options.seed, clock=clock.name)
    try:
        if measured:
            run = measure(
                [MemcpyArm(live * payload.bytes_per_position, clock), *measured.values()],
                control=MEMCPY,
                rounds=options.rounds,
                seed=options.seed,
                clock=clock,
                gate=gate,
                warmup=WARMUP,
                progress=progress,
            )
    finally:
        if isinstance(made, PredictedProducer):
            made.close()
    copy_ns = samples_of(run, MEMCPY).get(STAGE, [])
    rows = [row_of(live, capacity, MEMCPY, "the C library's copy of the live rows", run, None, 0, bound, copy_ns)]
    for method in options.methods:
        label = adopt[1] if method == "adopted" and adopt[0] else ""
        words = WORDS[method] + (f" ({label})" if label else "")
        rows.append(row_of(live, capacity, method, words, run, measured.get(method), need[method], bound, copy_ns))
    return rows, run.interrupted


def _check(payload: Payload, lengths: Sequence[int]) -> None:
    _check_lengths(payload, lengths)
    for side in (payload.keys, payload.values):
        if side not in ("float16", "float32"):
            raise ContractError(
                f"[measure.handoff] {payload.name}: {side} rows go into no cache of mlx-lm before they are multiplied "
                "with their scales; --payload gives their sizes"
            )


def _check_lengths(payload: Payload, lengths: Sequence[int]) -> None:
    if not lengths:
        raise ContractError("[measure.handoff] no live length was given")
    for live in lengths:
        if payload.rows is not None and live != payload.rows:
            raise ContractError(f"[measure.handoff] {payload.name} has {payload.rows} live rows, not {live}")
        if live < 1 or (payload.capacity is not None and live > payload.capacity):
            most = payload.capacity or "any number"
            raise ContractError(f"[measure.handoff] live rows must be 1 to {most} (the capacity), got {live}")


def _available_byte_count() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
