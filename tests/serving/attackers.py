"""One client that attacks a service over some connections, in a process of its own, and how long a victim waits.

Rounds of an attack send bytes that were made before it begins: the attacker takes little of the machine that it shares
with the service.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import multiprocessing
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .served import Served


@dataclass(frozen=True)
class Target:
    """The service that is attacked, and the token that the attacker has; none if it is empty."""

    port: int
    token: str

    def head(self, path: str, *headers: str) -> bytes:
        """The head of a POST request."""
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *headers]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join((*lines, "", "")).encode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def post(self, path: str, body: bytes) -> int:
        """Sends a whole body, and returns the status of the answer."""
        with self.connect() as connection:
            connection.sendall(self.head(path, f"Content-Length: {len(body)}") + body)
            response = http.client.HTTPResponse(connection)
            response.begin()
            response.read()
            return response.status


Attack = Callable[[Target, int], None]
"""One round of an attack over one connection; the number of the connection makes users of its own."""


def endless_tiny_chunks(target: Target, number: int) -> None:
    """Sends a body in chunks of one byte, as long as the service reads it."""
    chunks = b"1\r\nx\r\n" * 20_000
    with target.connect() as connection:
        connection.sendall(target.head("/v1/users/ada/search", "Transfer-Encoding: chunked"))
        while True:
            connection.sendall(chunks)


def many_tiny_headers(target: Target, number: int) -> None:
    """Sends as many headers as fit into the largest head."""
    headers = b"".join(b"h%d:\r\n" % n for n in range(4_000))
    with target.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
        while connection.recv(65_536):
            pass


@functools.cache
def many_times(before: str, part: str, after: str, size: int = 999_000) -> bytes:
    """A body of this size that repeats a part, with commas between."""
    times = size // (len(part) + 1)
    return (before + ",".join([part] * times) + after).encode()


def empty_messages(target: Target, number: int) -> None:
    """Sends hundreds of thousands of messages, each of which is invalid."""
    target.post(f"/v1/users/u{number}/sessions", many_times('{"messages":[', "{}", "]}"))


def unknown_fields(target: Target, number: int) -> None:
    """Sends a message of tens of thousands of fields that there are not."""
    target.post(f"/v1/users/u{number}/sessions", _unknown_fields())


@functools.cache
def _unknown_fields() -> bytes:
    fields = ",".join(f'"field-{n}":1' for n in range(60_000))
    return f'{{"messages":[{{"role":"user","content":"x",{fields}}}]}}'.encode()


def nested_lists(target: Target, number: int) -> None:
    """Sends lists of lists to the tools for agents."""
    target.post("/v1/mcp", many_times('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":[', "[]", "]}}"))


def empty_parts(target: Target, number: int) -> None:
    """Sends a chat whose message has hundreds of thousands of parts."""
    before = f'{{"user":"u{number}","messages":[{{"role":"user","content":['
    target.post("/v1/chat/completions", many_times(before, "{}", "]}]}"))


def _repeat(attack: Attack, target: Target, connections: int, stop: Any) -> None:
    """Repeats the rounds of an attack over all connections until `stop` is set."""

    def rounds(number: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                attack(target, number)

    threads = [threading.Thread(target=rounds, args=(number,), daemon=True) for number in range(connections)]
    for thread in threads:
        thread.start()
    stop.wait()


@contextlib.contextmanager
def under_attack(attack: Attack, target: Target, connections: int) -> Iterator[None]:
    """Attacks while the block runs."""
    spawning = multiprocessing.get_context("spawn")
    stop = spawning.Event()
    process = spawning.Process(target=_repeat, args=(attack, target, connections, stop), daemon=True)
    process.start()
    try:
        # Until the attacker has been started and its first bodies are being read.
        time.sleep(2)
        yield
    finally:
        stop.set()
        process.join(10)
        process.kill()


def p95(served: Served, seconds: float) -> float:
    """Seconds that 95 of 100 requests of a victim take at most, asked one after the other for some seconds."""
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        body = {"query": "Where is Lisbon?"} if len(times) % 2 else {"messages": [SAID]}
        path = "/v1/users/victim/search" if len(times) % 2 else "/v1/users/victim/sessions"
        began = time.monotonic()
        status = served.ask("POST", path, body, timeout=30)
        times.append(time.monotonic() - began)
        # What gets no answer in time has waited long enough to tell.
        assert status in (0, 200, 201), status
        time.sleep(0.02)
    return statistics.quantiles([*times, times[-1]], n=20, method="inclusive")[-1]


SAID = {"role": "user", "content": "I moved to Lisbon."}


def session(*messages: dict[str, str]) -> bytes:
    """The body of a session."""
    return json.dumps({"messages": messages}).encode()
