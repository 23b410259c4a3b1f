"""The background: writers of queued sessions, worker and breaker; the command; logs without what was said."""

import contextvars
import io
import json
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import mempiler
import pytest
from dspy.utils.exceptions import LMInvalidRequestError, LMServerError
from mempiler import EndpointError, Store, build
from mempiler.memory.stored import Owner
from mempiler.serving import operations
from mempiler.serving.breaker import CALLER, Breaker
from mempiler.serving.memories import Memories
from mempiler.serving.writers import Worker, remember_queued

from .conftest import within


def note(store: Store, text: str) -> None:
    build("turn-rag").memory(store, "ada", "acme").add([{"role": "user", "content": text}], remember=False)


def queued(store: Store) -> int:
    return sum(user.queued for user in store.users())


def worker_of(store: Store, lm: Any, interval: float = 1.0) -> Worker:
    memories = Memories(build("recursive-summary"), store, lm)
    return Worker(memories, session_gap=30, writers=1, interval=interval)


def test_stop_finishes_the_session_at_hand_within_its_grace_and_leaves_the_rest_queued(
    store: Store, scripted: Any
) -> None:
    writing, go = threading.Event(), threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        writing.set()
        go.wait(15)
        return {kind: "summary"}

    for n in range(3):
        note(store, f"note {n}")
    worker, later = worker_of(store, scripted(reply)), worker_of(store, scripted(reply))
    worker.start()
    assert writing.wait(15)
    assert (worker.stop(0.05), worker.alive, queued(store)) == (False, False, 3)
    go.set()
    assert (worker.stop(15), queued(store)) == (True, 2)
    later.start()
    assert within(15, lambda: queued(store) == 0)
    assert later.stop(15)


def test_worker_outlives_an_outage(store: Store, scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if n == 1:
            raise LMServerError("down", model="x")
        return {kind: "summary"}

    note(store, "note")
    worker = worker_of(store, scripted(reply), interval=0.01)
    worker.start()
    assert within(15, lambda: queued(store) == 0)
    assert worker.alive
    assert worker.stop(15)


def test_breaker_opens_after_failures_in_a_row_and_tries_again() -> None:
    time_now = [0.0]
    breaker = Breaker(pause=10, clock=lambda: time_now[0])
    failure = LMServerError("down", model="x")
    for _ in range(4):
        breaker.failed(failure)
        breaker.failed(LMInvalidRequestError("a bad request", model="x"))
    breaker.admit()
    breaker.failed(failure)
    with pytest.raises(EndpointError):
        breaker.admit()
    time_now[0] = 10.1
    breaker.admit()
    breaker.failed(failure)
    assert breaker.open
    time_now[0] = 21.0
    breaker.admit()
    breaker.worked(1, None)
    breaker.failed(failure)
    breaker.admit()


@pytest.mark.parametrize(
    ("failing", "refused"),
    [
        ([Owner("bad", "acme")] * 9, {Owner("bad", "acme")}),
        (
            [Owner(f"bad {n}", "other") for n in range(9)],
            {Owner("fine", "other"), *(Owner(f"bad {n}", "other") for n in range(9))},
        ),
        ([Owner("bad", "acme"), Owner("bad", "other")] * 3, "all"),
        ([Owner(f"bad {n}", "other") for n in range(4)], set()),
    ],
    ids=["one user", "one of two tenants", "two tenants", "too few"],
)
def test_breaker_refuses_whose_calls_fail(failing: list[Owner], refused: Any) -> None:
    tenants = {owner.tenant for owner in failing}
    breaker = Breaker(pause=10, several=lambda: tenants != {"acme"})
    everybody = {Owner("fine", tenant) for tenant in tenants | {"acme"}} | set(failing)

    def admitted(owner: Owner) -> bool:
        CALLER.set(owner)
        try:
            breaker.admit()
        except EndpointError:
            return False
        return True

    def run() -> None:
        for owner in (Owner("fine", "acme"), *failing):
            if admitted(owner) and not owner.user.startswith("fine"):
                breaker.failed(LMServerError("down", model="x"))
        assert {owner for owner in everybody if not admitted(owner)} == (everybody if refused == "all" else refused)

    contextvars.copy_context().run(run)


def test_users_who_cannot_be_written_delay_nobody_else(store: Store, scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if "bad" in text:
            raise LMServerError("down", model="x")
        return {kind: "summary"}

    program = build("turn-rag")
    for n in range(12):
        program.memory(store, f"user {n}", "acme").add([{"role": "user", "content": "bad"}], remember=False)
    lm = scripted(reply, guard=Breaker(several=lambda: True))
    worker = worker_of(store, lm, interval=0.05)
    worker.start()
    assert within(15, lambda: len(worker.failing) == 12)
    program.memory(store, "bob", "other").add([{"role": "user", "content": "fine"}], remember=False)
    assert within(5, lambda: [user.queued for user in store.users("other")] == [0])
    assert queued(store) == 12
    assert worker.stop(15)


def test_a_damaged_row_is_set_aside_and_the_rest_of_its_user_is_written(store: Store, scripted: Any) -> None:
    for n in range(3):
        note(store, f"note {n}")
    with sqlite3.connect(store.url.removeprefix("sqlite:///")) as db:
        db.execute("UPDATE mempiler_items SET json = '{' WHERE position = 2")
    db.close()
    well = scripted(lambda kind, text, n: {kind: "summary"})
    assert remember_queued(Memories(build("recursive-summary"), store, well)).items == 2
    (found,) = store.users()
    assert (found.queued, found.failed) == (0, 1)
    assert build("recursive-summary").memory(store, "ada", "acme", well).search("note")


def test_dead_model_does_not_keep_sessions_from_being_stored(connect: Any, store: Store) -> None:
    from mempiler.engines.models import language_model

    breaker = Breaker()
    for _ in range(5):
        breaker.failed(LMServerError("down", model="x"))
    client = connect(language_model("offline", guard=breaker))
    assert client.add("I moved to Lisbon.").status_code == 201
    assert client.ask("Where?").status_code == 502
    found = client.get("/ready")
    assert (found.status_code, found.json()["parts"]["model"]) == (200, False)


@pytest.fixture
def log() -> Iterator[Any]:
    """Sends this process's log through the service's formatter into a text; `log()` starts it."""
    root, ours = logging.getLogger(), logging.getLogger("mempiler")
    before = (list(root.handlers), root.level, ours.level)

    def start() -> io.StringIO:
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        handler.setFormatter(operations.JsonLines())
        root.addHandler(handler)
        ours.setLevel(logging.INFO)
        return text

    yield start
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_logs_hold_no_contents(
    connect: Any, scripted: Any, store: Store, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if n == 2:
            raise LMServerError("SECRET-reason", model="x")
        return {"answer": "SECRET-answer"}

    def bug(*arguments: object) -> None:
        raise RuntimeError("SECRET-bug")

    text = log()
    client = connect(scripted(reply))
    statuses = [client.chat("SECRET-question", user="SECRET-user").status_code for _ in range(2)]
    monkeypatch.setattr(store, "users", bug)
    statuses.append(client.get("/v1/users/SECRET-user").status_code)
    logging.getLogger("elsewhere").warning("SECRET-of-a-library")
    logging.getLogger("elsewhere").warning("template %s", "SECRET-argument")
    assert statuses == [200, 502, 500]
    assert within(15, lambda: text.getvalue().count('"event": "request"') == 3)
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    routes = ["/v1/chat/completions", "/v1/chat/completions", "/v1/users/{user}"]
    assert [(line["route"], line["status"]) for line in requests] == list(zip(routes, statuses, strict=True))
    assert {line["tenant"] for line in requests} == {"acme"}
    assert "SECRET" not in text.getvalue()
    assert next(line for line in lines if "error" in line)["error"]["type"] == "RuntimeError"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("asked", [True, False])
def test_command_serves_until_a_signal_and_leaves_nothing_half_done(tmp_path: Path, number: int, asked: bool) -> None:
    """The real process, with settings from the environment; the signal may come while it starts."""
    mempiler.save(build("turn-rag"), tmp_path / "program")
    settings = {"PROGRAM": "program", "STORE": "memories.sqlite", "PORT": "0", "SESSION_GAP": "60"}
    environment = {**os.environ, **{f"MEMPILER_{name}": value for name, value in settings.items()}}
    command = [sys.executable, "-m", "mempiler", "serve"]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr as lines:
        try:
            port = next(json.loads(line)["port"] for line in lines if '"listening"' in line)
            body = {"user": "ada", "messages": [{"role": "user", "content": "I moved to Lisbon."}]}
            if asked:
                answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=20)
                assert answer.status_code == 200
            process.send_signal(number)
            events = [json.loads(line)["event"] for line in lines]
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert "stopped" in events
    with Store(tmp_path / "memories.sqlite") as store:
        assert [len(session.turns) for session in store.read(Owner("ada")).open] == ([2] if asked else [])


def test_port_that_is_taken_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mempiler.cli import main

    mempiler.save(build("turn-rag"), tmp_path / "program")
    command = ["serve", str(tmp_path / "program"), "--store", str(tmp_path / "memories.sqlite")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command += ["--port", str(taken.getsockname()[1])]
        with pytest.raises(SystemExit) as ended:
            main(command)
    assert (ended.value.code, "cannot listen at 127.0.0.1" in capsys.readouterr().err) == (2, True)


def test_other_machines_are_not_served_without_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mempiler.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["serve", str(tmp_path), "--host", "0.0.0.0"])
    assert (ended.value.code, "give --token-file" in capsys.readouterr().err) == (2, True)


@pytest.fixture
def full(store: Store) -> Store:
    """A store with two queued notes of each of twelve users."""
    for user in range(12):
        for n in range(2):
            said = [{"role": "user", "content": f"note {n} of {user}"}]
            build("turn-rag").memory(store, f"user {user}").add(said, remember=False)
    return store


def test_all_users_are_written_at_the_same_time(full: Store, scripted: Any) -> None:
    together = threading.Barrier(12, timeout=10)

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        together.wait()  # passes when there is a call of every user
        return {kind: "summary"}

    assert remember_queued(Memories(build("recursive-summary"), full, scripted(reply))).items == 24


def test_a_slow_user_holds_up_nobody_who_comes_later_either(full: Store, scripted: Any) -> None:
    slow = threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if "of late" in text:
            slow.set()
        elif " of 3" in text:
            build("turn-rag").memory(full, "late").add(
                [{"role": "user", "content": "note of late"}], id="only", remember=False
            )
            assert slow.wait(20)
        return {kind: "summary"}

    assert remember_queued(Memories(build("recursive-summary"), full, scripted(reply))).items == 25


def test_a_failure_leaves_the_rest_queued_and_no_user_claimed(full: Store, scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if " of 3" in text:
            raise LMServerError("down", model="x")
        return {kind: "summary"}

    program = build("recursive-summary")
    with pytest.raises(LMServerError):
        remember_queued(Memories(program, full, scripted(reply)))
    queued = sum(one.queued for one in full.users())
    assert queued >= 2
    well = scripted(lambda kind, text, n: {kind: "summary"})
    assert remember_queued(Memories(program, full, well)).items == queued
