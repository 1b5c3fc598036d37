#!/usr/bin/env python3
"""Assemble a macOS "SDK" to compile and link against, from registry packages and our own declarations: no Apple SDK.

    usr/include             Darwin's libc, dispatch and Objective-C headers, from the ziglang wheel
    usr/include/c++/v1      libc++, from the distribution's package
    usr/lib/*.tbd           libSystem from ziglang, libobjc from frameworks.toml, libc++ from the distribution's names
    System/Library/Frameworks/X.framework
                            declarations (src/simulator/include, include/Foundation) and stubs (frameworks.toml)

It proves that the product compiles and links, and it is enough for nothing else: release wheels are built on a Mac.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence

import libraries

HERE = pathlib.Path(__file__).resolve().parent
LLVM = pathlib.Path("/usr/lib/llvm-19")
TARGETS = "[ arm64-macos, arm64e-macos ]"


def stub_text(install_name: str, symbols: Iterable[str], classes: Iterable[str] = ()) -> str:
    """A version 4 text-based stub; names are quoted because some hold a `$`."""

    def names(values: Iterable[str]) -> str:
        return ", ".join(f"'{value}'" for value in sorted(values))

    return (
        f"--- !tapi-tbd\ntbd-version: 4\ntargets: {TARGETS}\ninstall-name: '{install_name}'\ncurrent-version: 1\n"
        f"exports:\n  - targets: {TARGETS}\n    symbols: [ {names(symbols)} ]\n"
        f"    objc-classes: [ {names(classes)} ]\n...\n"
    )


def cxx_symbols(shared_objects: Sequence[pathlib.Path]) -> set[str]:
    """Exports of an ELF libc++ as Mach-O spells them: the Itanium names are the same, behind one more underscore."""
    found = set()
    for path in shared_objects:
        listing = subprocess.run(
            ["llvm-nm-19", "-D", "--defined-only", "--format=just-symbols", path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = (line.split("@")[0] for line in listing.splitlines())
        found |= {"_" + name for name in names if name.startswith(("_Z", "__cxa", "__gxx", "__dynamic_cast"))}
    if not found:
        raise SystemExit(f"make_minisdk: no C++ names in {shared_objects}: install libc++1-19 and libc++abi1-19")
    return found


def system_stub(text: str) -> str:
    """ziglang's libSystem stub without the target that LLVM 19 does not know, and with arm64 wherever arm64e is."""

    def targets(match: re.Match[str]) -> str:
        listed = [name.strip() for name in match.group(2).split(",") if name.strip() and "arm64e.x1" not in name]
        if "arm64e-macos" in listed and "arm64-macos" not in listed:
            listed.append("arm64-macos")
        return f"{match.group(1)}[ {', '.join(listed)} ]"

    return re.sub(r"(targets:\s*)\[([^\]]*)\]", targets, text)


def copy_headers(zig: pathlib.Path, include: pathlib.Path) -> None:
    shutil.copytree(zig / "libc/include/any-darwin-any", include)
    shutil.copytree(LLVM / "include/c++/v1", include / "c++/v1")
    # Apple's build of libc++ knows which system introduced what: code for macOS 14 must not need a later libc++.
    config = include / "c++/v1/__config_site"
    text = config.read_text()
    switch = "#define _LIBCPP_HAS_NO_VENDOR_AVAILABILITY_ANNOTATIONS\n"
    if switch not in text:
        raise SystemExit(f"make_minisdk: {config} does not hold the switch {switch.strip()}: another libc++ than 19?")
    config.write_text(text.replace(switch, ""))
    # The headers ask the compiler's <float.h> for INFINITY and NAN in a way that clang 19 does not answer.
    with (include / "math.h").open("a") as math:
        for name, value in (("INFINITY", "__builtin_inff()"), ("NAN", '__builtin_nanf("")')):
            math.write(f"#ifndef {name}\n#define {name} {value}\n#endif\n")


def link_declarations(framework: pathlib.Path, name: str, roots: Sequence[pathlib.Path]) -> None:
    """Headers/ holds links, so that a changed declaration is seen by an incremental build."""
    for root in roots:
        for header in sorted((root / name).glob("*.h")):
            (framework / "Headers").mkdir(exist_ok=True)
            (framework / "Headers" / header.name).symlink_to(header)


def make_runtime(sdk: pathlib.Path, target: str) -> None:
    """What Apple's compiler brings along for @available and this clang does not."""
    built = sdk / "platform_version.o"
    source = HERE / "platform_version.c"
    options = ["-O2", "-Wall", "-Werror", "-fvisibility=hidden"]
    target_options = [f"--target=arm64-apple-macos{target}", f"--sysroot={sdk}"]
    compile_command = ["clang-19", *target_options, *options, "-c", str(source), "-o", str(built)]
    subprocess.run(compile_command, check=True)
    subprocess.run(["llvm-ar-19", "rcs", sdk / "usr/lib/libplatform_version.a", built], check=True)
    built.unlink()


def make(sdk: pathlib.Path, declarations: pathlib.Path) -> None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("make_minisdk: ziglang is not installed for this Python: run scripts/setup")
    zig = pathlib.Path(spec.origin).parent / "lib"
    table = libraries.load()
    shutil.rmtree(sdk, ignore_errors=True)
    lib = sdk / "usr/lib"
    lib.mkdir(parents=True)
    copy_headers(zig, sdk / "usr/include")

    (lib / "libSystem.tbd").write_text(system_stub((zig / "libc/darwin/libSystem.tbd").read_text()))
    for alias in ("c", "dl", "m", "pthread"):
        (lib / f"lib{alias}.tbd").symlink_to("libSystem.tbd")
    (lib / "libobjc.tbd").write_text(stub_text(table["objc"].path, table["objc"].symbols, table["objc"].classes))
    (lib / "libc++.tbd").write_text(
        stub_text(table["c++"].path, cxx_symbols([LLVM / "lib/libc++.so.1", LLVM / "lib/libc++abi.so.1"]))
    )
    for library in table.values():
        if library.is_framework:
            framework = sdk / f"System/Library/Frameworks/{library.name}.framework"
            framework.mkdir(parents=True)
            (framework / f"{library.name}.tbd").write_text(stub_text(library.path, library.symbols, library.classes))
            link_declarations(framework, library.name, (HERE / "include", declarations))
    settings = {
        "CanonicalName": "macosx15.0",
        "Version": "15.0",
        "MaximumDeploymentTarget": "15.0.99",
        "DefaultDeploymentTarget": libraries.deployment_target(),
        "SupportedTargets": {"macosx": {"Archs": ["arm64"]}},
    }
    (sdk / "SDKSettings.json").write_text(json.dumps(settings))
    make_runtime(sdk, libraries.deployment_target())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sdk", type=pathlib.Path, help="folder to write; replaced when it exists")
    parser.add_argument("--declarations", type=pathlib.Path, default=HERE.parents[1] / "src/simulator/include")
    arguments = parser.parse_args()
    make(arguments.sdk.resolve(), arguments.declarations.resolve())


if __name__ == "__main__":
    main()
