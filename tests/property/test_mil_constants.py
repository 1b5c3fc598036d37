"""fp16 constants of a program: seen as they are, under another shape, folded while planning, and used by a run, which
decodes what is left of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("coremltools")

from mil_engine import Case, mismatches, run_cases, write_program

DRAWN = np.random.default_rng(5)
SMALL = DRAWN.standard_normal((3, 8)).astype(np.float16)
LARGE = DRAWN.standard_normal((300, 256)).astype(np.float16)  # more than the planner folds
X = DRAWN.standard_normal((8, 3)).astype(np.float16)


def half(x: Any) -> Any:
    return np.asarray(x, np.float16)


CASES = [
    Case("shown", lambda mb, x: (mb.const(val=SMALL), x), {"x": X}, lambda x: (SMALL, x)),
    Case("aliased", lambda mb, x: mb.reshape(x=mb.const(val=SMALL), shape=(8, 3)), {"x": X},
         lambda x: SMALL.reshape(8, 3)),
    Case("added", lambda mb, x: mb.add(x=x, y=mb.reshape(x=mb.const(val=SMALL), shape=(8, 3))), {"x": X},
         lambda x: half(x + SMALL.reshape(8, 3)), tolerance=4e-3),
    Case("folded", lambda mb, x: mb.transpose(x=mb.reshape(x=mb.const(val=SMALL), shape=(8, 3)), perm=(1, 0)),
         {"x": X}, lambda x: SMALL.reshape(8, 3).T),
    Case("sliced", lambda mb, x: mb.slice_by_index(x=mb.const(val=LARGE), begin=(7, 0), end=(9, 256)), {"x": X},
         lambda x: LARGE[7:9]),
    Case("large", lambda mb, x: mb.add(x=mb.const(val=LARGE), y=mb.slice_by_index(x=x, begin=(0, 0), end=(1, 1))),
         {"x": X}, lambda x: half(LARGE + x[0, 0]), tolerance=4e-3),
    Case("chosen", lambda mb, x: mb.gather(x=mb.reshape(x=mb.const(val=SMALL), shape=(24,)), indices=[3, -1], axis=0),
         {"x": X}, lambda x: SMALL.reshape(24)[[3, -1]]),
]  # fmt: skip


def test_constants_are_what_the_file_says_wherever_they_are_used(tmp_path: Path) -> None:
    path = tmp_path / "constants.mlpackage"
    write_program(CASES, path, "iOS17")
    first = run_cases(CASES, path)
    assert mismatches(CASES, first, "iOS17") == []
    again = run_cases(CASES, path)
    assert all(np.array_equal(first[name], again[name]) for name in first)
