#!/usr/bin/env python3
"""Checks the cross-built wheel: tag, files, and the module in it with check_macho.py. Exit 1 when anything failed."""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator

import check_macho

TAG = re.compile(r"-cp\d+-(cp\d+|abi3)-macosx_14_0_arm64\.whl$")
LINUX_ONLY = re.compile(r"simulator[^/]*\.(so|dylib)|\.cpython-.*linux")


def failures(wheel: pathlib.Path, sdk: pathlib.Path) -> Iterator[str]:
    if not TAG.search(wheel.name):
        yield f"{wheel.name}: not a wheel for macOS 14 on arm64"
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        binaries = [name for name in names if re.search(r"\.(so|dylib)$", name)]
        for name in filter(LINUX_ONLY.search, binaries):
            yield f"{name}: belongs to the Linux build only"
        modules = [name for name in binaries if re.match(r"kvbacking/_native\.", name)]
        if len(modules) != 1:
            yield f"one extension module kvbacking/_native expected, found {modules}"
        for required in ("kvbacking/py.typed", "kvbacking/_native.pyi"):
            if required not in names:
                yield f"{required}: missing"
        for name in modules:
            yield from check_macho.failures(pathlib.Path(archive.extract(name, folder)), sdk)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--sdk", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    found = list(failures(arguments.wheel, arguments.sdk))
    for failure in found:
        print(f"check_wheel: {failure}", file=sys.stderr)
    if not found:
        print(f"check_wheel: {arguments.wheel.name}: arm64 bundle for macOS 14, every check passed")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
