"""Every operation of the simulator's engine against an independent oracle: coremltools' value inference, or NumPy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import kvbacking

pytest.importorskip("coremltools")

from mil_cases import FAMILIES, OPSETS
from mil_engine import mismatches, run_cases, write_program
from mil_make import case, floats


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


ABSURD = {
    "places in a block": (
        case(
            "absurd", "space_to_batch", {"x": floats(1, 1, 1, 1)}, block_shape=[30000, 30000],
            paddings=[[29999, 0], [29999, 0]],
        ),
        "more than 65536 places",
    ),
    "affine": (
        case(
            "absurd", "affine", {"x": floats(1, 1, 2, 2), "transform_matrix": floats(1, 6)}, output_height=2000000,
            output_width=1, sampling_mode="bilinear", padding_mode="constant", padding_value=0.0,
            coordinates_mode="normalized_minus_one_to_one", align_corners=True,
        ),
        "output_height of 2000000",
    ),
    "crop_resize": (
        case(
            "absurd", "crop_resize", {"x": floats(1, 1, 2, 2), "boxes": floats(1, 4)},
            box_indices=np.zeros(1, np.int32), target_height=1, target_width=2000000,
        ),
        "target_width of 2000000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_sizes_are_refused_before_time_or_memory_goes_into_them(name: str, tmp_path: Path) -> None:
    absurd, text = ABSURD[name]
    path = tmp_path / "absurd.mlpackage"
    write_program([absurd], path, "iOS17")
    with pytest.raises((kvbacking.KVBackingError, RuntimeError), match=text):  # RuntimeError: the engine alone
        run_cases([absurd], path)
