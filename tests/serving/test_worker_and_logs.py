"""The background: ends, remembers, survives outages, stops in order; and logs that hold nothing of what was said."""

import io
import json
import logging
import os
import re
import signal
import socket
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
from mempiler.serving import logs
from mempiler.serving.breaker import Breaker
from mempiler.serving.memories import Memories
from mempiler.serving.writers import Worker

from .conftest import ADA, within


def note(store: Store, text: str) -> None:
    build("turn-rag").memory(store, "ada", "acme").add([{"role": "user", "content": text}], remember=False)


def queued(store: Store) -> int:
    return sum(user.queued for user in store.users())


def test_stop_finishes_the_session_at_hand_and_leaves_the_rest_queued(store: Store, scripted: Any) -> None:
    writing, go = threading.Event(), threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        writing.set()
        go.wait(15)
        return {kind: "summary"}

    for n in range(3):
        note(store, f"note {n}")
    program, lm = build("recursive-summary"), scripted(reply)
    worker = Worker(Memories(program, store, lm), session_gap=30, writers=1)
    worker.start()
    assert writing.wait(15)
    stopping = threading.Thread(target=lambda: ended.append(worker.stop(15)))
    ended: list[bool] = []
    stopping.start()
    assert within(15, lambda: not worker.alive)
    go.set()
    stopping.join(20)
    assert (ended, queued(store)) == ([True], 2)
    later = Worker(Memories(program, store, lm), session_gap=30, writers=1)
    later.start()
    assert within(15, lambda: queued(store) == 0)
    assert later.stop(15)


def test_stop_does_not_wait_longer_than_its_grace(store: Store, scripted: Any) -> None:
    writing, go = threading.Event(), threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        writing.set()
        go.wait(15)
        return {kind: "summary"}

    note(store, "note")
    worker = Worker(Memories(build("recursive-summary"), store, scripted(reply)), session_gap=30, writers=1)
    worker.start()
    assert writing.wait(15)
    assert (worker.stop(0.05), queued(store)) == (False, 1)
    go.set()
    assert worker.stop(15)


def test_worker_outlives_an_outage(store: Store, scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if n == 1:
            raise LMServerError("down", model="x")
        return {kind: "summary"}

    note(store, "note")
    worker = Worker(
        Memories(build("recursive-summary"), store, scripted(reply)), session_gap=30, writers=1, interval=0.01
    )
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
    """Sends this process's log through the service's formatter into a text; `log(contents)` starts it."""
    root, ours = logging.getLogger(), logging.getLogger("mempiler")
    before = (list(root.handlers), root.level, ours.level)

    def start(contents: bool = False) -> io.StringIO:
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        handler.setFormatter(logs.JsonLines(contents))
        root.addHandler(handler)
        ours.setLevel(logging.INFO)
        return text

    yield start
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


@pytest.mark.parametrize("contents", [False, True])
def test_logs_hold_contents_only_if_asked(
    connect: Any, scripted: Any, store: Store, log: Any, monkeypatch: pytest.MonkeyPatch, contents: bool
) -> None:
    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if n == 2:
            raise LMServerError("SECRET-reason", model="x")
        return {"answer": "SECRET-answer"}

    def bug(*arguments: object) -> None:
        raise RuntimeError("SECRET-bug")

    text = log(contents)
    client = connect(scripted(reply), log_contents=contents)
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
    found = set(re.findall(r"SECRET-\w+", text.getvalue()))
    everything = {"answer", "question", "user", "reason", "bug", "of", "argument"}
    assert found == ({f"SECRET-{name}" for name in everything} if contents else set())
    assert next(line for line in lines if "error" in line)["error"]["type"] == "RuntimeError"


def test_response_names_the_log_line(client: Any, log: Any) -> None:
    text = log()
    response = client.get("/v1/users/ada")
    assert within(15, lambda: "request" in text.getvalue())
    (line,) = [json.loads(line) for line in text.getvalue().splitlines()]
    assert (response.headers["x-request-id"], line["route"]) == (line["request"], "/v1/users/{user}")


def test_command_serves_until_a_signal_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    """The real process: settings from the environment, a chat, SIGTERM, exit code 0, the turns in the store."""
    mempiler.save(build("turn-rag"), tmp_path / "program")
    (tmp_path / "tokens").write_text("acme token-of-the-acme-tenant\n")
    settings = {
        "PROGRAM": str(tmp_path / "program"),
        "STORE": str(tmp_path / "memories.sqlite"),
        "TOKEN_FILE": str(tmp_path / "tokens"),
        "PORT": "0",
        "SESSION_GAP": "60",
    }
    environment = {**os.environ, **{f"MEMPILER_{name}": value for name, value in settings.items()}}
    command = [sys.executable, "-m", "mempiler", "serve"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr as lines:
        try:
            port = next(json.loads(line)["port"] for line in lines if '"listening"' in line)
            headers = {"Authorization": "Bearer token-of-the-acme-tenant"}
            body = {"user": "ada", "messages": [{"role": "user", "content": "I moved to Lisbon."}]}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as client:
                assert client.post("/v1/chat/completions", json=body).status_code == 200
            process.send_signal(signal.SIGTERM)
            events = [json.loads(line)["event"] for line in lines]
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert "stopped" in events
    with Store(tmp_path / "memories.sqlite") as store:
        assert [len(session.turns) for session in store.read(ADA).open] == [2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_ends_the_service(tmp_path: Path, number: int) -> None:
    mempiler.save(build("turn-rag"), tmp_path / "program")
    command = [sys.executable, "-m", "mempiler", "serve", "program", "--port", "0", "--store", "memories.sqlite"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr as lines:
        try:
            next(line for line in lines if '"listening"' in line)
            process.send_signal(number)
            events = [json.loads(line)["event"] for line in lines]
            assert process.wait(20) == 0
        finally:
            process.kill()
    assert "stopped" in events


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
