"""A headless Chromium that tests steer over its debugging pipe: what a page shows and asks for."""

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

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""The system's browser; None where there is none."""

PATIENCE = 60.0
"""Seconds that it may be silent while something is waited for."""

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
    """One page in one browser process."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._size = width, height
        self.events: list[dict[str, Any]] = []
        """What the page told: requests, errors, messages of its console."""

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="mempiler-browser-")
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        redirected = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "chromium"]
        command = [*redirected, str(CHROMIUM), *_OPTIONS, f"--user-data-dir={self._folder}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(answers)
        self._buffer, self._number, self._session = b"", 0, ""
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self.resize(*self._size)
        return self

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
        """Loads a file, or what an address names; returns the seconds until its scripts have run."""
        self.events.clear()
        started = time.perf_counter()
        self._call("Page.navigate", url=path if isinstance(path, str) else path.absolute().as_uri())
        self._until("Page.loadEventFired")
        return time.perf_counter() - started

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it gives."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"].get("exception", found["exceptionDetails"]))
        return found["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        """Gives the window another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def media(self, medium: str = "", **features: str) -> None:
        """Shows the page as another medium, or to somebody with other wishes, e.g. `prefers_color_scheme="dark"`."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self._call("Emulation.setEmulatedMedia", media=medium, features=named)

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    @property
    def errors(self) -> list[str]:
        """What went wrong in the page: exceptions of its scripts, and what its policy refused."""
        found = [event["params"] for event in self.events if event["method"] == "Runtime.exceptionThrown"]
        logged = [event["params"]["entry"] for event in self.events if event["method"] == "Log.entryAdded"]
        return [str(each["exceptionDetails"]) for each in found] + [
            entry["text"] for entry in logged if entry["level"] == "error"
        ]

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        about = {"sessionId": self._session} if self._session else {}
        asked = {"id": self._number, "method": method, "params": parameters, **about}
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == asked["id"]:
                if "error" in told:
                    raise AssertionError(f"{method}: {told['error']}")
                return told["result"]
            self.events.append(told)

    def _until(self, method: str) -> None:
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], PATIENCE)[0]:
                raise AssertionError(f"the browser has said nothing for {PATIENCE} s")
            found = os.read(self._read, 1 << 20)
            if not found:
                raise AssertionError("the browser has ended")
            self._buffer += found
        told, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(told)


def serious_faults(browser: Browser) -> list[tuple[str, str]]:
    """What axe-core calls serious or critical in the page that is open: the rule, and where it was broken first."""
    axe = pytest.importorskip("axe_core_python")
    browser.evaluate(files(axe).joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = browser.evaluate("axe.run().then((result) => result.violations)")
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], fault["nodes"][0]["html"]) for fault in serious]
