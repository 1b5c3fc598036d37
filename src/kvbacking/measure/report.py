"""The report of a bench: one JSON document (docs/schema/report.schema.json is its schema) and its raw samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .analysis import Analysis
from .decision import MIN_ROUNDS, RULE
from .host import HostGate
from .runner import Measurement
from .sample import END_TO_END, STAGE, Record
from .statistics import CONFIDENCE, RESAMPLES

SCHEMA = "kvbacking.report/1"
LIMITS = (
    "A saving belongs to this machine, OS build, model and compute units; it is not a property of the mechanism.",
    "Nothing public tells whether the device wrote straight into a backing: direct_write stays unknown, and a saving "
    "does not prove it.",
    "The absence of a copy event in Instruments does not prove that nothing was copied.",
    "Placement is unknown unless digests match exactly one control run of a single compute unit.",
    "Memory is read between samples, for the whole process, not inside the timed part.",
)
SIMULATED_LIMIT = (
    "Simulated: these timings come from the simulator of the public API and say nothing about Apple hardware."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was measured, as plain data: the report knows no model, contract or runtime type."""

    runtime: Mapping[str, Any]  # at least "kind": "coreml" | "simulator"
    model: Mapping[str, Any]  # at least "name", "fingerprint", "function", "compute_units"
    contract: Mapping[str, Any]
    inputs: Mapping[str, Any]
    verify: str
    fresh: bool
    kvbacking_version: str


@dataclass(frozen=True, slots=True)
class Report:
    """`document` is what report.json holds, `records` what samples.jsonl holds."""

    document: Mapping[str, Any]
    records: tuple[Record, ...]

    @property
    def decisions(self) -> dict[str, str]:
        """Arm -> decision about the whole stage."""
        return {d["arm"]: d["decision"] for d in self.document["decisions"] if d["interval"] == STAGE}

    @property
    def simulated(self) -> bool:
        """Whether it was made on the simulator: then nothing in it speaks about Apple hardware."""
        return bool(self.document["simulated"])

    def promotable(self, arm: str) -> bool:
        """Whether a certificate for `arm` may be raised: an end-to-end saving, with every quality gate passed."""
        end = self.document["end_to_end"]
        gates = end["gates"].get(arm) if end else None
        if not gates or not all(gates.values()):
            return False
        words = {(d["arm"], d["interval"]): d["decision"] for d in self.document["decisions"]}
        return words.get((arm, END_TO_END)) == "saving shown"

    def write(self, folder: str | Path) -> dict[str, Path]:
        """Writes report.json, samples.jsonl and report.html into `folder`, which is made."""
        from .page import render

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = {name: folder / name for name in ("report.json", "samples.jsonl", "report.html")}
        # Raw samples first: they are what cannot be computed again.
        with paths["samples.jsonl"].open("w") as lines:
            lines.writelines(json.dumps(asdict(record), sort_keys=True) + "\n" for record in self.records)
        paths["report.json"].write_text(json.dumps(self.document, indent=2, allow_nan=False) + "\n")
        paths["report.html"].write_text(render(self), encoding="utf-8")
        return paths

    @classmethod
    def load(cls, folder: str | Path) -> Report:
        """Reads what write() wrote: the folder, or its report.json. Raises ValueError for another schema."""
        path = Path(folder)
        path = path / "report.json" if path.is_dir() else path
        document = json.loads(path.read_text())
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError(f"{path.name} is not a {SCHEMA} document")
        lines = path.with_name("samples.jsonl")
        records = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        return cls(document, tuple(Record(**record) for record in records))


def build_report(
    *,
    subject: Subject,
    run: Measurement,
    analysis: Analysis,
    gate: HostGate,
    control: str,
    duplicate: str,
    scored: Sequence[str],
    bootstrap_seed: int,
    resamples: int = RESAMPLES,
    mechanisms: Mapping[str, str] | None = None,
    evidence: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    counters: Mapping[str, Mapping[str, int]] | None = None,
    placement: Mapping[str, Any] | None = None,
    gates: Mapping[str, Mapping[str, bool]] | None = None,
    created: datetime | None = None,
) -> Report:
    """`evidence` and `counters` are per arm; `gates` the end-to-end quality gates per arm, None without a task."""
    roles = {control: "control", duplicate: "noise floor", **dict.fromkeys(scored, "scored")}
    simulated = subject.runtime["kind"] == "simulator"
    overhead = sorted(run.overhead_ns)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "created": (created or datetime.now(UTC)).isoformat(timespec="seconds"),
        "kvbacking_version": subject.kvbacking_version,
        "simulated": simulated,
        "runtime": dict(subject.runtime),
        "model": dict(subject.model),
        "contract": dict(subject.contract),
        "inputs": dict(subject.inputs),
        "protocol": {
            "order": "randomised blocks",
            "seed": run.seed,
            "rounds_planned": run.rounds_planned,
            "rounds_done": run.rounds_done,
            "warmup": run.warmup,
            "interrupted": run.interrupted,
            "buffers": "fresh" if subject.fresh else "persistent",
            "verify": subject.verify,
            "clock": run.clock,
            "garbage_collection": "between rounds",
            "control": control,
            "duplicate": duplicate,
            "confidence": CONFIDENCE,
            "bootstrap_seed": bootstrap_seed,
            "resamples": resamples,
            "min_rounds": MIN_ROUNDS,
            "rule": RULE,
        },
        "host": gate.document(),
        "objections": list(analysis.objections),
        "decisions": [
            {
                "arm": decision.arm,
                "interval": decision.interval,
                "decision": decision.word,
                "reasons": list(decision.reasons),
                "floor_ns": decision.floor_ns,
            }
            for decision in analysis.decisions
        ],
        "arms": [
            {
                "name": arm.name,
                "role": roles[arm.name],
                "mechanism": (mechanisms or {}).get(arm.name, arm.name),
                "status": arm.status,
                "reasons": list(arm.reasons),
                "samples": arm.samples,
                "invalid": arm.invalid,
                "intervals": {name: asdict(summary) for name, summary in arm.intervals.items()},
                "evidence": [dict(e) for e in (evidence or {}).get(arm.name, ())],
                "memory": _memory(run, arm.name),
                "counters": dict((counters or {}).get(arm.name, {})),
            }
            for arm in analysis.arms
        ],
        "differences": [
            {"arm": arm, "interval": interval, **asdict(difference)}
            for arm, by_interval in analysis.differences.items()
            for interval, difference in by_interval.items()
        ],
        "end_to_end": None if gates is None else {"gates": {arm: dict(passed) for arm, passed in gates.items()}},
        "placement": dict(
            placement or {"result": "unknown", "why": "no control runs of single compute units were made"}
        ),
        "harness": {"overhead_ns_per_round_p50": overhead[len(overhead) // 2] if overhead else None},
        "limits": [*([SIMULATED_LIMIT] if simulated else []), *LIMITS],
    }
    return Report(document, tuple(run.records))


def _memory(run: Measurement, arm: str) -> dict[str, Any]:
    """First, last and highest value of every quantity, read right after samples of this arm."""
    readings = [reading.values for reading in run.memory if reading.arm == arm]
    names: Iterable[str] = dict.fromkeys(name for values in readings for name in values)
    result: dict[str, Any] = {}
    for name in names:
        series = [values[name] for values in readings if name in values]
        result[name] = {"first": series[0], "last": series[-1], "highest": max(series), "readings": len(series)}
    return result
