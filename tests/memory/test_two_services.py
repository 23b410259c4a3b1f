"""Two services over one store, as on two hosts: the store is their queue, and gives each user to one of them."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import mempiler
import pytest
from mempiler import Store

from tests.stub_server import StubServer, offline_answer


class Held:
    """A model that answers nobody until it is let, and then at once."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[str] = []

    def answer(self, body: dict[str, Any]) -> str:
        self.asked += re.findall(r"Note \d was written of user-\d", str(body["messages"]))[-1:]
        self.go.wait(60)
        return offline_answer(body)


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
