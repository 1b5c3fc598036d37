"""Nothing in the folder may name a person, a machine or a home. Text is replaced first, then everything is searched."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Account and host names that name nobody and are words of ours.
_PLAIN = {
    "root",
    "user",
    "admin",
    "runner",
    "test",
    "localhost",
    "local",
    "mac",
    "model",
    "framework",
    "raw",
    "surface",
}
_HOMES = re.compile(r"/(?:Users|home)/(?!<)[^/\s\"':,]+")
_SERIAL = re.compile(r"[Ss]erial[ _-]?[Nn]umber[^\n]{0,16}?\b(?=[A-Z]*\d)[A-Z0-9]{8,}\b")


@dataclass(frozen=True, slots=True)
class Scrubber:
    """`paths`: (text, replacement), longest first. `names`: whole words that must not appear."""

    paths: Sequence[tuple[str, str]]
    names: Sequence[str]

    @classmethod
    def of_this_machine(cls, repository: Path, scratch: Path) -> Scrubber:
        known = [
            (repository, "<repository>"),
            (scratch, "<scratch>"),
            (Path.home(), "<home>"),
            (Path(os.environ.get("TMPDIR", "/tmp")), "<tmp>"),
        ]
        both = {(str(form), label) for path, label in known for form in (path, path.resolve()) if len(str(form)) > 1}
        names = {getpass.getuser(), socket.gethostname(), socket.gethostname().partition(".")[0]}
        return cls(
            sorted(both, key=lambda pair: -len(pair[0])),
            sorted(name for name in names if len(name) > 2 and name.lower() not in _PLAIN),
        )

    def scrub(self, text: str) -> str:
        for path, label in self.paths:
            text = re.sub(re.escape(path) + r"(?![\w.-])", label, text)
        text = _HOMES.sub("<home>", text)
        for name in self.names:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<name>", text)
        return text

    def scrub_folder(self, folder: Path) -> None:
        """Rewrites every file of the folder that is text."""
        for path in _files(folder):
            data = path.read_bytes()
            try:
                text = data.decode()
            except UnicodeDecodeError:
                continue
            clean = self.scrub(text)
            if clean != text:
                path.write_bytes(clean.encode())

    def leftovers(self, folder: Path) -> list[str]:
        """What is still personal, by file, in text and in everything else."""
        found = []
        for path in _files(folder):
            text = path.read_bytes().decode(errors="replace") + "\n" + str(path.relative_to(folder))
            hits = [label for personal, label in self.paths if re.search(re.escape(personal) + r"(?![\w.-])", text)]
            hits += ["a home folder"] if _HOMES.search(text) else []
            hits += ["a serial number"] if _SERIAL.search(text) else []
            hits += [
                "an account or host name"
                for name in self.names
                if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
            ]
            found += [f"{path.relative_to(folder)}: {hit}" for hit in dict.fromkeys(hits)]
        return found


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
