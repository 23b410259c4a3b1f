"""Two services over one store, as on two hosts: the store is their queue, and gives each user to one of them."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import mempiler
import pytest
from mempiler import Store

from tests.stub_server import StubServer, offline_answer

USERS, SESSIONS = 6, 4
AT_ONCE = 2
"""Users that one process writes at the same time."""


class Watched:
    """A model that takes its time, and sees which users are written at the same time, and by whom."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self.together, self.most = 0, 0

    def answer(self, body: dict[str, Any]) -> str:
        user = re.findall(r"written of (user-\d)", str(body["messages"]))[-1]
        with self._changed:
            self._running[user] += 1
            self.together = max(self.together, self._running[user])
            self.most = max(self.most, self._running.total())
            self._changed.notify_all()
            # The first ones wait for more than one process alone can ask: a busy machine is no failure.
            self._changed.wait_for(lambda: self.most > AT_ONCE, 20)
        time.sleep(0.15)
        with self._changed:
            self._running[user] -= 1
        return offline_answer(body)


class Held(Watched):
    """A model that answers nobody until it is let, and then at once."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.asked: list[str] = []

    def answer(self, body: dict[str, Any]) -> str:
        self.asked += re.findall(r"Note \d was written of user-\d", str(body["messages"]))[-1:]
        self.go.wait(60)
        return offline_answer(body)


@contextmanager
def service(folder: Path, url: str, lm: StubServer, *words: str) -> Iterator[str]:
    with running(folder, url, lm, *words) as (address, _):
        yield address


@contextmanager
def running(folder: Path, url: str, lm: StubServer, *words: str) -> Iterator[tuple[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "mempiler", "serve", str(folder / "program"), "--port", port, "--store", url]
    command += ["--lm", lm.model, "--api-base", lm.url, "--log-level", "warning", *words]
    environment = {**os.environ, "OPENAI_API_KEY": "none"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()


def ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.slow
def test_no_user_is_written_by_both_and_every_session_once(tmp_path: Path, url: str) -> None:
    mempiler.save(mempiler.build("recursive-summary"), tmp_path / "program")
    watched = Watched()
    with ExitStack() as stack, Store(url) as store:
        lm = stack.enter_context(StubServer(answer=watched.answer))
        addresses = [stack.enter_context(service(tmp_path, url, lm, "--writers", str(AT_ONCE))) for _ in range(2)]
        until = time.monotonic() + 90
        while not all(map(ready, addresses)) and time.monotonic() < until:
            time.sleep(0.1)
        for n in range(USERS * SESSIONS):
            user = f"user-{n % USERS}"
            said = {"role": "user", "name": "Ada", "content": f"Note {n} was written of {user}."}
            address = addresses[n // USERS % 2]
            sent = httpx.post(f"{address}/v1/users/{user}/sessions", json={"messages": [said]}, timeout=30)
            assert sent.status_code == 201
        while any(user.queued for user in store.users()) and time.monotonic() < until:
            time.sleep(0.1)
        found = store.users()
    assert {(one.sessions, one.queued, one.failed, one.position) for one in found} == {(SESSIONS, 0, 0, SESSIONS)}
    assert len(found) == USERS
    assert watched.together == 1
    assert watched.most > AT_ONCE, "one process alone did it all"
    assert len(lm.requests) == USERS * SESSIONS


def test_what_a_killed_service_was_writing_another_one_writes(tmp_path: Path, url: str) -> None:
    """Each of the two writes one user when one is killed; its user is free when the lease ends."""
    mempiler.save(mempiler.build("recursive-summary"), tmp_path / "program")
    held = Held()
    with ExitStack() as stack, Store(url) as store:
        lm = stack.enter_context(StubServer(answer=held.answer))
        stack.callback(held.go.set)
        words = ("--writers", "1", "--lease", "3", "--lm-timeout", "50", "--lm-deadline", "55")
        both = [stack.enter_context(running(tmp_path, url, lm, *words)) for _ in range(2)]
        assert _within(90, lambda: all(ready(address) for address, _ in both))
        for n, user in ((0, "user-0"), (0, "user-1"), (1, "user-0"), (1, "user-1")):
            said = {"role": "user", "name": "Ada", "content": f"Note {n} was written of {user}."}
            httpx.post(f"{both[0][0]}/v1/users/{user}/sessions", json={"messages": [said]}, timeout=30)
        assert _within(30, lambda: len(held.asked) == 2)
        both[0][1].kill()
        both[0][1].wait(20)
        held.go.set()
        assert _within(60, lambda: not any(user.queued for user in store.users()))
        found = store.users()
    assert [(one.sessions, one.queued, one.failed, one.position) for one in found] == [(2, 0, 0, 2)] * 2
    # One session is paid for twice: the one that was being written.
    assert len(held.asked) == 5
    assert len(set(held.asked)) == 4


def _within(seconds: float, check: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not (found := check()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_connections_that_the_server_ended_are_replaced_unseen(postgres: Any) -> None:
    import psycopg

    with Store(postgres.emptied()) as store:
        store.check()
        with psycopg.connect(postgres.url, autocommit=True) as other:
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            other.execute(f"{ended} AND datname = 'postgres'")
        time.sleep(0.2)
        store.check()
        assert store.users() == []
