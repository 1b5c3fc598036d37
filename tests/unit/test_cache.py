"""Fingerprints of packages and the bounds of the cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import kvbacking as kvb
from kvbacking import _cache


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old enough to be remembered."""
    monkeypatch.setattr(_cache, "SETTLED_NS", 0)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "a.mlpackage"
    (root / "Data" / "weights").mkdir(parents=True)
    (root / "Manifest.json").write_text("{}")
    (root / "Data" / "weights" / "weight.bin").write_bytes(b"\1\2\3")
    return root


def test_a_copy_has_the_same_fingerprint_and_any_change_another(package: Path, tmp_path: Path) -> None:
    def fresh() -> str:
        return _cache.fingerprint(package, None)

    first = fresh()
    assert first.startswith("sha256:")
    assert len(first) == 71
    moved = tmp_path / "b.mlpackage"
    package.rename(moved)
    assert _cache.fingerprint(moved, None) == first
    moved.rename(package)
    weights = package / "Data" / "weights" / "weight.bin"
    seen = {first}
    for change in (
        lambda: weights.write_bytes(b"\1\2\4"),
        lambda: weights.rename(weights.with_name("weight2.bin")),
        lambda: (package / "empty").touch(),
        lambda: (package / "empty").rename(package / "Data" / "empty"),
    ):
        change()
        assert fresh() not in seen
        seen.add(fresh())


def test_names_and_bytes_cannot_be_mistaken_for_each_other(tmp_path: Path) -> None:
    for index, (name, content) in enumerate((("ab", b"c"), ("a", b"bc"))):
        root = tmp_path / f"{index}.mlpackage"
        root.mkdir()
        (root / name).write_bytes(content)
    assert _cache.fingerprint(tmp_path / "0.mlpackage", None) != _cache.fingerprint(tmp_path / "1.mlpackage", None)


@pytest.mark.usefixtures("settled")
def test_a_remembered_fingerprint_is_not_trusted_after_a_change(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = _cache.fingerprint(package, cache)
    assert len(list((cache / "fingerprints").iterdir())) == 1
    assert _cache.fingerprint(package, cache) == first
    weights = package / "Data" / "weights" / "weight.bin"
    before = weights.stat()
    weights.write_bytes(b"\3\2\1")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time of modification
    assert _cache.fingerprint(package, cache) == _cache.fingerprint(package, None) != first


@pytest.mark.usefixtures("settled")
def test_a_damaged_note_is_not_believed(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = _cache.fingerprint(package, cache)
    for note in (cache / "fingerprints").iterdir():
        note.write_text("sha256:0000")
    assert _cache.fingerprint(package, cache) == first


def test_what_changed_a_moment_ago_is_not_remembered(package: Path, tmp_path: Path) -> None:
    """It may change once more without a new time: file systems count in steps of up to two seconds."""
    cache = tmp_path / "cache"
    first = _cache.fingerprint(package, cache)
    assert not (cache / "fingerprints").exists()
    weights = package / "Data" / "weights" / "weight.bin"
    weights.write_bytes(b"\3\2\1")
    assert _cache.fingerprint(package, cache) != first


@pytest.mark.usefixtures("settled")
def test_a_remembered_package_may_be_moved_and_is_not_read_again(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = _cache.fingerprint(package, cache)

    def read(*_: object) -> str:
        raise AssertionError("the package was read again")

    monkeypatch.setattr(_cache, "_hash_bytes", read)
    moved = tmp_path / "b.mlpackage"
    package.rename(moved)
    assert _cache.fingerprint(moved, cache) == first


def test_a_cache_that_cannot_be_written_costs_only_time(package: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert _cache.fingerprint(package, blocked) == _cache.fingerprint(package, None)


def test_a_link_that_leaves_the_package_is_refused(package: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (package / "Data" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(kvb.ModelError, match="leaves the package"):
        _cache.fingerprint(package, None)


def test_a_link_inside_the_package_is_followed_and_one_to_nowhere_refused(package: Path) -> None:
    before = _cache.fingerprint(package, None)
    link = package / "Data" / "link"
    link.symlink_to(Path("weights") / "weight.bin")
    linked = _cache.fingerprint(package, None)
    assert linked != before
    link.unlink()
    link.write_bytes((package / "Data" / "weights" / "weight.bin").read_bytes())
    assert _cache.fingerprint(package, None) == linked
    for target in ("nothing", "link"):
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(kvb.ModelError, match="Data/link is a link that leads nowhere"):
            _cache.fingerprint(package, None)


def test_the_oldest_entries_go_and_fresh_ones_stay(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    long_ago = time.time() - 10 * _cache.KEEP_S
    for index in range(_cache.MAX_COMPILED_ENTRIES + 4):
        entry = compiled / f"{index:02}.mlmodelc"
        entry.mkdir(parents=True)
        (entry / "model.mil").write_text("x")
        os.utime(entry, (long_ago + index, long_ago + index))
    assert _cache.touch(str(compiled / "00.mlmodelc"))
    _cache.prune_compiled(compiled)
    left = sorted(p.name for p in compiled.iterdir())
    assert len(left) == _cache.MAX_COMPILED_ENTRIES
    assert "00.mlmodelc" in left  # just used
    assert "01.mlmodelc" not in left
    for index in range(_cache.MAX_COMPILED_ENTRIES + 4):
        (compiled / f"{index:02}.mlmodelc").mkdir(exist_ok=True)
        os.utime(compiled / f"{index:02}.mlmodelc")
    assert _cache.touch(str(compiled / "00.mlmodelc"))
    _cache.prune_compiled(compiled)
    assert len(list(compiled.iterdir())) == _cache.MAX_COMPILED_ENTRIES + 4  # all used within the last hour


def test_an_entry_that_is_not_there_cannot_be_touched(tmp_path: Path) -> None:
    assert not _cache.touch(str(tmp_path / "00.mlmodelc"))


def test_the_place_is_configurable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVBACKING_CACHE_DIR", str(tmp_path / "here"))
    assert _cache.cache_directory() == tmp_path / "here"
    assert _cache.cache_directory(tmp_path / "there") == tmp_path / "there"
    monkeypatch.delenv("KVBACKING_CACHE_DIR")
    assert _cache.cache_directory().name == "kvbacking"


def test_a_key_separates_frameworks_and_systems() -> None:
    keys = {
        _cache.compiled_key(*parts)
        for parts in (
            ("sha256:aa", "coreml", "15", "24A1"),
            ("sha256:aa", "coreml", "15", "24A2"),
            ("sha256:aa", "simulator", "15", "24A1"),
            ("sha256:bb", "coreml", "15", "24A1"),
        )
    }
    assert len(keys) == 4
    assert "/" not in _cache.compiled_key("sha256:aa", "coreml", "../x", "a/b")
