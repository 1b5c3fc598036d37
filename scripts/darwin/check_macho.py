#!/usr/bin/env python3
"""The gate of the macOS build: file kind, deployment target, libraries, symbols, selectors, signature of the module.

check_macho.py MODULE --sdk SDK    prints every failed check; exit 1 when there is one
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import pathlib
import re
import struct
import subprocess
import sys
from collections.abc import Iterator

import declarations
import libraries

LC_CODE_SIGNATURE = 0x1D
CODE_DIRECTORY = 0xFADE0C02
ADHOC_FLAG = 0x2
# What the compiler itself refers to and no header declares.
COMPILER_NAMES = {
    "__chkstk_darwin", "__cxa_atexit", "__stack_chk_fail", "__stack_chk_guard", "_Block_object_assign",
    "_Block_object_dispose", "_NSConcreteGlobalBlock", "_NSConcreteStackBlock", "_Unwind_Resume", "_tlv_bootstrap",
    "bzero", "dyld_stub_binder",
}  # fmt: skip
# Ways to reach a name that the symbol table would not show. NSClassFromString is one too, but the only way to ask for a
# class that may be absent, so the module's strings are checked instead.
LOOKUPS = {"_NSSelectorFromString", "_dlopen", "_dlsym", "_objc_getClass", "_objc_lookUpClass"}
# The one library that is opened at run time, for a public function of it (vImage, compared in the experiments).
OPENED = "/System/Library/Frameworks/Accelerate.framework/Accelerate"
CLASS_NAME = re.compile(r"_?(ML|NS|CV|MTL|IOSurface)[A-Z]\w*$")


def run(*command: str | pathlib.Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def header_failures(module: pathlib.Path, target: str) -> Iterator[str]:
    headers = run("llvm-objdump-19", "--macho", "--private-headers", module)
    if not re.search(r"MH_MAGIC_64\s+ARM64\s", headers):
        yield "not a 64-bit arm64 Mach-O file"
    if not re.search(r"\bBUNDLE\b", headers):
        yield "not MH_BUNDLE, the kind that Python loads"
    minimum = re.search(r"platform macos\n\s+sdk [\d.]+\n\s+minos ([\d.]+)", headers)
    if minimum is None or minimum.group(1) != target:
        yield f"minimum OS {minimum and minimum.group(1)}, expected macOS {target}"


def undefined(module: pathlib.Path) -> Iterator[tuple[str, str | None, bool]]:
    """(symbol, library or None, weak) of every import."""
    for line in run("llvm-nm-19", "-um", module).splitlines():
        match = re.search(r"\(undefined\)( weak)? external (\S+)(?: \(from (\S+)\))?", line)
        if match is None:
            raise SystemExit(f"check_macho: llvm-nm printed an import in an unknown form: {line.strip()}")
        yield match.group(2), match.group(3), match.group(1) is not None


@functools.cache
def public_names(sdk: pathlib.Path) -> set[str]:
    """Every identifier in the C headers of the SDK (not in libc++, which has its own mangled names)."""
    names: set[str] = set()
    include = sdk / "usr/include"
    for header in include.rglob("*.h"):
        if include / "c++" not in header.parents:
            names.update(re.findall(r"[A-Za-z_]\w*", header.read_text(errors="replace")))
    return names


def symbol_failures(module: pathlib.Path, table: dict[str, libraries.Library], sdk: pathlib.Path) -> Iterator[str]:
    public = public_names(sdk)
    strings = section_strings(module.read_bytes(), b"__cstring")
    opened = {text for text in strings if text.startswith(("/System/Library/", "/usr/lib/"))}
    by_file_name = {library.path.rsplit("/", 1)[-1].split(".")[0]: library for library in table.values()}
    used = set()
    for symbol, source, weak in undefined(module):
        if source is None:
            if not re.match(r"__?Py", symbol):
                yield f"{symbol}: no library exports it"
            continue
        library = by_file_name.get(source)
        if library is None:
            yield f"{symbol}: from {source}, which the product does not use"
            continue
        used.add(library.path)
        if symbol in LOOKUPS and not (symbol in {"_dlopen", "_dlsym"} and opened == {OPENED}):
            yield f"{symbol}: looks names up at run time, out of this check's sight"
        if library.imports and symbol not in library.imports:
            yield f"{symbol}: not among the public names of {library.name} in frameworks.toml"
        if library.is_newer(symbol) and not weak:
            yield f"{symbol}: newer than the deployment target and not weak: macOS would refuse to load the module"
        plain = symbol.removeprefix("_").split("$")[0]
        if library.name == "System" and plain not in public and plain not in COMPILER_NAMES:
            yield f"{symbol}: no public header of libSystem declares it"
    loaded = set(re.findall(r"^\t(\S+) \(", run("llvm-otool-19", "-L", module), re.MULTILINE))
    for path in sorted(loaded - used):
        yield f"{path}: loaded, and nothing is imported from it"
    for path in sorted(used - loaded):
        yield f"{path}: imported from, and not loaded"


def export_failures(module: pathlib.Path) -> Iterator[str]:
    exported = [
        line.split()[-1] for line in run("llvm-nm-19", "-g", "--defined-only", module).splitlines() if line.strip()
    ]
    wanted = f"_PyInit_{module.name.split('.')[0]}"
    if exported != [wanted]:
        yield f"exports {exported[:5]}, expected exactly {wanted}"


def load_commands(image: bytes) -> Iterator[tuple[int, int]]:
    """(command, offset)"""
    offset = 32
    for _ in range(struct.unpack_from("<I", image, 16)[0]):
        command, byte_count = struct.unpack_from("<II", image, offset)
        yield command, offset
        offset += byte_count


def section_strings(image: bytes, name: bytes) -> set[str]:
    """The C strings of every section of that name."""
    strings: set[str] = set()
    for command, offset in load_commands(image):
        if command != 0x19:  # LC_SEGMENT_64
            continue
        for index in range(struct.unpack_from("<I", image, offset + 64)[0]):
            section = offset + 72 + 80 * index
            if image[section : section + 16].rstrip(b"\0") == name:
                byte_count, start = struct.unpack_from("<QI", image, section + 40)
                parts = image[start : start + byte_count].split(b"\0")
                strings.update(part.decode(errors="replace") for part in parts if part)
    return strings


def name_failures(image: bytes, declared: declarations.Declarations) -> Iterator[str]:
    """Selectors that the module sends or implements, and classes that it may look up by name."""
    # .cxx_construct and .cxx_destruct are the compiler's, for members with constructors
    selectors = section_strings(image, b"__objc_methname") - {".cxx_construct", ".cxx_destruct"}
    for selector in sorted(selectors - declared.selectors):
        yield f"selector {selector}: declared in no public header"
    for text in sorted(filter(CLASS_NAME.match, section_strings(image, b"__cstring"))):
        if text not in declared.names:
            yield f"string {text}: looks like a class of Apple's, and no public header declares it"


def is_signed(image: bytes) -> bool:
    """Whether an ad-hoc code directory is there and every page's SHA-256 in it is right."""
    for command, offset in load_commands(image):
        if command != LC_CODE_SIGNATURE:
            continue
        base = struct.unpack_from("<I", image, offset + 8)[0]
        for index in range(struct.unpack_from(">I", image, base + 8)[0]):
            directory = base + struct.unpack_from(">I", image, base + 16 + 8 * index)[0]
            if struct.unpack_from(">I", image, directory)[0] != CODE_DIRECTORY:
                continue
            flags, hashes, _, _, page_count, limit = struct.unpack_from(">6I", image, directory + 12)
            page = 1 << image[directory + 39]
            stored = [image[directory + hashes + 32 * n : directory + hashes + 32 * (n + 1)] for n in range(page_count)]
            computed = [
                hashlib.sha256(image[n * page : min(limit, (n + 1) * page)]).digest() for n in range(page_count)
            ]
            return bool(flags & ADHOC_FLAG) and page_count > 0 and stored == computed
    return False


def failures(module: pathlib.Path, sdk: pathlib.Path) -> list[str]:
    """Every failed check of one module; empty when all passed."""
    image = module.read_bytes()
    found = [*header_failures(module, libraries.deployment_target()), *symbol_failures(module, libraries.load(), sdk)]
    found += export_failures(module)
    found += name_failures(image, declarations.read(sdk))
    if not is_signed(image):
        found.append("no valid ad-hoc signature: arm64 kernels refuse the image")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=pathlib.Path)
    parser.add_argument("--sdk", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    found = failures(arguments.module, arguments.sdk)
    for failure in found:
        print(f"check_macho: {arguments.module.name}: {failure}", file=sys.stderr)
    if not found:
        print(f"check_macho: {arguments.module.name}: all checks passed")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
