"""What is run, in which order, and what counts as an answer. Every step is a command of its own with its own log."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

UNITS = ("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne")
EXPERIMENTS = (
    "surface-vs-raw-staging",
    "persistent-pool",
    "autoreleasepool",
    "accelerate-postprocess",
    "placement-shift",
    "many-large-vs-one-small",
)
TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`keep`: stdout is the evidence and goes into this file of the folder. `answers`: exit codes that are answers (a
    rejected mechanism is one); anything else broke down."""

    name: str
    command: Sequence[str]
    keep: str | None = None
    answers: tuple[int, ...] = (0,)
    needs: str | None = None  # a file under the scratch folder without which the step says nothing


@dataclass(slots=True)
class Runner:
    out: Path
    scratch: Path
    results: list[dict[str, Any]] = field(default_factory=list)

    def run(self, step: Step) -> None:
        """Never raises for what the command does: its end is recorded."""
        log = self.out / "logs" / f"{len(self.results):02d}-{step.name.replace(' ', '-').replace('/', '-')}.log"
        log.parent.mkdir(exist_ok=True)
        print(f"mac-proof: {step.name}", flush=True)
        started = time.monotonic()
        if step.needs is not None and not (self.scratch / step.needs).exists():
            self.results.append({"name": step.name, "status": "skipped", "why": "an earlier step left nothing to use"})
            return
        with log.open("wb") as errors:
            target = (self.out / step.keep).open("wb") if step.keep else errors
            try:
                code: int | str = subprocess.run(
                    [part.replace("{out}", str(self.out)) for part in step.command],
                    stdout=target,
                    stderr=errors,
                    stdin=subprocess.DEVNULL,
                    timeout=TIMEOUT_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = "timeout"
            finally:
                if target is not errors:
                    target.close()
        status = "answered" if code in step.answers else "broke down"
        seconds = round(time.monotonic() - started, 1)
        self.results.append(
            {"name": step.name, "status": status, "exit": code, "seconds": seconds, "log": f"logs/{log.name}"}
        )


def plan(*, packages: Sequence[Path], scratch: Path, quick: bool, small: bool, contract_tests: str) -> Iterator[Step]:
    """`small` shrinks the sample packages, for the dry run."""
    kvb = (sys.executable, "-m", "kvbacking")
    rounds = "20" if quick else "200"
    yield Step(name="environment", command=(*kvb, "doctor", "--json"), keep="environment.json")
    yield Step(
        name="contract suite",
        command=(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", contract_tests),
        keep="contract-suite.txt",
        answers=(0, 1),  # failing tests are an answer; not having run is none
    )
    names = []
    if packages:
        for package in packages:
            link = scratch / package.name
            link.symlink_to(package.resolve())
            names.append(package.name)
    else:
        size = ("-o", "width=64", "-o", "rows=120", "-o", "capacity=128") if small else ()
        for kind in ("turbo",) if small else ("turbo", "distil"):
            names.append(f"{kind}.mlpackage")
            yield Step(name=f"sample {kind}", command=(*kvb, "sample", kind, str(scratch / names[-1]), *size))
    probe = scratch / "probe.mlpackage"
    yield Step(name="sample probe", command=(sys.executable, "-m", "macproof.probe_package", str(probe)))
    for units in UNITS:
        yield Step(
            name=f"surface probe {units}",
            command=(sys.executable, "-m", "macproof.surface_probe", str(probe), units),
            keep=f"surface-probe-{units}.json",
            needs=probe.name,
        )
    contract = () if packages else ("--live", "120" if small else "1500", "--axis", "1")
    for name in names:
        stem, model = Path(name).stem, str(scratch / name)
        for units in UNITS:
            yield Step(
                name=f"prove {stem} {units}",
                command=(*kvb, "prove", model, *contract, "--compute-units", units, "--json"),
                keep=f"prove-{stem}-{units}.json",
                answers=(0, 1),
                needs=name,
            )
        yield Step(
            name=f"bench {stem}",
            command=(*kvb, "bench", model, *contract, "--rounds", rounds, "--out", f"{{out}}/bench-{stem}"),
            needs=name,
        )
        yield Step(
            name=f"bench {stem} fresh",
            command=(
                *kvb,
                "bench",
                model,
                *contract,
                "--rounds",
                rounds,
                "--fresh",
                "--out",
                f"{{out}}/bench-{stem}-fresh",
            ),
            needs=name,
        )
    for experiment in EXPERIMENTS:
        model = str(scratch / names[0])
        yield Step(
            name=f"experiment {experiment}",
            command=(*kvb, "experiment", experiment, model, *contract, "--rounds", rounds, "--json"),
            keep=f"experiment-{experiment}.json",
            needs=names[0],
        )
    shape = ("--shape", "0.6b", "--live", "64" if small else "512,4096,32768")
    yield Step(
        name="hand-off to MLX",
        command=(*kvb, "handoff", *shape, "--rounds", "2" if small else "11", "--json"),
        keep="handoff.json",
        answers=(0, 4),  # 4: mlx is not installed, and its question stays open
    )
    yield Step(
        name="the same tokens",
        command=(sys.executable, "benchmarks/tokens.py", "--json", *(("--quick",) if small or quick else ())),
        keep="tokens.json",
        answers=(0, 4),  # as above
    )
