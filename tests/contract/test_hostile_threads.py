"""Threads and processes that end, or go on, at the worst moment: each case in a process of its own, with a limit."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from kvbacking import samples

SETUP = """
import os, sys, threading, time
import numpy as np
import kvbacking as kvb
path, mechanism = sys.argv[1:]
model = kvb.Model.load(path)
contract = kvb.KVContract.from_model(model, live=30, axis=1)
inputs = {"features": np.ones((1, 30, 96), np.float16)}

def keep_predicting(session, stop=()):
    while not stop:
        try:
            session.predict(inputs)
        except kvb.BackingInUseError:
            pass
"""


def run(small: samples.SampleInfo, mechanism: str, code: str, *, seconds: float = 90.0) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SETUP + textwrap.dedent(code), str(small.path), mechanism],
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_daemon_threads_that_predict_do_not_end_the_process(small: samples.SampleInfo, mechanism: str) -> None:
    code = """
        session = kvb.Session(model, contract, mechanism=mechanism, depth=8)
        for _ in range(4):
            threading.Thread(target=keep_predicting, args=(session,), daemon=True).start()
        time.sleep(0.3)
        print("end")
    """
    assert run(small, mechanism, code) == "end\n"


@pytest.mark.skipif(sys.platform == "darwin", reason="forks, which Core ML does not survive")
def test_a_child_of_fork_never_waits_for_a_thread_that_did_not_come_along(
    small: samples.SampleInfo, mechanism: str
) -> None:
    code = """
        session = kvb.Session(model, contract, mechanism=mechanism, depth=3)
        held = session.predict(inputs)
        stop = []
        threads = [threading.Thread(target=keep_predicting, args=(session, stop)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(25):
            child = os.fork()
            if child == 0:
                refused = 0
                for call in (lambda: session.stats, lambda: session.predict(inputs), lambda: held["cross_k"]):
                    try:
                        call()
                    except kvb.UnsupportedPlatformError:
                        refused += 1
                model.release_idle_inputs()
                held.release()
                session.close()
                os._exit(0 if refused == 3 and session.closed and held.released else 1)
            deadline = time.monotonic() + 20
            while True:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended or time.monotonic() > deadline:
                    break
                time.sleep(0.001)
            if not ended:
                os.kill(child, 9)
                os.waitpid(child, 0)
                status = "hang"
            if status:
                print("child", status)
        stop.append(1)
        for thread in threads:
            thread.join()
        print(session.stats.degraded_reason or "end", held.path != "copy")
    """
    assert run(small, mechanism, code) == "end True\n"
