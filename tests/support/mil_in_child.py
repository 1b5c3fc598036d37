"""Runs packages of op cases in a process of its own: python mil_in_child.py FOLDER.

NAME.mlpackage there holds the cases of family NAME; NAME.npz is written beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mil_cases import FAMILIES
from mil_engine import run_cases

for package in sorted(Path(sys.argv[1]).glob("*.mlpackage")):
    np.savez(package.with_suffix(".npz"), **run_cases(FAMILIES[package.stem], package))
