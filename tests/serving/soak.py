"""Two tenants of one service, of which one is hostile and the other its victim.

While the hostile tenant attacks, the service is killed again and again, and started over the same
store. What is measured is how long the victim waits, and whether all that it said is there: once,
and in nobody else's memory.

The model is a stub. It writes a summary of all markers that it is shown, fails where it reads FAIL,
and does not answer where it reads STALL.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import secrets
import socket
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from mempiler import Store, build
from mempiler.memory.store.owner import Owner

from ..stub_server import StubServer
from .served import MARKER, Served, new_marker

HOSTILE_WORD = "HOSTILE"
"""Stands in all that the hostile tenant says."""
HOSTILE_TENANT = "acme"
VICTIM_TENANT = "globex"
ATTACKING_THREADS = 8


# The hostile tenant


class Hostile:
    """What the hostile tenant does, one request at a time; it does not look at the responses.

    The methods of `ATTACKS` take the number of their repetition.

    Args:
        address: The address of the service.
        token: The token of the hostile tenant.
        store: The address of the store.
    """

    def __init__(self, address: str, token: str, store: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}", "Mempiler-User": "ada"}
        self._client = httpx.Client(base_url=address, headers=self._headers, timeout=3)
        self._store = store
        self.has_read_a_marker = False
        """Whether anything came back that the victim had said."""

    def make_the_model_fail(self, number: int) -> None:
        """Make the model fail for twelve users, both when it writes memories and when it chats."""
        self._store_session("FAIL", user=f"failing-{number % 12}")
        self._chat("FAIL", user="ada")

    def make_the_model_stall(self, number: int) -> None:
        """Let fifty users wait for a model that does not answer; half of the answers are streams.

        This client leaves after three seconds.
        """
        is_stream = number % 2 == 1
        self._chat("STALL", user=f"stalling-{number % 50}", stream=is_stream)

    def create_users(self, number: int) -> None:
        """Create a user who never comes again."""
        self._store_session(f"import {number}", user=f"imported-{secrets.token_hex(4)}")

    def read_much(self, number: int) -> None:
        """Ask for as many entries as one search may return, and for all users."""
        search = {"query": HOSTILE_WORD, "k": 1000}
        self._send("POST", f"/v1/users/imported-{number}/search", json=search)
        self._send("GET", "/v1/users")

    def send_half_a_body(self, number: int) -> None:
        """Send the beginning of a body, and leave after a second."""
        address = (self._client.base_url.host, self._client.base_url.port)
        lines = [
            "POST /v1/users/a/ask HTTP/1.1",
            "Host: x",
            *(f"{name}: {value}" for name, value in self._headers.items()),
            "Content-Length: 900",
        ]
        head = "\r\n".join([*lines, "", ""])
        with (
            contextlib.suppress(OSError),
            socket.create_connection(address, timeout=3) as connection,
        ):
            connection.sendall(f"{head}{{".encode())
            time.sleep(1)

    def send_garbage(self, number: int) -> None:
        """Send bodies that are malformed, too deep or too large, to paths good and bad."""
        bodies = (
            "[" * 100_000,
            '{"a":' * 50_000,
            "\ud800",
            "{}",
            "\0",
            '{"messages": [{"role": 1e999}]}',
            "x" * 999_000,
        )
        paths = (
            "/v1/users/ada/sessions",
            "/v1/chat/completions",
            "/v1/mcp",
            "/v1/users/%00/ask",
            "/v1/users/a/b/c",
        )
        # The numbers of bodies and paths have no common divisor, so all combinations come.
        body = bodies[number % len(bodies)]
        path = paths[number % len(paths)]
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        self._send("POST", path, content=body.encode("utf-8", "surrogatepass"), headers=headers)

    def reach_for_the_victim(self, number: int) -> None:
        """Read and delete users and sessions that are called like those of the victim.

        Names of users are those of a tenant, so this must not reach the victim's own.
        """
        for path in ("", "/sessions", "/memory", "/entries"):
            self._send("GET", f"/v1/users/victim{path}")
        self._send("POST", "/v1/users/victim/ask", json={"question": "mk"})
        self._send("DELETE", f"/v1/users/victim/sessions/s{number}")
        self._send("DELETE", "/v1/users/victim")

    def damage_the_store(self, number: int) -> None:
        """Damage rows of a user of the hostile tenant, as a broken disk might."""
        self._store_session(f"damaged {number}", user="damaged")
        is_database_server = "://" in self._store
        if is_database_server:
            return
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._store, timeout=1)) as database,
        ):
            database.execute(
                "UPDATE mempiler_items SET json = '{'"
                " WHERE tenant = 'acme' AND \"user\" = 'damaged'"
            )
            database.commit()

    def _store_session(self, text: str, user: str) -> None:
        body = {"messages": [{"role": "user", "content": f"{HOSTILE_WORD} {text}"}]}
        self._send("POST", f"/v1/users/{user}/sessions", json=body)

    def _chat(self, text: str, user: str, **fields: Any) -> None:
        messages = [{"role": "user", "content": f"{HOSTILE_WORD} {text}"}]
        body = {"user": user, "messages": messages, **fields}
        self._send("POST", "/v1/chat/completions", json=body)

    def _send(self, method: str, path: str, **options: Any) -> None:
        with contextlib.suppress(httpx.HTTPError):
            response = self._client.request(method, path, **options)
            if MARKER.search(response.text):
                self.has_read_a_marker = True


Attack = Callable[[Hostile, int], None]

ATTACKS: list[Attack] = [
    Hostile.make_the_model_fail,
    Hostile.make_the_model_stall,
    Hostile.create_users,
    Hostile.read_much,
    Hostile.send_half_a_body,
    Hostile.send_garbage,
    Hostile.reach_for_the_victim,
    Hostile.damage_the_store,
]


def attack_service(
    address: str, token: str, store: str, seconds: float, has_read_a_marker: Any
) -> None:
    """Make all attacks, each for some seconds in several threads; run in a process of its own.

    Args:
        address: The address of the service.
        token: The token of the hostile tenant.
        store: The address of the store.
        seconds: How long each attack lasts.
        has_read_a_marker: Its value becomes true if anything came back that the victim had said.
    """
    hostile = Hostile(address, token, store)
    for attack in ATTACKS:
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(ATTACKING_THREADS) as pool:
            repetitions = [
                pool.submit(repeat_attack, attack, hostile, first_number, end)
                for first_number in range(ATTACKING_THREADS)
            ]
        for repetition in repetitions:
            repetition.result()
        has_read_a_marker.value |= hostile.has_read_a_marker


def repeat_attack(attack: Attack, hostile: Hostile, first_number: int, end: float) -> None:
    """Repeat an attack until the time is up; no two threads use the same numbers."""
    number = first_number
    while time.monotonic() < end:
        attack(hostile, number)
        number += ATTACKING_THREADS


# The victim


class Victim:
    """The other tenant: its requests, what was acknowledged of them, and how long they took."""

    def __init__(self, served: Served) -> None:
        headers = {"Authorization": f"Bearer {served.tokens[VICTIM_TENANT]}"}
        self.client = httpx.Client(base_url=served.address, headers=headers, timeout=60)
        self.times: dict[str, list[float]] = {"chat": [], "search": [], "remembered": []}
        """Seconds, by kind of request; "remembered" is until a session is in the memory."""
        self.stored_markers: list[str] = []
        """The markers of sessions that were acknowledged."""
        self.chat_markers: list[str] = []
        """The markers of chats that were answered."""
        self.has_read_hostile_words = False
        self.refusals: list[int] = []
        """Statuses of errors while the service was up."""
        self.stop = threading.Event()
        self.service_is_down = threading.Event()
        """Set while the service is killed and started again; what is slow then does not count."""

    def chat_and_search(self) -> None:
        """Chat and search, ten times a second at most, until `stop` is set."""
        while not self.stop.wait(0.1):
            marker = new_marker()
            body = {"user": "talker", "messages": [{"role": "user", "content": f"Well, {marker}?"}]}
            if self._send_timed("chat", "/v1/chat/completions", body):
                self.chat_markers.append(marker)
            if self.stored_markers:
                self._send_timed("search", "/v1/users/victim/search", {"query": "secret word"})

    def store_sessions(self) -> None:
        """Store sessions, and wait until each is remembered, until `stop` is set."""
        while not self.stop.wait(0.5):
            marker = new_marker()
            session = {
                "id": f"s{len(self.stored_markers)}",
                "messages": [{"role": "user", "content": f"The secret word is {marker}."}],
            }
            started = time.monotonic()
            was_down = self.service_is_down.is_set()
            while not self._send("POST", "/v1/users/victim/sessions", session):
                time.sleep(0.2)
            self.stored_markers.append(marker)

            while not self._is_all_remembered():
                time.sleep(0.1)
                was_down = was_down or self.service_is_down.is_set()
            if not was_down:
                self.times["remembered"].append(time.monotonic() - started)

    def _is_all_remembered(self) -> bool:
        status = self._send("GET", "/v1/users/victim")
        return status is not None and status.json()["queued"] == 0

    def _send_timed(self, kind: str, path: str, body: Any) -> bool:
        """Send a request, note its time or its refusal, and return whether it succeeded.

        What is sent or answered while the service is down is not noted.
        """
        started = time.monotonic()
        was_down = self.service_is_down.is_set()
        response = self._request("POST", path, body)
        if response is None:
            return False
        if not was_down and not self.service_is_down.is_set():
            self.times[kind].append(time.monotonic() - started)
            if not response.is_success:
                self.refusals.append(response.status_code)
        return response.is_success

    def _send(self, method: str, path: str, body: Any = None) -> httpx.Response | None:
        """Send a request, and return its response; None if it failed."""
        response = self._request(method, path, body)
        return response if response is not None and response.is_success else None

    def _request(self, method: str, path: str, body: Any) -> httpx.Response | None:
        """Send a request, and return its response; None if none came."""
        try:
            response = self.client.request(method, path, json=body)
        except httpx.HTTPError:
            return None
        if HOSTILE_WORD in response.text:
            self.has_read_hostile_words = True
        return response


# The model, and the soak itself


def summarize_markers(body: dict[str, Any]) -> str:
    """Return every marker of the last message, in each field that the program may ask for."""
    text = str(body["messages"][-1]["content"])
    markers = MARKER.findall(text.partition("Respond with")[0])
    shown_markers = " ".join(markers) or "nothing"
    fields = ("summary", "answer", "completed")
    return "".join(f"[[ ## {field} ## ]]\n{shown_markers}\n\n" for field in fields)


def fault_of(number: int, text: str) -> str | None:
    """Return the fault that a request to the model meets; None if it gets an answer.

    Args:
        number: The number of the request, which does not matter.
        text: The messages of the request as one text.
    """
    # What the users said stands before the last marker of a field.
    text_before_last_marker = text.rpartition("[[ ## ")[0]
    if "FAIL" in text_before_last_marker:
        return "500"
    if "STALL" in text_before_last_marker:
        return "stall"
    return None


def soak(folder: Path, seconds: float, store: str | None = None, seed: int = 0) -> dict[str, Any]:
    """Let one tenant attack while the other uses the service, which is killed now and then.

    Args:
        folder: Where the files of the service stand.
        seconds: How long each attack lasts.
        store: The address of the store; an SQLite file in the folder if None.
        seed: Gives the moments at which the service is killed.

    Returns:
        The number of "kills", and the fields of `check_store`.
    """
    spawn_context = multiprocessing.get_context("spawn")
    hostile_read_a_marker = spawn_context.Value("b", False)
    with StubServer(fault_of, answer=summarize_markers) as model_server:
        options = [
            *("--lm", model_server.model),
            *("--api-base", model_server.url),
            *("--lm-deadline", "20"),
            *("--lm-retries", "0"),
            *("--timeout", "30"),
            "--mcp",
        ]
        with Served(folder, options, store, method="recursive-summary") as served:
            victim = Victim(served)
            threads = [
                threading.Thread(target=victim.chat_and_search),
                threading.Thread(target=victim.store_sessions),
            ]
            attacker = spawn_context.Process(
                target=attack_service,
                args=(
                    served.address,
                    served.tokens[HOSTILE_TENANT],
                    served.store,
                    seconds,
                    hostile_read_a_marker,
                ),
            )
            for thread in threads:
                thread.start()
            attacker.start()

            kills = kill_while_attacked(served, victim, attacker, seconds, seed)

            victim.stop.set()
            for thread in threads:
                thread.join(120)
            victim.client.close()
    return {"kills": kills, **check_store(served.store, victim, bool(hostile_read_a_marker.value))}


def kill_while_attacked(
    served: Served, victim: Victim, attacker: Any, seconds: float, seed: int
) -> int:
    """Kill the service about three times during all attacks, and return how often it was."""
    generator = random.Random(seed)
    mean_interval = seconds * len(ATTACKS) / 3
    kills = 0
    while attacker.is_alive():
        attacker.join(generator.uniform(0.5, 1.5) * mean_interval)
        if attacker.is_alive():
            victim.service_is_down.set()
            served.restart()
            victim.service_is_down.clear()
            kills += 1
    return kills


def check_store(store: str, victim: Victim, hostile_read_a_marker: bool) -> dict[str, Any]:
    """Compare what was acknowledged with what is stored.

    Returns:
        The seconds that 95 of 100 requests took at most, as "chat", "search" and "remembered"; how
        many "sessions" and "chats" were acknowledged; how many markers are "lost" or "doubled";
        whether words have "crossed" from one tenant to the other; and the statuses of "refused"
        requests.
    """
    talker = Owner("talker", VICTIM_TENANT)
    with Store(store) as opened_store:
        memory: Any = build("recursive-summary").memory(opened_store, "victim", VICTIM_TENANT)
        summary_markers = memory.read().summary.split()
        ended_sessions = [stored.item for stored in opened_store.items.list_all(talker)]
        chat_sessions = [*ended_sessions, *opened_store.read(talker).open_sessions]

    said_markers: list[str] = []
    for session in chat_sessions:
        for turn in session.turns:
            if turn.speaker == "user":
                said_markers.extend(MARKER.findall(turn.text))

    lost_sessions = set(victim.stored_markers) - set(summary_markers)
    lost_chats = set(victim.chat_markers) - set(said_markers)
    doubled_sessions = len(summary_markers) - len(set(summary_markers))
    doubled_chats = len(said_markers) - len(set(said_markers))
    return {
        "sessions": len(victim.stored_markers),
        "chats": len(victim.chat_markers),
        "refused": victim.refusals,
        "chat": p95(victim.times["chat"]),
        "search": p95(victim.times["search"]),
        "remembered": p95(victim.times["remembered"]),
        "lost": len(lost_sessions | lost_chats),
        "doubled": doubled_sessions + doubled_chats,
        "crossed": victim.has_read_hostile_words or hostile_read_a_marker,
    }


def p95(times: list[float]) -> float:
    """Return what 95 of 100 times are at most."""
    # The last of the bounds between twenty parts.
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def good(
    report: dict[str, Any], chat: float = 1.0, search: float = 1.0, remembered: float = 10.0
) -> bool:
    """Return whether a report of `soak` is good.

    Nothing may be lost, doubled, refused or disclosed to the other tenant.

    Args:
        report: What `soak` returned.
        chat: Seconds within which 95 of 100 chats must be answered.
        search: Seconds within which 95 of 100 searches must be answered.
        remembered: Seconds within which 95 of 100 sessions must be in the memory.
    """
    if report["lost"] or report["doubled"] or report["crossed"] or report["refused"]:
        return False
    return report["chat"] < chat and report["search"] < search and report["remembered"] < remembered
