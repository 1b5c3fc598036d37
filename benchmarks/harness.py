"""What a round of the bench costs beside its arms: the harness's own overhead, on arms that do nothing.

    python benchmarks/harness.py [--quick] [--json]

Never asserted in a test. The overhead lies outside the timed parts (an arm times itself); what could leak into them is
the state in which a round starts, which is why garbage is collected and memory is read between arms' samples.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field

from kvbacking.measure.clock import SystemClock
from kvbacking.measure.host import HostGate, system_probe
from kvbacking.measure.memory import read_memory
from kvbacking.measure.runner import measure
from kvbacking.measure.sample import STAGE, PathName, Sample
from kvbacking.measure.statistics import summarise


@dataclass(slots=True)
class EmptyArm:
    """Two clock readings."""

    name: str
    clock: SystemClock
    expects: PathName = "framework"
    took: list[int] = field(default_factory=list)

    def run_once(self) -> Sample:
        started = self.clock.now_ns()
        took = self.clock.now_ns() - started
        self.took.append(took)
        return Sample(intervals={STAGE: took}, path="framework", verified=True)


def run(rounds: int) -> dict[str, object]:
    clock = SystemClock()
    arms = [EmptyArm(name, clock) for name in ("framework", "framework again", "raw", "surface")]
    gate = HostGate(system_probe())
    result = measure(arms, control="framework", rounds=rounds, seed=0, clock=clock, gate=gate, memory=read_memory)
    round_ = summarise(result.overhead_ns)
    arm = summarise([took for each in arms for took in each.took])
    return {
        "rounds": result.rounds_done,
        "per_round_us": {"p50": round_.p50_ns / 1e3, "p90": round_.p90_ns / 1e3, "max": round_.max_ns / 1e3},
        "inside_a_timed_part_us": {"p50": arm.p50_ns / 1e3, "p99": arm.p99_ns / 1e3, "max": arm.max_ns / 1e3},
        "host_quiet": not gate.reasons,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run(50 if options.quick else 2000)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name.replace('_', ' ')}: {value}")


if __name__ == "__main__":
    main()
