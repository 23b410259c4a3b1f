"""Nobody keeps others out: hung models, hung stores, idle sockets, greedy tenants, pages of other origins."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler import Store, build
from mempiler.engines.call_context import Deadline
from mempiler.engines.embedders import DIMENSION, TextEmbedder, embedder
from mempiler.engines.endpoint import Waits
from mempiler.engines.fair_semaphore import FairSemaphore, compute_slot
from mempiler.engines.lm import language_model
from mempiler.engines.offline.hashed_vectors import hashed_vectors
from mempiler.serving.http import health, store_call
from mempiler.serving.http.pool import Pool
from mempiler.serving.worker.breaker import Breaker

from tests.stub_server import StubServer, every

from ..conftest import listening
from .conftest import turns, within


@contextmanager
def hung(connect: Any, scripted: Any, **settings: Any) -> Iterator[tuple[Any, Any]]:
    """A service whose model does not answer until the block ends; the second value asks it in a thread."""
    go, calls = threading.Event(), list[threading.Thread]()
    client = connect(scripted(lambda kind, text, n: {"answer": str(go.wait(20))}), **settings)

    def chat(tenant: str = "acme") -> None:
        before = client.service.model_pool.held.total()
        calls.append(threading.Thread(target=lambda: client.as_tenant(tenant).chat("hello")))
        calls[-1].start()
        assert within(20, lambda: client.service.model_pool.held.total() > before)

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
            server.model,
            api_base=server.url,
            cache=False,
            deadline=0.5,
            timeout=20,
            guard=Breaker(pause=0.1),
        )
        client = connect(lm, threads=1, queue=8, timeout=10.0, tenant_share=1.0)
        begun = time.monotonic()
        statuses = [client.chat("hello", user=f"u{n}").status_code for n in range(2)]
        assert [*statuses, client.add("I moved.").status_code] == [502, 502, 201]
        assert time.monotonic() - begun < 15


def test_requests_of_the_store_do_not_wait_for_the_model_of_which_a_tenant_alone_has_all_places(
    connect: Any, scripted: Any
) -> None:
    with hung(connect, scripted, threads=1, queue=1, store_threads=1, tokens=False) as (
        client,
        chat,
    ):
        chat()
        chat()
        refused = client.chat("hello")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "2"
        assert client.add("I moved.").status_code == 201
        found = client.get("/ready")
        assert found.status_code == 503
        assert found.json()["parts"]["room"] is False
        assert client.get("/health").status_code == 200
    assert within(20, lambda: client.get("/ready").status_code == 200)


def test_late_answer_is_a_504_and_not_stored(connect: Any, scripted: Any, store: Store) -> None:
    with hung(connect, scripted, timeout=0.3) as (client, _):
        response = client.chat("I moved.")
    assert response.status_code == 504
    assert response.json()["error"]["type"] == "server_error"
    assert within(20, lambda: not client.service.model_pool.held.total())
    assert turns(store) == ["user: I moved."]


def test_a_tenant_has_its_share_of_places_and_threads(connect: Any, scripted: Any) -> None:
    with hung(connect, scripted, threads=2, queue=4) as (client, chat):
        for _ in range(3):
            chat()
        refused = client.chat("one too many")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "2"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        pool = client.service.model_pool
        assert not within(0.3, lambda: pool.running == 2)
        chat("globex")
        assert within(20, lambda: pool.running == 2)


def test_a_stream_that_nobody_reads_holds_a_place_of_its_tenant_until_it_is_closed(
    connect: Any,
) -> None:
    event = {"choices": [{"index": 0, "delta": {"content": "x"}}], "filler": "x" * 1_000_000}
    said = f"data: {json.dumps(event)}\n\n".encode() * 12 + b"data: [DONE]\n\n"
    body = json.dumps({**CHAT, "model": "my-model-chat", "stream": True}).encode()
    with StubServer(answer=lambda body: said) as server, ExitStack() as stack:
        lm = language_model(server.model, api_base=server.url, cache=False, deadline=10)
        client = connect(lm, threads=1, queue=1, store_threads=1, store_queue=1)
        held, token = client.service.request_pool.held, client.headers["Authorization"]
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        for _ in range(2):
            connection = stack.enter_context(socket.socket())
            # What the system takes in for a client is nothing that waits.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(10)
            connection.connect(("127.0.0.1", client.base_url.port))
            connection.sendall(head.encode() + body)
            assert connection.recv(64).startswith(b"HTTP/1.1 200")
            assert within(10, lambda: not client.service.model_pool.held.total())
        assert held["acme"] == 2
        refused = client.get("/v1/users")
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert client.as_tenant("globex").get("/v1/users").status_code == 200
        assert client.get("/health").status_code == 200
    assert within(10, lambda: not held.total())


def test_embedding_for_a_tenant_counts_in_its_share(connect: Any) -> None:
    go, inside = threading.Event(), list[int]()

    @compute_slot()
    def embed(texts: Any) -> Any:
        inside.append(len(texts))
        if "hang" in texts[0]:
            go.wait(20)
        return hashed_vectors(texts)

    program = build("turn-rag", embedder=TextEmbedder("stub", embed, DIMENSION))
    client = connect(program=program, threads=8)
    lane = client.service.memories.lane = FairSemaphore(2, lambda: 0.5)
    others = client.as_tenant("globex")
    assert [one.add("I moved to Lisbon.").status_code for one in (client, others)] == [201, 201]
    asked = [threading.Thread(target=client.ask, args=(f"Why does {n} hang?",)) for n in range(3)]
    try:
        for one in asked:
            one.start()
        assert within(10, lambda: lane.waiting == 2)
        assert others.ask("Where did Ada move?").status_code == 200
    finally:
        go.set()
    for one in asked:
        one.join(20)
    assert lane.free == 2


def test_long_texts_wait_for_their_turn_and_short_ones_do_not(connect: Any) -> None:
    client = connect(program=build("turn-rag"), threads=8)
    lock = client.service.memories.text_lock
    assert client.add("I like jazz. " * 1_000).status_code == 201
    assert client.as_tenant("globex").add("I like jazz.").status_code == 201
    with lock.hold():
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v1/users/ada/ask", json={"question": "Which jazz?"}, timeout=1.0)
        assert within(20, lambda: lock.waiting == 1)
        assert client.as_tenant("globex").ask("Which jazz?").status_code == 200
    # The index is made although its client has gone away.
    assert within(60, lambda: not client.service.model_pool.held.total())
    with lock.hold():
        assert client.post("/v1/users/ada/search", json={"query": "jazz"}).status_code == 200


def test_an_embedder_that_hangs_ends_requests_at_its_deadline_and_opens_its_breaker(
    connect: Any,
) -> None:
    hanging = threading.Event()
    hanging.set()
    with StubServer(embedding_fault=lambda: "stall" if hanging.is_set() else None) as server:
        remote = embedder(server.model, server.url)
        remote.account.waits = Waits(retries=0, deadline=0.5)
        client = connect(program=build("turn-rag", embedder=remote), threads=2, timeout=20.0)
        for breaker in client.service.breakers:
            breaker.pause = 1.0
        assert client.add("I moved to Lisbon.").status_code == 201

        begun = time.monotonic()
        first = client.ask("Where do I live?")
        assert 0.5 <= time.monotonic() - begun < 5
        assert first.status_code == 502
        assert "does not answer" in first.json()["error"]["message"]

        # Sessions are stored meanwhile, and after five failures in a row nobody waits for the endpoint any more.
        asking = [
            threading.Thread(target=client.ask, args=(f"Who is number {n}?",)) for n in range(4)
        ]
        for thread in asking:
            thread.start()
        assert client.add("I like jazz.").status_code == 201
        for thread in asking:
            thread.join(20)
        assert client.get("/ready").json()["parts"]["model"] is False
        requests, begun = len(server.requests), time.monotonic()
        assert client.ask("What do I like?").status_code == 502
        assert time.monotonic() - begun < 0.5
        assert len(server.requests) == requests

        hanging.clear()
        assert within(20, lambda: client.ask("What do I like?").status_code == 200)
        assert client.get("/ready").json()["parts"]["model"] is True


def test_a_request_ends_at_its_own_deadline_though_its_embedder_hangs(connect: Any) -> None:
    with StubServer(embedding_fault=lambda: "stall") as server:
        client = connect(
            program=build("turn-rag", embedder=embedder(server.model, server.url)), timeout=1.0
        )
        client.add("I moved to Lisbon.")
        begun = time.monotonic()
        assert client.ask("Where do I live?").status_code in (502, 504)
        assert time.monotonic() - begun < 5
        assert within(5, lambda: client.service.model_pool.held.total() == 0)


CHAT = {"user": "ada", "messages": [{"role": "user", "content": "hello"}]}
TOOL = {"name": "ask_memory", "arguments": {"question": "Where?"}}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": TOOL}


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/mcp", CALL)])
def test_the_place_of_a_client_that_went_away_is_free(connect: Any, path: str, body: Any) -> None:
    pytest.importorskip("mcp", reason="needs the extra mcp")
    headers = {"Accept": "application/json", "Mempiler-User": "ada"}
    with StubServer(every("stall")) as server:
        guard = Breaker()
        lm = language_model(
            server.model, api_base=server.url, cache=False, deadline=30, guard=guard
        )
        client = connect(lm, threads=2, queue=8, tenant_share=0.5, mcp=True)
        for _ in range(6):
            with pytest.raises(httpx.ReadTimeout):
                client.post(path, json=body, headers=headers, timeout=0.2)
        assert within(20, lambda: client.service.model_pool.held.total() == 0)
        assert not guard.open


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
def test_a_partial_request_is_answered_and_its_connection_closed(
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
    client, read = connect().as_tenant(None), store.read
    go, asked = threading.Event(), list[Any]()

    def hanging(*given: Any, **named: Any) -> Any:
        asked.append(given)
        go.wait(20)
        return read(*given, **named)

    monkeypatch.setattr(store, "read", hanging)
    monkeypatch.setattr(store_call, "WAIT", 0.3)
    try:
        begun = time.monotonic()
        for _ in range(5):
            found = client.get("/ready")
            assert found.status_code == 503
            assert found.json()["parts"]["store"] is False
            assert client.get("/health").status_code == 200
        assert time.monotonic() - begun < 15
        assert len(asked) == 1
    finally:
        go.set()
    assert within(20, lambda: client.get("/ready").status_code == 200)


def test_a_store_that_cannot_be_written_or_a_broken_token_file_is_not_ready_and_the_log_says_why(
    connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect().as_tenant(None)
    monkeypatch.setattr(health, "WRITE_INTERVAL", 0.0)
    assert client.get("/ready").status_code == 200
    (tmp_path / "tokens").write_text("nonsense-that-is-long-enough\n")
    with listening("begin", lambda connection: connection.exec_driver_sql("PRAGMA query_only=ON")):
        found = client.get("/ready")
    parts = found.json()["parts"]
    assert found.status_code == 503
    assert parts["store"] is True
    assert parts["disk"] is False
    assert parts["tokens"] is False
    assert any("readonly database" in str(vars(record).get("cause")) for record in caplog.records)
    (line,) = [vars(record) for record in caplog.records if "token file is wrong" in record.message]
    assert "expected TENANT TOKEN" in line["cause"]
    assert "nonsense" not in line["cause"]


def test_of_two_requests_at_one_moment_the_one_that_waits_is_prepared_before() -> None:
    """Only a memory that is bound before the wait stores nothing of a user who is forgotten meanwhile."""
    prepared, seen_by_work = list[str](), list[list[str]]()

    async def client_stays() -> None:
        await asyncio.Event().wait()

    async def work(_: Deadline) -> None:
        seen_by_work.append(list(prepared))
        await asyncio.sleep(0.01)

    async def send_both() -> None:
        pool = Pool(slots=1, queue=8, timeout=10.0)
        await asyncio.gather(
            pool.run(work, "acme", client_stays, lambda: prepared.append("acme")),
            pool.run(work, "globex", client_stays, lambda: prepared.append("globex")),
        )

    asyncio.run(send_both())
    assert seen_by_work == [[], ["globex"]]
