"""The Core ML package of a checkpoint: found or written, loaded, and checked to fit the checkpoint."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kvbacking import _cache, samples
from kvbacking.contract import KVContract
from kvbacking.errors import CheckFailure, ContractError
from kvbacking.model import ComputeUnits, Model
from kvbacking.whisper.checkpoint import Checkpoint

TARGET = "macOS14"  # the oldest system that the library runs on: one package serves every later one
INPUT, OUTPUTS = "mel", ("cross_k", "cross_v")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A loaded encoder package and what its input wants: `frames` of `mels` in `dtype`."""

    model: Model
    contract: KVContract
    mels: int
    frames: int
    dtype: str


def cached_package(checkpoint: Checkpoint, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """The package in the cache folder, written there on first use (needs the `samples` extra). Keyed by the weights."""
    cache = _cache.cache_directory(cache_dir)
    digest = _cache.fingerprint(checkpoint.path / "model.bin", cache).removeprefix("sha256:")
    path = cache / "whisper" / f"{digest[:32]}-{TARGET}.mlpackage"
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as scratch:
        made = samples.write("whisper", Path(scratch) / path.name, checkpoint=checkpoint.path, target=TARGET).path
        try:
            os.rename(made, path)
        except OSError:
            if not path.is_dir():  # otherwise another process was faster
                shutil.copytree(made, path)
    return path


def open_encoder(
    checkpoint: Checkpoint,
    package: str | os.PathLike[str] | None = None,
    *,
    compute_units: ComputeUnits = "all",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Encoder:
    """Loads `package` (default: the checkpoint's own from the cache) and checks it; raises ContractError."""
    path = cached_package(checkpoint, cache_dir) if package is None else package
    model = Model.load(path, compute_units=compute_units, cache_dir=cache_dir)
    d = checkpoint.dimensions
    failures = []
    mel = model.inputs.get(INPUT)
    wanted = (1, d.mels, 2 * d.audio_positions)
    if set(model.inputs) != {INPUT} or mel is None:
        failures.append(_failure(INPUT, "input names", f"['{INPUT}']", sorted(model.inputs)))
    elif mel.shape != wanted or mel.dtype not in ("float16", "float32"):
        failures.append(_failure(INPUT, "input", f"float16 or float32 {list(wanted)}", mel.describe()))
    if set(model.outputs) != set(OUTPUTS):
        failures.append(_failure("*", "output names", str(sorted(OUTPUTS)), sorted(model.outputs)))
    for name in OUTPUTS:
        spec = model.outputs.get(name)
        if spec is None:
            continue
        shape = spec.shape
        rows_fit = len(shape) == 3 and shape[1] >= d.audio_positions
        if not rows_fit or (shape[0], shape[2]) != (d.text_layers, d.width):
            expected = f"[{d.text_layers}, at least {d.audio_positions}, {d.width}]"
            failures.append(_failure(name, "shape", expected, spec.describe()))
    if failures or mel is None or mel.dtype is None:
        lines = "; ".join(str(failure) for failure in failures)
        raise ContractError(
            f"[whisper] {Path(path).name} does not fit the checkpoint {checkpoint.path.name}: {lines}. "
            "`kvbacking sample whisper OUT --checkpoint DIR` writes one that does.",
            failures=failures,
        )
    contract = KVContract.from_model(model, OUTPUTS, d.audio_positions, 1, tail="zero")
    return Encoder(model=model, contract=contract, mels=d.mels, frames=wanted[2], dtype=mel.dtype)


def _failure(output: str, check: str, expected: str, actual: object) -> CheckFailure:
    return CheckFailure(output=output, check=check, expected=expected, actual=str(actual))
