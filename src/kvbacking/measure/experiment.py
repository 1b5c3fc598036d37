"""What an experiment is made of: what it holds, the one thing it varies, what would falsify it, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kvbacking.contract import KVContract
from kvbacking.model import Model

from .clock import Clock
from .host import HostGate
from .runner import Progress
from .session_arm import SessionArm

AnswerWord = Literal["supported", "not supported", "inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What every experiment is given, and holds."""

    model: Model
    inputs: Mapping[str, np.ndarray]
    contract: KVContract
    rounds: int
    seed: int
    clock: Clock
    gate: HostGate
    progress: Progress | None

    def arm(self, name: str, mechanism: Any, **options: Any) -> SessionArm:
        """A session arm over the held model, inputs and contract."""
        options.setdefault("contract", self.contract)
        return SessionArm(
            name=name,
            model=self.model,
            mechanism=mechanism,
            inputs=self.inputs,
            clock=self.clock,
            verify="scan",
            **options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    word: AnswerWord
    because: str
    numbers: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    hypothesis: str
    variable: str
    held: str
    falsified_by: str
    run: Callable[[Setup], Answer]
