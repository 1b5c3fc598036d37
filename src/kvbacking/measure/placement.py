"""Where did it run? Only asked by comparing digests with control runs of single compute units; often unanswerable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvbacking.contract import KVContract
from kvbacking.errors import KVBackingError
from kvbacking.model import ComputeUnits, Model
from kvbacking.session import Session

Digests = Mapping[str, str | None]  # output -> digest
SINGLE_UNITS: tuple[ComputeUnits, ...] = ("cpu_only", "cpu_and_gpu", "cpu_and_ne")


def control_digests(model: Model, inputs: Mapping[str, np.ndarray], contract: KVContract) -> dict[str, Digests]:
    """Digests of a framework run with each restricted choice of compute units, by its name. Units that cannot be
    loaded or run are left out. Loads the model once more for each."""
    found: dict[str, Digests] = {}
    for units in SINGLE_UNITS:
        try:
            other = Model.load(model.path, compute_units=units, function=model.function, cache_dir=model.cache_dir)
            with Session(other, contract, mechanism="framework", verify="scan") as session:
                prediction = session.predict(inputs)
                found[units] = {name: prediction.evidence[name].digest for name in contract.outputs}
                prediction.release()
        except KVBackingError:
            continue
    return found


def infer(controls: Mapping[str, Digests], arms: Mapping[str, Digests]) -> dict[str, Any]:
    """The placement part of a report. An arm gets a name only when its digests equal those of exactly one control.

    The public compute plan takes no backings, so it cannot show a shift that a backing causes; digests can, but only
    when the units compute different bits. It is supporting evidence and never a memory win.
    """
    results = {arm: _match(controls, digests) for arm, digests in arms.items()}
    known = {arm: units for arm, units in results.items() if units != "unknown"}
    document: dict[str, Any] = {"arms": results, "controls": {units: dict(d) for units, d in controls.items()}}
    if len(set(known.values())) > 1:
        return {"result": "shifted", "why": "arms match different compute units", **document}
    if arms and len(known) == len(arms):
        return {"result": next(iter(known.values())), "why": "every arm matches this control and no other", **document}
    return {"result": "unknown", "why": _why_unknown(controls, arms), **document}


def _match(controls: Mapping[str, Digests], digests: Digests) -> str:
    if not digests or None in digests.values():
        return "unknown"
    equal = [units for units, control in controls.items() if dict(control) == dict(digests)]
    return equal[0] if len(equal) == 1 else "unknown"


def _why_unknown(controls: Mapping[str, Digests], arms: Mapping[str, Digests]) -> str:
    if not controls:
        return "no control runs of single compute units were made"
    different: Sequence[dict[str, str | None]] = []
    for digests in controls.values():
        if dict(digests) not in different:
            different = [*different, dict(digests)]
    if len(controls) > 1 and len(different) == 1:
        return "all compute units give the same bits, so digests cannot tell them apart"
    if any(not d or None in d.values() for d in arms.values()):
        return "some arms have no digest (verify level without a scan)"
    return "the digests match no control run, or more than one"
