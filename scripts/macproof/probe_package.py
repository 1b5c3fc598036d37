"""Writes a package whose output has the shape and dtype of its input, so that one surface can be used as both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking.samples.toolkit import convert, quiet, save, target_of, tools

SHAPE = (1, 64, 64)


def main(path: str) -> int:
    with quiet():
        t = tools()

        def build(x: Any) -> Any:
            return t.mb.add(x=t.mb.mul(x=x, y=np.float16(0.5)), y=np.float16(1.0), name="y")

        spec = t.mb.TensorSpec(shape=SHAPE, dtype=t.types.fp16)
        program = t.mb.program(input_specs=[spec], opset_version=target_of("macOS14"))(build)
        outputs = [t.ct.TensorType(name="y", dtype=np.float16)]
        save(convert(program, target="macOS14", outputs=outputs), Path(path))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
