"""The proof kit: its dry run here, its answers from evidence, and that nothing personal leaves the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from macproof.answers import answer_all  # noqa: E402
from macproof.privacy import Scrubber  # noqa: E402
from macproof.steps import Runner, Step  # noqa: E402


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a dry run leaves. Its contract suite is one short file: the whole suite runs beside this test anyway."""
    out = tmp_path_factory.mktemp("dry") / "evidence"
    arguments = ["--dry-run", "--skip-setup", "--contract-tests", "tests/contract/test_refusals.py", "--out", str(out)]
    environment = {**os.environ, "KVB_PYTHON": sys.executable}
    result = subprocess.run(
        [ROOT / "scripts/mac-proof", *arguments], env=environment, capture_output=True, text=True, timeout=1500
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return out


@pytest.mark.timeout(1600)
def test_the_dry_run_goes_through_every_step(evidence: Path) -> None:
    document = json.loads((evidence / "mac-proof.json").read_text())
    assert document["dry_run"] is True
    assert {step["status"] for step in document["steps"]} == {"answered"}
    names = [step["name"] for step in document["steps"]]
    for wanted in ("environment", "contract suite", "surface probe cpu_and_ne", "prove turbo cpu_only", "bench turbo"):
        assert wanted in names
    assert sum(name.startswith("experiment ") for name in names) == 6
    assert "Dry run on the simulator" in (evidence / "README.md").read_text()
    for step in document["steps"]:
        assert (evidence / step["log"]).exists()


def test_every_question_has_an_answer_and_a_section(evidence: Path) -> None:
    answers = {e["question"]: e["answer"] for e in json.loads((evidence / "mac-proof.json").read_text())["questions"]}
    guide = (ROOT / "docs/first-run-on-a-mac.md").read_text()
    for question, answer in answers.items():
        assert f"**{question}**" in guide, f"docs/first-run-on-a-mac.md does not say what {question} settles"
        if question != "mlx-surface" and not (
            question in ("mlx-handoff", "same-tokens") and find_spec("mlx_lm") is None
        ):
            assert answer != "open", question
    if find_spec("mlx_lm") is not None:
        assert "where they were written, 0 bytes copied" in answers["mlx-handoff"]["cpu owned 64"]
        assert answers["same-tokens"]["qwen3 24, fp32 package, fp32"].startswith("64 of 64 tokens equal")
    assert answers["runtime"]["kind"] == "simulator"
    assert answers["raw-accepted"] == {
        f"turbo-{units}": "proven" for units in ("all", "cpu_and_gpu", "cpu_and_ne", "cpu_only")
    }
    assert answers["locked-backing-error"]["all"].startswith("error: com.apple.CoreML")
    assert answers["input-lock"]["all"] in ("accepted", "ignored", "error")
    assert set(answers["hypotheses"]) == {
        "surface-vs-raw-staging", "persistent-pool", "autoreleasepool", "accelerate-postprocess", "placement-shift",
        "many-large-vs-one-small",
    }  # fmt: skip


def test_the_archive_holds_the_folder_and_no_owner(evidence: Path) -> None:
    with tarfile.open(evidence.with_name("evidence.tar.gz")) as archive:
        entries = archive.getmembers()
    assert {entry.name for entry in entries if entry.isfile()} == {
        f"evidence/{path.relative_to(evidence)}" for path in evidence.rglob("*") if path.is_file()
    }
    assert {(entry.uid, entry.uname) for entry in entries} == {(0, "")}


def test_no_path_of_this_machine_is_left(evidence: Path) -> None:
    for path in evidence.rglob("*"):
        if path.is_file():
            text = path.read_bytes().decode(errors="replace")
            assert str(ROOT) not in text, path.name
            assert str(Path.home()) + "/" not in text, path.name


def test_a_second_run_does_not_mix_with_the_first(evidence: Path) -> None:
    result = subprocess.run(
        [ROOT / "scripts/mac-proof", "--dry-run", "--skip-setup", "--out", str(evidence)],
        env={**os.environ, "KVB_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2
    assert "must not mix" in result.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="on a Mac it would start")
def test_without_dry_run_it_is_for_macs_only() -> None:
    result = subprocess.run([ROOT / "scripts/mac-proof"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2
    assert "not a Mac" in result.stderr


def test_personal_data_is_replaced_and_leftovers_are_found(tmp_path: Path) -> None:
    scrubber = Scrubber([("/Users/anna/kvb", "<repository>"), ("/Users/anna", "<home>")], ["anna", "annas-air"])
    text = 'at "/Users/anna/kvb/x.py", /Users/anna/Desktop, /Users/bob/y, host annas-air, banana, anna-lena'
    assert scrubber.scrub(text) == ('at "<repository>/x.py", <home>/Desktop, <home>/y, host <name>, banana, anna-lena')
    (tmp_path / "log.txt").write_text(text)
    (tmp_path / "binary").write_bytes(b"\xff\xfe/Users/anna/Music")
    (tmp_path / "serial.txt").write_text("Serial Number (system): C02XK1ABCD12")
    scrubber.scrub_folder(tmp_path)
    assert scrubber.leftovers(tmp_path) == [
        "binary: <home>",
        "binary: a home folder",
        "binary: an account or host name",
        "serial.txt: a serial number",
    ]


def test_a_step_that_breaks_down_is_recorded_and_the_next_one_runs(tmp_path: Path) -> None:
    runner = Runner(tmp_path, tmp_path)
    runner.run(Step(name="crash", command=(sys.executable, "-c", "import os; os.abort()")))
    runner.run(Step(name="rejected", command=(sys.executable, "-c", "raise SystemExit(1)"), answers=(0, 1)))
    runner.run(Step(name="unused", command=("false",), needs="missing.mlpackage"))
    runner.run(Step(name="fine", command=(sys.executable, "-c", "print('{}')"), keep="fine.json"))
    assert [step["status"] for step in runner.results] == ["broke down", "answered", "skipped", "answered"]
    assert (tmp_path / "fine.json").read_text() == "{}\n"


def _probe(folder: Path, units: str, **outcomes: tuple[str, str, int]) -> None:
    steps = [
        {"step": name.replace("_", " "), "outcome": outcome, "domain": domain, "code": code, "message": "said so",
         "bytes_per_row": 128}
        for name, (outcome, domain, code) in outcomes.items()
    ]  # fmt: skip
    document = {"output": {"name": "y", "shape": [1, 64, 64], "dtype": "float16"}, "steps": steps}
    (folder / f"surface-probe-{units}.json").write_text(json.dumps(document))


def test_answers_follow_the_evidence_and_stay_open_without(tmp_path: Path) -> None:
    answers: dict[str, Any] = {entry["question"]: entry["answer"] for entry in answer_all(tmp_path)}
    assert set(answers.values()) == {"open"}
    ok = ("accepted", "", 0)
    _probe(
        tmp_path,
        "all",
        fresh=ok,
        used_as_input=("error", "com.apple.CoreML", 7),
        locked=("error", "com.apple.CoreML", 9),
    )
    _probe(tmp_path, "cpu_only", fresh=("ignored", "", 0), used_as_input=ok, locked=ok)
    answers = {entry["question"]: entry["answer"] for entry in answer_all(tmp_path)}
    assert answers["input-lock"] == {"all": "error", "cpu_only": "open: a fresh surface is ignored here"}
    assert answers["locked-backing-error"] == {"all": "error: com.apple.CoreML 9: said so", "cpu_only": "accepted"}
    assert answers["row-bytes"]["all"] == "[128] for rows of 64 float16"
    assert answers["reuse-mode"] == "open"
