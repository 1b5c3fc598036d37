"""Every operation again with each set of kernels that the engine could choose on another processor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("coremltools")

from mil_cases import FAMILIES, OPSETS
from mil_engine import inputs_of, mismatches, write_program

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    for family, cases in FAMILIES.items():
        write_program(cases, folder / f"{family}.mlpackage", OPSETS.get(family, "iOS17"))
        np.savez(folder / f"{family}.inputs.npz", **inputs_of(cases))
    return folder


def run(packages: Path, kernels: str | None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "KVBACKING_SIMULATOR_KERNELS"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))
    if kernels:
        environment["KVBACKING_SIMULATOR_KERNELS"] = kernels
    command = [sys.executable, str(SUPPORT / "mil_in_child.py"), str(packages)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)


def results(packages: Path) -> dict[str, dict[str, np.ndarray]]:
    found = {}
    for family in FAMILIES:
        with np.load(packages / f"{family}.npz") as arrays:
            found[family] = {name: arrays[name] for name in arrays.files}
    return found


@pytest.fixture(scope="module")
def best(packages: Path) -> dict[str, dict[str, np.ndarray]]:
    done = run(packages, None)
    assert done.returncode == 0, done.stderr
    return results(packages)


@pytest.mark.parametrize("kernels", ["baseline", "avx2", "avx512"])
def test_operations(packages: Path, best: dict[str, dict[str, np.ndarray]], kernels: str) -> None:
    done = run(packages, kernels)
    if "cannot run" in done.stderr or "not one of" in done.stderr:
        pytest.skip(f"this processor has no {kernels}")
    assert done.returncode == 0, done.stderr
    found = results(packages)
    for family, cases in FAMILIES.items():
        assert mismatches(cases, found[family], OPSETS.get(family, "iOS17")) == [], family
    if kernels == "baseline" and " avx2 " in Path("/proc/cpuinfo").read_text():
        # Another order of the same sums: were every bit the same, the switch would not have done anything.
        with_sums = ("products", "conv", "normalize")
        same = [np.array_equal(v, best[f][name], equal_nan=True) for f in with_sums for name, v in found[f].items()]
        assert not all(same)


def test_an_unknown_set_is_refused_by_name(packages: Path) -> None:
    done = run(packages, "mmx")
    assert done.returncode != 0
    assert "KVBACKING_SIMULATOR_KERNELS is 'mmx', not one of " in done.stderr
