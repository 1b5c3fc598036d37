"""Fingerprints of packages and the cache of compiled models (`docs/api.md` says where it is and how it is bounded).

Layout: `<cache>/compiled/<fingerprint>-<runtime>-<os build>.mlmodelc` and `<cache>/fingerprints/<hash of the stat>`.
Both may be deleted at any time. Writes are atomic: a temporary name in the same folder, then a rename.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kvbacking.errors import ModelError

MAX_COMPILED_ENTRIES = 16
MAX_FINGERPRINT_ENTRIES = 256
# An entry this fresh may be loading in another process: Core ML maps files of it lazily.
KEEP_S = 3600.0
_CHUNK_BYTES = 1 << 20


def cache_directory(override: str | os.PathLike[str] | None = None) -> Path:
    """`override`, else KVBACKING_CACHE_DIR, else the user's cache folder of this system. Not created here."""
    if override is not None:
        return Path(override)
    if configured := os.environ.get("KVBACKING_CACHE_DIR"):
        return Path(configured)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvbacking"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvbacking"


def _files(root: Path) -> Iterator[tuple[str, Path, os.stat_result]]:
    """(relative path, path, stat) of every file, sorted by relative path. Links that leave the package are refused."""
    if root.is_file():
        yield root.name, root, root.stat()
        return
    resolved = root.resolve()
    found = []
    for path in root.rglob("*"):
        try:
            inside = not path.is_symlink() or path.resolve().is_relative_to(resolved)
        except (OSError, RuntimeError) as error:  # a link to itself
            raise ModelError(f"[fingerprint] {path.relative_to(root)} is a link that leads nowhere: {error}") from error
        if not inside:
            raise ModelError(f"[fingerprint] {path.relative_to(root)} is a link that leaves the package {root.name}")
        info = path.stat()
        if stat.S_ISREG(info.st_mode):
            found.append((path.relative_to(root).as_posix(), path, info))
    yield from sorted(found, key=lambda item: os.fsencode(item[0]))


def _hash_bytes(files: list[tuple[str, Path, os.stat_result]]) -> str:
    digest = hashlib.sha256()
    for relative, path, info in files:
        name = os.fsencode(relative)  # any bytes may name a file
        # Lengths first: otherwise two packages could differ only in where a name ends and bytes begin.
        digest.update(len(name).to_bytes(8, "little") + name + info.st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def fingerprint(package: Path, cache: Path | None) -> str:
    """`sha256:...` over sorted relative paths and bytes. Remembered in `cache` under the files' identity, size and
    change times, so that an unchanged package is read once; None reads it always."""
    try:
        files = list(_files(package))
        if cache is None:
            return "sha256:" + _hash_bytes(files)
        identity = [str(package.resolve())]
        identity += [f"{r}|{s.st_dev}|{s.st_ino}|{s.st_size}|{s.st_mtime_ns}|{s.st_ctime_ns}" for r, _, s in files]
        note = cache / "fingerprints" / hashlib.sha256(os.fsencode("\n".join(identity))).hexdigest()
        if known := _read_note(note):
            return "sha256:" + known
        value = _hash_bytes(files)
    except OSError as error:
        raise ModelError(f"[fingerprint] {package}: {error.strerror or error}") from error
    _write_note(note, value)
    return "sha256:" + value


def _read_note(note: Path) -> str | None:
    try:
        text = note.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if re.fullmatch(r"[0-9a-f]{64}", text) else None


def _write_note(note: Path, value: str) -> None:
    """A cache that cannot be written costs time, not the model."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=note.parent, prefix=".new-")
        with os.fdopen(handle, "w") as file:
            file.write(value)
        os.replace(name, note)
        _prune(note.parent, MAX_FINGERPRINT_ENTRIES)
    except OSError:
        return


def compiled_key(model_fingerprint: str, kind: str, version: str, os_build: str) -> str:
    """The name of a compiled form: another package, framework or OS build is another one."""
    parts = [model_fingerprint.removeprefix("sha256:"), kind, version, os_build]
    return re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))


def touch_and_prune(compiled: Path) -> None:
    """Marks an entry as just used and removes the oldest ones beyond the bound."""
    try:
        os.utime(compiled)
    except OSError:
        return
    _prune(compiled.parent, MAX_COMPILED_ENTRIES)


def _prune(folder: Path, bound: int) -> None:
    entries = []
    for entry in folder.iterdir():
        try:
            entries.append((entry.stat().st_mtime, entry))
        except OSError:  # another process removed it
            continue
    entries.sort(reverse=True, key=lambda item: item[0])
    now = time.time()
    for modified, entry in entries[bound:]:
        if now - modified < KEEP_S:
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
