"""What this machine is, and what can and cannot be proven on it."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

from kvbacking import _cache
from kvbacking.runtime import runtime_info
from kvbacking.session import DISABLE_VARIABLE

_OPTIONAL = ("coremltools", "mlx", "numpy", "torch")


def diagnose() -> dict[str, Any]:
    """A JSON document."""
    runtime = runtime_info()
    simulated = runtime.kind == "simulator"
    can = [
        "that a proposed backing is admissible, accepted and written completely, by the checks of `kvbacking prove`",
        "that integration code survives a framework that ignores, truncates, overruns or repeats",
    ]
    cannot = ["whether the device wrote straight into a backing: nothing public tells"]
    if simulated:
        cannot += [
            "anything about Apple hardware: this runtime is the simulator",
            "any speed: timings here are simulated",
        ]
    else:
        can.append("whether the product became faster on this machine, by `kvbacking bench`")
    if not runtime.supports_state:
        cannot.append("stateful models: this system has no MLState (macOS 15)")
    return {
        "runtime": runtime.to_dict(),
        "packages": {name: _version(name) for name in _OPTIONAL},
        "cache_dir": str(_cache.cache_directory()),
        "backings_disabled": os.environ.get(DISABLE_VARIABLE) == "1",
        "can_prove": can,
        "cannot_prove": cannot,
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
