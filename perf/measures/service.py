"""Measures the service: cost of a request, concurrent users, and how long a command takes to start.

CPU is that of the service's process (`mempiler serve`, offline engine, turn RAG, SQLite), asked by one client over one
connection, each request of another user of 20 sessions in turn; the writers rest meanwhile.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from mempiler import Store, build

sys.path.append(str(Path(__file__).parents[2]))
from tests.serving.served import Served
from tests.serving.served import crowd as asked_by

Found = dict[str, float]
USERS, SESSIONS, ROUNDS = 20, 20, 5
EVALUATE = ("-m", "mempiler", "evaluate", "turn-rag", "--benchmark", "locomo", "--test", "5")
IMPORTS = {
    "import dspy": ("-c", "import dspy"),
    "import MLflow and its store": ("-c", "import mlflow.store.tracking.sqlalchemy_store"),
}
Request = Callable[[int], tuple[str, str, Any]]
"""The number of a user -> method, path and body."""


@cache
def cpu() -> Found:
    """CPU milliseconds of each kind of request in the process of a service."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        with Store(Path(folder) / "memories.sqlite") as store:
            _fill(store)
        with Served(Path(folder), ["--writers", "0"]) as service:
            connection = http.client.HTTPConnection("127.0.0.1", service.port)
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {service.tokens['acme']}"}

            def send(request: Request, user: int) -> None:
                method, path, body = request(user)
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status not in (200, 201):
                    raise RuntimeError(text.decode())

            for name, request in _requests().items():
                for user in range(USERS):
                    send(request, user)
                before = _spent(service)
                for _, user in itertools.product(range(ROUNDS), range(USERS)):
                    send(request, user)
                found[name] = 1000 * (_spent(service) - before) / (ROUNDS * USERS)
    return found


@cache
def crowd(workers: int, users: int = 200, seconds: float = 20.0) -> Found:
    """So many users at once: seconds of a request, requests a second, CPU seconds of the service and its clients.

    Raises:
        RuntimeError: Some were refused, or saw words of another user.
    """
    options = ["--log-level", "warning"]
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder), options, workers=workers) as service:
        spent, clients = _spent(service), sum(os.times()[:2])
        found = asyncio.run(asked_by(service.address, users, seconds, service.tokens))
        found |= {"service": _spent(service) - spent, "clients": sum(os.times()[:2]) - clients}
    if found["leaks"] or any(name.startswith("error") for name in found):
        raise RuntimeError(json.dumps(found))
    return {**found, "over one": found["per second"] / (crowd(1)["per second"] if workers > 1 else 1)}


@cache
def start(*command: str) -> Found:
    """CPU seconds of a command: the first time in a results folder, and from then on; beside what it has to import."""
    with tempfile.TemporaryDirectory() as home:
        first = _seconds(home, *command)
        works = {"again": command} | (IMPORTS if command == EVALUATE else {})
        found = {name: median(_seconds(home, *work) for _ in range(ROUNDS)) for name, work in works.items()}
        return {"first": first, **found}


def _seconds(home: str, *arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "MEMPILER_HOME": home}
    environment.pop("MLFLOW_TRACKING_URI", None)
    subprocess.run([sys.executable, *arguments], env=environment, cwd=home, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _spent(service: Served) -> float:
    """CPU seconds of a service's processes so far."""
    main = psutil.Process(service.process.pid)
    return sum(sum(each.cpu_times()[:2]) for each in [main, *main.children(recursive=True)])


def _said(n: int) -> list[dict[str, str]]:
    text = f"The secret word of garden {n} is mk{n:06d}, and it hangs in the harbour."
    return [{"role": "user", "name": "Ada", "content": text}, {"role": "assistant", "content": "I see."}]


def _requests() -> dict[str, Request]:
    """Each kind of request; `models` touches no store."""
    number = itertools.count(1000)

    def question() -> str:
        return f"What is the secret word of garden {next(number) % SESSIONS}?"

    def chat(user: int) -> tuple[str, str, Any]:
        said = {"role": "user", "content": question()}
        return "POST", "/v1/chat/completions", {"user": f"u{user}", "messages": [said]}

    return {
        "models": lambda user: ("GET", "/v1/models", None),
        "chat": chat,
        "ask": lambda user: ("POST", f"/v1/users/u{user}/ask", {"question": question()}),
        "add": lambda user: ("POST", f"/v1/users/new-{user}/sessions", {"messages": _said(next(number))}),
    }


def _fill(store: Store) -> None:
    """Users whose sessions are all remembered."""
    program = build("turn-rag")
    for user in range(USERS):
        memory = program.memory(store, f"u{user}", "acme")
        for n in range(SESSIONS):
            memory.add(_said(n), remember=False)
        memory.remember()
