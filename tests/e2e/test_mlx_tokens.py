"""The agreement benchmark runs, on random decoders and on a model from a folder, and its lines say what they should."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvbacking as kvb
import kvbacking.mlx

mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
utils = pytest.importorskip("mlx.utils", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed (extra mlx)", exc_type=ImportError)
pytest.importorskip("coremltools", reason="coremltools is not installed (extra samples)", exc_type=ImportError)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tokens.py"


def lines(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", *arguments], capture_output=True, text=True, timeout=240, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_model_in_a_folder_is_compared_in_its_own_dtype(tmp_path: Path) -> None:
    model = kvb.mlx.random_decoder("qwen3", 2)
    model.set_dtype(mx.bfloat16)
    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(model.args)))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), dict(utils.tree_flatten(model.parameters())))
    rows = {row["prefill"]: row for row in lines("--model", str(tmp_path))}
    assert len(rows) == 5
    assert {(row["decoder"], row["live"], row["steps"]) for row in rows.values()} == {(tmp_path.name, 24, 64)}
    exact, mistake = rows["fp32 package, fp32"], rows["rows shifted by one"]
    # float32 rows are not what a bfloat16 decoder would have computed itself, but near it
    assert 0 < exact["max_logprob_difference"] < 1 < mistake["max_logprob_difference"]
    assert exact["equal"] > mistake["equal"]
    assert exact["samples"][0]["equal"] == exact["equal"]


def test_a_prompt_needs_a_model() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--prompt", "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--prompt goes with --model" in done.stderr
