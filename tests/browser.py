"""A headless Chromium, which tests control over its debugging pipe."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
"""The system's browser; None if there is none."""

PATIENCE = 60.0
"""Seconds that the browser may be silent while a test waits for it."""

_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)


class Browser:
    """One page in one browser process, which runs within the `with` block."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._width = width
        self._height = height
        self.events: list[dict[str, Any]] = []
        """Messages of the page since it was opened: requests, errors, its console."""

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="mempiler-browser-")
        self._start()
        self._buffer = b""
        self._number = 0
        self._session = ""

        targets = self._call("Target.getTargets")["targetInfos"]
        pages = [target for target in targets if target["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self.resize(self._width, self._height)
        return self

    def _start(self) -> None:
        """Start the browser; it reads commands from its file 3 and writes answers to its file 4."""
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{commands} 4>&{answers}',
                "chromium",
                str(CHROMIUM),
                *_OPTIONS,
                f"--user-data-dir={self._folder}",
                "about:blank",
            ],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._read)
        shutil.rmtree(self._folder, ignore_errors=True)

    def open(self, path: Path | str) -> float:
        """Load a file or an address; return the seconds until its scripts have run."""
        url = path if isinstance(path, str) else path.absolute().as_uri()
        self.events.clear()
        start = time.perf_counter()
        self._call("Page.navigate", url=url)
        self._wait_for_event("Page.loadEventFired")
        return time.perf_counter() - start

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or of the promise that it gives."""
        result = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise AssertionError(details.get("exception", details))
        return result["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, medium: str = "", **features: str) -> None:
        """Show the page as on another medium, or by other wishes of the user.

        Args:
            medium: The medium, e.g. "print".
            **features: Wishes, e.g. `prefers_color_scheme="dark"`.
        """
        named_features: list[dict[str, str]] = []
        for name, value in features.items():
            named_features.append({"name": name.replace("_", "-"), "value": value})
        self._call("Emulation.setEmulatedMedia", media=medium, features=named_features)

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    @property
    def errors(self) -> list[str]:
        """Exceptions of the page's scripts, and what the page's policy refused."""
        exceptions: list[str] = []
        log_errors: list[str] = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                exceptions.append(str(event["params"]["exceptionDetails"]))
            if event["method"] == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error":
                    log_errors.append(entry["text"])
        return exceptions + log_errors

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its result; events that come before it are recorded."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")

        while True:
            message = self._next_message()
            if message.get("id") != command["id"]:
                self.events.append(message)
            elif "error" in message:
                raise AssertionError(f"{method}: {message['error']}")
            else:
                return message["result"]

    def _wait_for_event(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next_message())

    def _next_message(self) -> dict[str, Any]:
        """Wait for the next message of the browser. Messages end with a zero byte."""
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._read], [], [], PATIENCE)
            if not readable:
                raise AssertionError(f"the browser has sent nothing for {PATIENCE} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise AssertionError("the browser has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


def serious_faults(browser: Browser) -> list[tuple[str, str]]:
    """Return what axe-core calls serious or critical in the open page.

    Returns:
        Each broken rule, with the HTML of the first element that breaks it.
    """
    axe = pytest.importorskip("axe_core_python")
    browser.evaluate(files(axe).joinpath("axe.min.js").read_text(encoding="utf-8"))
    violations = browser.evaluate("axe.run().then((result) => result.violations)")
    faults: list[tuple[str, str]] = []
    for violation in violations:
        if violation["impact"] in ("serious", "critical"):
            faults.append((violation["id"], violation["nodes"][0]["html"]))
    return faults
