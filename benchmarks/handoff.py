"""What it costs to hand K/V to MLX at growing context lengths: what `kvbacking handoff` measures, over four shapes.

    python benchmarks/handoff.py [--quick] [--rounds N] [--live N,N,...] [--shape NAME] [--memory GIB] [--out FOLDER]
                                 [--bridge]

JSON lines on stdout (one document a shape, raw samples included), Markdown tables on stderr; --out also writes the
documents and handoff.png. --bridge: the tests' native bridge stands in for adoption, which MLX's CPU backend refuses.
Budget: MLX-owned backings, one output per layer, cost at most 1.5 times as much at 32768 rows as at 512.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kvbacking.measure.handoff.bench import Options
from kvbacking.measure.handoff.picture import draw
from kvbacking.measure.handoff.run import measure_shape
from kvbacking.measure.handoff.table import LEGEND, markdown, methods, missing, payload_sentences, sentences
from kvbacking.payload import PRESETS

SHAPES = ("0.6b", "16-layer", "turbo", "distil")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
QUICK_LENGTHS, QUICK_GIB = (64, 128), 0.5


def bridge() -> Any:
    """adopt(view) of the tests' bridge, built when it is not there. Raises its reason."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
    import mlx_bridge

    return mlx_bridge.load().adopt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds of short lengths: measures nothing")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--live", help="live rows of the shapes that grow")
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--memory", type=float, help="GiB for one length at most (default: half of what is available)")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--bridge", action="store_true", help="adoption through the tests' bridge, labelled so")
    options = parser.parse_args()
    grown = QUICK_LENGTHS if options.quick else LENGTHS
    lengths = [int(n) for n in options.live.split(",")] if options.live else list(grown)
    memory = QUICK_GIB if options.quick else options.memory
    how = Options(
        rounds=2 if options.quick else options.rounds,
        memory_byte_count=None if memory is None else int(memory * 2**30),
    )
    adopt = bridge() if options.bridge else None
    documents = []
    for name in options.shape or SHAPES:
        payload = PRESETS[name]
        live = lengths if payload.rows is None else [payload.rows]
        document = measure_shape(payload, live, how, adopt=adopt, adopt_label="test bridge")
        documents.append(document)
        print(json.dumps(document))
        said = [
            *payload_sentences(document)[:1],
            "",
            markdown(document),
            "",
            *missing(document),
            *sentences(document),
            "",
        ]
        print("\n".join(said), file=sys.stderr)
    print("\n".join([*LEGEND, *methods(documents[0])]), file=sys.stderr)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "handoff.json").write_text(json.dumps(documents, indent=2) + "\n")
        draw(documents, options.out / "handoff.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
