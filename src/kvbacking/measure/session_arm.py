"""The arms of a real bench: sessions over one loaded model, one mechanism each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kvbacking import _native
from kvbacking.contract import KVContract
from kvbacking.errors import BackingIgnoredWarning
from kvbacking.model import Model
from kvbacking.session import Mechanism, Prediction, Reuse, Session, Verify

from .clock import Clock
from .sample import COPY, END_TO_END, PREDICTION, RELEASE, STAGE, VERIFICATION, PathName, Sample

Inputs = Mapping[str, np.ndarray]
Predict = Callable[[Inputs], Prediction]
_TIMED = {
    "allocation": "allocations",
    "allocated_bytes": "allocated_bytes",
    "array": "wrappers_made",
    "surface": "surfaces_made",
}


class EndToEnd(Protocol):
    """The caller's whole task around one prediction, for example from sound to text."""

    def run(self, predict: Predict) -> object:
        """Does the task, calling `predict` exactly once; what it returns is judged by `gates`. Timed as a whole."""

    def gates(self, control: object, candidate: object) -> Mapping[str, bool]:
        """Quality gates by name: is `candidate` as good as what the control gave? Not timed; must not be empty."""


@dataclass(slots=True, kw_only=True)
class GateBook:
    """The control's result, the yardstick of every arm, and the gates that each arm passed in every run so far."""

    control: object = None
    has_control: bool = False
    passed: dict[str, dict[str, bool]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SessionArm:
    """Opens its session at its first run, so that a refusal is a finding about the arm and not the end of the bench.

    With `fresh` every run opens and closes a session inside the timed stage: allocation and wrapper creation count.
    """

    name: str
    model: Model
    contract: KVContract
    mechanism: Mechanism
    inputs: Inputs
    clock: Clock
    verify: Verify
    fresh: bool = False
    reuse: Reuse | None = None
    task: EndToEnd | None = None
    book: GateBook = field(default_factory=GateBook)
    evidence: list[dict[str, Any]] = field(default_factory=list)  # of the last valid run
    counters: dict[str, int] = field(default_factory=dict)
    _session: Session | None = None

    @property
    def expects(self) -> PathName:
        return "framework" if self.mechanism == "framework" else "backing"

    def run_once(self) -> Sample:
        """One prediction. Raises what the session raises."""
        if self.task is None:
            stage, prediction = self._stage(self.inputs)
            return self._finish(prediction, {STAGE: stage}, None)
        stages: list[tuple[int, Prediction]] = []

        def predict(inputs: Inputs) -> Prediction:
            stages.append(self._stage(inputs))
            return stages[-1][1]

        started = self.clock.now_ns()
        result = self.task.run(predict)
        whole = self.clock.now_ns() - started
        if len(stages) != 1:
            raise RuntimeError(f"the end-to-end task made {len(stages)} predictions; a round is exactly one")
        return self._finish(stages[0][1], {STAGE: stages[0][0], END_TO_END: whole}, self._judge(self.task, result))

    def close(self) -> None:
        """Closes the session; idempotent."""
        if self._session is not None:
            self._count(self._session)
            self._session.close()
            self._session = None

    def _stage(self, inputs: Inputs) -> tuple[int, Prediction]:
        """From the call to views of every output."""
        # A stateful model starts every run from new buffers: with old ones each run would be other work.
        state = self.model.new_state() if self.model.states else None
        with warnings.catch_warnings():
            # An ignored backing is judged by the path of the sample; the warning would only repeat it on stderr.
            warnings.simplefilter("ignore", BackingIgnoredWarning)
            before = _native.created_counts()
            started = self.clock.now_ns()
            if self._session is None:
                self._session = self._open()
            prediction = self._session.predict(inputs, state=state)
            for name in prediction:
                prediction[name]
            took = self.clock.now_ns() - started
        for name, count in _native.created_counts().items():
            label = f"{_TIMED[name]}_in_timed_parts"
            self.counters[label] = self.counters.get(label, 0) + count - before[name]
        return took, prediction

    def _open(self) -> Session:
        return Session(
            self.model, self.contract, mechanism=self.mechanism, depth=2, verify=self.verify, reuse=self.reuse
        )

    def _finish(self, prediction: Prediction, whole: dict[str, int], failed_gate: str | None) -> Sample:
        intervals = {
            PREDICTION: prediction.predict_ns,
            VERIFICATION: prediction.verify_ns,
            COPY: prediction.copy_ns,
            **whole,
        }
        path: PathName = prediction.path
        records = {name: e.to_dict() for name, e in prediction.evidence.items() if name in self.contract.outputs}
        unaccepted = [n for n, e in records.items() if path == "backing" and not e["accepted"]]
        started = self.clock.now_ns()
        prediction.release()
        if self.fresh:
            self.close()
        intervals[RELEASE] = self.clock.now_ns() - started
        problem = failed_gate or (f"not accepted: {', '.join(unaccepted)}" if unaccepted else None)
        if problem is None and path == self.expects:
            self.evidence = list(records.values())
        # A session that found a fault raises, and one that does not verify is refused by bench().
        return Sample(intervals=intervals, path=path, verified=self.verify != "off", problem=problem)

    def _judge(self, task: EndToEnd, result: object) -> str | None:
        """Compares with the control's first result; a failed gate makes the sample invalid."""
        if not self.book.has_control:
            if self.expects != "framework":
                return "the control gave no result to compare with"
            self.book.control, self.book.has_control = result, True
        gates = task.gates(self.book.control, result)
        if not gates:
            return "the end-to-end task has no quality gates"
        passed = self.book.passed.setdefault(self.name, dict.fromkeys(gates, True))
        for gate, ok in gates.items():
            passed[gate] = passed.get(gate, True) and bool(ok)
        failed = [gate for gate, ok in gates.items() if not ok]
        return f"quality gate not passed: {', '.join(failed)}" if failed else None

    def _count(self, session: Session) -> None:
        for name, value in session.stats.to_dict().items():
            if isinstance(value, int):
                self.counters[name] = self.counters.get(name, 0) + value
