"""Runs every method at every length that fits into memory, and says what came out as one JSON document."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking._integers import as_integer
from kvbacking.errors import ContractError
from kvbacking.mlx.arrays import core, optional_module
from kvbacking.payload import Payload
from kvbacking.runtime import runtime_info

from ..clock import Clock, SystemClock
from ..host import HostGate, HostProbe, system_probe
from ..runner import Progress
from .arms import MEMCPY_BYTES, Adopt
from .bench import WARMUP, Bench, Options, capacity_of
from .producer import PredictedProducer, Producer

SCHEMA = "kvbacking.handoff/1"
LIMITS = (
    "A device cpu, or a simulated runtime, says nothing about Apple hardware.",
    "Bytes are counted by the addresses of arrays before and after, not inside MLX.",
    "The ratio divides import and first update together by a memcpy of the live rows: a copy that is put off counts.",
    "Whether the producer's device wrote straight into the memory is unknown.",
)


def bound_of(options: Options) -> tuple[int, str]:
    """(bytes that one length may need, why)."""
    if options.memory_byte_count is not None:
        return options.memory_byte_count, "asked for"
    available = _available_byte_count()
    return available // 2, f"half of the {available / 2**30:.1f} GiB available"


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
    bench = Bench(
        payload=payload,
        options=options,
        bound=bound,
        producer=producer,
        adopt=adopt[0],
        adopt_label=adopt[1],
        clock=clock,
        gate=gate,
        progress=progress,
    )
    rows: list[dict[str, Any]] = []
    old_limit = mx.set_cache_limit(2 * bound)  # what a method freed must be there when it runs again
    try:
        for live in lengths:
            rows += bench.length(live)
        budget = bench.budget(lengths) if payload.kind == "growing" else None
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
                "interrupted": bench.interrupted,
            },
            "host": gate.document(),
            "rows": rows,
            "budget": budget,
            "limits": list(LIMITS),
        },
    }


def _check(payload: Payload, lengths: Sequence[int]) -> None:
    _check_lengths(payload, lengths)
    for side in (payload.keys, payload.values):
        if side not in ("float16", "float32"):
            raise ContractError(
                f"[measure.handoff] {payload.name}: {side} rows are multiplied with their scales on the way into a "
                "cache, which is not measured here; --payload gives their sizes"
            )


def _check_lengths(payload: Payload, lengths: Sequence[int]) -> None:
    if not lengths:
        raise ContractError("[measure.handoff] no live length was given")
    for length in lengths:
        live = as_integer("a live length", length)
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
