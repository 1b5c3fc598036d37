"""The macOS cross-build's tools under test; they run on Linux, where the cross-build does."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "darwin"))

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the cross-build runs on Linux; a Mac builds natively")


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    import make_minisdk

    path = tmp_path_factory.mktemp("darwin") / "sdk"
    make_minisdk.make(path, ROOT / "src/simulator/include")
    return path


class Linker:
    """Compiles and links one Objective-C++ source into a module named probe for macOS."""

    frameworks = ("Foundation", "CoreFoundation", "CoreML", "CoreVideo", "IOSurface")

    def __init__(self, sdk: pathlib.Path, folder: pathlib.Path) -> None:
        self.sdk = sdk
        self.folder = folder

    def __call__(self, source: str, *flags: str, target: str = "14.0", kind: str = "-bundle") -> pathlib.Path:
        file = self.folder / "probe.mm"
        file.write_text(source)
        module = self.folder / "probe.so"
        libcxx = f"-stdlib++-isystem{self.sdk}/usr/include/c++/v1"
        command = [
            "clang++-19",
            f"--target=arm64-apple-macos{target}",
            "-std=c++20",
            "-isysroot",
            str(self.sdk),
            libcxx,
        ]
        command += [
            "-fuse-ld=lld",
            "-fvisibility=hidden",
            "-fno-objc-arc",
            "-Wall",
            "-Werror=unguarded-availability-new",
        ]
        command += [part for name in self.frameworks for part in ("-framework", name)]
        command += [kind, str(file), "-o", str(module), "-lobjc", "-lplatform_version", *flags]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return module


@pytest.fixture
def link(sdk: pathlib.Path, tmp_path: pathlib.Path) -> Linker:
    return Linker(sdk, tmp_path)
