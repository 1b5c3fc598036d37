"""kvbacking.simulator: settings, nesting, the environment that children inherit. (What faults do: tests/faults.)"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvbacking as kvb

if kvb.runtime_info().kind != "simulator":
    pytest.skip("the switches of the simulator", allow_module_level=True)

from kvbacking import simulator


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    simulator.reset()
    yield
    simulator.reset()


def _environment(variable: str) -> object:
    text = os.environ.get(variable)
    return None if text is None else json.loads(text)


def test_every_fault_says_what_it_takes() -> None:
    assert len(simulator.KNOWN_FAULTS) >= 36
    for name, info in simulator.KNOWN_FAULTS.items():
        assert info.name == name
        assert info.summary
        assert (info.parameter == "none") == (info.default == "")
        assert bool(info.choices) == (info.parameter == "choice")
        setting = {"none": True, "choice": info.default, "milliseconds": 1, "nth": 1}[info.parameter]
        with simulator.faults(**{name: setting}) as injection:
            assert injection.fired[name] == 0


def test_blocks_nest_and_the_environment_follows() -> None:
    assert _environment(simulator.FAULTS_VARIABLE) is None
    with simulator.faults(stale=True):
        with simulator.faults(nan={"cross_v": "last"}, after=2, times=1):
            inner = {"stale": True, "nan": {"cross_v": "last"}, "after": 2, "times": 1}
            assert _environment(simulator.FAULTS_VARIABLE) == inner
        assert _environment(simulator.FAULTS_VARIABLE) == {"stale": True}
    assert _environment(simulator.FAULTS_VARIABLE) is None


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"nobody": True}, "nobody"),
        ({"nan": "fourth"}, "first, middle, last"),
        ({"hang": ("y",)}, "no single output"),
        ({"latency": -1}, "latency"),
        ({"allocation_failure": ("disk",)}, "disk"),
        ({"stale": 3}, "no parameter"),
    ],
)
def test_a_wrong_setting_changes_nothing(setting: dict[str, simulator.FaultSetting], text: str) -> None:
    with simulator.faults(ignore=("y",)):
        with pytest.raises(ValueError, match=text), simulator.faults(**setting):
            pytest.fail("the block must not run")
        assert _environment(simulator.FAULTS_VARIABLE) == {"ignore": ["y"]}


def test_options_are_checked_and_restored() -> None:
    before = simulator.options()
    with simulator.configured(numerics="fp16", row_padding=0, backed_numerics="fp32"):
        now = simulator.options()
        assert now["row_padding"] == 0
        assert set(now["numerics"].values()) == {"fp16"}  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="fp8"):
            simulator.configure(row_padding=8, numerics="fp8")
        assert simulator.options() == now
    assert simulator.options() == before
    with pytest.raises(ValueError, match="no simulator option"):
        simulator.configure(nobody=1)


def test_hidden_api_is_what_the_product_sees() -> None:
    assert kvb.runtime_info().supports_state
    with simulator.hide_api("14"):
        hidden = kvb.runtime_info()
        assert not hidden.supports_state
        assert not hidden.supports_functions
        assert not hidden.supports_compute_plan
    assert kvb.runtime_info().supports_state
    with pytest.raises(ValueError, match="macOS version"), simulator.hide_api("13"):
        pytest.fail("the block must not run")


def test_a_child_process_starts_with_faults_options_and_hidden_api() -> None:
    program = (
        "import json, kvbacking as kvb; from kvbacking import simulator;"
        "print(json.dumps([simulator.options()['row_padding'], kvb.runtime_info().supports_state]))"
    )
    with simulator.configured(row_padding=32), simulator.hide_api("14"):
        output = subprocess.run(
            [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True, check=True
        ).stdout
    assert json.loads(output) == [32, False]


def test_a_broken_environment_fails_every_load(small: object) -> None:
    path = str(small.path)  # type: ignore[attr-defined]
    program = f"import kvbacking as kvb; kvb.Model.load({path!r})"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, simulator.FAULTS_VARIABLE: '{"nobody": true}'},
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0
    assert simulator.FAULTS_VARIABLE in result.stderr
    assert "nobody" in result.stderr


def test_counts(model: kvb.Model, contract: kvb.KVContract, small: object) -> None:
    assert set(simulator.live_counts()) == {"array", "model", "pixel_buffer", "pool", "state", "surface"}
    simulator.reset_violations()
    with kvb.Session(model, contract, mechanism="raw") as session, simulator.faults(stage=True) as injection:
        session.predict(small.inputs(seed=1)).release()  # type: ignore[attr-defined]
        assert injection.fired["stage"] == len(contract.outputs)
    assert injection.fired["stage"] == len(contract.outputs)
    assert simulator.drain()
    assert not any(simulator.violations().values())


def test_on_macos_the_module_refuses_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delitem(sys.modules, "kvbacking.simulator")
    with pytest.raises(kvb.UnsupportedPlatformError, match="Linux only"):
        importlib.import_module("kvbacking.simulator")


def test_the_page_names_every_option_and_fault() -> None:
    page = (Path(__file__).parents[2] / "docs/simulator.md").read_text()
    for name in [*simulator.options(), *simulator.KNOWN_FAULTS]:
        assert f"`{name}`" in page, name
