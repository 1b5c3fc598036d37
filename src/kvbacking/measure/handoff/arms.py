"""The ways to hand K/V over, each an arm of the runner: import, first step, second step, and where the memory lay."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from kvbacking.mlx import OwnedBackings, handoff, owned_backings, to_mlx
from kvbacking.mlx.arrays import copied_byte_count, copied_rows, core
from kvbacking.mlx.caches import rows_wanted
from kvbacking.session import Prediction

from ..clock import Clock
from ..sample import STAGE, PathName, Sample
from .holder import Caches, Holder, ReadOnly, addresses
from .producer import PredictedProducer, Producer, owned_memory

Method = Literal["slice", "views", "adopted", "copied", "owned", "owned-stacked"]
METHODS: tuple[Method, ...] = get_args(Method)
WORDS: Mapping[Method, str] = MappingProxyType(
    {
        "slice": "NumPy slice + mx.array per layer",
        "views": "one mx.array + views",
        "adopted": "adoption without a copy",
        "copied": "as handoff() copies, once",
        "owned": "MLX-owned, one output per layer",
        "owned-stacked": "MLX-owned, one output for all layers",
    }
)
IMPORT, FIRST, SECOND, COLD = "import", "first_update", "second_update", "cold_stage"
MEMCPY = "memcpy"
MEMCPY_BYTES = 256 << 20  # of each buffer: more than caches hold, less than a long context
Adopt = Callable[[np.ndarray], Any]
Pairs = list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of one run, by address: bytes that each stage wrote elsewhere, arrays (two a layer) that lay where the producer
    wrote, arrays that the first step left where they were, and the most that MLX allocated meanwhile."""

    bytes_imported: int
    bytes_first_update: int
    bytes_second_update: int
    at_producer_after_import: int
    at_producer_after_first_update: int
    kept_by_first_update: int
    arrays: int
    allocated_byte_count: int

    def to_dict(self) -> dict[str, int]:
        """The fields."""
        return asdict(self)


class MemcpyArm:
    """The C library's copy of as many bytes as the live rows have, through two buffers that were written before."""

    name: str = MEMCPY
    expects: PathName = "copy"

    def __init__(self, byte_count: int, clock: Clock) -> None:
        self._move, self._clock, self._left = ctypes.memmove, clock, byte_count
        size = min(byte_count, MEMCPY_BYTES)
        self._from, self._to = np.ones(size, np.uint8), np.zeros(size, np.uint8)

    def run_once(self) -> Sample:
        """Copies everything, in pieces as large as the buffers."""
        started = self._clock.now_ns()
        left = self._left
        while left:
            piece = min(left, self._from.nbytes)
            self._move(self._to.ctypes.data, self._from.ctypes.data, piece)
            left -= piece
        return Sample(intervals={STAGE: self._clock.now_ns() - started}, path="copy", verified=True)


@dataclass(slots=True, kw_only=True)
class HandoffArm:
    """One method over one producer. Where the producer's memory survives, it is handed over twice, the second time into
    memory that MLX's pool has kept: `cold_stage` is of the first time, everything else of the second. A stage is import
    and first step together."""

    method: Method
    producer: Producer
    clock: Clock
    adopt: Adopt | None = None  # stands in for to_mlx(copy=False)
    name: str = ""  # the method, unless given
    facts: list[Facts] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name or self.method

    @property
    def expects(self) -> PathName:
        """ "backing": nothing was copied on import."""
        cross = self.producer.payload.kind == "cross"
        whole = self.method in ("adopted", "owned") or (self.method == "owned-stacked" and cross)
        return "backing" if whole else "copy"

    def run_once(self) -> Sample:
        """Raises what the hand-off raises, AdoptionRefusedError where MLX takes no foreign memory."""
        mx = core()
        mx.clear_cache()
        ready = self._ready()
        cold = {COLD: self._once(ready)} if ready.repeatable else {}
        ready.reset()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        started = self.clock.now_ns()
        holder = ready.bring()
        import_ns = self.clock.now_ns() - started
        places = [addresses(holder)]
        sizes = [int(array.nbytes) for array in holder.arrays()]
        step_ns = []
        for index in range(2):
            started = self.clock.now_ns()
            holder.step(index)
            step_ns.append(self.clock.now_ns() - started)
            places.append(addresses(holder))
        moved = [0 if _within(place, ready.spans) else 1 for place in places[0]]
        copied = [
            sum(m * size for m, size in zip(moved, ready.import_sizes or sizes, strict=True)),
            *(_moved_bytes(holder, *places[i : i + 2]) for i in range(2)),
        ]
        problem = holder.wrong(self.producer.live, self.producer.expected)
        if ready.reported is not None and ready.reported != copied[0]:
            problem = problem or f"handoff() reported {ready.reported} bytes copied, addresses say {copied[0]}"
        self.facts.append(
            Facts(
                bytes_imported=copied[0],
                bytes_first_update=copied[1],
                bytes_second_update=copied[2],
                at_producer_after_import=len(moved) - sum(moved),
                at_producer_after_first_update=sum(_within(place, ready.spans) for place in places[1]),
                kept_by_first_update=sum(a == b for a, b in zip(*places[:2], strict=True)),
                arrays=len(sizes),
                allocated_byte_count=max(0, int(mx.get_peak_memory()) - int(before)),
            )
        )
        return Sample(
            intervals={STAGE: import_ns + step_ns[0], IMPORT: import_ns, FIRST: step_ns[0], SECOND: step_ns[1], **cold},
            path="backing" if copied[0] == 0 else "copy",
            verified=not problem,
            problem=problem or None,
        )

    def _once(self, ready: _Ready) -> int:
        """Import and both steps, dropped again; nanoseconds of import and first step."""
        started = self.clock.now_ns()
        holder = ready.bring()
        holder.step(0)
        took = self.clock.now_ns() - started
        holder.step(1)
        return took

    def _ready(self) -> _Ready:
        return _OwnedReady(self) if self.method in ("owned", "owned-stacked") else _Ready(self)


class _Ready:
    """Everything before the clock starts; bring() is what it times."""

    repeatable = True

    def __init__(self, arm: HandoffArm) -> None:
        self.method, self.producer, self.adopt = arm.method, arm.producer, arm.adopt
        self.reported: int | None = None
        self.import_sizes: list[int] = []  # what a copy of each array writes, where that is not the array's own size
        self.reset()
        self.prepare()

    def reset(self) -> None:
        """Drops what bring() made."""
        payload = self.producer.payload
        self.caches = Caches(payload) if payload.kind == "growing" else None

    def prepare(self) -> None:
        self.whole = self.producer.stacked() if self.method == "views" else None
        self.pairs = self.producer.pairs()
        self.spans = [_span(view) for pair in self.pairs for view in pair]

    def bring(self) -> Holder:
        live = self.producer.live
        if self.method == "copied" and self.caches is not None:
            return self.copied(self.pairs, self.caches)
        if self.whole is not None:
            mx = core()
            self.import_sizes = [view.nbytes for pair in self.pairs for view in pair]
            keys, values = mx.array(self.whole[0]), mx.array(self.whole[1])
            arrays = [(keys[i : i + 1], values[i : i + 1]) for i in range(len(self.pairs))]
        else:
            arrays = [(self.one(k), self.one(v)) for k, v in self.pairs]
        return self.hold(arrays, live)

    def one(self, view: np.ndarray) -> Any:
        """One layer's K or V. Growing caches get all its rows, read-only K/V its live ones, except by adoption: only
        whole memory can be adopted."""
        if self.method == "adopted":
            return self.adopt(view) if self.adopt else to_mlx(view, copy=False).array
        rows = view if self.caches is not None else view[:, : self.producer.live]
        return to_mlx(rows, copy=True).array if self.method == "copied" else core().array(rows)

    def hold(self, arrays: Pairs, live: int) -> Holder:
        if self.caches is None:
            return ReadOnly(arrays, live)
        self.caches.fill(arrays, live)
        return self.caches

    def copied(self, pairs: list[tuple[np.ndarray, np.ndarray]], caches: Caches) -> Holder:
        """As handoff() copies: the live rows, into memory with room for more."""
        live = self.producer.live
        self.import_sizes = _copied_sizes(pairs, caches, live)
        if isinstance(self.producer, PredictedProducer):
            return self.handed(self.producer.prediction, caches, None)
        rows = _rows(pairs, caches, live)
        copies = iter(copied_rows([(view, n) for pair, n in zip(pairs, rows, strict=True) for view in pair], live))
        arrays = [(next(copies), next(copies)) for _ in pairs]
        return self.hold(arrays, live)

    def handed(self, prediction: Prediction, caches: Caches, owned: OwnedBackings | None) -> Holder:
        """Through handoff() itself."""
        report = handoff(prediction, caches.caches, self.producer.contract(not _per_layer(self.producer)), owned=owned)
        self.reported = report.bytes_copied
        return caches


class _OwnedReady(_Ready):
    def prepare(self) -> None:
        self.stacked = self.method == "owned-stacked"
        self.backings = owned_backings(self.producer.contract(self.stacked))
        self.prediction = self.producer.write(self.backings)
        contract = self.backings.contract
        self.spans = [
            (address, address + view.nbytes)
            for address, view in zip(
                self.backings.addresses.values(), owned_memory(self.backings).values(), strict=True
            )
        ]
        self.names = list(contract.outputs)
        self.repeatable = self.stacked and self.caches is not None  # else bring() gives the memory away
        self.whole, self.pairs = None, []

    def bring(self) -> Holder:
        live, half = self.producer.live, len(self.names) // 2
        if self.caches is not None and self.prediction is not None:
            if self.stacked:
                self.import_sizes = _copied_sizes(self.producer.pairs(), self.caches, live)
            return self.handed(self.prediction, self.caches, self.backings)
        if self.caches is not None and self.stacked:
            keys, values = owned_memory(self.backings).values()
            pairs = [(keys[i : i + 1], values[i : i + 1]) for i in range(len(keys))]
            return self.copied(pairs, self.caches)
        if self.prediction is not None:
            self.prediction.release()
        taken = self.backings.take()
        if not self.stacked:
            return self.hold(
                [(taken[k], taken[v]) for k, v in zip(self.names[:half], self.names[half:], strict=True)], live
            )
        keys, values = taken.values()
        return self.hold([(keys[i : i + 1], values[i : i + 1]) for i in range(keys.shape[0])], live)


def _per_layer(producer: Producer) -> bool:
    return isinstance(producer, PredictedProducer) and producer.per_layer


def _span(view: np.ndarray) -> tuple[int, int]:
    start = int(view.ctypes.data)
    return start, start + view.nbytes


def _rows(pairs: list[tuple[np.ndarray, np.ndarray]], caches: Caches, live: int) -> list[int]:
    return [rows_wanted(cache, live, k.shape[2]) for (k, _), cache in zip(pairs, caches.caches, strict=True)]


def _copied_sizes(pairs: list[tuple[np.ndarray, np.ndarray]], caches: Caches, live: int) -> list[int]:
    rows = _rows(pairs, caches, live)
    return [copied_byte_count(view, live, count) for pair, count in zip(pairs, rows, strict=True) for view in pair]


def _within(place: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= place < end for start, end in spans)


def _moved_bytes(holder: Holder, before: list[int], after: list[int]) -> int:
    return sum(int(array.nbytes) for array, a, b in zip(holder.arrays(), before, after, strict=True) if a != b)
