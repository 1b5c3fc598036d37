#!/usr/bin/env python3
"""Compares our declarations of Apple's API with the public metadata that registry packages carry.

    PyObjC's generated metadata (CoreML, CoreVideo, IOSurface): enum values, constants, functions, and every selector
        that takes a block or an error pointer, or that gives or takes a BOOL
    coremltools' macOS module, which Apple's linker produced: the library that exports each symbol, the weak symbols

It cannot check whole method signatures: the headers stay reviewed text. Exit 0: all agree. 1: something differs. When
the registry cannot be reached it says NOT COMPARED and exits 0, or 3 with --require.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator

import check_macho
import declarations
import libraries

PYOBJC = {
    "pyobjc-framework-CoreML==12.2.2": "CoreML/_metadata.py",
    "pyobjc-framework-Quartz==12.2.2": "Quartz/CoreVideo/_metadata.py",
    "pyobjc-framework-IOSurface==12.2.2": "IOSurface/_metadata.py",
}
LINKED_BY_APPLE = ("coremltools==9.0", "coremltools/libcoremlpython.so")
OUR_NAMES = re.compile(r"^(ML|k?CVPixelBuffer|kCVReturn|kCVPixelFormatType_OneComponent|k?IOSurface)")


def download(requirement: str, cache: pathlib.Path) -> pathlib.Path | None:
    """The wheel for macOS, kept in `cache`; None when the registry does not give it."""
    name, version = requirement.split("==")
    stem = name.replace("-", "_").lower()

    def kept() -> pathlib.Path | None:
        return next((path for path in cache.glob("*.whl") if path.name.lower().startswith(f"{stem}-{version}-")), None)

    if kept() is None:
        platforms = [f"--platform=macosx_{system}" for system in ("10_9_universal2", "11_0_arm64")]
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version=3.11",
            *platforms,
        ]
        subprocess.run(
            [*command, "--dest", cache, requirement], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    return kept()


def metadata_names(text: str, table: str) -> str:
    return "".join(re.findall(rf'^{table} = """(.*?)"""', text, re.MULTILINE | re.DOTALL))


class Reference:
    """Union of PyObjC's metadata files."""

    def __init__(self, texts: list[str]) -> None:
        self.enums: dict[str, int] = {}
        self.constants: set[str] = set()
        self.functions: set[str] = set()
        self.selectors: set[tuple[str, str]] = set()
        for text in texts:
            for name, value in re.findall(r"\$(\w+)@(-?\d+)", metadata_names(text, "enums")):
                self.enums[name] = int(value)
            self.constants |= {name.split("@")[0] for name in metadata_names(text, "constants").split("$") if name}
            self.functions |= set(re.findall(r'"(\w+)": \(', text))
            self.selectors |= set(re.findall(r'\br\(\s*b"(\w+)",\s*b"([\w:]+)"', text))


def is_listed_by_pyobjc(method: declarations.Method) -> bool:
    """PyObjC records a method when its Objective-C type encoding is not enough: blocks, error pointers, BOOL."""
    types = (method.result, *method.arguments)
    return any("^" in text or "NSError" in text or re.search(r"\bBOOL\b", text) for text in types)


def metadata_failures(ours: declarations.Declarations, reference: Reference) -> Iterator[str]:
    for name, value in sorted(ours.enums.items()):
        if OUR_NAMES.match(name):
            known = reference.enums.get(name)
            if known is None:
                yield f"enum value {name}: unknown to the reference"
            elif known & 0xFFFFFFFF != value & 0xFFFFFFFF:
                yield f"enum value {name}: {value} declared, {known} in the reference"
    for name in sorted(filter(OUR_NAMES.match, ours.constants - reference.constants)):
        yield f"constant {name}: unknown to the reference"
    for name in sorted(filter(OUR_NAMES.match, ours.functions - reference.functions)):
        yield f"function {name}: unknown to the reference"
    known_selectors = {selector for _, selector in reference.selectors}
    for (owner, selector), method in sorted(ours.methods.items()):
        if owner.startswith("ML") and is_listed_by_pyobjc(method) and selector not in known_selectors:
            yield f"-[{owner} {selector}]: unknown to the reference"


def table_failures(ours: declarations.Declarations, table: dict[str, libraries.Library]) -> Iterator[str]:
    """Every function and constant that our headers declare can be linked: table and headers do not drift apart."""
    exported = {symbol for library in table.values() for symbol in library.symbols}
    for name in sorted(filter(OUR_NAMES.match, ours.functions | ours.constants)):
        if f"_{name}" not in exported:
            yield f"{name}: declared, and missing in frameworks.toml"


def home_failures(module: pathlib.Path, table: dict[str, libraries.Library]) -> Iterator[str]:
    homes = {symbol: library for library in table.values() for symbol in library.imports}
    compared = 0
    for symbol, source, weak in check_macho.undefined(module):
        ours = homes.get(symbol)
        if ours is None or source is None:
            continue
        compared += 1
        if pathlib.PurePosixPath(ours.path).name.split(".")[0] != source:
            yield f"{symbol}: from {ours.name} in frameworks.toml, from {source} in a module that Apple linked"
        if ours.is_newer(symbol) and not weak:
            yield f"{symbol}: newer in frameworks.toml, yet imported strongly by the reference"
    if compared < 40:
        yield f"only {compared} symbols in common with the reference module: it no longer says much"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdk", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="folder that keeps the downloaded references")
    parser.add_argument("--require", action="store_true", help="fail when a reference cannot be had")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    wheels = {requirement: download(requirement, arguments.cache) for requirement in [*PYOBJC, LINKED_BY_APPLE[0]]}
    if missing := [requirement for requirement, wheel in wheels.items() if wheel is None]:
        print(f"check_declarations: NOT COMPARED: the registry did not give {', '.join(missing)}", file=sys.stderr)
        sys.exit(3 if arguments.require else 0)

    ours = declarations.read(arguments.sdk)
    table = libraries.load()
    texts = []
    for requirement, member in PYOBJC.items():
        with zipfile.ZipFile(str(wheels[requirement])) as wheel:
            texts.append(wheel.read(member).decode())
    with zipfile.ZipFile(str(wheels[LINKED_BY_APPLE[0]])) as wheel:
        module = pathlib.Path(wheel.extract(LINKED_BY_APPLE[1], arguments.cache))
    found = [*metadata_failures(ours, Reference(texts)), *table_failures(ours, table), *home_failures(module, table)]
    for failure in found:
        print(f"check_declarations: {failure}", file=sys.stderr)
    if not found:
        print(f"check_declarations: {len(ours.methods)} methods, {len(ours.enums)} enum values, and the table, agree")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
