"""The report: schema, round trip, promotion, comparison, and what it must never contain."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from planted import TellingProbe, arms, report

from kvbacking.measure.compare import ComparisonRefusedError, compare
from kvbacking.measure.host import HostGate, HostState
from kvbacking.measure.report import Report

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "report.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
SAMPLE = jsonschema.Draft202012Validator({**SCHEMA["$defs"]["sample"], "$defs": SCHEMA["$defs"]})


@pytest.fixture(scope="module")
def saving() -> Report:
    return report(arms(0, raw=0.93))


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_kind_of_report_validates(saving: Report) -> None:
    ignored = arms(0)
    ignored[2].ignored_every = 10
    rejected = arms(0)
    rejected[3].path = "copy"
    dead = arms(0)
    dead[0].verified = False
    reports = [
        saving,
        report(ignored),
        report(rejected),
        report(dead),
        report(arms(0), gate=HostGate(TellingProbe([HostState(thermal="critical", on_battery=True)]))),
        report(arms(0), gates={"raw": {"same text": True}}),
    ]
    for made in reports:
        VALIDATOR.validate(json.loads(json.dumps(made.document)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("limits"),
        lambda d: d.update(simulated="yes"),
        lambda d: d["decisions"][0].update(decision="faster"),
        lambda d: d["model"].update(name="/home/someone/model.mlpackage"),
        lambda d: d["arms"][2].update(status="rejected"),  # a rejected arm with timings
        lambda d: d["arms"][2].update(invalid=1),  # a valid arm with an invalid sample
        lambda d: d.update(extra=1),
    ],
)
def test_the_schema_refuses_what_is_wrong(saving: Report, damage: Any) -> None:
    document = copy.deepcopy(json.loads(json.dumps(saving.document)))
    damage(document)
    assert not VALIDATOR.is_valid(document)


def test_what_is_written_can_be_read_again(saving: Report, tmp_path: Path) -> None:
    paths = saving.write(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.html", "report.json", "samples.jsonl"]
    lines = [json.loads(line) for line in paths["samples.jsonl"].read_text().splitlines()]
    assert len(lines) == 4 * 120
    for line in lines:
        SAMPLE.validate(line)
    again = Report.load(tmp_path / "out")
    assert again.document == json.loads(json.dumps(saving.document))
    assert again.records == saving.records
    assert again.decisions == {"raw": "saving shown", "surface": "no saving shown"}


def test_another_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"schema": "something/9"}')
    with pytest.raises(ValueError, match=r"report\.json is not a kvbacking\.report/1 document"):
        Report.load(tmp_path)


def test_raw_samples_of_rejected_arms_are_kept_and_say_why(tmp_path: Path) -> None:
    planted = arms(0, raw=0.5)
    planted[2].ignored_every = 40
    made = report(planted)
    invalid = [record for record in made.records if not record.valid]
    assert {record.arm for record in invalid} == {"raw"}
    assert all("ignored" in str(record.problem) and record.intervals["stage"] > 0 for record in invalid)


def test_a_stage_saving_alone_promotes_nothing(saving: Report) -> None:
    assert saving.decisions["raw"] == "saving shown"
    assert saving.document["end_to_end"] is None
    assert not saving.promotable("raw")


def test_promotion_needs_an_end_to_end_saving_and_every_gate(saving: Report) -> None:
    def with_end(word: str, gates: dict[str, dict[str, bool]]) -> Report:
        document = copy.deepcopy(dict(saving.document))
        document["decisions"].append({"arm": "raw", "interval": "end_to_end", "decision": word})
        document["end_to_end"] = {"gates": gates}
        return Report(document, ())

    assert with_end("saving shown", {"raw": {"same text": True}}).promotable("raw")
    assert not with_end("saving shown", {"raw": {"same text": True}}).promotable("surface")
    assert not with_end("saving shown", {"raw": {"same text": True, "same words": False}}).promotable("raw")
    assert not with_end("saving shown", {}).promotable("raw")
    assert not with_end("saving shown", {"raw": {}}).promotable("raw")
    assert not with_end("no saving shown", {"raw": {"same text": True}}).promotable("raw")


def test_a_simulated_report_says_so_everywhere(saving: Report, tmp_path: Path) -> None:
    assert saving.simulated
    assert "say nothing about Apple hardware" in saving.document["limits"][0]
    page = saving.write(tmp_path)["report.html"].read_text()
    assert "<strong>Simulated.</strong>" in page
    real = report(arms(0), runtime={"kind": "coreml", "os": "macOS"})
    assert not real.simulated
    assert "imulated" not in real.write(tmp_path / "real")["report.html"].read_text()


def test_the_page_needs_nothing_from_outside_and_runs_nothing(saving: Report, tmp_path: Path) -> None:
    page = saving.write(tmp_path)["report.html"].read_text()
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "https://" not in page
    assert "@import" not in page


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    nasty = "<img src=x onerror=alert(1)>.mlpackage"
    made = report(
        arms(0), model={"name": nasty, "fingerprint": "sha256:" + "0" * 64, "function": nasty, "compute_units": "all"}
    )
    page = made.write(tmp_path)["report.html"].read_text()
    assert "<img" not in page
    assert "&lt;img" in page


def test_reports_of_the_same_thing_compare(saving: Report) -> None:
    other = report(arms(9), seed=9, runtime={**saving.document["runtime"], "os_build": "6.2"})
    result = compare(saving, other)
    assert result.environment == {"runtime.os_build": ("6.1", "6.2")}
    rows = {(row.arm, row.interval): row for row in result.arms}
    raw, surface = rows["raw", "stage"], rows["surface", "stage"]
    assert (raw.first_decision, raw.second_decision, raw.agree) == ("saving shown", "no saving shown", False)
    assert raw.intervals_overlap is False
    assert (surface.agree, surface.intervals_overlap) == (True, True)
    json.dumps(result.document())


@pytest.mark.parametrize(
    ("subject", "named"),
    [
        ({"runtime": {"kind": "coreml"}}, "runtime kind: 'simulator' and 'coreml'"),
        (
            {"model": {"name": "a", "fingerprint": "sha256:" + "1" * 64, "function": None, "compute_units": "all"}},
            "model: 'sha256:5e",
        ),
        (
            {"model": {"name": "a", "fingerprint": "sha256:" + "5e" * 32, "function": None, "compute_units": "cpu"}},
            "compute units: 'all' and 'cpu'",
        ),
        ({"verify": "layout"}, "verification level: 'scan' and 'layout'"),
        ({"fresh": True}, "buffers: 'persistent' and 'fresh'"),
        ({"inputs": {"digest": "other"}}, "inputs"),
    ],
)
def test_different_things_are_not_compared(saving: Report, subject: dict[str, Any], named: str) -> None:
    with pytest.raises(ComparisonRefusedError) as caught:
        compare(saving, report(arms(0), rounds=20, **subject))
    assert named in str(caught.value)
    assert len(caught.value.differences) == 1
