"""Nobody keeps others out: hung models, hung stores, idle sockets, greedy tenants, pages of other origins."""

import json
import logging
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler import Store, StoreError
from mempiler.engines.models import language_model
from mempiler.serving import operations
from mempiler.serving.breaker import Breaker
from mempiler.serving.refusals import cause_of

from tests.stub_server import StubServer, every

from .conftest import within


@contextmanager
def hung(connect: Any, scripted: Any, **settings: Any) -> Iterator[tuple[Any, Any]]:
    """A service whose model does not answer until the block ends; the second value asks it in a thread."""
    go, stack = threading.Event(), ExitStack()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        go.wait(20)
        return {"answer": "fine"}

    client = connect(scripted(reply), **settings)
    calls: list[threading.Thread] = []

    def chat(tenant: str = "acme") -> None:
        before = client.service.asking.held.total()
        calls.append(threading.Thread(target=lambda: client.as_tenant(tenant).chat("hello")))
        calls[-1].start()
        assert within(10, lambda: client.service.asking.held.total() > before)

    with stack:
        try:
            yield client, chat
        finally:
            go.set()
            for call in calls:
                call.join(20)


@pytest.mark.parametrize("fault", ["wait", "trickle", "endless", "headers"])
def test_a_model_that_hangs_holds_no_thread_beyond_its_deadline(connect: Any, fault: str) -> None:
    with StubServer(every(fault)) as server:
        lm = language_model(
            server.model, api_base=server.url, cache=False, deadline=0.5, timeout=20, guard=Breaker(pause=0.1)
        )
        client = connect(lm, threads=1, queue=8, timeout=10.0, tenant_share=1.0)
        begun = time.monotonic()
        assert [client.chat("hello", user=f"u{n}").status_code for n in range(2)] == [502, 502]
        assert client.add("I moved.").status_code == 201
        assert time.monotonic() - begun < 8


def test_requests_of_the_store_do_not_wait_for_the_model(connect: Any, scripted: Any) -> None:
    with hung(connect, scripted, threads=1, queue=0, store_threads=1) as (client, chat):
        chat()
        statuses = [client.add("I moved.").status_code, client.get("/v1/users").status_code]
        assert statuses == [201, 200]
        found = client.as_tenant(None).get("/ready")
        assert (found.status_code, found.json()["parts"]["room"]) == (503, False)
        assert client.as_tenant(None).get("/health").status_code == 200
    assert within(10, lambda: client.as_tenant(None).get("/ready").status_code == 200)


def test_a_tenant_has_its_share_of_places_and_threads(connect: Any, scripted: Any) -> None:
    with hung(connect, scripted, threads=2, queue=4) as (client, chat):
        for _ in range(3):
            chat()
        refused = client.chat("one too many")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        running = client.service.asking._threads
        assert not within(0.3, lambda: running.borrowed_tokens == 2)
        chat("globex")
        assert within(5, lambda: running.borrowed_tokens == 2)


def test_a_tenant_alone_has_all_places(connect: Any, scripted: Any) -> None:
    with hung(connect, scripted, threads=2, queue=0, tokens=False) as (client, chat):
        chat()
        chat()
        refused = client.chat("hello")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")


CHAT = {"user": "ada", "messages": [{"role": "user", "content": "hello"}]}
TOOL = {"name": "ask_memory", "arguments": {"question": "Where?"}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": TOOL}),
    ],
)
def test_the_place_of_a_client_that_went_away_is_free(connect: Any, path: str, body: Any) -> None:
    pytest.importorskip("mcp", reason="needs the extra mcp")
    headers = {"Accept": "application/json", "Mempiler-User": "ada"}
    with StubServer(every("stall")) as server:
        guard = Breaker()
        lm = language_model(server.model, api_base=server.url, cache=False, deadline=30, guard=guard)
        client = connect(lm, threads=2, queue=8, tenant_share=0.5, mcp=True)
        for _ in range(6):
            with pytest.raises(httpx.ReadTimeout):
                client.post(path, json=body, headers=headers, timeout=0.2)
        assert within(5, lambda: client.service.asking.held.total() == 0)
        assert not guard.open


ORIGINS = [
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "http://localhost:3000"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 200),
    ({}, 200),
]


@pytest.mark.parametrize(("headers", "status"), ORIGINS)
def test_pages_of_other_origins_are_refused_without_tokens(
    connect: Any, store: Store, headers: dict[str, str], status: int
) -> None:
    client = connect(tokens=False).as_tenant(None)
    assert client.get("/v1/users", headers=headers).status_code == status
    posted = client.post(
        "/v1/users/ada/sessions",
        content=json.dumps({"messages": [{"role": "user", "content": "hi"}]}),
        headers={"Content-Type": "text/plain" if status == 403 else "application/json", **headers},
    )
    assert (posted.status_code, len(store.users())) == ((403, 0) if status == 403 else (201, 1))
    assert client.delete("/v1/users/nobody", headers=headers).status_code == (403 if status == 403 else 404)
    assert client.get("/v1/users", headers={"Origin": client.address}).status_code == 200


PAGE = b"POST /v1/users/a/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://e.example\r\nContent-Length: 9\r\n\r\n"
SLOW = b"POST /v1/users/a/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (PAGE, b"HTTP/1.1 403"),  # before its body comes
        (SLOW, b"HTTP/1.1 408"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000, b"HTTP/1.1 400"),
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),
    ],
    ids=["page", "slow", "long", "idle"],
)
def test_what_is_sent_in_part_is_answered_and_its_connection_is_closed(
    connect: Any, sent: bytes, answer: bytes
) -> None:
    port = connect(tokens=False, keep_alive=1.0, timeout=0.5).base_url.port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(sent)
        assert connection.recv(4096).startswith(answer)
        if sent is not PAGE:
            while connection.recv(4096):
                pass


def test_a_store_that_hangs_is_seen_in_time_and_by_one_thread(
    connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect().as_tenant(None)
    go, asked = threading.Event(), []
    read = store.read

    def hanging(*given: Any, **named: Any) -> Any:
        asked.append(given)
        go.wait(20)
        return read(*given, **named)

    monkeypatch.setattr(store, "read", hanging)
    monkeypatch.setattr(operations, "WAIT", 0.3)
    try:
        begun = time.monotonic()
        for _ in range(5):
            found = client.get("/ready")
            assert (found.status_code, found.json()["parts"]["store"]) == (503, False)
            assert client.get("/health").status_code == 200
        assert time.monotonic() - begun < 5
        assert len(asked) == 1
    finally:
        go.set()
    assert within(10, lambda: client.get("/ready").status_code == 200)


def test_a_store_that_cannot_be_written_is_not_ready_and_the_log_says_why(
    connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect().as_tenant(None)
    monkeypatch.setattr(operations, "WRITES_EVERY", 0.0)
    assert client.get("/ready").status_code == 200
    engine = client.service.store._engine
    engine.dispose()

    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def read_only(connection: sqlite3.Connection, record: Any) -> None:
        connection.execute("PRAGMA query_only=ON")

    with caplog.at_level(logging.ERROR):
        found = client.get("/ready")
    parts = found.json()["parts"]
    assert (found.status_code, parts["store"], parts["disk"]) == (503, True, False)
    assert any("readonly database" in str(vars(record).get("cause")) for record in caplog.records)


def test_a_broken_token_file_is_not_ready_and_the_log_says_why(
    connect: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    with caplog.at_level(logging.ERROR):
        (tmp_path / "tokens").write_text("nonsense-that-is-long-enough\n")
        found = client.as_tenant(None).get("/ready")
        client.get("/v1/users")
    assert (found.status_code, found.json()["parts"]["tokens"]) == (503, False)
    (line,) = [vars(record) for record in caplog.records if "token file is wrong" in record.message]
    assert "expected TENANT TOKEN" in line["cause"]
    assert "nonsense" not in line["cause"]


def test_causes_hold_no_contents() -> None:
    assert cause_of(OSError(28, "SECRET")) == os.strerror(28)
    assert cause_of(StoreError("SECRET")) == "StoreError"
