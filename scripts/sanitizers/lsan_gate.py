#!/usr/bin/env python3
"""Fails when a LeakSanitizer report holds a leak that our code made.

    lsan_gate.py LOG...    logs written with fast_unwind_on_malloc=0, so that their stacks are whole

Suppressions by module would hide everything, because the interpreter is in every stack. A record counts when one of its
frames is in our sources. One kind of frame excuses it: below libobjc.so the runtime sets up a class the first time it
is messaged (+initialize, dispatch tables), which it never frees by design.
"""

from __future__ import annotations

import pathlib
import re
import sys

OUR_SOURCES = re.compile(r"/src/(native|simulator)/|/tests/native/")
RECORD = re.compile(r"^(?:Direct|Indirect) leak of .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
TROUBLE = ("LeakSanitizer has encountered a fatal error", "ERROR: AddressSanitizer", "runtime error:")


def is_ours(record: str) -> bool:
    """Whether our code is the innermost known place of the allocation."""
    for frame in record.splitlines()[1:]:
        if "libobjc.so" in frame:
            return False
        if OUR_SOURCES.search(frame):
            return True
    return False


def main() -> None:
    text = "\n\n".join(pathlib.Path(name).read_text(errors="replace") for name in sys.argv[1:])
    records = RECORD.findall(text)
    ours = [record for record in records if is_ours(record)]
    for record in ours:
        print(record, end="\n\n")
    trouble = [sentence for sentence in TROUBLE if sentence in text]
    print(
        f"lsan_gate: {len(ours)} leaks of ours among {len(records)} records in {len(sys.argv) - 1} logs",
        *trouble,
        sep="; ",
    )
    if not records:
        print("lsan_gate: no record at all: the interpreter always leaves some, so the detector did not run")
    sys.exit(bool(ours or trouble or not records))


if __name__ == "__main__":
    main()
