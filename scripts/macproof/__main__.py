"""Runs every step, answers the questions, removes personal data, packs the folder."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tarfile
import tempfile
from pathlib import Path

from macproof.answers import answer_all, as_markdown
from macproof.privacy import Scrubber
from macproof.steps import Runner, plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="mac-proof", description=__doc__)
    parser.add_argument("packages", nargs="*", type=Path, metavar="PACKAGE", help="instead of the sample packages")
    parser.add_argument("--out", type=Path, default=Path("build/mac-proof"))
    parser.add_argument("--quick", action="store_true", help="few rounds: whether it works, not what it says")
    parser.add_argument("--dry-run", action="store_true", help="on the simulator, quick, with small packages")
    parser.add_argument("--contract-tests", default="tests/contract", help="what pytest runs against the runtime")
    options = parser.parse_args()
    for package in options.packages:
        if not package.exists():
            parser.error(f"no package at {package}")
    if options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} is not empty; evidence of two runs must not mix")
    options.out.mkdir(parents=True, exist_ok=True)

    with tempfile.TemporaryDirectory(prefix="kvbacking-mac-proof-") as scratch:
        runner = Runner(options.out, Path(scratch))
        for step in plan(
            packages=options.packages,
            scratch=Path(scratch),
            quick=options.quick or options.dry_run,
            small=options.dry_run,
            contract_tests=options.contract_tests,
        ):
            runner.run(step)
        document = {
            "schema": "kvbacking.mac-proof/1",
            "dry_run": options.dry_run,
            "quick": options.quick or options.dry_run,
            "machine": platform.machine(),
            "steps": runner.results,
            "questions": answer_all(options.out),
        }
        (options.out / "mac-proof.json").write_text(json.dumps(document, indent=2) + "\n")
        (options.out / "README.md").write_text(as_markdown(document))
        scrubber = Scrubber.of_this_machine(Path.cwd(), Path(scratch))
        scrubber.scrub_folder(options.out)
        left = scrubber.leftovers(options.out)
    if left:
        print("mac-proof: personal data is left, do not publish the folder:", *left, sep="\n  ", file=sys.stderr)
        return 1
    archive = options.out.with_name(options.out.name + ".tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(options.out, arcname=options.out.name, filter=_anonymous)
    broken = [step["name"] for step in runner.results if step["status"] == "broke down"]
    print(
        f"mac-proof: {len(runner.results)} steps, {len(broken)} broke down; evidence in {options.out}, "
        f"packed in {archive}"
    )
    for name in broken:
        print(f"  broke down: {name}")
    return 1 if broken else 0


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    sys.exit(main())
