"""Sample packages, written once per run; the cache of compiled models, kept out of the user's."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kvbacking as kvb
from kvbacking import _native, samples

# K and V of one small Whisper-like model: rows of 96 halves are padded on surfaces, 36 rows have a tail of 6.
SMALL = {"layers": 2, "width": 96, "rows": 30, "capacity": 36}


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("KVBACKING_CACHE_DIR")
    os.environ["KVBACKING_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["KVBACKING_CACHE_DIR"]
    else:
        os.environ["KVBACKING_CACHE_DIR"] = before


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., samples.SampleInfo]:
    """package(kind, **options): that sample, written once per run."""
    pytest.importorskip("coremltools")
    written: dict[str, samples.SampleInfo] = {}

    def write(kind: str, **options: Any) -> samples.SampleInfo:
        key = f"{kind} {sorted(options.items())}"
        if key not in written:
            folder = tmp_path_factory.mktemp(kind)
            written[key] = samples.write(kind, folder / f"{kind}.mlpackage", seed=7, **options)
        return written[key]

    return write


@pytest.fixture(scope="session")
def small(package: Callable[..., samples.SampleInfo]) -> samples.SampleInfo:
    return package("turbo", **SMALL)


@pytest.fixture(scope="session")
def model(small: samples.SampleInfo) -> kvb.Model:
    return kvb.Model.load(small.path)


@pytest.fixture(scope="session")
def contract(model: kvb.Model, small: samples.SampleInfo) -> kvb.KVContract:
    return kvb.KVContract.from_model(model, **small.contract)


@pytest.fixture(scope="session")
def bridge() -> Any:
    """Makes MLX arrays over foreign memory on MLX's CPU backend (tests/support/mlx_bridge)."""
    import mlx_bridge

    try:
        return mlx_bridge.load()
    except mlx_bridge.UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def adopting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX adopts aligned memory: by itself on Metal, through the bridge elsewhere, along the same code."""
    if not pytest.importorskip("mlx.core").metal.is_available():
        monkeypatch.setattr("kvbacking.mlx.arrays._adopt", request.getfixturevalue("bridge").adopt)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Whatever dies in the test dies by its count of references: a cycle would live on."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def settled(model: kvb.Model) -> Callable[..., dict[str, int]]:
    """settled(): live native objects once they have not changed for longer than the framework may hold arrays (about a
    second); settled(wanted): as soon as they are these, or else after some seconds."""

    def count(wanted: dict[str, int] | None = None, timeout_s: float = 6.0) -> dict[str, int]:
        deadline = time.monotonic() + timeout_s
        counts, since = None, time.monotonic()
        while True:
            gc.collect()
            model.release_idle_inputs()  # how many are needed at once depends on when the framework lets go
            now = _native.live_counts()
            if now != counts:
                counts, since = now, time.monotonic()
            if counts == wanted or time.monotonic() > deadline:
                return counts
            if wanted is None and time.monotonic() - since > 1.2:
                return counts
            time.sleep(0.02)

    return count
