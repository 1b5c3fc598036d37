"""The command line: documents, exit codes, one line per error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvbacking", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def document(*arguments: Any, code: int = 0) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.returncode == code, result.stderr
    return dict(json.loads(result.stdout))


def assert_one_line(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("kvbacking: ")
    for word in words:
        assert word in result.stderr


def test_inspect(small: samples.SampleInfo, model: kvb.Model) -> None:
    found = document("inspect", small.path)
    assert found["fingerprint"] == model.fingerprint
    assert [spec["name"] for spec in found["outputs"]] == ["cross_k", "cross_v"]
    assert found["inputs"][0]["shape"] == [1, 30, 96]
    assert found["family"] is None
    assert found["program"]["operations"]["linear"] == 4
    assert found["program"]["weight_byte_count"] > 0
    assert isinstance(found["warnings"], list)
    text = run("inspect", small.path).stdout
    for word in ("cross_k", "features", "float16", model.fingerprint[:20]):
        assert word in text
    assert "\x1b[" not in text


def test_doctor() -> None:
    found = document("doctor")
    assert found["runtime"]["kind"] == kvb.runtime_info().kind
    assert any("nothing public tells" in line for line in found["cannot_prove"])
    if found["runtime"]["kind"] == "simulator":
        assert any("Apple hardware" in line for line in found["cannot_prove"])
        assert run("doctor").stdout.splitlines()[0].startswith("Runtime: simulator")


def test_prove_says_yes_with_0(small: samples.SampleInfo, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    arguments = ("prove", small.path, "--live", 30, "--mechanism", "raw", "--repeats", 4)
    result = run(*arguments, "--certificate", path, "--json")
    verdict = json.loads(result.stdout)
    assert result.returncode == (0 if verdict["outcome"] == "proven" else 1)
    if kvb.runtime_info().kind == "simulator":
        assert verdict["outcome"] == "proven", verdict
    if verdict["outcome"] == "proven":
        assert kvb.Certificate.load(path).mechanism == "raw"
        assert verdict["contract"]["live"] == 30


def test_prove_says_no_with_1_and_why(package: Any, tmp_path: Path) -> None:
    info = package("badtail", layers=2, width=96, rows=30, capacity=36)
    path = tmp_path / "c.json"
    result = run("prove", info.path, "--live", 30, "--mechanism", "raw", "--certificate", path)
    assert result.returncode == 1
    assert not path.exists()
    text = " ".join(result.stdout.split())
    for word in ("cross_v", "tail_zero", str(30 * 96), "reject-correctness", "Rejected"):
        assert word in text
    verdict = document("prove", info.path, "--live", 30, "--mechanism", "raw", code=1)
    assert verdict["mechanisms"][0]["failures"][0]["output"] == "cross_v"


def test_inputs_from_a_file(small: samples.SampleInfo, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez(good, **small.inputs())
    np.savez(bad, features=np.zeros((1, 2, 3), np.float16))
    code = run("prove", small.path, "--live", 30, "--mechanism", "raw", "--inputs", good, "--repeats", 4).returncode
    assert code in ((0,) if kvb.runtime_info().kind == "simulator" else (0, 1))
    assert_one_line(run("prove", small.path, "--live", 30, "--inputs", bad), 3, "features", "shape")


def test_sample_writes_a_package_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "made.mlpackage"
    options = [f"-o{name}={value}" for name, value in {"layers": 1, "width": 32, "rows": 6, "capacity": 8}.items()]
    found = document("sample", "distil", path, "--seed", 3, *options)
    assert found["kind"] == "distil"
    assert kvb.Model.load(path).outputs["cross_k"].shape == (1, 8, 32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("Missing command",)),
        (("nonsense",), ("nonsense",)),
        (("inspect",), ("MODEL",)),
        (("prove", "x.mlpackage", "--mechanism", "magic"), ("magic",)),
        (("prove", "x.mlpackage", "--repeats", "2"), ("repeats",)),
        (("prove", "x.mlpackage", "--tail", "some"), ("tail",)),
        (("sample", "unknown", "x.mlpackage"), ("unknown", "turbo")),
        (("sample", "turbo", "x.mlpackage", "-o", "layers"), ("NAME=VALUE",)),
        (("sample", "turbo", "x.mlpackage", "-o", "lawyers=2"), ("lawyers",)),
        (("sample", "turbo", "x.txt"), ("mlpackage",)),
    ],
)
def test_usage_errors_are_2(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert_one_line(run(*arguments), 2, *words)


def test_model_and_contract_errors_are_3(small: samples.SampleInfo) -> None:
    assert_one_line(run("inspect", "missing.mlpackage"), 3, "missing.mlpackage")
    assert_one_line(run("inspect", "missing.mlpackage", "--json"), 3, "missing.mlpackage")
    assert_one_line(run("prove", small.path, "--outputs", "cross_q"), 3, "cross_q")
    assert_one_line(run("prove", small.path, "--live", 99), 3, "live")


def test_a_family_that_does_not_fit_is_rejected(small: samples.SampleInfo) -> None:
    verdict = document("prove", small.path, "--family", "turbo", "--mechanism", "raw", code=1)
    assert verdict["mechanisms"][0]["answers"]["admissible"]["value"] == "no"


def test_arguments_that_mean_nothing_never_read_as_a_verdict(small: samples.SampleInfo, tmp_path: Path) -> None:
    for timeout in ("inf", "nan", "1e300", "0"):
        assert_one_line(run("prove", small.path, "--timeout", timeout), 2, "--timeout")
    for option in ("seed=1", "kind=1", "path=x", "layers=abc", "layers=null"):
        assert_one_line(run("sample", "turbo", tmp_path / "x.mlpackage", "-o", option), 2)
    assert_one_line(run("prove", small.path, "--axis", 99, "--mechanism", "raw"), 3, "axis 99")


def test_inputs_that_are_no_archive_are_3(small: samples.SampleInfo, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "whole.npz", features=np.zeros(300))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "empty.npz").touch()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "changed.npz").write_bytes(whole[:400] + bytes([whole[400] ^ 255]) + whole[401:])
    for name in ("array.npy", "empty.npz", "cut.npz", "changed.npz"):
        file = tmp_path / name
        assert_one_line(run("prove", small.path, "--live", 30, "--inputs", file), 3, "--inputs", name)


def test_debug_shows_the_traceback() -> None:
    result = run("--debug", "inspect", "missing.mlpackage")
    assert result.returncode == 3
    assert "Traceback" in result.stderr
    assert "Traceback" not in run("inspect", "missing.mlpackage").stderr


def test_version() -> None:
    assert kvb.__version__ in run("--version").stdout
