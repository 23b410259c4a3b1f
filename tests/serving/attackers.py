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
import random
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
    """The service that is attacked."""

    port: int
    token: str
    """The attacker's; empty if it has none."""
    accepted: Any
    """The number of requests that the service served, shared by processes."""

    def head(self, path: str, *headers: str) -> bytes:
        """The head of a POST request."""
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Content-Type: application/json",
            *headers,
        ]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join((*lines, "", "")).encode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def post(self, path: str, body: bytes) -> None:
        """Sends a whole body, and reads the answer."""
        self._send(self.head(path, f"Content-Length: {len(body)}") + body)

    def get(self, path: str) -> None:
        """Asks for something, and reads the answer."""
        self._send(self.head(path).replace(b"POST", b"GET", 1))

    def _send(self, request: bytes) -> None:
        with self.connect() as connection:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            response.read()
        with self.accepted.get_lock():
            self.accepted.value += response.status in (200, 201)


LONGEST = 95_000
"""Characters of a message that the service takes."""
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
    target.post(
        "/v1/mcp",
        many_times('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":[', "[]", "]}}"),
    )


def empty_parts(target: Target, number: int) -> None:
    """Sends a chat whose message has hundreds of thousands of parts."""
    before = f'{{"user":"u{number}","messages":[{{"role":"user","content":['
    target.post("/v1/chat/completions", many_times(before, "{}", "]}]}"))


def random_words(target: Target, number: int) -> None:
    """Tells a megabyte of words that nobody has said before, and searches them."""
    words = "".join(random.choices("abcdefghijklmnopqrstuvwxyz  ", k=900_000))
    tell_and_search(target, f"words{number}", words)


def random_signs(target: Target, number: int) -> None:
    """Tells a megabyte of Chinese signs in an order that makes no words, and searches them."""
    signs = [chr(code) for code in range(0x4E00, 0x9FA5)]
    tell_and_search(target, f"signs{number}", "".join(random.choices(signs, k=300_000)))


def relative_dates(target: Target, number: int) -> None:
    """Tells a megabyte of relative dates, and asks about them."""
    tell_and_search(target, f"dates{number}", "yesterday or last week, 昨天 " * 30_000)
    body = {"question": "What was yesterday, or last week?"}
    target.post(f"/v1/users/dates{number}/ask", json.dumps(body).encode())


def many_messages(target: Target, number: int) -> None:
    """Tells sessions of many messages, and lists what is stored."""
    text = "".join(random.choices("abcdefghijklmnopqrstuvwxyz  ", k=900))
    target.post(
        f"/v1/users/many{number}/sessions", session(*[{"role": "user", "content": text}] * 950)
    )
    body = {"query": text, "k": 1000}
    target.post(f"/v1/users/many{number}/search", json.dumps(body).encode())
    target.get(f"/v1/users/many{number}/entries?limit=1000")
    target.get(f"/v1/users/many{number}/memory")


def long_chats(target: Target, number: int) -> None:
    """Sends a chat of a megabyte, most of which is only shown to the model."""
    text = "".join(random.choices("abcdefghijklmnopqrstuvwxyz  ", k=90_000))
    roles = ["user", "assistant"] * 5
    messages = [{"role": role, "content": text} for role in roles[:9]]
    body = {
        "user": f"chat{number}",
        "messages": [*messages, {"role": "user", "content": "What was that?"}],
    }
    target.post("/v1/chat/completions", json.dumps(body).encode())


def large_answers(target: Target, number: int) -> None:
    """Makes one user's memory ever larger, and asks for all of it, over and over."""
    path = f"/v1/users/large{number}"
    for _ in range(3):
        target.post(
            f"{path}/sessions", session(*[{"role": "user", "content": "garden " * 13_000}] * 10)
        )
    target.post(f"{path}/search", b'{"query": "garden", "k": 1000}')
    target.get(f"{path}/entries?limit=1000")
    target.get(f"{path}/memory")


def tell_and_search(target: Target, user: str, text: str) -> None:
    """Tells a text in messages of the greatest length, and searches for its beginning."""
    messages = [
        {"role": "user", "content": text[start : start + LONGEST]}
        for start in range(0, len(text), LONGEST)
    ]
    target.post(f"/v1/users/{user}/sessions", session(*messages))
    target.post(f"/v1/users/{user}/search", json.dumps({"query": text[:30_000]}).encode())


def _repeat(attack: Attack, target: Target, connections: int, stop: Any) -> None:
    """Repeats the rounds of an attack over all connections until `stop` is set."""

    def rounds(number: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                attack(target, number)

    threads = [
        threading.Thread(target=rounds, args=(number,), daemon=True)
        for number in range(connections)
    ]
    for thread in threads:
        thread.start()
    stop.wait()


@contextlib.contextmanager
def under_attack(attack: Attack, port: int, token: str, connections: int) -> Iterator[Target]:
    """Attacks while the block runs."""
    spawning = multiprocessing.get_context("spawn")
    stop = spawning.Event()
    target = Target(port, token, spawning.Value("i", 0))
    process = spawning.Process(
        target=_repeat, args=(attack, target, connections, stop), daemon=True
    )
    process.start()
    try:
        # Until the attacker has been started and its first bodies are being read.
        time.sleep(2)
        yield target
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
    return json.dumps({"messages": messages}, ensure_ascii=False).encode()
