"""The benchmark of the harness runs, and the overhead it reports lies outside the timed parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "harness.py"


def test_its_quick_form_runs_and_separates_inside_from_outside() -> None:
    result = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--json"], capture_output=True, text=True, timeout=120, check=True
    )
    document = json.loads(result.stdout)
    assert document["rounds"] == 50
    inside, outside = document["inside_a_timed_part_us"], document["per_round_us"]
    assert 0 <= inside["p50"] < outside["p50"], "collecting garbage and bookkeeping cost more than two clock readings"
