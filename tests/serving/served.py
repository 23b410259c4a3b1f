"""A service in a process of its own: `mempiler serve` with turn RAG and the offline engine, for two tenants."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mempiler

TENANTS = ("acme", "globex")


class Served:
    """A running service; a context that ends it.

    Args:
        folder: For program, tokens, store and log.
        options: Further options of the command.
        store: Its address; an SQLite file of the folder if None.
        workers: How many processes.
        limits: Called in the process before the command: what it is allowed.
    """

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = (),
        store: str | None = None,
        workers: int = 1,
        limits: Callable[[], object] | None = None,
    ) -> None:
        mempiler.save(mempiler.build("turn-rag"), folder / "program")
        self.tokens = {tenant: secrets.token_urlsafe(24) for tenant in TENANTS}
        self._operator = secrets.token_urlsafe(24)
        known = {**self.tokens, "metrics": self._operator}
        (folder / "tokens").write_text("".join(f"{tenant} {token}\n" for tenant, token in known.items()))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address, self.store = f"http://127.0.0.1:{self.port}", store or str(folder / "memories.sqlite")
        self.log = folder / "log"
        command = [sys.executable, "-m", "mempiler", "serve", str(folder / "program"), "--port", str(self.port)]
        command += ["--store", self.store, "--token-file", str(folder / "tokens"), "--workers", str(workers), *options]
        # The log goes through a pipe, so that a limit of files is not its limit.
        with self.log.open("wb") as log:
            self._writing = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        self.process = subprocess.Popen(command, stderr=self._writing.stdin, preexec_fn=limits)

    def __enter__(self) -> Served:
        if self.well(60) is None:
            self.__exit__()
            raise RuntimeError(self.log.read_text()[-2000:])
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._writing.communicate()

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 30.0) -> int:
        """The status of a request over a connection of its own; 0 for none."""
        # Cheaper than httpx: what asks shares the machine with what is measured.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Authorization": f"Bearer {self.tokens['acme']}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            found = connection.getresponse()
            found.read()
            return found.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def add(self, text: str = "I moved to Lisbon.", user: str = "ada") -> int:
        """Adds a session; returns the status."""
        return self.ask("POST", f"/v1/users/{user}/sessions", {"messages": [{"role": "user", "content": text}]})

    def metrics(self) -> dict[str, float]:
        """What is counted, by name and labels."""
        headers = {"Authorization": f"Bearer {self._operator}"}
        request = urllib.request.Request(f"{self.address}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def well(self, most: float) -> float | None:
        """Seconds until it is ready and stores something; None if it takes longer than `most`."""
        begun = time.monotonic()
        while time.monotonic() - begun < most:
            if self.ask("GET", "/ready", timeout=2) == 200 and self.add() == 201:
                return time.monotonic() - begun
            time.sleep(0.2)
        return None
