#!/usr/bin/env python3
"""Copies this interpreter's headers for the cross-build, where Debian's pyconfig.h refuses to choose an architecture.

    python_headers.py OUT    OUT is replaced when the headers changed

Linux and macOS agree on the sizes that pyconfig.h states (both LP64); the module is proof of a build, never shipped.
"""

from __future__ import annotations

import filecmp
import pathlib
import shutil
import sys
import sysconfig


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    include = pathlib.Path(sysconfig.get_path("include"))
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    chosen = include.parent / multiarch / include.name / "pyconfig.h"
    config = chosen if chosen.is_file() else include / "pyconfig.h"
    if out.is_dir() and filecmp.cmp(config, out / "pyconfig.h", shallow=False):
        return  # same headers: keep their times for incremental builds
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(include, out)
    shutil.copy(config, out / "pyconfig.h")


if __name__ == "__main__":
    main()
