"""Memory of this process, read between samples."""

from __future__ import annotations

from pathlib import Path

from kvbacking import _native


def read_memory() -> dict[str, int]:
    """Physical footprint (macOS) or resident set (Linux), the proportional set where the kernel tells, and the native
    objects alive by kind."""
    values = {"footprint_byte_count": _native.memory_footprint_byte_count()}
    try:
        rollup = Path("/proc/self/smaps_rollup").read_text()
    except OSError:
        rollup = ""
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            values["pss_byte_count"] = int(line.split()[1]) * 1024
    for kind, count in _native.live_counts().items():
        if kind in ("allocation", "array", "surface", "pool", "input"):
            values[f"live_{kind}_count"] = count
    return values
