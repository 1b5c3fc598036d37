"""Every operation of the simulator's engine against an independent oracle: coremltools' value inference, or NumPy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("coremltools")

from mil_cases import FAMILIES, OPSETS
from mil_engine import mismatches, run_cases, write_program


@pytest.mark.parametrize("family", FAMILIES)
def test_operations_agree_with_the_oracle(family: str, tmp_path: Path) -> None:
    cases, opset = FAMILIES[family], OPSETS.get(family, "iOS17")
    path = tmp_path / f"{family}.mlpackage"
    write_program(cases, path, opset)
    assert mismatches(cases, run_cases(cases, path), opset) == []


@pytest.mark.parametrize("family", ["elementwise", "normalize"])
def test_half_precision_programs_agree(family: str, tmp_path: Path) -> None:
    floating = [case for case in FAMILIES[family] if all(a.dtype == np.float32 for a in case.inputs.values())]
    # The constants of such a program are fp16.
    cases = [dataclasses.replace(case, tolerance=max(case.tolerance, 4e-3)) for case in floating]
    path = tmp_path / f"{family}.mlpackage"
    write_program(cases, path, "iOS17", precision="fp16")
    assert mismatches(cases, run_cases(cases, path), "iOS17") == []


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    case = FAMILIES["elementwise"][0]
    path = tmp_path / "one.mlpackage"
    write_program([case], path, "iOS17")
    results = run_cases([case], path)
    results[f"r_{case.name}_0"] = results[f"r_{case.name}_0"] + 1e-3
    assert mismatches([case], results, "iOS17") != []
