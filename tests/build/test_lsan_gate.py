"""The leak gate tells our leaks from the interpreter's and from the Objective-C runtime's one-off set-up."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from conftest import ROOT

INTERPRETER = """Direct leak of 48 byte(s) in 1 object(s) allocated from:
    #0 0x1 in malloc
    #1 0x2 in PyObject_Malloc (python3.11+0x1)
"""
OURS = """Direct leak of 16384 byte(s) in 1 object(s) allocated from:
    #0 0x1 in posix_memalign
    #1 0x2 in kvbacking::Allocation::create /somewhere/src/native/core/allocation.cpp:41:7
    #2 0x3 in PyObject_Vectorcall (python3.11+0x2)
"""
CLASS_SET_UP = """Indirect leak of 64 byte(s) in 1 object(s) allocated from:
    #0 0x1 in calloc
    #1 0x2 in objc_msg_lookup (/usr/lib/libobjc.so.4+0x3)
    #2 0x3 in kvbacking::Model::load /somewhere/src/native/coreml/model.mm:10:3
"""


def gate(folder: pathlib.Path, *records: str, more: str = "") -> subprocess.CompletedProcess[str]:
    log = folder / "log.1"
    log.write_text("==1==ERROR: LeakSanitizer: detected memory leaks\n\n" + "\n".join(records) + "\nSUMMARY\n" + more)
    command = [sys.executable, ROOT / "scripts/sanitizers/lsan_gate.py", log]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_other_peoples_leaks_pass(tmp_path: pathlib.Path) -> None:
    result = gate(tmp_path, INTERPRETER, CLASS_SET_UP)
    assert result.returncode == 0, result.stdout
    assert "0 leaks of ours among 2 records" in result.stdout


def test_our_leak_fails_and_is_shown(tmp_path: pathlib.Path) -> None:
    result = gate(tmp_path, INTERPRETER, OURS, CLASS_SET_UP)
    assert result.returncode == 1
    assert "allocation.cpp:41" in result.stdout
    assert "1 leaks of ours among 3 records" in result.stdout


def test_a_detector_that_did_not_run_fails(tmp_path: pathlib.Path) -> None:
    assert gate(tmp_path).returncode == 1
    assert gate(tmp_path, INTERPRETER, more="LeakSanitizer has encountered a fatal error.").returncode == 1


def test_other_sanitizer_errors_in_the_logs_fail(tmp_path: pathlib.Path) -> None:
    assert gate(tmp_path, INTERPRETER, more="==2==ERROR: AddressSanitizer: heap-use-after-free").returncode == 1
