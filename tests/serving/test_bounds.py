"""Nobody keeps others out.

Models, embedders and stores may hang, clients may send nothing or read nothing, and a tenant may
send more requests than its share: the service goes on for everybody else.

Four settings say how many requests are in progress: `threads` of them ask the model at the same
time, and `queue` wait for their turn; `store_threads` and `store_queue` are the same for requests
that only need the store. A request has a *place* in the service from its arrival to its end, and a
*slot* while it is worked on. `timeout` is the time of a request in seconds.

A *breaker* stands before each model. After five failures in a row it opens: calls are refused at
once, so that nobody waits for a model that is down. `/health` tells an operator whether the service
runs, and `/ready` which of its parts work.
"""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler import Store, build
from mempiler.engines.embedders import DIMENSION, TextEmbedder, embedder
from mempiler.engines.endpoint import Waits
from mempiler.engines.fair_semaphore import FairSemaphore, compute_slot
from mempiler.engines.lm import language_model
from mempiler.serving.http import store_call
from mempiler.serving.worker.breaker import Breaker

from ..conftest import listening
from ..stub_server import StubServer, every
from .conftest import (
    Api,
    HangingEmbedding,
    PausingModel,
    StartService,
    StartWithStubModel,
    turns_of_ada,
    within,
)
from .raw_requests import response_statuses

CHAT_BODY = {"user": "ada", "messages": [{"role": "user", "content": "hello"}]}
CALL_OF_ASK_MEMORY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "ask_memory", "arguments": {"question": "Where?"}},
}
"""A call of the tool by which agents ask a question."""


# Models that hang


class HungService:
    """A service whose model does not answer before the test has ended.

    Args:
        api: A client of the service.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.chats: list[threading.Thread] = []

    def begin_chat(self, tenant: str = "acme") -> None:
        """Send a chat in a thread, and wait until the service counts it as in progress."""
        number_before = self.api.requests_in_progress()
        chat = threading.Thread(target=lambda: self.api.as_tenant(tenant).chat("hello"))
        self.chats.append(chat)
        chat.start()
        assert within(20, lambda: self.api.requests_in_progress() > number_before)


@contextmanager
def hung_service(
    start_service: StartService, scripted: Any, **settings: Any
) -> Iterator[HungService]:
    """Start a service whose model hangs until the block ends."""
    model = PausingModel()
    service = HungService(start_service(scripted(model.reply), **settings))
    try:
        yield service
    finally:
        model.go_on()
        for chat in service.chats:
            chat.join(20)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("wait", id="the model asks for a pause of an hour"),
        pytest.param("trickle", id="the answer comes byte by byte"),
        pytest.param("endless", id="the answer does not end"),
        pytest.param("headers", id="the headers come byte by byte"),
    ],
)
def test_a_model_that_hangs_holds_no_thread_beyond_its_deadline(
    start_service: StartService, fault: str
) -> None:
    """With `threads=1` the second chat is not begun before the first one has ended.

    A call of the model may take half a second (`deadline`), and the whole chat ten (`timeout`).
    """
    with StubServer(every(fault)) as model_server:
        lm = language_model(
            model_server.model,
            api_base=model_server.url,
            cache=False,
            deadline=0.5,
            timeout=20,
            # Its breaker must not refuse the second call because the first one failed.
            guard=Breaker(pause=0.1),
        )
        client = start_service(lm, threads=1, queue=8, timeout=10.0, tenant_share=1.0)

        started = time.monotonic()
        first_chat = client.chat("hello", user="ada")
        second_chat = client.chat("hello", user="bob")
        seconds = time.monotonic() - started

        # The model has failed (502), not the time of the whole chat is over (504).
        assert first_chat.status_code == 502
        assert second_chat.status_code == 502
        assert seconds < 15


@pytest.fixture
def service_full_of_chats(start_service: StartService, scripted: Any) -> Iterator[HungService]:
    """A service with as many chats as it may have: one asks its model, and one waits for its turn.

    The model hangs. Without tokens there is one tenant only, so it may have both places.
    """
    settings = {"threads": 1, "queue": 1, "store_threads": 1, "tokens": False}
    with hung_service(start_service, scripted, **settings) as service:
        service.begin_chat()
        service.begin_chat()
        yield service


def test_a_service_without_room_refuses_chats_and_is_not_ready(
    service_full_of_chats: HungService,
) -> None:
    client = service_full_of_chats.api

    one_more_chat = client.chat("hello")
    readiness = client.get("/ready")

    assert one_more_chat.status_code == 503
    assert one_more_chat.headers["retry-after"] == "2"
    assert readiness.status_code == 503
    assert readiness.json()["parts"]["room"] is False


def test_a_service_without_room_for_chats_stores_sessions(
    service_full_of_chats: HungService,
) -> None:
    """Storing a session asks no model."""
    assert service_full_of_chats.api.add("I moved.").status_code == 201


def test_a_chat_whose_model_is_too_slow_gets_504_and_its_answer_is_not_stored(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    """A chat has 0.3 seconds. The model answers only when the `with` block has ended."""
    with hung_service(start_service, scripted, timeout=0.3) as service:
        client = service.api
        response = client.chat("I moved.")

    assert response.status_code == 504
    assert within(20, lambda: client.requests_in_progress() == 0)
    assert turns_of_ada(store) == ["user: I moved."]


def test_a_chat_above_the_share_of_its_tenant_is_refused(
    start_service: StartService, scripted: Any
) -> None:
    """Four chats may be in progress, and each of the two tenants may have half of them."""
    with hung_service(start_service, scripted, threads=2, queue=2) as service:
        service.begin_chat("acme")
        service.begin_chat("acme")

        third_chat_of_acme = service.api.chat("one too many")

    assert third_chat_of_acme.status_code == 429
    assert third_chat_of_acme.headers["retry-after"] == "2"
    assert third_chat_of_acme.json()["error"]["type"] == "rate_limit_error"


def test_a_tenant_with_many_chats_leaves_a_thread_to_the_other_tenant(
    start_service: StartService, scripted: Any
) -> None:
    """There are two threads for chats, and each of the two tenants may hold one of them."""
    with hung_service(start_service, scripted, threads=2, queue=2) as service:
        pool = service.api.service.model_pool
        service.begin_chat("acme")
        service.begin_chat("acme")
        both_threads_are_taken = within(0.3, lambda: pool.running == 2)
        assert not both_threads_are_taken

        service.begin_chat("globex")

        assert within(20, lambda: pool.running == 2)


# Clients that read nothing, send nothing or leave


def open_unread_stream(api: Api) -> socket.socket:
    """Ask for a streamed answer, and read nothing but the beginning of its head.

    Return when the model has sent its answer, so that only the client is waited for.
    """
    body = json.dumps({**CHAT_BODY, "model": "my-model-chat", "stream": True}).encode()
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: x",
        f"Authorization: {api.headers['Authorization']}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    head = "\r\n".join([*lines, "", ""]).encode()

    connection = socket.socket()
    # Otherwise the system would take in most of the stream for the client.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", api.port))
    connection.sendall(head + body)
    assert connection.recv(64).startswith(b"HTTP/1.1 200")
    assert within(10, lambda: api.requests_in_progress() == 0)
    return connection


def large_stream() -> bytes:
    """Return the events of a stream of twelve megabytes, more than a connection buffers."""
    large_event = {
        "choices": [{"index": 0, "delta": {"content": "x"}}],
        "filler": "x" * 1_000_000,
    }
    return f"data: {json.dumps(large_event)}\n\n".encode() * 12 + b"data: [DONE]\n\n"


def test_streams_that_nobody_reads_count_as_requests_of_their_tenant_until_they_are_closed(
    start_with_stub_model: StartWithStubModel,
) -> None:
    """Otherwise a client could have ever more answers waiting for it in the service's memory.

    Four requests may be in progress, the sum of the four settings. Each of the two tenants may have
    two of them.
    """
    settings = {"threads": 1, "queue": 1, "store_threads": 1, "store_queue": 1}
    client = start_with_stub_model(large_stream(), settings=settings).api

    with open_unread_stream(client), open_unread_stream(client):
        assert client.get("/v1/users").status_code == 429
        assert client.as_tenant("globex").get("/v1/users").status_code == 200
        assert client.get("/health").status_code == 200

    # The connections are closed now.
    assert within(10, lambda: client.get("/v1/users").status_code == 200)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/v1/chat/completions", CHAT_BODY, id="chat"),
        pytest.param("/v1/mcp", CALL_OF_ASK_MEMORY, id="tool for agents"),
    ],
)
def test_a_request_ends_soon_after_its_client_has_left(
    start_service: StartService, path: str, body: Any
) -> None:
    """Otherwise clients that give up and try again would fill the service with requests.

    The model never answers ("stall"), and each client leaves after 0.2 seconds.
    """
    pytest.importorskip("mcp", reason="needs the extra mcp")
    headers = {"Accept": "application/json", "Mempiler-User": "ada"}
    max_requests_of_tenant = 5
    with StubServer(every("stall")) as model_server:
        breaker = Breaker()
        lm = language_model(
            model_server.model, api_base=model_server.url, cache=False, deadline=30, guard=breaker
        )
        client = start_service(lm, threads=2, queue=8, tenant_share=0.5, mcp=True)

        # If the earlier requests did not end, the last one would be refused (429).
        for _ in range(max_requests_of_tenant + 1):
            with pytest.raises(httpx.ReadTimeout):
                client.post(path, json=body, headers=headers, timeout=0.2)

        assert within(20, lambda: client.requests_in_progress() == 0)
        # Clients that leave are no failures of the model.
        assert not breaker.open


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(
            b"POST /v1/users/a/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
            408,
            id="the body does not come",
        ),
        pytest.param(
            b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000,
            400,
            id="a long header does not end",
        ),
        pytest.param(
            b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
            200,
            id="no second request comes",
        ),
    ],
)
def test_a_connection_on_which_nothing_more_comes_is_answered_and_closed(
    start_service: StartService, data: bytes, status: int
) -> None:
    """Otherwise a client could hold ever more connections without doing anything.

    A request has half a second to come (`timeout`). A connection without a request is closed after
    a second (`keep_alive`).
    """
    client = start_service(tokens=False, keep_alive=1.0, timeout=0.5)

    # It returns when the service closes the connection, and fails if that does not happen.
    assert response_statuses(client, data) == [status]


# Embedders, and long work on texts


def test_a_tenant_whose_embeddings_hang_leaves_a_slot_to_the_other_tenant(
    start_service: StartService, hanging_embedding: HangingEmbedding
) -> None:
    """Two texts are embedded at a time, and each of the two tenants may hold one of these slots.

    The embedder hangs at texts with the word "hang", such as the questions of `acme`.
    """
    embed_in_a_slot = compute_slot()(hanging_embedding)
    program = build("turn-rag", embedder=TextEmbedder("stub", embed_in_a_slot, DIMENSION))
    acme = start_service(program=program, threads=8)
    globex = acme.as_tenant("globex")
    embedding_slots = FairSemaphore(slots=2, share=lambda: 0.5)
    acme.service.memories.lane = embedding_slots
    acme.add("I moved to Lisbon.")
    globex.add("I moved to Lisbon.")

    with ThreadPoolExecutor() as clients:
        first_question = clients.submit(acme.ask, "Why does it hang?")
        second_question = clients.submit(acme.ask, "Where does it hang?")
        assert within(10, lambda: embedding_slots.waiting == 1)

        assert globex.ask("Where did Ada move?").status_code == 200
        hanging_embedding.may_go_on.set()

    assert first_question.result().status_code == 200
    assert second_question.result().status_code == 200
    assert embedding_slots.free == 2


def test_long_texts_wait_for_their_turn_and_short_ones_do_not(start_service: StartService) -> None:
    """Long texts take much computing before they can be searched, so one at a time is prepared.

    Here somebody else holds the lock for that.
    """
    acme = start_service(program=build("turn-rag"), threads=8)
    globex = acme.as_tenant("globex")
    acme.add("I like jazz. " * 1_000)
    globex.add("I like jazz.")
    lock = acme.service.memories.text_lock

    with lock.hold():
        with pytest.raises(httpx.ReadTimeout):
            acme.post("/v1/users/ada/ask", json={"question": "Which jazz?"}, timeout=1.0)
        assert within(20, lambda: lock.waiting == 1)
        assert globex.ask("Which jazz?").status_code == 200

    # The long text is prepared although its client has left, and later searches do not wait.
    assert within(60, lambda: acme.requests_in_progress() == 0)
    with lock.hold():
        assert acme.post("/v1/users/ada/search", json={"query": "jazz"}).status_code == 200


class ServiceWithHangingEmbedder:
    """A service whose embedder never answers. A call of the embedder may take 0.2 seconds."""

    def __init__(self, start_service: StartService) -> None:
        self.embedding_server = StubServer(embedding_fault=lambda: "stall")
        remote_embedder = embedder(self.embedding_server.model, self.embedding_server.url)
        remote_embedder.account.waits = Waits(retries=0, deadline=0.2)
        program = build("turn-rag", embedder=remote_embedder)
        self.client: Api = start_service(program=program, threads=2, timeout=20.0)


@pytest.fixture
def service_with_hanging_embedder(
    start_service: StartService,
) -> Iterator[ServiceWithHangingEmbedder]:
    """A service whose embedder hangs; Ada has one session."""
    service = ServiceWithHangingEmbedder(start_service)
    with service.embedding_server:
        service.client.add("I moved to Lisbon.")
        yield service


def test_a_question_whose_embedder_hangs_fails_at_the_deadline_of_the_embedder(
    service_with_hanging_embedder: ServiceWithHangingEmbedder,
) -> None:
    """The deadline is 0.2 seconds; the question itself would have 20 (`timeout`)."""
    client = service_with_hanging_embedder.client

    started = time.monotonic()
    response = client.ask("Where do I live?")
    seconds = time.monotonic() - started

    assert response.status_code == 502
    assert "does not answer" in response.json()["error"]["message"]
    assert 0.2 <= seconds < 5


def test_an_embedder_is_not_asked_any_more_after_five_failures_in_a_row(
    service_with_hanging_embedder: ServiceWithHangingEmbedder,
) -> None:
    """The breaker before the embedder opens then."""
    client = service_with_hanging_embedder.client
    embedding_server = service_with_hanging_embedder.embedding_server
    for number in range(5):
        assert client.ask(f"Who is number {number}?").status_code == 502
    requests_before = len(embedding_server.requests)

    assert client.ask("Where do I live?").status_code == 502

    assert len(embedding_server.requests) == requests_before
    assert client.get("/ready").json()["parts"]["model"] is False


def test_a_request_ends_at_its_own_deadline_though_its_embedder_hangs(
    start_service: StartService,
) -> None:
    """The request has a second (`timeout`). The embedder itself may take longer."""
    with StubServer(embedding_fault=lambda: "stall") as embedding_server:
        remote_embedder = embedder(embedding_server.model, embedding_server.url)
        client = start_service(program=build("turn-rag", embedder=remote_embedder), timeout=1.0)
        client.add("I moved to Lisbon.")

        started = time.monotonic()
        response = client.ask("Where do I live?")
        seconds = time.monotonic() - started

        # At this moment the service sees either that the embedder has failed (502), or that the
        # time of the request is over (504).
        assert response.status_code in (502, 504)
        assert seconds < 5
        assert within(5, lambda: client.requests_in_progress() == 0)


# Stores and token files


class HangingStore:
    """The store of a service: all its statements hang until `may_go_on` is set."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.hanging_threads: set[int] = set()

    def hang(self, *_arguments: Any) -> None:
        # The threads of the background worker use the store all the time.
        if not threading.current_thread().name.startswith("mempiler-worker"):
            self.hanging_threads.add(threading.get_ident())
        self.may_go_on.wait(20)


@contextmanager
def store_hangs() -> Iterator[HangingStore]:
    """Let every statement that is sent to a database hang until the block ends."""
    hanging_store = HangingStore()
    with listening("before_cursor_execute", hanging_store.hang):
        try:
            yield hanging_store
        finally:
            hanging_store.may_go_on.set()


@pytest.fixture
def short_wait_for_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `/ready` wait 0.3 instead of two seconds for the store."""
    monkeypatch.setattr(store_call, "WAIT", 0.3)


@pytest.mark.usefixtures("short_wait_for_store")
def test_a_service_whose_store_hangs_is_alive_and_not_ready(start_service: StartService) -> None:
    """`/health` says that the service itself runs, and `/ready` which of its parts work."""
    client = start_service().as_tenant(None)

    with store_hangs():
        readiness = client.get("/ready", timeout=5)
        health = client.get("/health", timeout=5)

    assert readiness.status_code == 503
    assert readiness.json()["parts"]["store"] is False
    assert health.status_code == 200
    assert within(20, lambda: client.get("/ready").status_code == 200)


@pytest.mark.usefixtures("short_wait_for_store")
def test_one_thread_waits_for_a_store_that_hangs_however_often_the_state_is_asked_for(
    start_service: StartService,
) -> None:
    client = start_service().as_tenant(None)

    with store_hangs() as hanging_store:
        for _ in range(5):
            assert client.get("/ready", timeout=5).status_code == 503

    assert len(hanging_store.hanging_threads) == 1


def forbid_writing(connection: Any) -> None:
    connection.exec_driver_sql("PRAGMA query_only=ON")


def allow_writing(connection: Any) -> None:
    connection.exec_driver_sql("PRAGMA query_only=OFF")


def test_a_service_whose_store_can_only_be_read_is_not_ready_and_the_log_says_why(
    start_service: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    """`/ready` tells whether the store can be read ("store") and written ("disk")."""
    client = start_service().as_tenant(None)

    with listening("begin", forbid_writing):  # when a transaction begins
        readiness = client.get("/ready")

    assert readiness.status_code == 503
    assert readiness.json()["parts"]["store"] is True
    assert readiness.json()["parts"]["disk"] is False
    causes = [str(getattr(record, "cause", "")) for record in caplog.records]
    assert any("readonly database" in cause for cause in causes)

    with listening("begin", allow_writing):
        assert client.get("/ready").status_code == 200


def test_a_service_with_a_broken_token_file_is_not_ready_and_the_log_says_why(
    start_service: StartService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The service reads the file of tokens again when it changes."""
    client = start_service().as_tenant(None)
    assert client.get("/ready").status_code == 200

    (tmp_path / "tokens").write_text("nonsense-that-is-long-enough\n")
    readiness = client.get("/ready")

    assert readiness.status_code == 503
    assert readiness.json()["parts"]["tokens"] is False
    (record,) = [record for record in caplog.records if "token file is wrong" in record.message]
    cause = vars(record)["cause"]
    assert "expected TENANT TOKEN" in cause
    # The line may be a token.
    assert "nonsense" not in cause
