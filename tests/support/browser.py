"""Headless Chromium over its debugging pipe: one page at a time, no driver, no network port.

python tests/support/browser.py PAGE.html PICTURE.png [WIDTH [HEIGHT [SCHEME]]]
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ARTIFACTS = Path(__file__).parents[2] / "build" / "artifacts"


class Browser:
    """Commands of the DevTools protocol. `events` keeps everything that the browser reported."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def open_page(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self.events.append(answer)

    def show(self, page: Path, *, width: int, height: int, scheme: str) -> None:
        """Loads a local file as a device of this size and colour preference would."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9}[key])

    def screenshot(self, name: str) -> Path:
        """The whole page, kept under build/artifacts."""
        data = self.picture(whole=True)
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        path.write_bytes(data)
        return path

    def picture(self, *, whole: bool) -> bytes:
        """A PNG of the page, or of what the window shows of it."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def complaints(self) -> list[str]:
        """Console errors and warnings, exceptions, and log entries since the page was loaded."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown" or (
                method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
            ):
                found.append(json.dumps(params))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:")]

    def _read(self, timeout_s: float = 60.0) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise AssertionError("the browser ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A fresh browser with a profile of its own. Fails, and does not skip, when there is none: set-up installs it."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert binary, "no Chromium: run scripts/setup"
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    # The browser reads commands from descriptor 3 and writes answers to descriptor 4. A shell moves them there: dup2 in
    # a preexec function would not be safe beside threads.
    shell = f'exec "$@" 3<&{command_read} 4>&{answer_write}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        arguments = [
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]
        process = subprocess.Popen(
            ["/bin/bash", "-c", shell, "bash", binary, *arguments],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        try:
            browser = Browser(command_write, answer_read)
            browser.open_page()
            yield browser
            with contextlib.suppress(AssertionError, OSError):
                browser._session = None
                browser.call("Browser.close")
        finally:
            os.close(command_write)
            os.close(answer_read)
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main(page: str, picture: str, width: str = "1100", height: str = "900", scheme: str = "light") -> None:
    with chromium() as browser:
        browser.show(Path(page).resolve(), width=int(width), height=int(height), scheme=scheme)
        Path(picture).write_bytes(browser.picture(whole=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
