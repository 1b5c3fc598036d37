"""Runs packages in a process of its own: python mil_in_child.py FOLDER.

NAME.inputs.npz there holds the inputs of NAME.mlpackage; NAME.npz is written beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mil_engine import run

for package in sorted(Path(sys.argv[1]).glob("*.mlpackage")):
    with np.load(package.with_suffix(".inputs.npz")) as inputs:
        np.savez(package.with_suffix(".npz"), **run(package, dict(inputs)))
