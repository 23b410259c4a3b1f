"""A service in a process of its own, for two tenants, and a crowd of users who use it at once.

Its model is the offline engine. The users of a crowd have the same names under both tenants. Every
session that they store holds a marker of its own, and a marker that comes back to another user is a
leak.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import mempiler

TENANTS = ("acme", "globex")


def values(text: str) -> dict[str, float]:
    """Return the metrics in a text of Prometheus' format, by name and labels.

    The line `mempiler_users{tenant="acme"} 2` becomes `{'mempiler_users{tenant="acme"}': 2.0}`.
    """
    metrics: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            metrics[name] = float(value)
    return metrics


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as unused_socket:
        unused_socket.bind(("127.0.0.1", 0))
        return unused_socket.getsockname()[1]


class Served:
    """A running service with all its files in a folder; leaving the context ends it.

    Args:
        folder: The folder.
        options: Further options of `mempiler serve`.
        store: The address of the store; an SQLite file in the folder if None.
        workers: The number of its processes.
        limits: Called in the process of the service before it starts, to limit what it may use.
        method: The method of its program.
    """

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
        self._operator_token = secrets.token_urlsafe(24)
        tenants = {**self.tokens, "metrics": self._operator_token}
        token_lines = [f"{tenant} {token}\n" for tenant, token in tenants.items()]
        (folder / "tokens").write_text("".join(token_lines))

        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.store = store or str(folder / "memories.sqlite")
        self._command = [
            *(sys.executable, "-m", "mempiler", "serve", str(folder / "program")),
            *("--port", str(self.port)),
            *("--store", self.store),
            *("--token-file", str(folder / "tokens")),
            *("--workers", str(workers)),
            *options,
        ]
        self._limits = limits

        self.log = folder / "log"
        # The log goes through a pipe, so that a limit of the size of files does not concern it.
        with self.log.open("wb") as log_file:
            self._log_writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log_file)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command, stderr=self._log_writer.stdin, preexec_fn=self._limits
        )

    def __enter__(self) -> Served:
        # On a machine that others use as well it may take minutes.
        if self.well(180) is None:
            self.end()
            raise RuntimeError(self.log.read_text()[-2000:])
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the service, by SIGKILL if it does not end by itself within thirty seconds."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._log_writer.communicate()

    def restart(self) -> None:
        """Kill the service with SIGKILL, start it again, and wait until it is ready.

        After two minutes this returns all the same; what the service failed to do is then seen in
        the results of the test.
        """
        self.process.kill()
        self.process.wait()
        self.process = self._start()
        end = time.monotonic() + 120
        while self.ask("GET", "/ready", timeout=2) != 200 and time.monotonic() < end:
            time.sleep(0.1)

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 30.0) -> int:
        """Send a request as `acme` over a connection of its own.

        Returns:
            The status of the response; 0 if none came.
        """
        # This client takes less of the machine than httpx, and shares it with what is measured.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {
            "Authorization": f"Bearer {self.tokens['acme']}",
            "Content-Type": "application/json",
        }
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def add(self, text: str = "I moved to Lisbon.", user: str = "ada") -> int:
        """Store a session of one message, and return the status."""
        body = {"messages": [{"role": "user", "content": text}]}
        return self.ask("POST", f"/v1/users/{user}/sessions", body)

    def metrics(self) -> dict[str, float]:
        """Read `/metrics` of the service, and return the metrics by name and labels."""
        headers = {"Authorization": f"Bearer {self._operator_token}"}
        request = urllib.request.Request(f"{self.address}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return values(response.read().decode())

    def well(self, timeout: float) -> float | None:
        """Wait until the service is well: it says that it is ready, and stores a session for Ada.

        Returns:
            The seconds that this took; None if the service is still not well after `timeout`
            seconds.
        """
        started = time.monotonic()
        while time.monotonic() - started < timeout:
            if self.ask("GET", "/ready", timeout=2) == 200 and self.add() == 201:
                return time.monotonic() - started
            time.sleep(0.2)
        return None


MARKER = re.compile(r"mk[0-9a-f]{12}")
"""Finds the markers in a text: words like "mk0123456789ab", of which each is said only once."""
TOPICS = ("garden", "bicycle", "piano", "harbour", "winter", "novel", "kitchen", "mountain")


def new_marker() -> str:
    """Return a word that nobody has said before, and that `MARKER` finds in any text."""
    return f"mk{secrets.token_hex(6)}"


class TimeIsUpError(Exception):
    """The time of a user is up."""


class User:
    """One user of a crowd, who stores markers, asks for them, and edits what is stored.

    Args:
        number: The number of the user in the crowd. Numbers 0 and 1 are `user-0` of the first and
            of the second tenant, 2 and 3 are `user-1` of both, and so on.
        client: A client of the service.
        tokens: The tokens of tenants.
    """

    def __init__(self, number: int, client: httpx.AsyncClient, tokens: Mapping[str, str]) -> None:
        tenants = list(tokens)
        tenant = tenants[number % len(tenants)]
        self._client = client
        self._name = f"user-{number // len(tenants)}"
        self._path = f"/v1/users/{self._name}"
        self._headers = {"Authorization": f"Bearer {tokens[tenant]}"}
        self._markers: dict[str, str] = {}
        """The marker that was said of each topic."""
        self._end = 0.0
        """When the time of the user is up, by `time.monotonic`."""
        self.counts: Counter[str] = Counter()
        """How many questions there were, how many recalled a marker, leaks, and errors by kind."""
        self.times: list[float] = []
        """The seconds of each request that got a response."""

    async def run(self, end: float) -> None:
        """Send requests, one after the other, until the time is up."""
        self._end = end
        with contextlib.suppress(TimeIsUpError):
            while True:
                await self._store_session()
                await self._ask_chat()
                await self._ask_chat()
                await self._ask_memory()
                await self._search()
                await self._search_first_half()
                await self._send("GET", f"{self._path}/memory")
                await self._edit_first_entry()

    async def _store_session(self) -> None:
        """Say the secret word of a new topic; the secret word is a marker."""
        number = len(self._markers)
        topic = f"{TOPICS[number % len(TOPICS)]} {number}"
        marker = new_marker()
        self._markers[topic] = marker
        messages = [
            {
                "role": "user",
                "name": "Ada",
                "content": f"The secret word of the {topic} is {marker}.",
            },
            {"role": "assistant", "content": "I see."},
        ]
        body = {"messages": messages, "metadata": {"number": number}}
        await self._send("POST", f"{self._path}/sessions", body)

    def _question(self) -> str:
        """Return a question about any topic of which a secret word was said."""
        topic = secrets.choice(list(self._markers))
        return f"What is the secret word of the {topic}?"

    async def _ask_chat(self) -> None:
        messages = [{"role": "user", "content": self._question()}]
        body = {"user": self._name, "messages": messages}
        self._count_answer(await self._send("POST", "/v1/chat/completions", body))

    async def _ask_memory(self) -> None:
        body = {"question": self._question()}
        self._count_answer(await self._send("POST", f"{self._path}/ask", body))

    def _count_answer(self, answer: Any) -> None:
        """Count a question, and whether a marker stands in its answer."""
        self.counts["questions"] += 1
        if MARKER.search(str(answer)):
            self.counts["recalled"] += 1

    async def _search(self) -> None:
        """Search all sessions of the user."""
        await self._send("POST", f"{self._path}/search", {"query": "secret word"})

    async def _search_first_half(self) -> None:
        """Search the first half of the sessions, by their metadata."""
        last_number = (len(self._markers) - 1) // 2
        body = {"query": "secret word", "where": {"number": {"lte": last_number}}}
        await self._send("POST", f"{self._path}/search", body)

    async def _edit_first_entry(self) -> None:
        """Reword an entry, delete it, undo both changes, and read its history."""
        page = await self._send("GET", f"{self._path}/entries?limit=20")
        if not page or not page["entries"]:
            return

        entry = f"{self._path}/entries/{page['entries'][0]['id']}"
        first_marker, *_ = self._markers.values()
        await self._send("PATCH", entry, {"text": f"It was {first_marker}."})
        await self._send("DELETE", entry)
        await self._send("POST", f"{entry}/undo")
        await self._send("POST", f"{entry}/undo")
        await self._send("GET", f"{entry}/history")

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request, and count an error, or a leak: a marker that another user has said.

        Returns:
            The JSON of the response; None if it was an error.

        Raises:
            TimeIsUpError: Nothing was sent, because the time of the user is up.
        """
        if time.monotonic() >= self._end:
            raise TimeIsUpError

        started = time.perf_counter()
        try:
            response = await self._client.request(method, path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            self.counts[f"error {type(error).__name__}"] += 1
            return None

        self.times.append(time.perf_counter() - started)
        if response.status_code not in (200, 201):
            self.counts[f"error {response.status_code}"] += 1
            return None
        markers_of_others = set(MARKER.findall(response.text)) - set(self._markers.values())
        if markers_of_others:
            self.counts["leaks"] += 1
        return response.json()


async def crowd(
    address: str, users: int, seconds: float, tokens: Mapping[str, str]
) -> dict[str, float]:
    """Let many users use a service at the same time.

    Args:
        address: The address of the service.
        users: How many users there are.
        seconds: For how long.
        tokens: The tokens of tenants.

    Returns:
        The counts of all users (`User.counts`); how long it "took" in seconds; requests "per
        second"; and the seconds of a request in the middle ("p50") and in all but one of a hundred
        cases ("p99").
    """
    async with AsyncExitStack() as clients:
        ssl_context = ssl.create_default_context()
        all_users: list[User] = []
        for number in range(users):
            # A client for each user: one client that holds 200 connections looks through them with
            # every request.
            client = httpx.AsyncClient(base_url=address, timeout=120, verify=ssl_context)
            await clients.enter_async_context(client)
            all_users.append(User(number, client, tokens))

        started = time.monotonic()
        await asyncio.gather(*(user.run(started + seconds) for user in all_users))
        took = time.monotonic() - started

    counts = Counter[str]()
    times: list[float] = []
    for user in all_users:
        counts += user.counts
        times.extend(user.times)
    # The value at index 49 is that below which 50 of 100 times are, and so on.
    percentiles = statistics.quantiles(times, n=100, method="inclusive")
    return {
        "leaks": 0,
        **counts,
        "took": took,
        "per second": len(times) / took,
        "p50": percentiles[49],
        "p99": percentiles[98],
    }
