"""The rule that turns numbers into one of four words. It never says more than the numbers do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .statistics import CONFIDENCE, PairedDifference

Word = Literal["saving shown", "no saving shown", "slower", "unscored"]

MIN_ROUNDS = 20  # below this a percentile bootstrap of a median does not cover what it claims

RULE = (
    "`saving shown` only if the 99 % bootstrap interval of the paired median difference (arm minus control) lies below "
    "zero and below the noise floor on the other side of zero (the larger end of the A/A interval), and the Wilcoxon "
    "signed-rank test agrees at 1 %; `slower` is the mirror image; everything else is `no saving shown`. A noisy host, "
    "an interrupted run, too few rounds, or one invalid sample makes it `unscored`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    arm: str
    interval: str
    word: Word
    reasons: tuple[str, ...]
    floor_ns: float | None


def noise_floor(duplicate: PairedDifference) -> float:
    """How far two arms that do the same thing may lie apart; the sign of an A/A difference means nothing."""
    return max(abs(duplicate.low_ns), abs(duplicate.high_ns))


def decide(
    arm: str,
    interval: str,
    difference: PairedDifference | None,
    duplicate: PairedDifference | None,
    *,
    objections: Sequence[str] = (),
    min_rounds: int = MIN_ROUNDS,
) -> Decision:
    """`objections` are the reasons, found elsewhere, why this comparison must not be scored."""
    reasons = list(objections)
    if difference is None:
        reasons.append(f"{arm} has no valid {interval} pairs with the control")
    elif difference.rounds < min_rounds:
        reasons.append(f"{difference.rounds} paired rounds; at least {min_rounds} are needed")
    if duplicate is None:
        reasons.append(f"no A/A pairs for {interval}: the noise floor is unknown")
    if reasons or difference is None or duplicate is None:
        return Decision(
            arm=arm,
            interval=interval,
            word="unscored",
            reasons=tuple(reasons),
            floor_ns=noise_floor(duplicate) if duplicate else None,
        )
    floor = noise_floor(duplicate)
    agrees = difference.wilcoxon_p < 1.0 - CONFIDENCE
    word: Word = "no saving shown"
    if difference.high_ns < -floor and difference.high_ns < 0:
        reasons.append("the whole interval is below zero and beyond the A/A floor")
        word = "saving shown"
    elif difference.low_ns > floor and difference.low_ns > 0:
        reasons.append("the whole interval is above zero and beyond the A/A floor")
        word = "slower"
    elif difference.low_ns <= 0 <= difference.high_ns:
        reasons.append("the interval contains zero")
    else:
        reasons.append("the interval does not lie beyond the A/A floor")
    if word != "no saving shown" and not agrees:
        reasons.append(f"but the Wilcoxon test does not agree (p = {difference.wilcoxon_p:.3g})")
        word = "no saving shown"
    return Decision(arm=arm, interval=interval, word=word, reasons=tuple(reasons), floor_ns=floor)
