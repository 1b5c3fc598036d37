"""What this process runs on."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any

from kvbacking import _native
from kvbacking._version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """`kind` "simulator" means that nothing measured here speaks about Apple hardware. Sizes in bytes, surface limits
    in pixels (0: not known)."""

    kind: str
    runtime_version: str
    os: str
    os_build: str
    chip: str
    deployment_target: str
    build_sdk: str
    python_sdk: str
    page_size: int
    surface_max_width: int
    surface_max_height: int
    surface_max_bytes_per_row: int
    surface_max_alloc_size: int
    supports_state: bool
    supports_functions: bool
    supports_compute_plan: bool
    python_version: str
    kvbacking_version: str

    @property
    def label(self) -> str:
        """How to call a number obtained here: simulated or measured."""
        return "simulated" if self.kind == "simulator" else "measured"

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return asdict(self)


def runtime_info() -> RuntimeInfo:
    """Kind, versions, page size and limits of the framework this process runs on."""
    host = _native.host_info()
    native = {name: getattr(host, name) for name in RuntimeInfo.__slots__ if hasattr(host, name)}
    return RuntimeInfo(**native, python_version=sys.version.split()[0], kvbacking_version=__version__)


def live_counts() -> dict[str, int]:
    """Native objects of this process that are alive now, by kind: array (wrappers that the framework may hold),
    surface, view, lease, allocation, input, and so on. For tests of one's own: a loop that leaks nothing ends with the
    counts that it began with, about a second after its last prediction."""
    return dict(_native.live_counts())
