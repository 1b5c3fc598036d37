"""What `prove` asks its child process for: a JSON file and two archives of inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the parent asks for; paths are files."""

    path: str
    fingerprint: str
    compute_units: str
    function: str | None
    cache_dir: str
    contract: dict[str, Any]
    mechanism: str
    repeats: int
    first: str
    second: str
    events: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An archive whose entries are numbered: an input may have any name, also one of savez's own arguments."""
    np.savez(path, np.array(list(arrays), dtype=str), *arrays.values())


def load_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """What save_arrays wrote."""
    with np.load(path) as archive:
        names = archive["arr_0"].tolist()
        return {name: archive[f"arr_{index + 1}"] for index, name in enumerate(names)}
