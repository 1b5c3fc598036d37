"""What our headers declare, as the compiler understood them: selectors, enum values, functions and constants."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

FRAMEWORKS = ("Foundation", "CoreML", "CoreVideo", "IOSurface")
UMBRELLA = "".join(f"#import <{name}/{name}.h>\n" for name in FRAMEWORKS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method: the result's type and the arguments' types as written (typedefs kept)."""

    result: str
    arguments: tuple[str, ...]


@dataclasses.dataclass(slots=True)
class Declarations:
    methods: dict[tuple[str, str], Method]  # (class, protocol or category's class, selector)
    enums: dict[str, int]
    functions: set[str]
    constants: set[str]
    owners: set[str]  # classes and protocols

    @property
    def selectors(self) -> set[str]:
        return {selector for _, selector in self.methods}

    @property
    def names(self) -> set[str]:
        """Every name but selectors."""
        return self.enums.keys() | self.functions | self.constants | self.owners


def _value(node: dict[str, Any]) -> int | None:
    if "value" in node:
        return int(node["value"])
    return next((value for child in node.get("inner", ()) if (value := _value(child)) is not None), None)


def _walk(nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        yield node
        if node["kind"] in ("LinkageSpecDecl", "EnumDecl"):
            yield from _walk(node.get("inner", []))


def _add_methods(found: Declarations, node: dict[str, Any]) -> None:
    owner = node["interface"]["name"] if node["kind"] == "ObjCCategoryDecl" else node["name"]
    for member in node.get("inner", ()):
        if member["kind"] == "ObjCMethodDecl":
            arguments = tuple(
                child["type"]["qualType"] for child in member.get("inner", ()) if child["kind"] == "ParmVarDecl"
            )
            found.methods[owner, member["name"]] = Method(result=member["returnType"]["qualType"], arguments=arguments)


@functools.cache
def read(sdk: pathlib.Path) -> Declarations:
    """Everything that the SDK of make_minisdk.py declares. Raises CalledProcessError when a header does not compile."""
    target = ["--target=arm64-apple-macos14.0", f"--sysroot={sdk}"]
    language = ["-x", "objective-c++", "-std=c++20", "-fno-objc-arc"]
    command = ["clang++-19", *target, *language, "-fsyntax-only", "-Xclang", "-ast-dump=json", "-"]
    dump = subprocess.run(command, input=UMBRELLA, capture_output=True, text=True, check=True)
    found = Declarations(methods={}, enums={}, functions=set(), constants=set(), owners=set())
    following = 0  # the value of an enumerator that names none
    for node in _walk(json.loads(dump.stdout)["inner"]):
        match node["kind"]:
            case "ObjCInterfaceDecl" | "ObjCProtocolDecl" | "ObjCCategoryDecl":
                found.owners.add(node.get("name", ""))
                _add_methods(found, node)
            case "EnumDecl":
                following = 0
            case "EnumConstantDecl":
                written = _value(node)
                found.enums[node["name"]] = following if written is None else written
                following = found.enums[node["name"]] + 1
            case "FunctionDecl":
                found.functions.add(node["name"])
            case "VarDecl":
                found.constants.add(node["name"])
    return found
