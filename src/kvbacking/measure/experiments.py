"""The open hypotheses about output backings, each as an experiment with one variable and an answer that can be no."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvbacking import _native
from kvbacking._arrays import AnyArray, prepare_inputs
from kvbacking.contract import KVContract
from kvbacking.errors import KVBackingError
from kvbacking.model import Model
from kvbacking.runtime import runtime_info
from kvbacking.session import Session

from .analysis import Analysis, analyse
from .clock import Clock, SystemClock
from .experiment import Answer, AnswerWord, Experiment, Setup
from .host import HostGate, HostProbe, system_probe
from .placement import control_digests, infer
from .runner import Progress, measure
from .sample import PREDICTION, STAGE, Arm, PathName, Sample
from .session_arm import SessionArm

GROWTH = "footprint_growth_bytes"  # an interval in bytes: the statistics do not care
POOL_CALLS = 1000
POOL_BYTES = 2 << 30  # a block keeps at most this much alive, should everything stay until the drain


def run_experiment(
    name: str,
    model: Model,
    inputs: Mapping[str, AnyArray],
    contract: KVContract,
    *,
    rounds: int = 100,
    seed: int = 0,
    probe: HostProbe | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs one experiment of EXPERIMENTS and returns its document. Raises KeyError for another name, ContractError."""
    experiment = EXPERIMENTS[name]
    contract.check(model)
    setup = Setup(
        model=model,
        inputs=prepare_inputs(model.inputs, inputs, cast=False),
        contract=contract,
        rounds=rounds,
        seed=seed,
        clock=clock or SystemClock(),
        gate=HostGate(probe or system_probe()),
        progress=progress,
    )
    answer = experiment.run(setup)
    runtime = runtime_info()
    return {
        "schema": "kvbacking.experiment/1",
        "name": name,
        "simulated": runtime.kind == "simulator",
        "hypothesis": experiment.hypothesis,
        "variable": experiment.variable,
        "held": experiment.held,
        "falsified_by": experiment.falsified_by,
        "answer": answer.word,
        "because": answer.because,
        "numbers": dict(answer.numbers),
        "rounds": rounds,
        "seed": seed,
        "model": {
            "name": model.path.name,
            "fingerprint": model.fingerprint,
            "function": model.function,
            "compute_units": model.compute_units,
        },
        "runtime": runtime.to_dict(),
        "host": setup.gate.document(),
    }


def _paired(setup: Setup, control: Arm, duplicate: Arm, candidates: list[Arm], interval: str) -> Analysis:
    arms = [control, duplicate, *candidates]
    try:
        run = measure(
            arms,
            control=control.name,
            rounds=setup.rounds,
            seed=setup.seed,
            clock=setup.clock,
            gate=setup.gate,
            warmup=3,
            progress=setup.progress,
        )
    finally:
        for arm in arms:
            if isinstance(arm, SessionArm):
                arm.close()
    return analyse(
        run,
        control=control.name,
        duplicate=duplicate.name,
        scored=[arm.name for arm in candidates],
        host_reasons=setup.gate.reasons,
        bootstrap_seed=setup.seed,
        decided=(interval,),
    )


def _numbers(analysis: Analysis, interval: str) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for arm in analysis.arms:
        if interval in arm.intervals:
            numbers[f"{arm.name} p50"] = arm.intervals[interval].p50_ns
        else:
            numbers[f"{arm.name}"] = "; ".join(arm.reasons)
    for name, by_interval in analysis.differences.items():
        if interval in by_interval:
            d = by_interval[interval]
            numbers[f"{name} minus control"] = [d.low_ns, d.median_ns, d.high_ns]
    for decision in analysis.decisions:
        numbers[f"{decision.arm} decision"] = decision.word
        numbers["noise floor"] = decision.floor_ns
    return numbers


def _answer_of_saving(analysis: Analysis, arm: str, interval: str) -> Answer:
    decision = next(d for d in analysis.decisions if d.arm == arm)
    words: dict[str, AnswerWord] = {
        "saving shown": "supported",
        "no saving shown": "not supported",
        "slower": "not supported",
        "unscored": "inconclusive",
    }
    because = f"{arm}, {interval.replace('_', ' ')}: {decision.word}: {'; '.join(dict.fromkeys(decision.reasons))}"
    return Answer(word=words[decision.word], because=because, numbers=_numbers(analysis, interval))


def _saving_of(setup: Setup, candidate: str, control: str, mechanism: str, interval: str, **options: Any) -> Answer:
    """Whether the candidate mechanism saves time against arms of another `mechanism`, which are called `control`."""
    analysis = _paired(
        setup,
        setup.arm(control, mechanism, **options),
        setup.arm(f"{control} again", mechanism, **options),
        [setup.arm(candidate, candidate)],
        interval,
    )
    return _answer_of_saving(analysis, candidate, interval)


def _surface_vs_raw(setup: Setup) -> Answer:
    return _saving_of(setup, "surface", "raw", "raw", PREDICTION)


def _persistent_pool(setup: Setup) -> Answer:
    return _saving_of(setup, "pool", "new surfaces", "surface", STAGE, reuse="new")


@dataclass(slots=True, kw_only=True)
class PoolBlockArm:
    """A block of predictions with one autorelease pool (`held`) or one per call; its interval is how far the footprint
    rose, in bytes."""

    name: str
    inner: SessionArm
    calls: int
    held: bool
    expects: PathName = "backing"

    def run_once(self) -> Sample:
        before = highest = _native.memory_footprint_byte_count()
        started = self.inner.clock.now_ns()
        _native.hold_autorelease_pool(self.held)
        try:
            for _ in range(self.calls):
                sample = self.inner.run_once()
                highest = max(highest, _native.memory_footprint_byte_count())
        finally:
            _native.hold_autorelease_pool(False)  # drains what is pending
        return replace(sample, intervals={STAGE: self.inner.clock.now_ns() - started, GROWTH: highest - before})


def _autoreleasepool(setup: Setup) -> Answer:
    contract = setup.contract
    held_bytes = sum(array.nbytes for array in setup.inputs.values()) + sum(
        int(np.prod(contract.shapes[n])) * np.dtype(contract.dtypes[n]).itemsize for n in contract.outputs
    )
    calls = max(2, min(POOL_CALLS, POOL_BYTES // held_bytes))
    inner = setup.arm("raw", "raw")
    blocks = [
        PoolBlockArm(name=name, inner=inner, calls=calls, held=held)
        for name, held in (("one pool per block", True), ("one pool per block again", True), ("one per call", False))
    ]
    try:
        analysis = _paired(setup, blocks[0], blocks[1], [blocks[2]], GROWTH)
    finally:
        inner.close()
    answer = _answer_of_saving(analysis, "one per call", GROWTH)
    return replace(answer, numbers={**answer.numbers, "predictions per block": calls, "unit": "bytes"})


@dataclass(slots=True, kw_only=True)
class ConvertArm:
    """Float16 to float32 over the bytes of an accepted output, into memory that exists already."""

    name: str
    source: np.ndarray
    target: np.ndarray
    clock: Clock
    convert: Callable[[np.ndarray, np.ndarray], object]
    expects: PathName = "backing"
    expected: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.expected = self.source.astype(np.float32)

    def run_once(self) -> Sample:
        self.target.fill(np.nan)  # so that a conversion that does nothing is caught; also equal cache state
        started = self.clock.now_ns()
        self.convert(self.source, self.target)
        took = self.clock.now_ns() - started
        same = bool(np.array_equal(self.target, self.expected))
        return Sample(intervals={STAGE: took}, path=self.expects, verified=same)


def _postprocess(setup: Setup) -> Answer:
    halves = [name for name in setup.contract.outputs if setup.contract.dtypes[name] == "float16"]
    if not halves:
        return Answer(word="inconclusive", because="the contract has no float16 output to convert", numbers={})
    with Session(setup.model, setup.contract, mechanism="raw", verify="scan") as session:
        prediction = session.predict(setup.inputs, state=setup.model.new_state() if setup.model.states else None)
        if prediction.path != "backing":
            return Answer(word="inconclusive", because="the backing was not accepted: no accepted bytes", numbers={})
        source = prediction[halves[0]]
        target = np.empty(source.shape, np.float32)

        def with_numpy(a: np.ndarray, b: np.ndarray) -> None:
            np.copyto(b, a)

        arms: list[Arm] = [
            ConvertArm(name=name, source=source, target=target, clock=setup.clock, convert=convert)
            for name, convert in (
                ("NumPy", with_numpy),
                ("NumPy again", with_numpy),
                ("native", _native.convert_half_to_float),
            )
        ]
        analysis = _paired(setup, arms[0], arms[1], arms[2:], STAGE)
        answer = _answer_of_saving(analysis, "native", STAGE)
        numbers = {**answer.numbers, "engine": _native.half_conversion_engine(), "elements": int(source.size)}
        return replace(answer, numbers=numbers)


def _placement_shift(setup: Setup) -> Answer:
    controls = control_digests(setup.model, setup.inputs, setup.contract)
    arms: dict[str, dict[str, str | None]] = {}
    refused: dict[str, str] = {}
    for mechanism in ("framework", "raw", "surface"):
        arm = setup.arm(mechanism, mechanism)
        try:
            sample = arm.run_once()
            if sample.problem or sample.path != arm.expects:
                refused[mechanism] = sample.problem or f"path {sample.path}"
            else:
                arms[mechanism] = {str(e["name"]): e["digest"] for e in arm.evidence}
        except KVBackingError as error:
            refused[mechanism] = f"{type(error).__name__}: {error}"
        finally:
            arm.close()
    placed = infer(controls, arms)
    same_bits = len({tuple(sorted(d.items())) for d in arms.values()}) == 1
    numbers = {"placement": placed["arms"], "not usable": refused, "arms agree bit by bit": same_bits}
    known = placed["result"] not in ("unknown", "shifted")
    if placed["result"] == "shifted":
        return Answer(word="supported", because=str(placed["why"]), numbers=numbers)
    if known and len(arms) > 1:
        return Answer(word="not supported", because=f"all arms match {placed['result']} alone", numbers=numbers)
    return Answer(word="inconclusive", because=str(placed["why"]), numbers=numbers)


def _many_vs_one(setup: Setup) -> Answer:
    contract = setup.contract
    if len(contract.outputs) < 2:
        return Answer(word="inconclusive", because="the contract backs one output only", numbers={})
    small = min(contract.outputs, key=lambda name: int(np.prod(contract.shapes[name])))
    others = tuple(name for name in contract.outputs if name != small)
    one = KVContract.from_dict(
        {
            **contract.to_dict(),
            "outputs": [small],
            "shapes": {small: contract.shapes[small]},
            "dtypes": {small: contract.dtypes[small]},
            "unbacked": [*contract.unbacked, *others],
        }
    )
    analysis = _paired(
        setup,
        setup.arm("framework", "framework"),
        setup.arm("framework again", "framework"),
        [setup.arm("all backed", "raw"), setup.arm("one backed", "raw", contract=one)],
        PREDICTION,
    )
    numbers = {**_numbers(analysis, PREDICTION), "the one": small}
    status = {arm.name: arm.status == "valid" for arm in analysis.arms}
    words = {decision.arm: decision.word for decision in analysis.decisions}
    if analysis.objections:
        return Answer(word="inconclusive", because="; ".join(analysis.objections), numbers=numbers)
    if status["all backed"] != status["one backed"]:
        return Answer(word="supported", because=f"accepted throughout: {status}", numbers=numbers)
    if not status["all backed"]:
        return Answer(word="not supported", because="neither was accepted throughout", numbers=numbers)
    if words["all backed"] != words["one backed"]:
        return Answer(word="supported", because=f"prediction alone: {words}", numbers=numbers)
    return Answer(word="not supported", because=f"both accepted, prediction alone: {words}", numbers=numbers)


EXPERIMENTS: dict[str, Experiment] = {
    "surface-vs-raw-staging": Experiment(
        hypothesis="An IOSurface-backed pair removes staging that remains for raw storage.",
        variable="the storage of the backings: raw pages or surfaces",
        held="model, compute units, inputs, contract, verification, session depth",
        falsified_by="the prediction alone is not shorter with surfaces, beyond the A/A floor of raw against raw",
        run=_surface_vs_raw,
    ),
    "persistent-pool": Experiment(
        hypothesis="A persistent pixel-buffer pool reduces the allocation cost of a resident loop.",
        variable="where each prediction's surface comes from: created anew, or from one persistent pool",
        held="model, inputs, contract, verification; a new wrapper per prediction in both arms",
        falsified_by="the whole stage is not shorter with the pool, beyond the A/A floor",
        run=_persistent_pool,
    ),
    "autoreleasepool": Experiment(
        hypothesis="One autorelease pool per call reduces the memory pressure of a long loop.",
        variable="the period of the autorelease pool: every call, or once per block of calls",
        held="model, inputs, contract, raw backings, one session for all blocks",
        falsified_by="the footprint does not rise less within a block with one pool per call, beyond the A/A floor",
        run=_autoreleasepool,
    ),
    "accelerate-postprocess": Experiment(
        hypothesis="Post-processing with vectorised native code over accepted bytes reduces a later copy.",
        variable="who converts an accepted float16 output to float32: NumPy or native code (vImage, else Highway)",
        held="the accepted bytes, the destination, bit-equal results (checked in every run)",
        falsified_by="the native conversion is not shorter, beyond the A/A floor of NumPy against NumPy",
        run=_postprocess,
    ),
    "placement-shift": Experiment(
        hypothesis="Output backing alters graph partitioning or compute-unit placement.",
        variable="the mechanism: framework, raw, surface",
        held="model, compute units, inputs, contract",
        falsified_by="every mechanism gives the bits of one and the same single-unit control run, and of no other",
        run=_placement_shift,
    ),
    "many-large-vs-one-small": Experiment(
        hypothesis="Several large outputs are accepted or staged differently from a single small one.",
        variable="how many outputs are backed: all, or only the smallest",
        held="model, compute units, inputs, raw mechanism, verification",
        falsified_by="both are accepted throughout (or neither), with the same decision about the prediction alone",
        run=_many_vs_one,
    ),
}
