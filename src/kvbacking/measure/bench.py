"""kvb.bench: the paired A/B of one model, one contract and one input on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from kvbacking._arrays import AnyArray, prepare_inputs
from kvbacking._integers import as_integer
from kvbacking.contract import KVContract
from kvbacking.model import Model
from kvbacking.runtime import runtime_info
from kvbacking.session import Reuse

from .analysis import analyse
from .clock import Clock, SystemClock
from .host import HostGate, HostProbe, system_probe
from .lazy import require
from .memory import read_memory
from .placement import control_digests, infer
from .report import Report, Subject, build_report
from .runner import Progress, measure
from .session_arm import EndToEnd, GateBook, SessionArm

CONTROL, DUPLICATE = "framework", "framework again"
SCORED: tuple[Literal["raw", "surface"], ...] = ("raw", "surface")
DEFAULT_ROUNDS = 200


def bench(
    model: Model,
    inputs: Mapping[str, AnyArray],
    contract: KVContract,
    *,
    rounds: int = DEFAULT_ROUNDS,
    warmup: int = 5,
    seed: int = 0,
    verify: Literal["layout", "scan"] = "scan",
    fresh: bool = False,
    reuse: Reuse | None = None,
    end_to_end: EndToEnd | None = None,
    placement: bool = True,
    probe: HostProbe | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    inputs_source: str = "given",
) -> Report:
    """Runs `framework`, `raw` and `surface` and a second `framework` for the noise floor, in randomised blocks.

    All arms share the loaded model, the inputs, the warm-up and the `verify` level: "off" is refused, because bytes
    that were not verified are never timed as valid, and "full", because only backed arms would predict twice. `fresh`
    makes a new session inside every timed stage; `reuse` concerns surfaces and is what a certificate found.
    `end_to_end` adds the caller's task, the only thing that can promote a certificate. `placement` loads the model
    once more per compute unit.

    Ctrl-C ends the run; the report then holds what was measured, unscored. Arms that are refused or fail are reported,
    not raised. Raises ContractError for inputs or a model that do not fit, ValueError for wrong options, ImportError
    without SciPy.
    """
    rounds, warmup = as_integer("rounds", rounds), as_integer("warmup", warmup)
    _check_options(rounds, warmup, verify)
    require("scipy.stats")  # before the run, not after it
    if not isinstance(contract, KVContract):
        raise TypeError(f"contract must be a kvbacking.KVContract, got {type(contract).__name__}")
    contract.check(model)
    prepared = prepare_inputs(model.inputs, inputs, cast=False)
    clock = clock or SystemClock()
    gate = HostGate(probe or system_probe())
    book = GateBook()

    def arm(name: str, mechanism: Literal["framework", "raw", "surface"]) -> SessionArm:
        return SessionArm(
            name=name,
            model=model,
            contract=contract,
            mechanism=mechanism,
            inputs=prepared,
            clock=clock,
            verify=verify,
            fresh=fresh,
            reuse=reuse if mechanism == "surface" else None,
            task=end_to_end,
            book=book,
        )

    # The control comes first: in warm-up it gives the result that the quality gates compare with.
    arms = [arm(CONTROL, "framework"), arm(DUPLICATE, "framework"), *(arm(name, name) for name in SCORED)]
    try:
        run = measure(
            arms,
            control=CONTROL,
            rounds=rounds,
            seed=seed,
            clock=clock,
            gate=gate,
            warmup=warmup,
            memory=read_memory,
            progress=progress,
        )
    finally:
        for each in arms:
            each.close()
    analysis = analyse(
        run,
        control=CONTROL,
        duplicate=DUPLICATE,
        scored=SCORED,
        host_reasons=gate.reasons,
        bootstrap_seed=seed,
    )
    placed = None
    if placement and not run.interrupted:
        digests = {
            a.name: {str(e["name"]): e["digest"] for e in a.evidence} for a in arms if a.name in (CONTROL, *SCORED)
        }
        placed = infer(control_digests(model, prepared, contract), {n: d for n, d in digests.items() if d})
    return build_report(
        subject=Subject(
            runtime=runtime_info().to_dict(),
            model={
                "name": model.path.name,
                "fingerprint": model.fingerprint,
                "function": model.function,
                "compute_units": model.compute_units,
            },
            contract=contract.to_dict(),
            inputs=describe_inputs(prepared, inputs_source),
            verify=verify,
            fresh=fresh,
            kvbacking_version=runtime_info().kvbacking_version,
        ),
        run=run,
        analysis=analysis,
        gate=gate,
        control=CONTROL,
        duplicate=DUPLICATE,
        scored=SCORED,
        bootstrap_seed=seed,
        mechanisms={each.name: each.mechanism for each in arms},
        evidence={each.name: each.evidence for each in arms if each.name != DUPLICATE},
        counters={each.name: each.counters for each in arms},
        placement=placed,
        gates=book.passed if end_to_end is not None else None,
    )


def describe_inputs(inputs: Mapping[str, np.ndarray], source: str) -> dict[str, Any]:
    """Shapes, dtypes and one digest of all values: equal inputs can be recognised without being published."""
    digest = hashlib.sha256()
    for name in sorted(inputs):
        array = inputs[name]
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    shapes = {name: f"{array.dtype.name} {list(array.shape)}" for name, array in inputs.items()}
    return {"digest": f"sha256:{digest.hexdigest()}", "source": source, "arrays": shapes}


def _check_options(rounds: int, warmup: int, verify: str) -> None:
    for name, value in (("rounds", rounds), ("warmup", warmup)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if verify not in ("layout", "scan"):
        raise ValueError(f"verify must be 'layout' or 'scan' in a bench, got {verify!r}")
