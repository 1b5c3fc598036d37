"""The child process of `prove`: runs the recipe on one mechanism and writes what it sees, line by line, as it sees it.

Run as `python -m kvbacking._recipe REQUEST.json`. Whatever ends this process, the parent reads how far it came. An
exception of this package is a finding; any other one is a crash.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import numpy as np

from kvbacking import _native
from kvbacking._findings import as_failures, how_ignored, unwritten
from kvbacking._request import Request, load_arrays
from kvbacking.contract import KVContract
from kvbacking.errors import (
    AllocationError,
    BackingIgnoredWarning,
    CheckFailure,
    ContractError,
    IntegrityError,
    KVBackingError,
    PredictionError,
)
from kvbacking.model import Model
from kvbacking.runtime import runtime_info
from kvbacking.scan import scan
from kvbacking.session import Prediction, Reuse, Session

SessionMechanism = Literal["raw", "surface", "pool"]
REUSE_CANDIDATES: Mapping[str, tuple[Reuse, ...]] = {
    "raw": ("same",),
    "surface": ("same", "rewrap", "new"),
    "pool": ("new",),
}
LOCK_CYCLES = 4  # at least three lock/predict cycles: the first prediction comes before any lock
FILLS = (0x5A, 0xA5)
SETTLE_S = 5.0  # the framework may hold arrays for about a second after it returned
# Evidence fields that must be true in every prediction, where they were evaluated.
MUST_HOLD = ("in_range", "layout_ok", "finite", "distinct", "fresh", "complete", "canaries_intact")


class RejectedError(Exception):
    """The recipe ends here; what was found is already written."""


def main(arguments: Sequence[str]) -> int:
    request = Request(**json.loads(Path(arguments[0]).read_text()))
    # Acceptance is read from the evidence; the warning would only go to a closed stream.
    warnings.simplefilter("ignore", BackingIgnoredWarning)
    with Path(request.events).open("w") as events:
        recipe = Recipe(request, events)
        try:
            recipe.run()
        except RejectedError:
            return 0
    return 0


class Recipe:
    """One mechanism, one model, one contract."""

    def __init__(self, request: Request, events: TextIO) -> None:
        self.request = request
        self.mechanism = cast(SessionMechanism, request.mechanism)
        self.contract = KVContract.from_dict(request.contract)
        self.inputs = {"first": load_arrays(request.first), "second": load_arrays(request.second)}
        self._events = events
        self.failures: list[CheckFailure] = []
        self.open_checks: list[str] = []

    # --- what the parent reads -------------------------------------------------------------------------------------

    def emit(self, event: str, **fields: Any) -> None:
        self._events.write(json.dumps({"event": event, **fields}) + "\n")
        self._events.flush()

    def answer(self, question: str, value: str, evidence: str) -> None:
        self.emit("answer", question=question, value=value, evidence=evidence)

    def fail(self, failures: Sequence[CheckFailure]) -> None:
        self.failures += failures
        self.emit("failures", failures=[f.to_dict() for f in failures])

    def check(self, name: str, passed: bool | None, detail: str) -> None:
        if passed is None:
            self.open_checks.append(name)
        self.emit("check", name=name, passed=passed, detail=detail)

    def reject(self, question: str, evidence: str, failures: Sequence[CheckFailure] = ()) -> None:
        self.answer(question, "no", evidence)
        if failures:
            self.fail(failures)
        raise RejectedError

    # --- the steps ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.emit("step", step="load")
        model = self.load()
        self.emit("step", step="admissible")
        self.admissible(model)
        self.emit("step", step="control")
        self.control(model)
        before = self.settled_counts(model)
        self.emit("step", step="reuse")
        reuse = self.find_reuse(model)
        self.emit("step", step="recipe")
        self.repeat(model, reuse)
        self.emit("step", step="complete")
        self.complete(model)
        self.emit("step", step="live counts")
        self.no_growth(model, before)
        if self.failures:
            self.answer("correct", "no", f"{len(self.failures)} failed checks")
        elif self.open_checks:
            self.answer("correct", "unknown", f"not evaluated: {', '.join(self.open_checks)}")
        else:
            self.answer("correct", "yes", f"every check passed over {self.request.repeats} predictions of two inputs")

    def load(self) -> Model:
        request = self.request
        try:
            model = Model.load(
                request.path,
                compute_units=cast(Any, request.compute_units),
                function=request.function,
                cache_dir=request.cache_dir,
            )
        except KVBackingError as error:
            self.reject("api_available", f"the model does not load: {error}")
        if model.fingerprint != request.fingerprint:
            self.reject("api_available", "the package changed after the caller loaded it")
        info = runtime_info()
        self.answer(
            "api_available",
            "yes",
            f"{info.kind} {info.runtime_version}, built for {info.deployment_target} against {info.build_sdk}",
        )
        return model

    def admissible(self, model: Model) -> None:
        if failures := self.contract.mismatches(model):
            self.reject("admissible", f"the contract does not fit: {'; '.join(map(str, failures))}", failures)
        try:
            with self.session(model, REUSE_CANDIDATES[self.mechanism][0], depth=1):
                pass
        except ContractError as error:
            self.reject("admissible", str(error), error.failures)
        except AllocationError as error:
            self.reject("admissible", str(error))
        names = ", ".join(self.contract.outputs)
        self.answer("admissible", "yes", f"exact output names; isAllowedValue: said yes to {names}")

    def control(self, model: Model) -> None:
        """The framework's own outputs, copied: what parity is measured against."""
        self.reference: dict[str, dict[str, np.ndarray]] = {}
        try:
            for key, inputs in self.inputs.items():
                self.reference[key] = model.predict(inputs, state=model.new_state() if model.states else None)
        except KVBackingError as error:
            self.answer("used", "unknown", "the control prediction failed")
            self.reject("correct", f"the control prediction failed: {error}", as_failures(error))

    def find_reuse(self, model: Model) -> Reuse:
        """The least costly reuse mode that is still accepted after the bytes were read between predictions."""
        refused: list[str] = []
        for reuse in REUSE_CANDIDATES[self.mechanism]:
            why = self.try_reuse(model, reuse)
            if why is None:
                self.emit("reuse", reuse=reuse)
                note = f" ({'; '.join(refused)})" if refused else ""
                self.answer(
                    "used", "yes", f"the proposed objects came back in {LOCK_CYCLES} cycles, reuse mode {reuse}{note}"
                )
                return reuse
            refused.append(f"reuse {reuse}: {why}")
        self.answer("correct", "unknown", "no prediction into the backings succeeded")
        failure = CheckFailure(output="*", check="accepted", expected="the proposed objects", actual="; ".join(refused))
        self.reject("used", "; ".join(refused), (failure,))
        raise AssertionError("reject() raises")

    def try_reuse(self, model: Model, reuse: Reuse) -> str | None:
        """None when every cycle was accepted, else why not. Wrong bytes are the recipe's business, not this step's."""
        try:
            with self.session(model, reuse, depth=1, verify="layout") as session:
                for cycle in range(LOCK_CYCLES):
                    prediction = self.predict(model, session, "first" if cycle % 2 == 0 else "second")
                    refused = [n for n in self.contract.outputs if not prediction.evidence[n].accepted]
                    if refused:
                        return f"cycle {cycle}: {', '.join(how_ignored(prediction, n) for n in refused)}"
                    for name in self.contract.outputs:  # reading a surface locks it
                        scan(prediction[name])
                    prediction.release()
        except IntegrityError as error:
            self.answer("used", "unknown", "the first checks failed")
            self.reject("correct", str(error), error.failures)
        except PredictionError as error:
            return str(error)
        return None

    def repeat(self, model: Model, reuse: Reuse) -> None:
        """Alternating inputs, every check on every prediction, parity with the control."""
        outputs = self.contract.outputs
        digests: dict[str, list[dict[str, str]]] = {"first": [], "second": []}
        firsts: dict[str, dict[str, np.ndarray]] = {}
        worst = dict.fromkeys(outputs, 0.0)
        evidence: list[dict[str, Any]] = []
        with self.session(model, reuse, depth=2) as session:
            for index in range(self.request.repeats):
                key = "first" if index % 2 == 0 else "second"
                with self.findings():
                    prediction = self.predict(model, session, key)
                    evidence = [e.to_dict() for e in prediction.evidence.values()]
                    self.emit("evidence", evidence=evidence)
                    self.judge(prediction)
                    run: dict[str, str] = {}
                    for name in outputs:
                        run[name], error = self.compare("parity", prediction, name, self.reference[key][name])
                        worst[name] = max(worst[name], error)
                        if key in firsts:
                            self.compare("repeatable", prediction, name, firsts[key][name])
                    firsts.setdefault(key, {name: prediction[name].copy() for name in outputs})
                    digests[key].append(run)
                    prediction.release()
        tolerance = self.contract.tolerance
        limits = f"max_abs {tolerance.max_abs:g}, max_rel {tolerance.max_rel:g}"
        for name, error in worst.items():
            self.check("parity", True, f"{name}: max abs error {error:g} against the control, tolerance {limits}")
        self.seen_in(evidence)
        self.fresh_across_inputs(digests)
        for key, runs in digests.items():
            kinds = {n: len({run[n] for run in runs}) for n in outputs}
            detail = ", ".join(f"{n}: {count} distinct digest{'s' if count > 1 else ''}" for n, count in kinds.items())
            self.check("repeatable", True, f"{len(runs)} predictions of the {key} input within tolerance; {detail}")

    def seen_in(self, evidence: Sequence[Mapping[str, Any]]) -> None:
        """Which evidence fields held, by the last prediction; a field that was never evaluated is left open."""
        backed = [e for e in evidence if e["name"] in self.contract.outputs]
        names = ["in_range", "layout_ok", "finite", "non_zero", "distinct", "digest"]
        if self.contract.tail == "zero":
            names.append("tail_zero")
        if self.mechanism == "raw":
            names.append("canaries_intact")
        for name in names:
            missing = [e["name"] for e in backed if e[name] is None]
            detail = f"not evaluated for {', '.join(missing)}" if missing else "held in every prediction"
            self.check(name, None if missing else True, detail)

    def judge(self, prediction: Prediction) -> None:
        """Fails on every evidence field that is false, and on a backing that is no longer accepted."""
        failures = []
        for name, evidence in prediction.evidence.items():
            for field in MUST_HOLD:
                if getattr(evidence, field) is False:
                    failures.append(CheckFailure(output=name, check=field, expected="true", actual="false"))
            if evidence.tail_zero is False and self.contract.tail == "zero":
                failures.append(CheckFailure(output=name, check="tail_zero", expected="true", actual="false"))
            if evidence.non_zero is False and not self.contract.allow_all_zero:
                failures.append(CheckFailure(output=name, check="non_zero", expected="true", actual="false"))
        refused = [n for n in self.contract.outputs if not prediction.evidence[n].accepted]
        if refused:
            text = ", ".join(how_ignored(prediction, n) for n in refused)
            self.answer("correct", "unknown", "a later prediction ignored a backing")
            self.reject("used", f"a later prediction ignored a backing: {text}", failures)
        if failures:
            self.answer("correct", "no", "a check failed")
            self.fail(failures)
            raise RejectedError

    def compare(self, check: str, prediction: Prediction, name: str, reference: np.ndarray) -> tuple[str, float]:
        """Compares every live element with `reference` under the contract's tolerance; fails as `check`. Gives the
        digest of all logical bytes and the largest difference."""
        contract, tolerance = self.contract, self.contract.tolerance
        live, axis = prediction.live_count, contract.axis
        seen = scan(prediction[name], live=live, axis=axis, reference=reference, tolerance=tolerance)
        assert seen.parity is not None
        if seen.parity.over_tolerance_count and _native.check_enabled(check):
            other = {"parity": "the control", "repeatable": "the first prediction of this input"}[check]
            failure = CheckFailure(
                output=name,
                check=check,
                expected=f"within max_abs {tolerance.max_abs:g}, max_rel {tolerance.max_rel:g} of {other}",
                actual=f"{seen.parity.over_tolerance_count} elements over, first at {seen.parity.first_over_index}, "
                f"max abs error {seen.parity.max_abs_error:g}",
            )
            self.answer("correct", "no", f"{name}: {check} failed")
            self.fail((failure,))
            raise RejectedError
        return seen.digest, seen.parity.max_abs_error

    def fresh_across_inputs(self, digests: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
        stale = [
            n
            for n in self.contract.outputs
            if digests["first"][0][n] == digests["second"][0][n] and _native.check_enabled("fresh")
        ]
        if stale:
            self.fail(
                [
                    CheckFailure(
                        output=n, check="fresh", expected="other bytes for another input", actual="the same digest"
                    )
                    for n in stale
                ]
            )
        self.check(
            "fresh",
            not stale,
            f"the same digest for both inputs: {', '.join(stale)}" if stale else "two inputs gave different digests",
        )

    def complete(self, model: Model) -> None:
        """Whole payloads filled with two patterns before two predictions: what still holds both was never written."""
        reuse: Reuse = "same" if self.mechanism == "raw" else "new"
        copies: list[dict[str, np.ndarray]] = []
        with self.session(model, reuse, depth=1) as session:
            for fill in FILLS:
                with self.findings():
                    prediction = self.predict(model, session, "first", fill)
                    if not all(prediction.evidence[n].accepted for n in self.contract.outputs):
                        self.check("complete", None, f"the filled backing was not accepted in reuse mode {reuse}")
                        return
                    copies.append({n: prediction[n].copy() for n in self.contract.outputs})
                    prediction.release()
        failures = [
            CheckFailure(output=name, check="complete", expected="every element written", actual=actual)
            for name in self.contract.outputs
            if (actual := unwritten([c[name] for c in copies], FILLS)) and _native.check_enabled("complete")
        ]
        self.fail(failures) if failures else None
        self.check("complete", not failures, f"two fills ({', '.join(f'{f:#04x}' for f in FILLS)}), reuse mode {reuse}")

    def no_growth(self, model: Model, before: Mapping[str, int]) -> None:
        after = self.settled_counts(model, before)
        grown = {kind: (before.get(kind, 0), n) for kind, n in after.items() if n > before.get(kind, 0)}
        if not _native.check_enabled("live_counts"):
            grown = {}
        if grown:
            text = ", ".join(f"{kind}: {a} -> {b}" for kind, (a, b) in grown.items())
            self.fail([CheckFailure(output="*", check="live_counts", expected="no growth", actual=text)])
        self.check("live_counts", not grown, "native objects alive are as many as before" if not grown else text)

    # --- helpers -----------------------------------------------------------------------------------------------------

    def session(self, model: Model, reuse: Reuse, *, depth: int, verify: Literal["layout", "scan"] = "scan") -> Session:
        return Session(model, self.contract, mechanism=self.mechanism, depth=depth, verify=verify, reuse=reuse)

    def predict(self, model: Model, session: Session, key: str, fill: int | None = None) -> Prediction:
        state = model.new_state() if model.states else None
        prediction = session._predict(self.inputs[key], None, False, state, fill)
        self.emit("prediction", path=prediction.path, predict_ns=prediction.predict_ns)
        return prediction

    @contextmanager
    def findings(self) -> Iterator[None]:
        """Turns this package's errors into findings."""
        try:
            yield
        except IntegrityError as error:
            self.reject("correct", str(error), error.failures)
        except KVBackingError as error:
            self.answer("correct", "unknown", "a later prediction failed")
            self.reject("used", str(error), as_failures(error))

    def settled_counts(self, model: Model, wanted: Mapping[str, int] | None = None) -> dict[str, int]:
        """Live native objects, once what the framework holds for a while is gone."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            gc.collect()
            model.release_idle_inputs()  # how many were needed at once depends on when the framework let go
            counts = _native.live_counts()
            if wanted is None or not (Counter(counts) - Counter(wanted)) or time.monotonic() > deadline:
                return counts
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
