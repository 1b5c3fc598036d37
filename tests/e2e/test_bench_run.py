"""The bench over real sessions of whatever runtime this is: what is measured, what is refused, what is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from quiet import QuietProbe

import kvbacking as kvb
from kvbacking import _native, samples
from kvbacking.measure.sample import END_TO_END, STAGE

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "report.schema.json").read_text())
ARMS = ["framework", "framework again", "raw", "surface"]


def run(model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract, **options: Any) -> kvb.Report:
    options = {"rounds": 25, "warmup": 2, "probe": QuietProbe(), "placement": False, **options}
    return kvb.bench(model, small.inputs(seed=1), contract, **options)


@pytest.fixture(scope="module")
def report(model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract) -> kvb.Report:
    return run(model, small, contract, placement=True)


def test_every_arm_runs_once_in_every_round_with_evidence(report: kvb.Report) -> None:
    document = report.document
    jsonschema.validate(json.loads(json.dumps(document)), SCHEMA)
    assert [arm["name"] for arm in document["arms"]] == ARMS
    for arm in document["arms"]:
        assert (arm["status"], arm["samples"], arm["invalid"]) == ("valid", 25, 0), arm
        assert set(arm["intervals"]) == {"prediction", "verification", "copy", "release", "stage"}
        assert arm["intervals"]["stage"]["p50_ns"] > arm["intervals"]["prediction"]["p50_ns"]
        assert arm["counters"]["predictions"] == 25 + 2
        assert arm["counters"]["failed"] == 0
    by_name = {arm["name"]: arm for arm in document["arms"]}
    assert by_name["framework"]["counters"]["bytes_copied"] > 0
    # A persistent session's sets are made in its first stage, and nothing of their size after it.
    assert by_name["raw"]["counters"]["allocations_in_timed_parts"] >= 4
    assert by_name["raw"]["counters"]["surfaces_made_in_timed_parts"] == 0
    assert by_name["surface"]["counters"]["surfaces_made_in_timed_parts"] >= 2 * 27, "reuse mode new"
    for name in ("raw", "surface"):
        assert by_name[name]["counters"]["bytes_copied"] == 0
        assert by_name[name]["counters"]["accepted"] == 2 * 27
        assert [e["accepted"] for e in by_name[name]["evidence"]] == [True, True]
    assert by_name["framework"]["evidence"][0]["digest"] == by_name["raw"]["evidence"][0]["digest"]
    for round_ in range(25):
        assert sorted(r.arm for r in report.records if r.round == round_) == sorted(ARMS)


def test_what_was_measured_is_named(report: kvb.Report, model: kvb.Model, contract: kvb.KVContract) -> None:
    document = report.document
    assert document["simulated"] == (kvb.runtime_info().kind == "simulator")
    assert document["model"]["fingerprint"] == model.fingerprint
    assert document["contract"] == contract.to_dict()
    assert document["protocol"]["verify"] == "scan"
    assert set(report.decisions) == {"raw", "surface"}
    assert "unscored" not in report.decisions.values(), document["objections"]
    assert document["end_to_end"] is None
    assert not report.promotable("raw")
    assert set(document["placement"]["arms"]) == {"framework", "raw", "surface"}
    assert len(document["placement"]["controls"]) == 3
    memory = document["arms"][0]["memory"]
    assert memory["footprint_byte_count"]["highest"] > 1 << 20
    assert memory["live_allocation_count"]["readings"] == 3
    assert document["harness"]["overhead_ns_per_round_p50"] > 0


def test_nothing_personal_is_in_a_report(report: kvb.Report, tmp_path: Path) -> None:
    for path in report.write(tmp_path / "out").values():
        text = path.read_text()
        assert str(Path.home()) + "/" not in text
        assert "/tmp/" not in text


def test_persistent_buffers_are_reused_and_fresh_ones_are_not(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract, report: kvb.Report
) -> None:
    fresh = run(model, small, contract, fresh=True)
    assert fresh.document["protocol"]["buffers"] == "fresh"
    made = {arm["name"]: arm["counters"]["sets_created"] for arm in fresh.document["arms"]}
    kept = {arm["name"]: arm["counters"]["sets_created"] for arm in report.document["arms"]}
    assert kept["raw"] == 2
    assert made["raw"] == 2 * 27, "a session of two sets inside every stage"
    counters = {arm["name"]: arm["counters"] for arm in fresh.document["arms"]}
    assert counters["raw"]["allocations_in_timed_parts"] >= 4 * 27
    with pytest.raises(kvb.ComparisonRefusedError, match="buffers: 'persistent' and 'fresh'"):
        kvb.compare(report, fresh)


def test_arms_that_do_not_use_a_backing_are_rejected_and_never_credited(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVBACKING_DISABLE_BACKINGS", "1")
    report = run(model, small, contract)
    assert report.decisions == {"raw": "unscored", "surface": "unscored"}
    for arm in report.document["arms"][2:]:
        assert (arm["status"], arm["samples"], arm["intervals"]) == ("rejected", 0, {})
        assert "not 'backing'" in arm["reasons"][0]
        assert arm["evidence"] == []


def test_an_arm_that_is_refused_is_a_finding_and_not_the_end(package: Any) -> None:
    """Floats of 32 bits cannot live in these surfaces; raw memory can hold them."""
    info = package("fp32io", layers=2, width=96, rows=30, capacity=36)
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    report = run(model, info, contract)
    surface = report.document["arms"][3]
    assert surface["status"] == "rejected"
    assert "ContractError" in surface["reasons"][0]
    assert report.document["arms"][2]["status"] == "valid"
    assert report.decisions["surface"] == "unscored"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"verify": "off"}, ValueError, "'layout' or 'scan'"),
        ({"verify": "full"}, ValueError, "'layout' or 'scan'"),
        ({"rounds": 0}, ValueError, "rounds must be at least 1"),
        ({"rounds": True}, TypeError, "rounds must be an integer"),
        ({"warmup": 0}, ValueError, "warmup must be at least 1"),
    ],
)
def test_options_that_would_make_it_dishonest_are_refused(
    model: kvb.Model,
    small: samples.SampleInfo,
    contract: kvb.KVContract,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        run(model, small, contract, **options)


class Summing:
    """An end-to-end task whose result is a number, with a gate that can be told to fail for one kind of path."""

    def __init__(self, inputs: Mapping[str, np.ndarray], *, fail_on: str | None = None, predictions: int = 1) -> None:
        self.inputs, self.fail_on, self.predictions = inputs, fail_on, predictions

    def run(self, predict: Any) -> object:
        for _ in range(self.predictions):
            prediction = predict(self.inputs)
        return prediction.path, float(prediction["cross_k"].astype(np.float32).sum())

    def gates(self, control: Any, candidate: Any) -> dict[str, bool]:
        return {"same sum": control[1] == candidate[1], "allowed path": candidate[0] != self.fail_on}


def test_an_end_to_end_task_is_timed_around_its_stage_and_judged(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    report = run(model, small, contract, end_to_end=Summing(small.inputs(seed=1)))
    jsonschema.validate(json.loads(json.dumps(report.document)), SCHEMA)
    for record in report.records:
        assert record.valid, record
        assert record.intervals[END_TO_END] > record.intervals[STAGE]
    gates = report.document["end_to_end"]["gates"]
    assert gates == {name: {"same sum": True, "allowed path": True} for name in ARMS}
    assert {(d["arm"], d["interval"]) for d in report.document["decisions"]} == {
        (arm, interval) for arm in ("raw", "surface") for interval in (STAGE, END_TO_END)
    }


def test_a_failed_quality_gate_rejects_the_arm(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    report = run(model, small, contract, end_to_end=Summing(small.inputs(seed=1), fail_on="backing"))
    assert set(report.decisions.values()) == {"unscored"}
    assert "quality gate not passed: allowed path" in report.document["arms"][2]["reasons"][0]
    assert report.document["end_to_end"]["gates"]["raw"]["allowed path"] is False
    assert not report.promotable("raw")


def test_a_task_of_two_predictions_is_no_round(
    model: kvb.Model, small: samples.SampleInfo, contract: kvb.KVContract
) -> None:
    report = run(model, small, contract, end_to_end=Summing(small.inputs(seed=1), predictions=2))
    assert report.document["protocol"]["rounds_done"] == 0
    assert "made 2 predictions" in report.document["arms"][0]["reasons"][0]


@pytest.mark.parametrize(
    ("mechanism", "verify", "expected"),
    [
        ("framework", "scan", ["prepare", "predict", "verify", "copy", "copy", "verify"]),
        ("framework", "layout", ["prepare", "predict", "verify", "copy", "copy"]),
        ("raw", "scan", ["prepare", "predict", "verify", "verify"]),
        ("surface", "layout", ["prepare", "predict", "verify"]),
    ],
)
def test_the_stages_of_a_prediction_are_marked_in_order(
    model: kvb.Model,
    small: samples.SampleInfo,
    contract: kvb.KVContract,
    mechanism: Any,
    verify: Any,
    expected: list[str],
) -> None:
    with kvb.Session(model, contract, mechanism=mechanism, verify=verify) as session:
        _native.take_signposts()
        session.predict(small.inputs(seed=1)).release()
        assert _native.take_signposts() == [], "nothing is recorded before it is asked for"
        _native.record_signposts(True)
        try:
            prediction = session.predict(small.inputs(seed=1))
        finally:
            _native.record_signposts(False)
    marks = _native.take_signposts()
    assert [mark.stage for mark in marks if mark.begins] == expected
    for begin, end in zip(marks[::2], marks[1::2], strict=True):
        assert (begin.begins, end.begins) == (True, False)
        assert (begin.stage, begin.interval) == (end.stage, end.interval)
        assert begin.at_ns <= end.at_ns
    predict = [mark.at_ns for mark in marks if mark.stage == "predict"]
    assert prediction.predict_ns <= predict[1] - predict[0], "the mark encloses what is timed"


def _cli(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvbacking", *arguments], capture_output=True, text=True, timeout=240, **options
    )


def test_the_command_writes_a_report_and_prints_one_document(small: samples.SampleInfo, tmp_path: Path) -> None:
    arguments = ("bench", str(small.path), "--live", "30", "--axis", "1", "--rounds", "20", "--no-placement")
    result = _cli(*arguments, "--out", str(tmp_path / "a"), "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "a" / "report.json").read_text())
    assert (tmp_path / "a" / "report.html").read_text().startswith("<!doctype html>")
    human = _cli("compare", str(tmp_path / "a"), str(tmp_path / "a"))
    assert human.returncode == 0
    assert "raw stage" in human.stdout
    other = json.loads((tmp_path / "a" / "report.json").read_text())
    other["model"]["compute_units"] = "cpu_only"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "report.json").write_text(json.dumps(other))
    refused = _cli("compare", str(tmp_path / "a"), str(tmp_path / "other"))
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "compute units: 'all' and 'cpu_only'" in refused.stderr


def test_ctrl_c_ends_the_run_and_writes_what_was_measured(small: samples.SampleInfo, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "kvbacking", "bench", str(small.path), "--live", "30", "--axis", "1"]
    process = subprocess.Popen(
        [*command, "--rounds", "1000000", "--no-placement", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    try:
        deadline = time.monotonic() + 120
        # The CPU time of the child tells that it is past its imports; there is nothing on disk before the end.
        while time.monotonic() < deadline and _cpu_seconds(process.pid) < 3.0:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    document = json.loads((out / "report.json").read_text())
    jsonschema.validate(document, SCHEMA)
    assert document["protocol"]["interrupted"] is True
    done = document["protocol"]["rounds_done"]
    assert done > 0
    assert "stopped by hand" in " ".join(document["objections"])
    assert {d["decision"] for d in document["decisions"]} == {"unscored"}
    lines = (out / "samples.jsonl").read_text().splitlines()
    assert 4 * done <= len(lines) <= 4 * done + 4


def _cpu_seconds(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():  # a bare Debian has no ps
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    result = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=False)
    parts = result.stdout.strip().replace("-", ":").split(":")
    return sum(float(part) * 60**index for index, part in enumerate(reversed(parts))) if parts != [""] else 0.0
