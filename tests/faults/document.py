"""Prints docs/failure-modes.md from the table that the tests run: `python -m tests.faults.document > that page`."""

from __future__ import annotations

from .catalogue import BACKED, CASES, ELSEWHERE, LEVELS, MECHANISMS, SPEC_ROWS, SURFACES, Case

HEAD = """# Failure modes

What a session makes of a framework that misbehaves. This page is printed from the table that `tests/faults` runs, on
the simulator: it says what kvbacking does, not how often Core ML does any of it. Levels are those of `verify`; a level
that is not named behaves as the one before it. Every `IntegrityError` quarantines the set, and the session goes on with
the control and says why in `session.stats.degraded_reason`.

## The failure modes of the requirement document

| symptom | what answers it |
|---|---|
"""

TABLE_HEAD = """
## Every simulated fault

`kvbacking.simulator.faults(NAME=...)` switches each on; K stays honest, V (`cross_v`) is harmed.

| fault | mechanism | outcome by `verify` level | note |
|---|---|---|---|
"""

ELSEWHERE_HEAD = """
## Faults outside a prediction

| fault | outcome |
|---|---|
"""


def mechanisms_text(names: tuple[str, ...]) -> str:
    return {MECHANISMS: "all", BACKED: "raw, surface, pool", SURFACES: "surface, pool"}.get(names, ", ".join(names))


def levels_text(case: Case, mechanism: str) -> str:
    parts: list[tuple[list[str], str]] = []
    for level in LEVELS:
        text = str(case.outcome(mechanism, level))
        if parts and parts[-1][1] == text:
            parts[-1][0].append(level)
        else:
            parts.append(([level], text))
    if len(parts) == 1:
        return parts[0][1]
    return "; ".join(f"{', '.join(levels)}: {text}" for levels, text in parts)


def page() -> str:
    text = HEAD + "".join(f"| {symptom} | {answer} |\n" for symptom, answer in SPEC_ROWS) + TABLE_HEAD
    for case in CASES:
        for names in case.outcomes:
            form = f" ({case.parameter})" if case.parameter else ""
            reuse = f", reuse {case.reuse}" if case.reuse != "new" else ""
            where = mechanisms_text(names) + reuse
            text += f"| `{case.fault}`{form} | {where} | {levels_text(case, names[0])} | {case.why} |\n"
    return text + ELSEWHERE_HEAD + "".join(f"| `{fault}` | {outcome} |\n" for fault, outcome in ELSEWHERE.items())


if __name__ == "__main__":
    print(page(), end="")
