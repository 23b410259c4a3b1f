"""Attacks on a service by one client, and how long a victim waits meanwhile.

The attacker runs in a process of its own, over several connections at once. What it sends is made
beforehand where possible, so that the attacker takes little of the machine that it shares with the
service.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .served import Served

MAX_MESSAGE_LENGTH = 95_000
"""Characters of a message; the service takes some more."""
LETTERS = "abcdefghijklmnopqrstuvwxyz  "


@dataclass(frozen=True)
class Target:
    """The service that is attacked."""

    port: int
    token: str
    """The attacker's token; empty if it has none."""
    accepted: Any
    """The number of requests that the service accepted, shared by processes."""
    is_reached: Any
    """An event that is set at the first connection, shared by processes."""

    def head(self, path: str, *headers: str, method: str = "POST") -> bytes:
        """Return the head of a request, with the attacker's token if it has one."""
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Content-Type: application/json",
            *headers,
        ]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join((*lines, "", "")).encode()

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.is_reached.set()
        return connection

    def post(self, path: str, body: bytes) -> None:
        """Send a request with a body, and read the response."""
        self._send(self.head(path, f"Content-Length: {len(body)}") + body)

    def get(self, path: str) -> None:
        """Send a request without a body, and read the response."""
        self._send(self.head(path, method="GET"))

    def _send(self, request: bytes) -> None:
        """Send a request, read the response, and count it if the service accepted the request."""
        with self.connect() as connection:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            response.read()
        if response.status in (200, 201):
            with self.accepted.get_lock():
                self.accepted.value += 1


Attack = Callable[[Target, int], None]
"""One round of an attack over one connection.

Its second argument is the number of the connection, which gives each connection users of its own.
"""


# Bodies


def session_body(messages: Sequence[dict[str, str]]) -> bytes:
    """Return the body of a session."""
    return json.dumps({"messages": messages}, ensure_ascii=False).encode()


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@functools.cache
def repeat_part(before: str, part: str, after: str, size: int = 999_000) -> bytes:
    """Return a body of about `size` bytes that repeats a part, with commas between.

    By default it is just below the million bytes that the service accepts. For example,
    `repeat_part('{"messages":[', "{}", "]}")` returns `{"messages":[{},{},{},...,{}]}`.
    """
    count = size // (len(part) + 1)
    return (before + ",".join([part] * count) + after).encode()


@functools.cache
def body_with_unknown_fields() -> bytes:
    """Return a session of one message with tens of thousands of fields that do not exist."""
    fields = ",".join(f'"field-{number}":1' for number in range(60_000))
    return f'{{"messages":[{{"role":"user","content":"x",{fields}}}]}}'.encode()


# Attacks that need no token


def endless_tiny_chunks(target: Target, connection_number: int) -> None:
    """Send a body in chunks of one byte, as long as the service reads it."""
    # Each chunk is its length in hexadecimal digits, a line end, the byte "x", and a line end.
    chunks = b"1\r\nx\r\n" * 20_000
    with target.connect() as connection:
        connection.sendall(target.head("/v1/users/ada/search", "Transfer-Encoding: chunked"))
        while True:
            connection.sendall(chunks)


def many_tiny_headers(target: Target, connection_number: int) -> None:
    """Send as many headers as fit into the largest head."""
    headers = b"".join(b"h%d:\r\n" % header_number for header_number in range(4_000))
    with target.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
        while connection.recv(65_536):
            pass


# Attacks with invalid bodies


def empty_messages(target: Target, connection_number: int) -> None:
    """Send hundreds of thousands of messages, each of which is invalid."""
    target.post(
        f"/v1/users/u{connection_number}/sessions", repeat_part('{"messages":[', "{}", "]}")
    )


def unknown_fields(target: Target, connection_number: int) -> None:
    """Send a message of tens of thousands of fields that do not exist."""
    target.post(f"/v1/users/u{connection_number}/sessions", body_with_unknown_fields())


def nested_lists(target: Target, connection_number: int) -> None:
    """Send lists of lists to the tools for agents."""
    call_start = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":['
    target.post("/v1/mcp", repeat_part(call_start, "[]", "]}}"))


def empty_parts(target: Target, connection_number: int) -> None:
    """Send a chat whose message has hundreds of thousands of parts."""
    chat_start = f'{{"user":"u{connection_number}","messages":[{{"role":"user","content":['
    target.post("/v1/chat/completions", repeat_part(chat_start, "{}", "]}]}"))


# Attacks with valid bodies


def random_words(target: Target, connection_number: int) -> None:
    """Store a megabyte of words that nobody has said before, and search for them."""
    words = "".join(random.choices(LETTERS, k=900_000))
    store_and_search(target, f"words{connection_number}", words)


def random_signs(target: Target, connection_number: int) -> None:
    """Store a megabyte of Chinese signs in an order that makes no words, and search for them."""
    signs = [chr(code) for code in range(0x4E00, 0x9FA5)]
    store_and_search(target, f"signs{connection_number}", "".join(random.choices(signs, k=300_000)))


def relative_dates(target: Target, connection_number: int) -> None:
    """Store a megabyte of relative dates, and ask about them."""
    store_and_search(target, f"dates{connection_number}", "yesterday or last week, 昨天 " * 30_000)
    question = {"question": "What was yesterday, or last week?"}
    target.post(f"/v1/users/dates{connection_number}/ask", json.dumps(question).encode())


def many_messages(target: Target, connection_number: int) -> None:
    """Store sessions of many messages, and list what is stored."""
    user = f"/v1/users/many{connection_number}"
    text = "".join(random.choices(LETTERS, k=900))
    target.post(f"{user}/sessions", session_body([user_message(text)] * 950))
    target.post(f"{user}/search", json.dumps({"query": text, "k": 1000}).encode())
    target.get(f"{user}/entries?limit=1000")
    target.get(f"{user}/memory")


def long_chats(target: Target, connection_number: int) -> None:
    """Send a chat of a megabyte, most of which is only shown to the model."""
    text = "".join(random.choices(LETTERS, k=90_000))
    messages: list[dict[str, str]] = []
    for _ in range(4):
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": text})
    messages.append({"role": "user", "content": text})
    messages.append({"role": "user", "content": "What was that?"})
    body = {"user": f"chat{connection_number}", "messages": messages}
    target.post("/v1/chat/completions", json.dumps(body).encode())


def large_answers(target: Target, connection_number: int) -> None:
    """Make one user's memory ever larger, and ask for all of it in each round."""
    user = f"/v1/users/large{connection_number}"
    messages = [user_message("garden " * 13_000)] * 10
    for _ in range(3):
        target.post(f"{user}/sessions", session_body(messages))
    target.post(f"{user}/search", b'{"query": "garden", "k": 1000}')
    target.get(f"{user}/entries?limit=1000")
    target.get(f"{user}/memory")


def store_and_search(target: Target, user: str, text: str) -> None:
    """Store a text in messages of the greatest length, and search for its beginning."""
    messages = [
        user_message(text[start : start + MAX_MESSAGE_LENGTH])
        for start in range(0, len(text), MAX_MESSAGE_LENGTH)
    ]
    target.post(f"/v1/users/{user}/sessions", session_body(messages))
    target.post(f"/v1/users/{user}/search", json.dumps({"query": text[:30_000]}).encode())


# Attacking and measuring


def _attack_until(stop: Any, attack: Attack, target: Target, connections: int) -> None:
    """Repeat the rounds of an attack until `stop` is set, in a thread for each connection."""

    def repeat_rounds(connection_number: int) -> None:
        while not stop.is_set():
            # The service may end a connection at any time.
            with contextlib.suppress(OSError, http.client.HTTPException):
                attack(target, connection_number)

    for connection_number in range(connections):
        threading.Thread(target=repeat_rounds, args=(connection_number,), daemon=True).start()
    stop.wait()


@contextlib.contextmanager
def under_attack(attack: Attack, port: int, token: str, connections: int) -> Iterator[Target]:
    """Attack a service while the block runs; the attacker is a process of its own."""
    spawn_context = multiprocessing.get_context("spawn")
    stop = spawn_context.Event()
    target = Target(
        port, token, accepted=spawn_context.Value("i", 0), is_reached=spawn_context.Event()
    )
    attacker = spawn_context.Process(
        target=_attack_until, args=(stop, attack, target, connections), daemon=True
    )
    attacker.start()
    try:
        # The attacker needs a while to start and to make its first bodies.
        if not target.is_reached.wait(60):
            raise RuntimeError("the attacker did not reach the service within a minute")
        yield target
    finally:
        stop.set()
        attacker.join(10)
        attacker.kill()


def p95_of_victim(served: Served, seconds: float) -> float:
    """Return the seconds that 95 of 100 requests of a victim take at most.

    Args:
        served: The service.
        seconds: For how long the victim stores and searches, one request after the other.
    """
    requests = [
        ("/v1/users/victim/sessions", {"messages": [user_message("I moved to Lisbon.")]}),
        ("/v1/users/victim/search", {"query": "Where is Lisbon?"}),
    ]
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        path, body = requests[len(times) % len(requests)]
        started = time.monotonic()
        status = served.ask("POST", path, body, timeout=30)
        times.append(time.monotonic() - started)
        # A request without an answer (0) has waited long enough to count.
        assert status in (0, 200, 201), status
        time.sleep(0.02)

    # `quantiles` needs two values at least, and a slow request may be the only one. The last of the
    # bounds between twenty parts is that below which 95 of 100 times are.
    at_least_two_times = [*times, times[-1]]
    return statistics.quantiles(at_least_two_times, n=20, method="inclusive")[-1]
