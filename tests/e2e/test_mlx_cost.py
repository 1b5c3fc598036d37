"""`kvbacking handoff` and benchmarks/handoff.py: real arrays of MLX, real sessions; documents, refusals, exit codes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from quiet import QuietProbe

from kvbacking import samples
from kvbacking.measure.handoff import holder
from kvbacking.measure.handoff.bench import Options
from kvbacking.measure.handoff.run import measure_shape
from kvbacking.payload import PRESETS, Payload

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "schema" / "handoff.schema.json").read_text())
TINY = Payload(name="tiny", layers=3, kv_heads=2, head_dim=64)
TINY_OPTIONS = ("--layers", 3, "--kv-heads", 2, "--head-dim", 64)
METHODS = ["memcpy", "slice", "views", "adopted", "copied", "owned", "owned-stacked"]
CAPACITY = 320  # whole pages for every layer, which adoption wants
CACHE_BYTES = 3 * 2 * CAPACITY * 64 * 2 * 2
WITHOUT_MLX = (
    "import sys\n"
    "for name in ('mlx', 'mlx.core', 'mlx_lm', 'mlx_lm.models.cache'): sys.modules[name] = None\n"
    "from kvbacking.cli import main\n"
    "main(sys.argv[1:])"
)


@pytest.fixture
def mlx() -> Any:
    pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)
    return pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)


def command(*arguments: Any, prefix: tuple[str, ...] = ("-m", "kvbacking")) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *prefix, "handoff", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def document(*arguments: Any) -> dict[str, Any]:
    result = command(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    found = dict(json.loads(result.stdout))
    jsonschema.validate(found, SCHEMA, format_checker=jsonschema.FormatChecker())
    return found


def by_method(found: dict[str, Any], live: int) -> dict[str, Any]:
    return {row["method"]: row for row in found["measurement"]["rows"] if row["live"] == live}


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_method_over_a_shape(mlx: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra bench)")
    found = document(
        *TINY_OPTIONS, "--capacity", CAPACITY, "--live", "40,64", "--rounds", 3, "--memory", 1, "--out", tmp_path
    )
    assert [(row["live"], row["method"]) for row in found["measurement"]["rows"]] == [
        (live, method) for live in (40, 64) for method in METHODS
    ]
    rows = by_method(found, 40)
    on_cpu = found["measurement"]["device"] == "cpu"
    for method in METHODS:
        if method == "adopted" and on_cpu:
            assert rows[method]["status"] == "refused"
            assert "without a copy" in rows[method]["reason"]
            continue
        assert rows[method]["status"] == "measured", rows[method]["reason"]
        assert len(rows[method]["samples_ns"]["stage"]) == 3
    live_bytes = 40 * TINY.bytes_per_position
    bytes_and_places = {
        method: (
            rows[method]["facts"]["bytes_imported"],
            rows[method]["facts"]["bytes_first_update"],
            rows[method]["facts"]["at_producer_after_first_update"],
            rows[method]["facts"]["kept_by_first_update"],
        )
        for method in ("slice", "views", "copied", "owned", "owned-stacked")
    }
    assert bytes_and_places == {
        "slice": (CACHE_BYTES, 0, 0, 6),
        "views": (CACHE_BYTES, CACHE_BYTES, 0, 0),
        "copied": (live_bytes, 0, 0, 6),
        "owned": (0, 0, 6, 6),
        "owned-stacked": (live_bytes, 0, 0, 6),
    }
    assert json.loads((tmp_path / "handoff.json").read_text()) == found
    assert (tmp_path / "handoff.png").read_bytes().startswith(b"\x89PNG")


def test_whisper_keeps_what_is_read_only(mlx: Any) -> None:
    found = document("--shape", "distil", "--rounds", 2)
    rows = by_method(found, 1500)
    assert found["measurement"]["budget"] is None
    for method in ("owned", "owned-stacked"):
        assert (rows[method]["facts"]["bytes_imported"], rows[method]["facts"]["kept_by_first_update"]) == (0, 4)
        assert rows[method]["facts"]["at_producer_after_first_update"] == 4
    assert rows["slice"]["facts"]["bytes_imported"] == 1500 * 10240
    assert rows["views"]["facts"]["bytes_imported"] == 1536 * 10240


def test_what_does_not_fit_is_not_run(mlx: Any) -> None:
    half_set = (512 + 256) * TINY.bytes_per_position / 2
    bound = int(2 * half_set + 2 * 512 * TINY.bytes_per_position)
    found = measure_shape(TINY, [512], Options(rounds=1, memory_byte_count=bound), probe=QuietProbe())
    jsonschema.validate(found, SCHEMA)
    rows = by_method(found, 512)
    assert {method for method, row in rows.items() if row["status"] == "measured"} == {"memcpy", "owned"}
    assert "the bound is" in rows["slice"]["reason"]
    assert found["measurement"]["protocol"]["memory_bound_byte_count"] == bound
    nothing = measure_shape(TINY, [512], Options(rounds=1, memory_byte_count=1), probe=QuietProbe())
    jsonschema.validate(nothing, SCHEMA)
    assert {row["status"] for row in nothing["measurement"]["rows"]} == {"not run"}


def test_the_budget_compares_its_two_lengths_in_the_same_rounds(mlx: Any) -> None:
    small = Payload(name="small", layers=2, kv_heads=1, head_dim=16)
    options = Options(rounds=2, methods=("owned",), memory_byte_count=1 << 30)
    budget = measure_shape(small, [512, 32768], options, probe=QuietProbe())["measurement"]["budget"]
    assert set(budget["samples_ns"]) == {"512", "32768"}
    assert all(len(samples["stage"]) == 2 for samples in budget["samples_ns"].values())
    assert budget["met"] == (max(budget["import_ratio"], budget["stage_ratio"]) <= 1.5)
    for lengths, methods in (([512], ("owned",)), ([512, 32768], ("slice",))):
        some = Options(rounds=1, methods=methods, memory_byte_count=1 << 30)  # type: ignore[arg-type]
        assert measure_shape(small, lengths, some, probe=QuietProbe())["measurement"]["budget"]["met"] is None


def test_the_pool_is_left_as_it_was(mlx: Any) -> None:
    before = mlx.set_cache_limit(1 << 20)
    measure_shape(TINY, [32], Options(rounds=1, memory_byte_count=1 << 30), probe=QuietProbe())
    assert mlx.set_cache_limit(before) == 1 << 20


def test_a_stand_in_for_adoption_is_named_and_judged(mlx: Any) -> None:
    options = Options(rounds=1, methods=("adopted",), memory_byte_count=1 << 30)

    def run(adopt: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        found = measure_shape(TINY, [48], options, adopt=adopt, adopt_label="a stand-in", probe=QuietProbe())
        return dict(by_method(found, 48)["adopted"])

    copying = run(lambda view: mlx.array(view))
    assert copying["status"] == "refused", "an adoption that copies is none"
    assert "path 'copy', not 'backing'" in copying["reason"]
    assert copying["words"].endswith("(a stand-in)")
    wrong = run(lambda view: mlx.zeros(view.shape, mlx.float16))
    assert "are not those that were written" in wrong["reason"]


def test_an_interrupted_run_keeps_what_it_has(mlx: Any) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    options = Options(rounds=5, methods=("slice",), memory_byte_count=1 << 30)
    found = measure_shape(TINY, [40, 64], options, probe=QuietProbe(), progress=stop)
    jsonschema.validate(found, SCHEMA)
    assert found["measurement"]["protocol"]["interrupted"]
    assert [(row["live"], row["method"]) for row in found["measurement"]["rows"]] == [(40, "memcpy"), (40, "slice")]
    assert len(by_method(found, 40)["slice"]["samples_ns"]["stage"]) == 2


def test_a_hand_off_that_loses_rows_is_no_figure(mlx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = holder.fill

    def swapped(cache: Any, keys: Any, values: Any, live: int) -> None:
        real(cache, values, keys, live)

    monkeypatch.setattr(holder, "fill", swapped)
    options = Options(rounds=1, methods=("slice", "owned"), memory_byte_count=1 << 30)
    rows = by_method(measure_shape(TINY, [48], options, probe=QuietProbe()), 48)
    for method in ("slice", "owned"):
        assert rows[method]["status"] == "refused"
        assert "K are not those that were written" in rows[method]["reason"]


@pytest.fixture(params=[False, True], ids=["stacked", "per layer"])
def prefill(request: pytest.FixtureRequest, package: Callable[..., samples.SampleInfo]) -> samples.SampleInfo:
    options = {"layers": 2, "heads": 2, "kv_heads": 2, "head_dim": 64, "hidden": 64, "vocab": 64, "tokens": 24}
    return package("prefill", per_layer=request.param, capacity=48, **options)


def test_a_model_through_its_sessions(mlx: Any, prefill: samples.SampleInfo) -> None:
    found = document(prefill.path, "--live", "20,40", "--rounds", 2)
    per_layer = prefill.options["per_layer"]
    assert found["payload"]["layers"] == 2
    assert found["lengths"][0]["capacity"] == 48
    assert found["measurement"]["producer"] == "predicted through a session"
    assert found["measurement"]["model"]["fingerprint"].startswith("sha256:")
    rows = by_method(found, 20)
    assert rows["copied"]["facts"]["bytes_imported"] == 20 * found["payload"]["bytes_per_position"]
    owned, other = ("owned", "owned-stacked") if per_layer else ("owned-stacked", "owned")
    assert rows[owned]["status"] == "measured", rows[owned]["reason"]
    assert rows[owned]["facts"]["bytes_imported"] == (0 if per_layer else 20 * 2 * 2 * 2 * 64 * 2)
    assert rows[other]["status"] == "refused"
    assert "this model has one output" in rows[other]["reason"]


def test_a_whisper_model(mlx: Any, small: samples.SampleInfo) -> None:
    found = document(small.path, "--outputs", "cross_k,cross_v", "--rounds", 1)
    rows = by_method(found, 36)
    assert found["payload"]["kind"] == "cross"
    assert rows["owned-stacked"]["facts"]["bytes_imported"] == 0
    assert rows["copied"]["facts"]["bytes_imported"] == 36 * found["payload"]["bytes_per_position"]


def test_the_text_says_the_same(mlx: Any) -> None:
    text = command(*TINY_OPTIONS, "--live", 40, "--rounds", 1, "--methods", "owned,slice").stdout
    for word in (
        "1536 bytes (1.5 KiB) per position",
        "owned",
        "slice",
        "6/6",
        "Load average",
        "at most 1.5: not measured",
    ):
        assert word in text
    assert "views" not in text
    assert "\x1b[" not in text


def test_sizes_alone_need_no_mlx(tmp_path: Path) -> None:
    arguments = ("--shape", "16-layer-v8", "--payload", "--live", 8192, "--fixed", "recurrent=48x48x128x128:float32")
    result = command(*arguments, "--json", "--out", tmp_path, prefix=("-c", WITHOUT_MLX))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["payload"]["bytes_per_position"] == 49280
    assert found["lengths"][0]["live_bytes"] == 8192 * 49280 + 48 * 48 * 128 * 128 * 4
    assert found["measurement"] is None
    assert json.loads((tmp_path / "handoff.json").read_text()) == found
    assert "48.125 KiB" in command(*arguments, prefix=("-c", WITHOUT_MLX)).stdout


def assert_one_line(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("kvbacking: ")
    for word in words:
        assert word in result.stderr


def test_without_mlx_there_is_no_measurement() -> None:
    result = command("--shape", "distil", "--json", prefix=("-c", WITHOUT_MLX))
    assert_one_line(result, 4, "mlx", "kvbacking[mlx]")


@pytest.mark.parametrize(
    ("code", "arguments", "words"),
    [
        (2, (), "one of MODEL, --shape"),
        (2, ("--shape", "0.6b", "--layers", 3), "one of MODEL, --shape"),
        (2, ("--shape", "7b"), "0.6b"),
        (2, ("--layers", 3), "--kv-heads, --head-dim"),
        (2, (*TINY_OPTIONS, "--scale-group", 8), "int8"),
        (2, (*TINY_OPTIONS, "--values", "int8", "--scale-group", 7), "does not divide"),
        (2, ("--shape", "0.6b", "--live", "many"), "--live"),
        (2, ("--shape", "0.6b", "--live", "4,4"), "different"),
        (2, ("--shape", "0.6b", "--methods", "magic"), "magic"),
        (2, ("--shape", "0.6b", "--rounds", 0), "rounds"),
        (2, ("--shape", "0.6b", "--fixed", "x=3"), "NAME=LAYERS"),
        (2, ("--shape", "0.6b", "--fixed", "x=3x4:float8"), "float8"),
        (2, ("missing.mlpackage", "--capacity", 3), "--capacity"),
        (3, ("missing.mlpackage",), "missing.mlpackage"),
        (3, ("--shape", "turbo", "--live", 10, "--payload"), "1500 live rows"),
        (3, ("--shape", "0.6b", "--capacity", 9, "--live", 10, "--payload"), "1 to 9"),
        (3, ("--shape", "16-layer-v8"), "int8"),
    ],
)
def test_errors(code: int, arguments: tuple[Any, ...], words: str) -> None:
    assert_one_line(command(*arguments), code, words)


def test_a_model_without_caches(small: samples.SampleInfo) -> None:
    assert_one_line(command(small.path), 3, "--outputs", "cross_k")


def test_the_benchmark(mlx: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra bench)")
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "handoff.py"), "--quick", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    for each in found:
        jsonschema.validate(each, SCHEMA)
    assert [each["payload"]["name"] for each in found] == ["0.6b", "16-layer", "turbo", "distil"]
    assert (tmp_path / "handoff.png").exists()
    assert result.stderr.count("| memcpy |") == 2 + 2 + 1 + 1


def test_presets_have_the_shapes_that_they_name() -> None:
    assert dataclasses.astuple(PRESETS["0.6b"])[1:4] == (28, 8, 128)
    assert PRESETS["turbo"].layers == 2 * PRESETS["distil"].layers == 4
