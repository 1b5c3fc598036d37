"""The table of frameworks.toml as values, for the tools of this folder."""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib

TABLE = pathlib.Path(__file__).with_name("frameworks.toml")
CLASS_PREFIXES = ("_OBJC_CLASS_$_", "_OBJC_METACLASS_$_")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One library of the macOS system: its install name and the public names that we may import from it."""

    name: str
    path: str
    symbols: frozenset[str]
    classes: frozenset[str]
    newer: dict[str, str]  # class or symbol -> the first system that has it, where that is after the deployment target

    @property
    def is_framework(self) -> bool:
        return self.path.startswith("/System/Library/Frameworks/")

    @property
    def imports(self) -> frozenset[str]:
        """Every linker symbol that may be imported; empty where the table leaves the names to a public package."""
        return self.symbols | {prefix + name for name in self.classes for prefix in CLASS_PREFIXES}

    def is_newer(self, symbol: str) -> bool:
        """Whether a linker symbol exists only after the deployment target, so that it must be imported weakly."""
        return any(symbol == name or symbol.endswith(f"_$_{name}") for name in self.newer)


def load(table: pathlib.Path = TABLE) -> dict[str, Library]:
    """Libraries by name. Raises OSError, tomllib.TOMLDecodeError or KeyError for a broken table."""
    with table.open("rb") as file:
        entries = tomllib.load(file)
    libraries = {}
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            continue
        newer = dict(entry.get("newer", {}))
        late_symbols = {key for key in newer if key.startswith("_")}
        libraries[name] = Library(
            name=name,
            path=entry["path"],
            symbols=frozenset(entry.get("symbols", ())) | late_symbols,
            classes=frozenset(entry.get("classes", ())) | (newer.keys() - late_symbols),
            newer=newer,
        )
    return libraries


def deployment_target(table: pathlib.Path = TABLE) -> str:
    with table.open("rb") as file:
        return str(tomllib.load(file)["deployment_target"])
