"""Builds and imports the bridge that gives tests real MLX arrays over foreign memory, as Metal does and MLX's CPU
backend does not."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parents[2]


class UnavailableError(Exception):
    """Why there is no bridge here."""


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        first = next((i for i, line in enumerate(said) if re.search(r"error: |CMake Error|ERROR:", line)), -3)
        raise UnavailableError(f"the MLX bridge cannot be built: {' | '.join(said[first:][:3])}")


def build() -> Path:
    """The module's file, built into build/mlx-bridge unless it is there already. Raises UnavailableError."""
    try:
        import mlx.core as mx
    except ImportError as error:
        raise UnavailableError(f"mlx is not installed (extra mlx): {error}") from error
    if mx.metal.is_available():
        raise UnavailableError("this MLX has Metal, which adopts memory itself")
    text = b"".join((SOURCES / name).read_bytes() for name in ("CMakeLists.txt", "bridge.cpp"))
    key = hashlib.sha256(text + f"{sys.executable} {mx.__file__} {mx.__version__}".encode()).hexdigest()[:16]
    folder = ROOT / "build" / "mlx-bridge" / key
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = sorted(folder.glob("_mlx_bridge.*.so"))
        if not found:
            cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
            if cmake is None:
                raise UnavailableError("the MLX bridge cannot be built: no cmake")
            toolchain = f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / 'toolchain-linux.cmake'}"
            _run(cmake, "--fresh", "-S", str(SOURCES), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", toolchain,
                 f"-DPython_EXECUTABLE={sys.executable}")  # fmt: skip
            _run(cmake, "--build", str(folder))
            found = sorted(folder.glob("_mlx_bridge.*.so"))
        if not found:
            raise UnavailableError(f"the MLX bridge was built but is not in {folder}")
    return found[0]


@cache
def load() -> ModuleType:
    """The module `_mlx_bridge`. Raises UnavailableError."""
    path = build()
    spec = importlib.util.spec_from_file_location("_mlx_bridge", path)
    if spec is None or spec.loader is None:
        raise UnavailableError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise UnavailableError(f"the MLX bridge does not fit this mlx: {error}") from error
    return module
