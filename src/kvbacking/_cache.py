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
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvbacking.errors import ModelError

MAX_COMPILED_ENTRIES = 16
MAX_FINGERPRINT_ENTRIES = 256
# An entry this fresh may be loading in another process: Core ML maps files of it lazily.
KEEP_S = 3600.0
# File systems count time in steps of up to two seconds: a file changed later than that ago may be changed once more
# without a new time.
SETTLED_NS = 2_000_000_000
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


# (relative path, path, stat) of a file
_File = tuple[str, str, os.stat_result]


def _files(root: Path) -> list[_File]:
    """Every file, sorted by relative path. Links that leave the package are refused. Paid on every load: no pathlib."""
    place = os.fspath(root)
    info = os.stat(place)
    if stat.S_ISREG(info.st_mode):
        return [(root.name, place, info)]
    return sorted(_walk(root, place, ""), key=lambda file: os.fsencode(file[0]))


def _walk(root: Path, folder: str, prefix: str) -> Iterator[_File]:
    with os.scandir(folder) as entries:
        for entry in entries:
            relative = prefix + entry.name
            if entry.is_symlink():
                _require_inside(root, relative)
            elif entry.is_dir():
                yield from _walk(root, entry.path, relative + "/")
                continue
            info = os.stat(entry.path)
            if stat.S_ISREG(info.st_mode):
                yield relative, entry.path, info


def _require_inside(root: Path, link: str) -> None:
    try:
        inside = (root / link).resolve(strict=True).is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:  # a link to itself, or to nothing
        raise ModelError(f"[fingerprint] {link} is a link that leads nowhere: {error}") from error
    if not inside:
        raise ModelError(f"[fingerprint] {link} is a link that leaves the package {root.name}")


def _hash_bytes(files: Sequence[_File]) -> str:
    digest = hashlib.sha256()
    for relative, path, info in files:
        name = os.fsencode(relative)  # any bytes may name a file
        # Lengths first: otherwise two packages could differ only in where a name ends and bytes begin.
        digest.update(len(name).to_bytes(8, "little") + name + info.st_size.to_bytes(8, "little"))
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def fingerprint(package: Path, cache: Path | None) -> str:
    """`sha256:...` over sorted relative paths and bytes. Remembered in `cache` under the files' identity, size and
    change times, so that an unchanged package is read once; None reads it always."""
    try:
        files = _files(package)
        if cache is None:
            return "sha256:" + _hash_bytes(files)
        identity = [f"{r}|{s.st_dev}|{s.st_ino}|{s.st_size}|{s.st_mtime_ns}|{s.st_ctime_ns}" for r, _, s in files]
        key = hashlib.sha256(os.fsencode("\n".join(identity))).hexdigest()
        note = os.path.join(cache, "fingerprints", key)
        if known := _read_note(note):
            return "sha256:" + known
        newest = max((max(s.st_mtime_ns, s.st_ctime_ns) for _, _, s in files), default=0)
        settled = time.time_ns() - newest >= SETTLED_NS  # before reading: what changes from here on gets another time
        value = _hash_bytes(files)
    except OSError as error:
        raise ModelError(f"[fingerprint] {package}: {error.strerror or error}") from error
    if settled:
        _write_note(Path(note), value)
    return "sha256:" + value


def _read_note(note: str) -> str | None:
    try:
        with open(note, "rb") as file:
            text = file.read(80)
    except OSError:
        return None
    return text.decode() if re.fullmatch(rb"[0-9a-f]{64}", text) else None


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


def touch(compiled: str) -> bool:
    """Marks an entry as just used; False when there is none."""
    try:
        os.utime(compiled)
    except OSError:
        return False
    return True


def discard(compiled: str) -> None:
    """Removes one entry."""
    shutil.rmtree(compiled, ignore_errors=True)


def prune_compiled(folder: Path) -> None:
    """Removes the entries that were not used for longest, beyond the bound."""
    _prune(folder, MAX_COMPILED_ENTRIES)


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
