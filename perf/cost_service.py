"""What a request costs the service, and how many users it carries: CPU, SQL statements, and 200 users at once.

CPU is that of the service's process (`mempiler serve`, offline engine, turn RAG, SQLite), asked by one client over one
connection, each request of another user of 20 sessions in turn; the writers rest meanwhile, so a row is the request
alone. Statements are counted in process, by SQLite itself, those that begin and end a transaction apart.

The peer of a request is the least that the same frameworks do for it: `GET /v1/models`, which touches no store.

Usage:
    $ python perf/cost_service.py
"""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import itertools
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mempiler
from cost_row import Row, main
from mempiler.engines.models import language_model
from mempiler.service.app import make_app
from mempiler.service.service import Service
from mempiler.service.settings import Settings
from sqlalchemy import event

USERS, SESSIONS, ROUNDS = 20, 20, 5
AIMS = {"chat": (6, 8), "ask": (4, 8), "add": (2, 8)}
BOUNDS = {
    "chat": "threads' clocks: HTTP and loop .24, two writes .17, DSPy's call .15, recall .13, view .08, stub .06",
    "ask": "threads' clocks: HTTP and loop .33, DSPy's call .24, recall .15, view .12, stub .10, evidence .06",
    "add": "threads' clocks: HTTP and loop .53, the write .41",
}
"""Shares of the process's CPU; HTTP with its JSON and handing over to a thread; one client, writers at rest."""
TRANSACTION = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")
TICK = 1000 / os.sysconf("SC_CLK_TCK")


def said(n: int) -> dict[str, Any]:
    """A session of a user."""
    text = f"The secret word of garden {n} is mk{n:06d}, and it hangs in the harbour."
    return {"messages": [{"role": "user", "name": "Ada", "content": text}, {"role": "assistant", "content": "I see."}]}


def requests() -> dict[str, Callable[[int], tuple[str, str, Any]]]:
    """Each kind of request, by the number of its user: method, path and body."""
    number = itertools.count(1000)
    question = "What is the secret word of garden {}?"
    return {
        "models": lambda user: ("GET", "/v1/models", None),
        "chat": lambda user: (
            "POST",
            "/v1/chat/completions",
            {"user": f"u{user}", "messages": [{"role": "user", "content": question.format(next(number) % SESSIONS)}]},
        ),
        "ask": lambda user: ("POST", f"/v1/users/u{user}/ask", {"question": question.format(next(number) % SESSIONS)}),
        "add": lambda user: ("POST", f"/v1/users/new-{user}/sessions", said(next(number))),
    }


def fill(store: Any) -> None:
    """Users whose sessions are all remembered."""
    program = mempiler.build("turn-rag")
    for user in range(USERS):
        memory = program.memory(store, f"u{user}")
        for n in range(SESSIONS):
            memory.add(said(n)["messages"], remember=False)
        memory.remember()


def statements() -> dict[str, int]:
    """SQL statements of each kind of request, without those that begin or end a transaction."""
    import httpx

    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, mempiler.Store(Path(folder) / "memories.sqlite") as store:
        fill(store)
        lm = language_model("offline", cache=False)
        app = make_app(Service(mempiler.build("turn-rag"), store, lm, settings=Settings(writers=0)))
        seen: list[str] = []

        @event.listens_for(store._engine, "connect")
        def trace(connection: Any, record: Any) -> None:
            connection.set_trace_callback(seen.append)

        # Those that are open by now are not traced.
        store._engine.dispose()

        async def ask() -> None:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                for name, request in requests().items():
                    for _ in range(3):
                        method, path, body = request(0)
                        seen.clear()
                        (await client.request(method, path, json=body)).raise_for_status()
                    found[name] = sum(text.split()[0] not in TRANSACTION for text in seen)

        asyncio.run(ask())
    return found


def cpu() -> dict[str, float]:
    """CPU milliseconds of each kind of request in the process of a service."""
    load, found = _load(), dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "memories.sqlite")
        with mempiler.Store(store) as opened:
            fill(opened)
        with served(load, Path(folder), store, "--writers", "0") as (address, process):
            connection = http.client.HTTPConnection(address.removeprefix("http://"))
            for name, request in requests().items():
                send = _sender(connection, request)
                for user in range(USERS):
                    send(user)
                begun = spent(process)
                for _, user in itertools.product(range(ROUNDS), range(USERS)):
                    send(user)
                found[name] = (spent(process) - begun) / (ROUNDS * USERS)
    return found


def _sender(connection: http.client.HTTPConnection, request: Any) -> Callable[[int], None]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}

    def send(user: int) -> None:
        method, path, body = request(user)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            raise RuntimeError(text.decode())

    return send


TOKEN = secrets.token_urlsafe(24)


@contextmanager
def served(load: Any, folder: Path, store: str, *options: str) -> Iterator[tuple[str, int]]:
    """A service of one tenant; its address and process."""
    with load.service(folder, {"default": TOKEN}, store, list(options)) as (address, process):
        yield address, process


def spent(process: int) -> float:
    """CPU milliseconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def spent_by_all(process: int) -> float:
    """The same of a process and those that it has started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return spent(process) + sum(spent_by_all(int(child)) for task in tasks for child in task.read_text().split())


def crowd(workers: int, users: int = 200, seconds: float = 20.0) -> tuple[float, float, str]:
    """So many users at once: median milliseconds of a request, requests per second, and where the cores' time went."""
    load = _load()
    tokens = {tenant: secrets.token_urlsafe(24) for tenant in load.TENANTS}
    with tempfile.TemporaryDirectory() as folder:
        options = ["--workers", str(workers)]
        with load.service(Path(folder), tokens, str(Path(folder) / "memories.sqlite"), options) as (address, process):
            service, clients = spent_by_all(process), time.process_time()
            found, _ = asyncio.run(load.load(address, users, seconds, tokens))
            service, clients = (spent_by_all(process) - service) / 1000, time.process_time() - clients
    if found["errors"] or found["leaks"]:
        raise RuntimeError(json.dumps(found))
    took, cores = found["seconds"], os.cpu_count()
    share = f"{took:.0f} s on {cores} cores: {service:.0f} s of CPU in the service, {clients:.0f} s in its clients"
    return found["all ms"]["p50"], found["per second"], share


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("load", Path(__file__).with_name("load.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows() -> Iterable[Row]:
    """The rows of the service."""
    cost, counted = cpu(), statements()
    frame = f"{cost['models']:.2g}: a request without a store"
    for name, (most, statements_at_most) in AIMS.items():
        yield Row(f"service: {name}", f"{SESSIONS} sessions", cost[name], most, peer=frame, bound=BOUNDS[name])
        bound = "two durable writes of 3 each, a view of 2, evidence that was not read before" if name == "chat" else ""
        yield Row(f"service: {name}, statements", "SQLite", counted[name], statements_at_most, unit="SQL", bound=bound)
    p50, alone, share = crowd(1)
    bound = f"{alone:.0f} requests a second of one process, so 200 users wait 200 / {alone:.0f} s; {share}"
    yield Row("service: 200 users at once, p50", "1 process", p50 / 1000, 0.5, unit="s", bound=bound)
    p50, shared, share = crowd(2)
    share += "; of two processes one writes to an SQLite file at a time, and the other one sleeps until it looks again"
    yield Row("service: requests of 2 processes over 1", "200 users", shared / alone, 1.5, "x", "", True, share)


if __name__ == "__main__":
    main(rows)
