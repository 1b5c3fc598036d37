"""Runs the fault suite with each check switched off in turn: `python -m tests.faults.mutation` on a mutation build.

A mutant is one check that a build with KVB_MUTATIONS leaves out when KVBACKING_MUTATE names it. It is killed when at
least one of the tests that exist for it fails. Checks that no fault can reach are killed by tests of other suites.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from kvbacking import _native

from .catalogue import CASES

# Checks that guard something other than what a fault does to one prediction, and the tests that are there for them.
OTHER_TESTS = {
    "names": ["tests/contract/test_refusals.py", "-k", "neither or at_once"],
    "descriptions": ["tests/contract/test_refusals.py", "-k", "shape or dtype"],
    "flexible": ["tests/faults/test_native_checks.py", "-k", "fixed_shape"],
    "surface_limits": ["tests/contract/test_refusals.py", "-k", "surface or limit"],
    "allowed": ["tests/faults/test_elsewhere.py", "-k", "disallowed"],
    "input_surface": ["tests/contract/test_lent_inputs.py", "-k", "was_an_input"],
    "inputs": ["tests/faults/test_native_checks.py", "-k", "inputs"],
    "busy": ["tests/contract/test_lifetimes.py"],
    "serialised": ["tests/faults/test_elsewhere.py", "-k", "wait_for_each_other"],
    "process": ["tests/contract/test_lifetimes.py", "tests/contract/test_refusals.py", "-k", "fork"],
    "digest": ["tests/contract/test_prediction.py", "tests/property", "-k", "digest or control_s_bytes"],
    "repeatable": ["tests/faults/test_prove.py", "-k", "repeat"],
    "quarantine": ["tests/faults/test_table.py", "-k", "nan-first"],
    "live_counts": ["tests/faults/test_prove.py", "-k", "live_counts"],
    "in_range": ["tests/faults/test_table.py", "-k", "larger_shape"],
}


def tests_for(check: str) -> list[str]:
    """Pytest arguments that select what must fail without this check."""
    names = [case.name for case in CASES if check in case.kills]
    if check in OTHER_TESTS:
        return OTHER_TESTS[check]
    if not names:
        return []
    return ["tests/faults/test_table.py", "-k", " or ".join(f"{name}-" for name in names)]


def run(check: str | None, arguments: list[str]) -> tuple[int, str]:
    environment = dict(os.environ)
    environment.pop("KVBACKING_MUTATE", None)
    if check is not None:
        environment["KVBACKING_MUTATE"] = check
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-x", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def switches_work(check: str) -> bool:
    code = f"import sys; from kvbacking import _native; sys.exit(_native.check_enabled({check!r}))"
    environment = {**os.environ, "KVBACKING_MUTATE": check}
    return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def main() -> int:
    checks = _native.check_names()
    if not switches_work(checks[0]):
        print("this build has no mutation switches: configure it with -DKVB_MUTATIONS=ON")
        return 2
    killed, survivors = 0, []
    code, last = run(None, ["tests/faults"])
    print(f"nothing switched off: {last}")
    if code != 0:
        print("the fault suite must be green before a mutant means anything")
        return 1
    for check in checks:
        start = time.monotonic()
        arguments = tests_for(check)
        code, last = run(check, arguments) if arguments else (5, "no test is there for it")
        caught = code == 1
        killed += caught
        if not caught:
            survivors.append(check)
        print(
            f"{'killed' if caught else 'SURVIVED':9} {check:18} {time.monotonic() - start:5.1f} s  {last}", flush=True
        )
    if survivors:
        print(f"survived: {', '.join(survivors)}")
    print(f"{killed} passed, {len(survivors)} failed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
