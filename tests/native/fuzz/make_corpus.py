"""Writes the fuzzer's seed corpus from small real packages made with coremltools: make_corpus.py FOLDER."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from mil_cases import FAMILIES, OPSETS  # noqa: E402
from mil_engine import write_program  # noqa: E402
from whisper_checkpoints import write_checkpoint  # noqa: E402

CASES_PER_SEED = 4  # small inputs mutate better


def pack(package: Path) -> bytes:
    folder = package / "Data" / "com.apple.CoreML"
    model = (folder / "model.mlmodel").read_bytes()
    weights = folder / "weights" / "weight.bin"
    return len(model).to_bytes(4, "little") + model + (weights.read_bytes() if weights.exists() else b"")


def sample_packages(folder: Path) -> list[Path]:
    """The sample kinds in their smallest sizes; without the installed package there are none."""
    try:
        from kvbacking import samples
    except ImportError as error:
        print(f"make_corpus.py: no sample packages among the seeds: {error}", file=sys.stderr)
        return []
    small = {"layers": 1, "width": 8, "rows": 3, "capacity": 4}
    prefill = {
        "layers": 1,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 4,
        "hidden": 8,
        "vocab": 9,
        "tokens": 3,
        "capacity": 4,
    }
    wanted = [
        ("turbo", small),
        ("badtail", small),
        ("fp32io", small),
        ("prefill", prefill),
        ("prefill", {**prefill, "per_layer": True, "logits": False, "target": "macOS14"}),
        ("stateful", {"layers": 1, "heads": 1, "head_dim": 4, "capacity": 4}),
        ("multifunction", {"layers": 1, "width": 8}),
        ("flexible", {"layers": 1, "width": 8}),
        ("flexible", {"layers": 1, "width": 8, "shapes": "enumerated"}),
        ("whisper", {"checkpoint": write_checkpoint(folder / "checkpoint", width=8, layers=1, positions=4)}),
        ("optional", {"rows": 3, "width": 8}),
        ("integers", {"count": 4}),
        ("int8out", {"rows": 3, "width": 8}),
        *(
            ("compressed", {"scheme": scheme, "bits": bits, "width": 16, "rows": 3, "capacity": 4, "target": target})
            for scheme, bits, targets in (
                ("palette", 2, ("macOS14", "macOS15")),
                ("palette", 3, ("macOS15",)),
                ("int8", 8, ("macOS14", "macOS15")),
                ("int4", 4, ("macOS15",)),
                ("sparse", 16, ("macOS14", "macOS15")),
            )
            for target in targets
        ),
    ]
    paths = []
    for i, (kind, options) in enumerate(wanted):
        known = samples.options_of(kind)
        path = folder / f"{i}-{kind}.mlpackage"
        samples.write(kind, path, seed=i, **{name: value for name, value in options.items() if name in known})
        paths.append(path)
    return paths


def main() -> None:
    corpus = Path(sys.argv[1])
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for path in sample_packages(Path(scratch)):
            (corpus / path.stem).write_bytes(pack(path))
        for family, cases in FAMILIES.items():
            for start in range(0, len(cases), CASES_PER_SEED):
                package = Path(scratch) / f"{family}-{start}.mlpackage"
                write_program(cases[start : start + CASES_PER_SEED], package, OPSETS.get(family, "iOS17"))
                (corpus / package.stem).write_bytes(pack(package))


if __name__ == "__main__":
    main()
