"""Arbitrary arguments to every public entry: an error of the documented kinds, or a result; the process goes on.

The short form always runs, on the same arguments each time. The long one draws others each time and asks only that the
process survives, which means most under a sanitizer; it is marked slow (KVB_MACHINE_MINUTES for all entries together,
10 by default).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvbacking as kvb
from kvbacking import samples

DOCUMENTED = (kvb.KVBackingError, TypeError, ValueError, KeyError, OverflowError, BufferError, OSError)
Entry = Callable[[dict[str, Any]], Any]

NUMBERS = (0, 1, -1, 3, 30, 36, 37, 255, 256, 2**31, 2**63, -(2**63) - 1, 2**70, 0.0, -0.5, 1e308, float("nan"))
TEXTS = (
    "",
    "cross_k",
    "cross_v",
    "raw",
    "surface",
    "float16",
    "int8",
    "zero",
    "any",
    "all",
    "main",
    "\0",
    "\ud800",
    "x" * 4096,
)
ARRAYS = (
    np.zeros((0,), np.float16), np.zeros((), np.float32), np.zeros((1, 30, 96), np.float16),
    np.ones((2, 36, 96), np.float16), np.zeros((2, 36, 96), np.float16)[:, ::-2], np.zeros((3,), object),
    np.zeros((4,), "S3"), np.zeros((2, 2), np.complex64),
    np.zeros((2, 36, 96), ">f2"), np.broadcast_to(np.float16(1), (2, 36, 96)), np.zeros((1,) * 32, np.int8),
    np.zeros((2,), [("a", "i1"), ("b", "f2")])["b"],
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.sampled_from(ARRAYS),
    st.binary(max_size=8), st.builds(object), st.builds(lambda data: memoryview(data), st.binary(max_size=8)),
)  # fmt: skip
KEYS = st.one_of(
    st.sampled_from(["cross_k", "cross_v", "features", "key", "tolerance", ""]), st.integers(-1, 1), st.none()
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=6,
)


def junk(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these arguments, each anything."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, JUNK))


@pytest.fixture(scope="module")
def entries(
    model: kvb.Model,
    contract: kvb.KVContract,
    small: samples.SampleInfo,
    package: Callable[..., samples.SampleInfo],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[tuple[str, ...], Entry]]:
    """Name of an entry -> (the arguments it is given, the call)."""
    inputs = small.inputs(seed=1)
    session = kvb.Session(model, contract, mechanism="raw", depth=1)
    surfaces = kvb.Session(model, contract, mechanism="surface", depth=1)
    kept = kvb.Session(model, contract, mechanism="raw", depth=1).predict(inputs)
    array = np.ones((2, 36, 96), np.float16)
    scratch = tmp_path_factory.mktemp("cache")
    construct = {"outputs": ("cross_k",), "shapes": (2, 36, 96), "dtypes": "float16", "live": 30, "axis": 1}

    def made(arguments: dict[str, Any]) -> None:
        with kvb.Session(model, contract, **arguments) as opened:
            opened.predict(inputs).release()

    found: dict[str, tuple[tuple[str, ...], Entry]] = {
        "Model.load": (("path", "compute_units", "function", "cache_dir"), lambda a: kvb.Model.load(
            **{"path": small.path, **a, **({"cache_dir": scratch} if "cache_dir" in a and "path" not in a else {})})),
        "Model.predict": (("inputs", "cast", "state"), lambda a: model.predict(**{"inputs": inputs, **a})),
        "KVContract": ((*construct, "tail", "tolerance", "unbacked", "sensitive_to", "allow_all_zero"),
                       lambda a: kvb.KVContract(**{**construct, **a}).mismatches(model)),
        "KVContract.from_model": (("model", "outputs", "live", "axis", "tail", "tolerance", "unbacked", "sensitive_to"),
                                  lambda a: kvb.KVContract.from_model(**{"model": model, **a})),
        "KVContract.from_dict": (("document",), lambda a: kvb.KVContract.from_dict(a.get("document"))),
        "KVContract.check": (("model",), lambda a: contract.check(a.get("model"))),
        "Tolerance": (("max_abs", "max_rel"), lambda a: kvb.Tolerance(**a)),
        "Session": (("mechanism", "depth", "on_ignored", "verify", "reuse", "certificate"), made),
        "Session, other model": (("model", "contract"), lambda a: kvb.Session(a.get("model"), a.get("contract"))),
        "Session, external": (
            ("storage", "depth", "on_ignored", "verify"),
            lambda a: kvb.Session(model, contract, mechanism="external", **{"storage": [], **a}).close(),
        ),
        "Session.predict": (("inputs", "live", "cast", "state"),
                            lambda a: session.predict(**{"inputs": inputs, **a}).release()),
        "Session.predict, surfaces": (("inputs", "live", "cast", "state"),
                                      lambda a: surfaces.predict(**{"inputs": inputs, **a}).release()),
        "Prediction": (("name",), lambda a: (kept.get(a.get("name")), kept.live(a.get("name")))),
        "scan": (("array", "live", "axis", "reference", "tolerance", "fill_pattern", "threads"),
                 lambda a: kvb.scan(**{"array": array, **a})),
        "prove": (("model", "inputs", "contract", "mechanisms", "repeats", "timeout_s"),
                  lambda a: kvb.prove(**{"inputs": inputs, "contract": contract, **a, "model": a.get("model")})),
        "bench": (("model", "inputs", "contract"),
                  lambda a: kvb.bench(a.get("model"), a.get("inputs"), a.get("contract"))),
        "certify": (("verdict", "mechanism"),
                    lambda a: kvb.certify(model, contract, a.get("verdict"), a.get("mechanism"))),
        "Certificate.from_dict": (("document",), lambda a: kvb.Certificate.from_dict(a.get("document"))),
        "Certificate.load": (("path",), lambda a: kvb.Certificate.load(a.get("path"))),
    }  # fmt: skip
    if kvb.runtime_info().supports_state:
        stateful = kvb.Model.load(package("stateful").path)
        state, name = stateful.new_state(), next(iter(stateful.states))
        found["State.read"] = ("name",), lambda a: state.read(a.get("name"))
        found["State.write"] = ("name", "array"), lambda a: state.write(**{"name": name, "array": None, **a})
        found["State.restore"] = ("snapshot",), lambda a: state.restore(a.get("snapshot"))
    if sys.platform != "darwin":
        from kvbacking import simulator

        def misbehave(arguments: dict[str, Any]) -> None:
            with simulator.faults(**arguments):
                pass

        found["simulator.faults"] = ("after", "times", "nan", "stale", "partial_write", "latency", "nope"), misbehave
    return found


def attack(entry: tuple[tuple[str, ...], Entry], count: int, allowed: tuple[type[Exception], ...], fixed: bool) -> None:
    names, call = entry

    @settings(
        max_examples=count, derandomize=fixed, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(arguments=junk(*names))
    def once(arguments: dict[str, Any]) -> None:
        with contextlib.suppress(*allowed):
            call(arguments)

    once()


@pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")
def test_any_arguments(
    entries: dict[str, tuple[tuple[str, ...], Entry]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for entry in entries.values():
        attack(entry, 60, DOCUMENTED, fixed=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore::kvbacking.BackingIgnoredWarning")
def test_any_arguments_for_minutes(
    entries: dict[str, tuple[tuple[str, ...], Entry]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    until = time.monotonic() + 60 * float(os.environ.get("KVB_MACHINE_MINUTES", "10"))
    for name in itertools.cycle(entries):
        if time.monotonic() > until:
            break
        attack(entries[name], 200, (Exception,), fixed=False)
