"""Rows, tables, the picture and the budget of `kvbacking handoff`, from planted samples: no MLX is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvbacking as kvb
from kvbacking.measure.clock import SystemClock
from kvbacking.measure.handoff import bench, picture, rows, run, table
from kvbacking.measure.handoff.arms import METHODS, MemcpyArm
from kvbacking.measure.runner import Measurement
from kvbacking.measure.sample import STAGE, Record
from kvbacking.payload import PRESETS

MS, GIB = 1_000_000, 1 << 30


def record(arm: str, index: int, problem: str | None = None, **ms: float) -> Record:
    intervals = {name: int(value * MS) for name, value in ms.items()}
    return Record(
        round=index, position=0, arm=arm, started_ns=0, intervals=intervals, path="copy", valid=not problem,
        problem=problem,
    )  # fmt: skip


def planted(records: list[Record], **withdrawn: str) -> Measurement:
    made = Measurement(rounds_planned=3, warmup=1, seed=0, clock="planted")
    made.records += records
    made.withdrawn |= withdrawn
    return made


class Arm:
    """As much of an arm as a row reads."""

    def __init__(self, *facts: dict[str, int]) -> None:
        self.facts = [_Facts(f) for f in facts]


class _Facts:
    def __init__(self, values: dict[str, int]) -> None:
        self.values = values

    def to_dict(self) -> dict[str, int]:
        return self.values


def facts(**values: int) -> dict[str, int]:
    names = ("bytes_imported", "bytes_first_update", "at_producer_after_first_update", "kept_by_first_update", "arrays")
    return dict.fromkeys(names, 0) | {"arrays": 4} | values


def row(measured: Measurement, method: str, arm: Any = None, *, need: int = 1, bound: int = 2, live: int = 512) -> Any:
    return rows.row_of(live, live + 256, method, f"words of {method}", measured, arm, need, bound, [10 * MS])


def stages(method: str, *values: float) -> list[Record]:
    return [
        record(method, i, **{STAGE: v, "import": v / 2, "first_update": v / 2, "second_update": 1})
        for i, v in enumerate(values)
    ]


def test_a_row_is_medians_a_ratio_and_the_worst_facts() -> None:
    arm = Arm(
        facts(bytes_imported=99),  # of the warm-up
        facts(bytes_imported=5, kept_by_first_update=4),
        facts(bytes_imported=5, kept_by_first_update=3),
        facts(bytes_imported=7, kept_by_first_update=4),
    )
    found = row(planted(stages("slice", 30, 20, 90)), "slice", arm)
    assert (found["status"], found["reason"]) == ("measured", "")
    assert found["medians_ns"] == {STAGE: 30 * MS, "import": 15 * MS, "first_update": 15 * MS, "second_update": MS}
    assert found["ratio_to_memcpy"] == 3.0
    assert found["samples_ns"][STAGE] == [30 * MS, 20 * MS, 90 * MS]
    assert (found["facts"]["bytes_imported"], found["facts"]["kept_by_first_update"]) == (7, 3)
    assert len(found["facts_per_sample"]) == 3


def test_a_method_without_figures_says_why() -> None:
    refused = row(planted([], adopted="rejected in warm-up: no"), "adopted", Arm())
    assert (refused["status"], refused["reason"]) == ("refused", "rejected in warm-up: no")
    bad = [*stages("slice", 1, 2), record("slice", 2, "layer 1: rows [0] of K are not those that were written")]
    invalid = row(planted(bad), "slice", Arm(facts(), facts(), facts()))
    assert invalid["status"] == "invalid"
    assert "rows [0] of K" in invalid["reason"]
    large = row(planted([]), "views", need=6 * GIB, bound=4 * GIB)
    assert (large["status"], large["reason"]) == ("not run", "needs 6.00 GiB, the bound is 4.00 GiB")
    assert row(planted([]), "slice")["reason"] == "interrupted"
    for found in (refused, invalid, large):
        assert found["medians_ns"] == {}
        assert found["ratio_to_memcpy"] is None


def two_lengths(short: float, long: float, imported: float = 1.0) -> dict[int, dict[str, list[int]]]:
    return {
        512: {STAGE: [int(short * MS)] * 3, "import": [MS] * 3},
        32768: {STAGE: [int(long * MS)] * 3, "import": [int(imported * MS)] * 3},
    }


def test_the_budget_is_answered_by_medians() -> None:
    assert rows.budget_of(two_lengths(2, 3))["met"] is True
    assert rows.budget_of(two_lengths(2, 3.1))["met"] is False
    assert rows.budget_of(two_lengths(2, 2, imported=1.6))["met"] is False
    assert rows.budget_of({512: two_lengths(2, 3)[512], 32768: {}})["met"] is None
    # A copy that is put off until the first update counts, too.
    answer = rows.budget_of(two_lengths(2, 40))
    assert (answer["met"], answer["import_ratio"], answer["stage_ratio"]) == (False, 1.0, 20.0)
    assert table.budget_sentence(answer).endswith("no (import 1.00, with the first update 20.00).")
    assert ": yes (" in table.budget_sentence(rows.budget_of(two_lengths(2, 2)))
    assert "not measured" in table.budget_sentence(rows.budget_of({}))


def document(found: list[Any], shape: str = "0.6b") -> dict[str, Any]:
    return {
        **run.payload_document(PRESETS[shape], [PRESETS[shape].rows or 512]),
        "measurement": {
            "rows": found,
            "producer": "planted",
            "device": "cpu",
            "versions": {"mlx": "1", "mlx_lm": "2"},
            "protocol": {
                "rounds": 3, "interrupted": True, "memory_bound_byte_count": GIB, "memory_bound_reason": "asked for",
            },
            "host": {"readings": [{"load_1m": 0.5}, {"load_1m": 3.25}], "reasons": ["the neighbours are loud"]},
            "budget": rows.budget_of({}),
        },
    }  # fmt: skip


@pytest.fixture
def planted_document() -> dict[str, Any]:
    copied = facts(bytes_imported=3 << 20, bytes_first_update=1 << 19, kept_by_first_update=2)
    return document(
        [
            row(planted([record("memcpy", 0, **{STAGE: 10})]), "memcpy"),
            row(planted(stages("slice", 30, 20, 90)), "slice", Arm(*[copied] * 3)),
            row(planted([], adopted="refused | so"), "adopted", Arm()),
        ]
    )


def test_tables(planted_document: dict[str, Any]) -> None:
    ((title, cells),) = table.tables(planted_document)
    assert title == "512 live rows, 56.0 MiB"
    assert {len(line) for line in cells} == {len(table.HEAD)}
    assert cells[0] == ("memcpy", "10", "", "", "", "", "", "", "")
    assert cells[1] == ("slice", "15", "15", "1.00", "", "3.5", "3.00", "0/4", "2/4")
    assert cells[2] == ("adopted", *[""] * 8)
    lines = table.markdown(planted_document).splitlines()
    assert len(lines) == 2 + 3
    assert lines[3].startswith("| 512 | 56 | slice | 15 | 15 |")
    assert {line.count("|") for line in lines} == {len(table.HEAD) + 3}
    assert table.missing(planted_document) == ["adopted at 512 rows: refused: refused | so"]
    assert "slice: words of slice" in table.methods(planted_document)
    said = "\n".join(table.sentences(planted_document))
    for word in ("1.00 GiB (asked for)", "Load average 0.5 to 3.2", "neighbours are loud", "Interrupted", "mlx-lm 2"):
        assert word in said


def test_the_payload_in_words() -> None:
    said = table.payload_sentences(run.payload_document(PRESETS["16-layer-v8"], [512]))
    assert said[0].endswith("49280 bytes (48.125 KiB) per position")
    assert said[1] == "512 rows: 24.06 MiB; 768 rows allocated: 36.09 MiB"


def test_the_picture_is_of_shapes_that_grow(planted_document: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra bench)")
    path = tmp_path / "handoff.png"
    assert picture.draw([planted_document], path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert not picture.draw([document([], "turbo")], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_what_needs_memory() -> None:
    payload = PRESETS["0.6b"]
    set_bytes = 1280 * payload.bytes_per_position
    buffers = 2 * 1024 * payload.bytes_per_position
    for method, beside, sets in (("owned", False, 1), ("owned", True, 2), ("slice", True, 2), ("views", True, 3)):
        assert bench.needed_byte_count(payload, 1280, 1024, method, beside) == sets * set_bytes + buffers
    assert bench.needed_byte_count(payload, 33024, 32768, "owned", False) < 33024 * payload.bytes_per_position + GIB


@pytest.mark.parametrize(
    ("shape", "lengths", "words"),
    [
        ("turbo", [1499], "1500 live rows"),
        ("0.6b", [], "no live length"),
        ("0.6b", [0], "got 0"),
    ],
)
def test_lengths_that_do_not_fit(shape: str, lengths: list[int], words: str) -> None:
    with pytest.raises(kvb.ContractError, match=words):
        run.payload_document(PRESETS[shape], lengths)


def test_options() -> None:
    assert bench.Options().methods == METHODS
    with pytest.raises(ValueError, match="got magic"):
        bench.Options(methods=("magic",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        bench.Options(rounds=0)
    assert run.bound_of(bench.Options(memory_byte_count=7)) == (7, "asked for")
    bound, why = run.bound_of(bench.Options())
    assert bound > 0
    assert "available" in why


def test_memcpy_copies_everything() -> None:
    arm = MemcpyArm(3 * 1000, SystemClock())
    arm._from, arm._to = arm._from[:1000], arm._to[:1000]  # a payload larger than its buffers
    sample = arm.run_once()
    assert sample.intervals[STAGE] >= 0
    assert (arm._to == 1).all()
