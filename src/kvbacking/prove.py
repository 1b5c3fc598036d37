"""The falsification recipe: predictions in a child process with a time limit, and the decision.

A hang or a crash of the framework is a verdict (termination failure) and not the end of the caller.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kvbacking._arrays import AnyArray, prepare_inputs
from kvbacking._integers import as_integer
from kvbacking._request import Request, save_arrays
from kvbacking.certificate import Certificate
from kvbacking.contract import KVContract
from kvbacking.errors import CheckFailure, UnsupportedPlatformError
from kvbacking.model import Model
from kvbacking.runtime import runtime_info
from kvbacking.verdict import Answer, AppliedRule, Check, MechanismVerdict, Verdict, applied, names_of, standing_rules

MECHANISMS = ("raw", "surface", "pool")
MAX_TIMEOUT_S = 1e6  # what poll() can wait for is not much more


def prove(
    model: Model,
    inputs: Mapping[str, AnyArray],
    contract: KVContract,
    *,
    mechanisms: Sequence[str] = MECHANISMS,
    other_inputs: Mapping[str, AnyArray] | None = None,
    repeats: int = 8,
    timeout_s: float = 300.0,
) -> Verdict:
    """Tries to falsify each mechanism on this model and contract, each in a child process of at most `timeout_s`.

    `other_inputs` must give other outputs (freshness is checked between the two); by default it is made from `inputs`.
    Every prediction of a stateful model starts from a fresh state. Raises ContractError for inputs that do not fit,
    UnsupportedPlatformError where no child process can be started.
    """
    repeats = as_integer("repeats", repeats)
    _check_arguments(model, contract, mechanisms, repeats, timeout_s)
    first = prepare_inputs(model.inputs, inputs, cast=False)
    if other_inputs is None:
        second = vary(first, tuple(model.inputs) if contract.sensitive_to is None else contract.sensitive_to)
    else:
        second = prepare_inputs(model.inputs, other_inputs, cast=False)
    with tempfile.TemporaryDirectory(prefix="kvbacking-prove-") as folder:
        save_arrays(Path(folder) / "first.npz", first)
        save_arrays(Path(folder) / "second.npz", second)
        verdicts = tuple(_prove_one(model, contract, name, repeats, timeout_s, Path(folder)) for name in mechanisms)
    return Verdict(
        outcome="proven" if any(v.outcome == "proven" for v in verdicts) else "rejected",
        runtime=runtime_info().to_dict(),
        model={
            "path": model.path.name,
            "fingerprint": model.fingerprint,
            "function": model.function,
            "compute_units": model.compute_units,
            "outputs": {name: spec.describe() for name, spec in model.outputs.items()},
        },
        contract=contract.to_dict(),
        repeats=repeats,
        mechanisms=verdicts,
    )


def certify(model: Model, contract: KVContract, verdict: Verdict, mechanism: str | None = None) -> Certificate:
    """A "proven" certificate for one mechanism of a verdict (default: the first proven one). Raises ValueError when it
    was not proven, or when the verdict is about another model or contract."""
    for name, value, kind in (
        ("model", model, Model),
        ("contract", contract, KVContract),
        ("verdict", verdict, Verdict),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a kvbacking.{kind.__name__}, got {type(value).__name__}")
    chosen = [m for m in verdict.proven if mechanism in (None, m.mechanism)]
    if not chosen:
        raise ValueError(f"[certify] {mechanism or 'no mechanism'} was not proven")
    if verdict.model["fingerprint"] != model.fingerprint or verdict.contract != contract.to_dict():
        raise ValueError("[certify] the verdict is about another model or contract")
    best = chosen[0]
    proof = {"repeats": verdict.repeats, "predictions": best.predictions, "checks": [c.name for c in best.checks]}
    return Certificate.issue(model, contract, mechanism=best.mechanism, reuse=best.reuse or "new", proof=proof)


def vary(inputs: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Other inputs of the same shapes and dtypes: floats halved and reversed, integers rolled by one element."""
    result = dict(inputs)
    for name in names:
        array = result.get(name)
        if array is None:
            continue
        if array.dtype.kind == "f":
            other = np.ascontiguousarray(array[..., ::-1]) * array.dtype.type(0.5)
        else:
            other = np.roll(array, 1)
        if np.array_equal(other, array):
            other = array + array.dtype.type(1)
        result[name] = other
    return result


def _check_arguments(
    model: Model, contract: KVContract, mechanisms: Sequence[str], repeats: int, timeout_s: float
) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"model must be a kvbacking.Model, got {type(model).__name__}")
    if not isinstance(contract, KVContract):
        raise TypeError(f"contract must be a kvbacking.KVContract, got {type(contract).__name__}")
    if isinstance(mechanisms, str) or not mechanisms or any(m not in MECHANISMS for m in mechanisms):
        raise ValueError(f"mechanisms must be some of {MECHANISMS}, got {mechanisms!r}")
    if repeats < 4:
        raise ValueError(f"repeats must be at least 4 (two of each input), got {repeats}")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)):
        raise TypeError(f"timeout_s must be a number of seconds, got {type(timeout_s).__name__}")
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"timeout_s must be above 0 and at most {MAX_TIMEOUT_S:g}, got {timeout_s}")


def _prove_one(
    model: Model, contract: KVContract, mechanism: str, repeats: int, timeout_s: float, folder: Path
) -> MechanismVerdict:
    request = Request(
        path=str(model.path.resolve()),
        fingerprint=model.fingerprint,
        compute_units=model.compute_units,
        function=model.function,
        cache_dir=str(model.cache_dir),
        contract=contract.to_dict(),
        mechanism=mechanism,
        repeats=repeats,
        first=str(folder / "first.npz"),
        second=str(folder / "second.npz"),
        events=str(folder / f"{mechanism}.jsonl"),
    )
    request_path = folder / f"{mechanism}.json"
    request_path.write_text(request.to_json())
    command = [sys.executable, "-m", "kvbacking._recipe", str(request_path)]
    # A session of its own, so that everything the child may have started ends with it.
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=_child_environment(),
    )
    termination, detail, stderr = "completed", "the child process ended normally", b""
    try:
        _, stderr = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        termination, detail = "timeout", f"no answer within {timeout_s:g} s"
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    events = _read_events(Path(request.events))
    if not events:
        text = detail if termination == "timeout" else _how_it_ended(child.returncode, stderr)
        raise UnsupportedPlatformError(f"[prove] the child process did not start: {text}")
    if termination == "completed" and child.returncode != 0:
        termination, detail = "crash", _how_it_ended(child.returncode, stderr)
    if termination != "completed":
        detail += f", during {_last_step(events)}"
    return decide(mechanism, contract, events, termination, detail)


def _child_environment() -> dict[str, str]:
    """This process's environment, with this very package importable."""
    environment = dict(os.environ)
    package_parent = str(Path(__file__).absolute().parent.parent)
    paths = [package_parent, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    return environment


def _how_it_ended(returncode: int, stderr: bytes) -> str:
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    lines = stderr.decode(errors="replace").strip().splitlines()
    return f"exit status {returncode}" + (f": {lines[-1]}" if lines else "")


def _read_events(path: Path) -> list[dict[str, Any]]:
    """What the child wrote until its end; a line cut off by a crash is dropped."""
    events = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            events.append(json.loads(line))
        except ValueError:
            break
    return events


def _last_step(events: list[dict[str, Any]]) -> str:
    return next((str(e["step"]) for e in reversed(events) if e["event"] == "step"), "start")


def decide(
    mechanism: str, contract: KVContract, events: Sequence[Mapping[str, Any]], termination: str, detail: str
) -> MechanismVerdict:
    """The answers and rules that follow from what the child reported and how it ended. Pure."""
    answers = {
        name: Answer(value="unknown", evidence="not reached")
        for name in ("api_available", "admissible", "used", "correct")
    }
    for event in events:
        if event["event"] == "answer":
            answers[event["question"]] = Answer(value=event["value"], evidence=event["evidence"])
    answers["faster"] = Answer(value="unknown", evidence="only a bench report answers it")
    failures = tuple(CheckFailure(**f) for e in events if e["event"] == "failures" for f in e["failures"])
    if termination != "completed":
        failures += (
            CheckFailure(output="*", check="termination", expected="completed", actual=f"{termination}: {detail}"),
        )
        answers["correct"] = Answer(value="no", evidence=f"termination failure: {detail}")
    rules: list[AppliedRule] = []
    infeasible = [q for q in ("api_available", "admissible", "used") if answers[q].value == "no"]
    if infeasible:
        rules.append(applied("reject-api-feasibility", "; ".join(f"{q}: {answers[q].evidence}" for q in infeasible)))
    if answers["correct"].value == "no":
        rules.append(applied("reject-correctness", names_of(failures) or answers["correct"].evidence))
    wanted = ("api_available", "admissible", "used", "correct")
    proven = all(answers[q].value == "yes" for q in wanted) and not failures
    if not proven and not rules:
        open_questions = ", ".join(f"{q}: {answers[q].evidence}" for q in wanted if answers[q].value != "yes")
        rules.append(applied("retain-explicit-copy-control", f"not shown: {open_questions}"))
    return MechanismVerdict(
        mechanism=mechanism,
        outcome="proven" if proven else "rejected",
        reuse=next((e["reuse"] for e in events if e["event"] == "reuse"), None),
        answers=answers,
        rules=(*rules, *standing_rules()),
        failures=failures,
        checks=tuple(
            Check(name=e["name"], passed=e["passed"], detail=e["detail"]) for e in events if e["event"] == "check"
        ),
        evidence=next((tuple(e["evidence"]) for e in reversed(events) if e["event"] == "evidence"), ()),
        predictions=sum(1 for e in events if e["event"] == "prediction"),
        termination=termination,
        termination_detail=detail,
    )
