"""Part "service": requests over HTTP, one at a time and of many users at once.

The service is `mempiler serve` in a process of its own, with turn RAG, the offline model and an
SQLite file. For the CPU of a request (rows in "ms") one client asks it over one connection, each
time for the next of twenty users with twenty sessions each. Nothing is written into memories
meanwhile. `GET /v1/models`, which touches no store, stands beside it.

For many users, two hundred clients in this process each do one request after the other.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from mempiler import Store, build

from measures.table import Aim, Peer, Result, Row

sys.path.append(str(Path(__file__).parents[2]))
from tests.serving.served import Served, crowd

USERS = 20
SESSIONS = 20
ROUNDS = 5
CROWD_USERS = 200
CROWD_SECONDS = 20.0

# Shares of the process's CPU, by the clocks of its threads.
CHAT_BOTTLENECK = (
    "HTTP and loop .24, two writes .17, DSPy's call .15, recall .13, view .08, stub .06"
)
ASK_BOTTLENECK = "HTTP and loop .33, DSPy's call .24, recall .15, view .12, stub .10, evidence .06"
ADD_BOTTLENECK = "HTTP and loop .53, the write .41"


class Request(NamedTuple):
    """One HTTP request."""

    method: str
    path: str
    body: Any = None
    """Sent as JSON; nothing is sent if None."""


@dataclass(frozen=True)
class RequestCosts:
    """Milliseconds of CPU that the service's process takes for a request of each kind."""

    models: float
    chat: float
    ask: float
    add: float


@dataclass(frozen=True)
class CrowdCosts:
    """What many users at once get from a service, and what it takes."""

    requests_per_second: float
    median_seconds: float
    """The median of the seconds of a request."""
    p99_seconds: float
    """99 of 100 requests take no longer."""
    seconds: float
    """How long the users kept asking."""
    service_cpu: float
    """Seconds of CPU of the service's processes."""
    client_cpu: float
    """Seconds of CPU of this process, in which the clients run."""

    def cpu_text(self) -> str:
        """Say how much CPU both sides took in which time."""
        return (
            f"{self.seconds:.0f} s: {self.service_cpu:.0f} s of CPU in the service, "
            f"{self.client_cpu:.0f} s in its clients"
        )

    def remark(self) -> str:
        """Say what holds for every row: a run with errors or leaks has no figures."""
        return f"errors and leaks 0; p99 {self.p99_seconds:.2f} s"


def rows() -> list[Row]:
    """Declare the rows of this part."""
    at = f"{SESSIONS} sessions"
    return [
        Row("service: chat", at, chat_cpu, Aim(6)),
        Row("service: ask", at, ask_cpu, Aim(4)),
        Row("service: add", at, add_cpu, Aim(2)),
        Row(f"{CROWD_USERS} users at once, p50", "1 process", crowd_seconds, Aim(0.5), unit="s"),
        Row(
            "service: requests of 2 processes over 1",
            f"{CROWD_USERS} users",
            two_processes,
            Aim(1.5, larger_is_better=True),
            unit="x",
        ),
    ]


def chat_cpu() -> Result:
    """Measure a question in the form of OpenAI's chat completions."""
    costs = _measure_requests()
    return Result(costs.chat, [Peer("models", costs.models)], bottleneck=CHAT_BOTTLENECK)


def ask_cpu() -> Result:
    """Measure a question."""
    costs = _measure_requests()
    return Result(costs.ask, [Peer("models", costs.models)], bottleneck=ASK_BOTTLENECK)


def add_cpu() -> Result:
    """Measure storing a session."""
    costs = _measure_requests()
    return Result(costs.add, [Peer("models", costs.models)], bottleneck=ADD_BOTTLENECK)


def crowd_seconds() -> Result:
    """Measure how long requests of many users at once take."""
    costs = _measure_crowd(workers=1)
    bottleneck = (
        f"{costs.requests_per_second:.0f} requests a second of one process; {costs.cpu_text()}"
    )
    return Result(costs.median_seconds, remark=costs.remark(), bottleneck=bottleneck)


def two_processes() -> Result:
    """Measure how many more requests a second two processes answer than one."""
    one = _measure_crowd(workers=1)
    two = _measure_crowd(workers=2)
    bottleneck = f"{two.cpu_text()}; of two processes one writes to an SQLite file at a time"
    return Result(
        two.requests_per_second / one.requests_per_second,
        remark=two.remark(),
        bottleneck=bottleneck,
    )


@cache
def _measure_requests() -> RequestCosts:
    with tempfile.TemporaryDirectory() as folder:
        with Store(Path(folder) / "memories.sqlite") as store:
            _fill(store)
        with Served(Path(folder), ["--writers", "0"]) as service:
            client = _Client(service)
            requests = _RequestMaker()
            return RequestCosts(
                models=_cpu_ms_of_requests(service, client, requests.models),
                chat=_cpu_ms_of_requests(service, client, requests.chat),
                ask=_cpu_ms_of_requests(service, client, requests.ask),
                add=_cpu_ms_of_requests(service, client, requests.add),
            )


def _cpu_ms_of_requests(
    service: Served, client: _Client, make_request: Callable[[int], Request]
) -> float:
    """Return the CPU milliseconds that the service takes for a request.

    Args:
        service: The service.
        client: Sends the requests.
        make_request: Returns a request of the user with this number.
    """
    # The first question of a user reads the memory from the store.
    for user in range(USERS):
        client.send(make_request(user))

    start = _service_cpu_seconds(service)
    for _ in range(ROUNDS):
        for user in range(USERS):
            client.send(make_request(user))
    return 1000 * (_service_cpu_seconds(service) - start) / (ROUNDS * USERS)


class _Client:
    """A client with one connection."""

    def __init__(self, service: Served) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port)
        self._headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {service.tokens['acme']}",
        }

    def send(self, request: Request) -> None:
        """Send a request, and read the answer.

        Raises:
            RuntimeError: The service refused it.
        """
        body = None if request.body is None else json.dumps(request.body)
        self._connection.request(request.method, request.path, body, self._headers)
        response = self._connection.getresponse()
        text = response.read().decode()
        if response.status not in (200, 201):
            raise RuntimeError(text)


class _RequestMaker:
    """Makes requests of each kind; no two have the same text."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1000)

    def models(self, user: int) -> Request:
        """List the models, which touches no store."""
        return Request("GET", "/v1/models")

    def chat(self, user: int) -> Request:
        message = {"role": "user", "content": self._question()}
        return Request("POST", "/v1/chat/completions", {"user": f"u{user}", "messages": [message]})

    def ask(self, user: int) -> Request:
        return Request("POST", f"/v1/users/u{user}/ask", {"question": self._question()})

    def add(self, user: int) -> Request:
        messages = _messages(next(self._numbers))
        return Request("POST", f"/v1/users/new-{user}/sessions", {"messages": messages})

    def _question(self) -> str:
        return f"What is the secret word of garden {next(self._numbers) % SESSIONS}?"


@cache
def _measure_crowd(workers: int) -> CrowdCosts:
    """Let two hundred users ask a service of so many processes for twenty seconds.

    Raises:
        RuntimeError: Some were refused, or saw words of another user.
    """
    options = ["--log-level", "warning"]
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(Path(folder), options, workers=workers) as service,
    ):
        service_start = _service_cpu_seconds(service)
        client_start = _own_cpu_seconds()
        counts = asyncio.run(crowd(service.address, CROWD_USERS, CROWD_SECONDS, service.tokens))
        service_cpu = _service_cpu_seconds(service) - service_start
        client_cpu = _own_cpu_seconds() - client_start

    if counts["leaks"] or any(name.startswith("error") for name in counts):
        raise RuntimeError(json.dumps(counts))
    return CrowdCosts(
        requests_per_second=counts["per second"],
        median_seconds=counts["p50"],
        p99_seconds=counts["p99"],
        seconds=counts["took"],
        service_cpu=service_cpu,
        client_cpu=client_cpu,
    )


def _service_cpu_seconds(service: Served) -> float:
    """Return the CPU seconds of the service's processes so far."""
    main_process = psutil.Process(service.process.pid)
    seconds = 0.0
    for process in [main_process, *main_process.children(recursive=True)]:
        times = process.cpu_times()
        seconds += times.user + times.system
    return seconds


def _own_cpu_seconds() -> float:
    """Return the CPU seconds of this process so far."""
    times = os.times()
    return times.user + times.system


def _fill(store: Store) -> None:
    """Store users whose sessions are all remembered."""
    program = build("turn-rag")
    for user in range(USERS):
        memory = program.memory(store, f"u{user}", "acme")
        for session in range(SESSIONS):
            memory.add(_messages(session), remember=False)
        memory.remember()


def _messages(number: int) -> list[dict[str, str]]:
    text = f"The secret word of garden {number} is mk{number:06d}, and it hangs in the harbour."
    return [
        {"role": "user", "name": "Ada", "content": text},
        {"role": "assistant", "content": "I see."},
    ]
