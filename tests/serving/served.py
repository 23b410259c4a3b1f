"""A service of turn RAG in a process of its own, on the offline engine, for two tenants; many users at once on it.

Users of `crowd` have the same names under both. Every session that is stored holds a marker of its own, and one that
comes back to another user is a leak.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import secrets
import socket
import ssl
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import mempiler

TENANTS = ("acme", "globex")


def values(text: str) -> dict[str, float]:
    """The values of Prometheus' text format, by name and labels."""
    found = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


class Served:
    """A running service with all its files in a folder; a context that ends it. `limits` is called in its process."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str] = (),
        store: str | None = None,
        workers: int = 1,
        limits: Callable[[], object] | None = None,
        method: str = "turn-rag",
    ) -> None:
        mempiler.save(mempiler.build(method), folder / "program")
        self.tokens = {tenant: secrets.token_urlsafe(24) for tenant in TENANTS}
        self._operator = secrets.token_urlsafe(24)
        known = {**self.tokens, "metrics": self._operator}
        (folder / "tokens").write_text(
            "".join(f"{tenant} {token}\n" for tenant, token in known.items())
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address, self.store = (
            f"http://127.0.0.1:{self.port}",
            store or str(folder / "memories.sqlite"),
        )
        self.log = folder / "log"
        command = [
            sys.executable,
            "-m",
            "mempiler",
            "serve",
            str(folder / "program"),
            "--port",
            str(self.port),
        ]
        command += [
            "--store",
            self.store,
            "--token-file",
            str(folder / "tokens"),
            "--workers",
            str(workers),
            *options,
        ]
        # The log goes through a pipe, so that a limit of files is not its limit.
        with self.log.open("wb") as log:
            self._writing = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        self._start = partial(
            subprocess.Popen, command, stderr=self._writing.stdin, preexec_fn=limits
        )
        self.process = self._start()

    def __enter__(self) -> Served:
        # On a machine that others work on as well it may take minutes.
        if self.well(180) is None:
            self.__exit__()
            raise RuntimeError(self.log.read_text()[-2000:])
        return self

    def restart(self) -> None:
        """Kills it with SIGKILL, and starts it again."""
        self.process.kill()
        self.process.wait()
        self.process, until = self._start(), time.monotonic() + 120
        while self.ask("GET", "/ready", timeout=2) != 200 and time.monotonic() < until:
            time.sleep(0.1)

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
        headers = {
            "Authorization": f"Bearer {self.tokens['acme']}",
            "Content-Type": "application/json",
        }
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
        return self.ask(
            "POST", f"/v1/users/{user}/sessions", {"messages": [{"role": "user", "content": text}]}
        )

    def metrics(self) -> dict[str, float]:
        """What is counted, by name and labels."""
        headers = {"Authorization": f"Bearer {self._operator}"}
        request = urllib.request.Request(f"{self.address}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return values(answer.read().decode())

    def well(self, most: float) -> float | None:
        """Seconds until it is ready and stores something; None if it takes longer than `most`."""
        begun = time.monotonic()
        while time.monotonic() - begun < most:
            if self.ask("GET", "/ready", timeout=2) == 200 and self.add() == 201:
                return time.monotonic() - begun
            time.sleep(0.2)
        return None


MARKER = re.compile(r"mk[0-9a-f]{12}")
TOPICS = ("garden", "bicycle", "piano", "harbour", "winter", "novel", "kitchen", "mountain")


class User:
    """One client: what it stored, and what it sees."""

    def __init__(self, number: int, client: httpx.AsyncClient, tokens: Mapping[str, str]) -> None:
        tenants = list(tokens)
        self._client, self._name = client, f"user-{number // len(tenants)}"
        self._headers = {"Authorization": f"Bearer {tokens[tenants[number % len(tenants)]]}"}
        self._markers: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.times: list[float] = []

    async def run(self, until: float) -> None:
        """Does its steps until the time is up."""
        steps, found = self._steps(), None
        while time.monotonic() < until:
            method, path, body = steps.send(found)
            found = await self._send(method, path, body)
            if path.endswith(("/ask", "/completions")):
                self.counts["questions"] += 1
                self.counts["recalled"] += bool(MARKER.search(str(found)))

    def _steps(self) -> Generator[tuple[str, str, Any], Any, None]:
        """Requests, each of which is sent its answer: adds, chats, asks, searches, rewords, deletes, restores."""
        path = f"/v1/users/{self._name}"
        while True:
            number = len(self._markers)
            topic, marker = f"{TOPICS[number % len(TOPICS)]} {number}", f"mk{secrets.token_hex(6)}"
            self._markers[topic] = marker
            said = {
                "role": "user",
                "name": "Ada",
                "content": f"The secret word of the {topic} is {marker}.",
            }
            messages = [said, {"role": "assistant", "content": "I see."}]
            yield "POST", f"{path}/sessions", {"messages": messages, "metadata": {"number": number}}
            for _ in range(2):
                said = {"role": "user", "content": self._question()}
                yield "POST", "/v1/chat/completions", {"user": self._name, "messages": [said]}
            yield "POST", f"{path}/ask", {"question": self._question()}
            for where in ({}, {"where": {"number": {"lte": number // 2}}}):
                yield "POST", f"{path}/search", {"query": "secret word", **where}
            yield "GET", f"{path}/memory", None
            found = yield "GET", f"{path}/entries?limit=20", None
            if found and found["entries"]:
                one = f"{path}/entries/{found['entries'][0]['id']}"
                yield "PATCH", one, {"text": f"It was {next(iter(self._markers.values()))}."}
                yield "DELETE", one, None
                for _ in range(2):
                    yield "POST", f"{one}/undo", None
                yield "GET", f"{one}/history", None

    def _question(self) -> str:
        return f"What is the secret word of the {secrets.choice(list(self._markers))}?"

    async def _send(self, method: str, path: str, body: Any) -> Any:
        begun = time.perf_counter()
        try:
            response = await self._client.request(method, path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            self.counts[f"error {type(error).__name__}"] += 1
            return None
        self.times.append(time.perf_counter() - begun)
        if response.status_code not in (200, 201):
            self.counts[f"error {response.status_code}"] += 1
            return None
        self.counts["leaks"] += bool(
            set(MARKER.findall(response.text)) - set(self._markers.values())
        )
        return response.json()


async def crowd(
    address: str, users: int, seconds: float, tokens: Mapping[str, str]
) -> dict[str, float]:
    """What all users at the same time came to: counts, requests a second, and seconds of a request."""
    async with AsyncExitStack() as stack:
        # A client each: one that holds 200 connections looks through them with every request.
        known = ssl.create_default_context()
        clients = [
            httpx.AsyncClient(base_url=address, timeout=120, verify=known) for _ in range(users)
        ]
        running = [
            User(n, await stack.enter_async_context(client), tokens)
            for n, client in enumerate(clients)
        ]
        begun = time.monotonic()
        await asyncio.gather(*(user.run(begun + seconds) for user in running))
        took = time.monotonic() - begun
    times = [each for user in running for each in user.times]
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    counts = sum((user.counts for user in running), Counter[str]())
    return {
        "leaks": 0,
        **counts,
        "took": took,
        "per second": len(times) / took,
        "p50": cuts[49],
        "p99": cuts[98],
    }
