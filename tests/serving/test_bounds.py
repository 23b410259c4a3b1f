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

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
from mempiler.serving.http import store_call
from mempiler.serving.http.pool import Pool
from mempiler.serving.worker.breaker import Breaker

from ..conftest import listening
from ..stub_server import StubServer, every
from .conftest import Api, HangingEmbedding, StartService, turns_of_ada, within
from .raw_requests import connect_socket

CHAT_BODY = {"user": "ada", "messages": [{"role": "user", "content": "hello"}]}


# Models that hang


def requests_in_progress(api: Api) -> int:
    """Return how many requests that may ask the model are in progress in a service."""
    return api.service.model_pool.held.total()


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
        number_before = requests_in_progress(self.api)
        chat = threading.Thread(target=lambda: self.api.as_tenant(tenant).chat("hello"))
        self.chats.append(chat)
        chat.start()
        assert within(20, lambda: requests_in_progress(self.api) > number_before)


@contextmanager
def hung_service(
    start_service: StartService, scripted: Any, **settings: Any
) -> Iterator[HungService]:
    """Start a service whose model hangs until the block ends; it says "late" then."""
    may_answer = threading.Event()

    def wait_and_answer(field: str, prompt: str, call_number: int) -> dict[str, str]:
        may_answer.wait(20)
        return {"answer": "late"}

    service = HungService(start_service(scripted(wait_and_answer), **settings))
    try:
        yield service
    finally:
        may_answer.set()
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
    """One request at a time may ask the model, so the second one waits for the end of the first.

    A call of the model may take half a second (`deadline`). A chat with a longer one fails (502).
    """
    with StubServer(every(fault)) as model_server:
        lm = language_model(
            model_server.model,
            api_base=model_server.url,
            cache=False,
            deadline=0.5,
            timeout=20,
            # If it refuses calls after failures, then only for this many seconds.
            guard=Breaker(pause=0.1),
        )
        client = start_service(lm, threads=1, queue=8, timeout=10.0, tenant_share=1.0)

        started = time.monotonic()
        first_chat = client.chat("hello", user="u0")
        second_chat = client.chat("hello", user="u1")
        added_session = client.add("I moved.")
        seconds = time.monotonic() - started

        # Not 504, for which the time of the request itself would have to be over.
        assert first_chat.status_code == 502
        assert second_chat.status_code == 502
        assert added_session.status_code == 201
        assert seconds < 15


def test_sessions_are_stored_while_all_chats_wait_for_the_model(
    start_service: StartService, scripted: Any
) -> None:
    # Of two chats in progress one asks the model, and the other waits for its turn. Without tokens
    # there is one tenant only, so it may have both.
    settings = {"threads": 1, "queue": 1, "store_threads": 1, "tokens": False}
    with hung_service(start_service, scripted, **settings) as service:
        client = service.api
        service.begin_chat()
        service.begin_chat()

        # There is no room for a third chat.
        third_chat = client.chat("hello")
        assert third_chat.status_code == 503
        assert third_chat.headers["retry-after"] == "2"
        readiness = client.get("/ready")
        assert readiness.status_code == 503
        assert readiness.json()["parts"]["room"] is False

        # There is room for requests that do not ask the model.
        assert client.add("I moved.").status_code == 201
        assert client.get("/health").status_code == 200

    # The model has answered now.
    assert within(20, lambda: client.get("/ready").status_code == 200)


def test_a_chat_whose_model_is_too_slow_gets_504_and_its_answer_is_not_stored(
    start_service: StartService, scripted: Any, store: Store
) -> None:
    """A request has 0.3 seconds. The model answers only when the block has ended."""
    with hung_service(start_service, scripted, timeout=0.3) as service:
        client = service.api
        response = client.chat("I moved.")

    assert response.status_code == 504
    assert response.json()["error"]["type"] == "server_error"
    # Here the model has answered, and the work of the request has ended.
    assert within(20, lambda: requests_in_progress(client) == 0)
    assert turns_of_ada(store) == ["user: I moved."]


def test_a_tenant_has_at_most_its_share_of_the_requests_in_progress(
    start_service: StartService, scripted: Any
) -> None:
    # Six requests are in progress at the same time: two ask the model, and four wait for their
    # turn. Each of the two tenants may have half of either.
    with hung_service(start_service, scripted, threads=2, queue=4) as service:
        pool = service.api.service.model_pool
        for _ in range(3):
            service.begin_chat("acme")

        fourth_chat = service.api.chat("one too many")
        assert fourth_chat.status_code == 429
        assert fourth_chat.headers["retry-after"] == "2"
        assert fourth_chat.json()["error"]["type"] == "rate_limit_error"

        # Only one chat of acme asks the model, although two could.
        is_second_one_asking = within(0.3, lambda: pool.running == 2)
        assert not is_second_one_asking
        service.begin_chat("globex")
        assert within(20, lambda: pool.running == 2)


# Clients that read nothing, send nothing or leave


def open_unread_stream(api: Api) -> socket.socket:
    """Ask for a streamed answer, and read nothing but the beginning of its head."""
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
    return connection


def large_stream() -> bytes:
    """Return the events of a stream of twelve megabytes, more than a connection buffers."""
    large_event = {
        "choices": [{"index": 0, "delta": {"content": "x"}}],
        "filler": "x" * 1_000_000,
    }
    return f"data: {json.dumps(large_event)}\n\n".encode() * 12 + b"data: [DONE]\n\n"


def test_streams_that_nobody_reads_count_as_requests_of_their_tenant_until_they_are_closed(
    start_service: StartService,
) -> None:
    """A client could otherwise have ever more answers waiting for it in the service's memory.

    Four requests may be in progress, the sum of the four settings, and each of the two tenants may
    have two of them.
    """
    events = large_stream()
    with StubServer(answer=lambda body: events) as model_server, ExitStack() as connections:
        lm = language_model(model_server.model, api_base=model_server.url, cache=False, deadline=10)
        client = start_service(lm, threads=1, queue=1, store_threads=1, store_queue=1)
        requests_by_tenant = client.service.request_pool.held

        for _ in range(2):
            connections.enter_context(open_unread_stream(client))
            # The model is done, so only sending the answer is left.
            assert within(10, lambda: requests_in_progress(client) == 0)
        assert requests_by_tenant["acme"] == 2

        assert client.get("/v1/users").status_code == 429
        assert client.as_tenant("globex").get("/v1/users").status_code == 200
        assert client.get("/health").status_code == 200

    # The connections are closed now.
    assert within(10, lambda: requests_by_tenant.total() == 0)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/v1/chat/completions", CHAT_BODY, id="chat"),
        pytest.param(
            "/v1/mcp",
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "ask_memory", "arguments": {"question": "Where?"}},
            },
            id="tool for agents",
        ),
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
    with StubServer(every("stall")) as model_server:
        guard = Breaker()
        lm = language_model(
            model_server.model,
            api_base=model_server.url,
            cache=False,
            deadline=30,
            guard=guard,
        )
        client = start_service(lm, threads=2, queue=8, tenant_share=0.5, mcp=True)
        max_requests_of_tenant = 5  # Half of the sum of threads and queue.

        # If the requests of those who left did not end, the last one would be refused (429).
        for _ in range(max_requests_of_tenant + 1):
            with pytest.raises(httpx.ReadTimeout):
                client.post(path, json=body, headers=headers, timeout=0.2)

        assert within(20, lambda: requests_in_progress(client) == 0)
        # Clients that leave are no failure of the model.
        assert not guard.open


@pytest.mark.parametrize(
    ("data", "response_start"),
    [
        pytest.param(
            b"POST /v1/users/a/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
            b"HTTP/1.1 408",
            id="the body does not come",
        ),
        pytest.param(
            b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000,
            b"HTTP/1.1 400",
            id="a long header does not end",
        ),
        pytest.param(
            b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
            b"HTTP/1.1 200",
            id="no second request comes",
        ),
    ],
)
def test_a_connection_on_which_nothing_more_comes_is_answered_and_closed(
    start_service: StartService, data: bytes, response_start: bytes
) -> None:
    """Otherwise a client could hold ever more connections without doing anything.

    A request has half a second to come (`timeout`). A connection without a request is closed after
    a second (`keep_alive`).
    """
    client = start_service(tokens=False, keep_alive=1.0, timeout=0.5)

    with connect_socket(client, timeout=10) as connection:
        connection.sendall(data)
        first_bytes = connection.recv(4096)
        # Reading fails after ten seconds if the service does not close the connection.
        while connection.recv(4096):
            pass

    assert first_bytes.startswith(response_start)


# Embedders, and long work on texts


def test_a_tenant_whose_embeddings_hang_leaves_room_for_those_of_another(
    start_service: StartService, hanging_embedding: HangingEmbedding
) -> None:
    """To search for a question, its text is embedded, i.e. turned into a vector of numbers.

    That happens in two slots, and each of the two tenants may hold one of them. The embedder hangs
    at texts with the word "hang".
    """
    embed_in_a_slot = compute_slot()(hanging_embedding)
    program = build("turn-rag", embedder=TextEmbedder("stub", embed_in_a_slot, DIMENSION))
    acme = start_service(program=program, threads=8)
    globex = acme.as_tenant("globex")
    embedding_slots = FairSemaphore(slots=2, share=lambda: 0.5)
    acme.service.memories.lane = embedding_slots
    acme.add("I moved to Lisbon.")
    globex.add("I moved to Lisbon.")

    with ThreadPoolExecutor(3) as clients:
        questions = [clients.submit(acme.ask, f"Why does {number} hang?") for number in range(3)]
        # One of these questions holds a slot, and the other two wait.
        assert within(10, lambda: embedding_slots.waiting == 2)
        assert globex.ask("Where did Ada move?").status_code == 200
        hanging_embedding.may_go_on.set()

    assert [question.result().status_code for question in questions] == [200, 200, 200]
    assert embedding_slots.free == 2


def test_long_texts_wait_for_their_turn_and_short_ones_do_not(start_service: StartService) -> None:
    """Long texts take much computing before they can be searched: one at a time may do that."""
    acme = start_service(program=build("turn-rag"), threads=8)
    globex = acme.as_tenant("globex")
    long_text = "I like jazz. " * 1_000
    assert acme.add(long_text).status_code == 201
    assert globex.add("I like jazz.").status_code == 201
    lock = acme.service.memories.text_lock

    # While somebody else holds the lock, the long text waits, and the short one does not.
    with lock.hold():
        with pytest.raises(httpx.ReadTimeout):
            acme.post("/v1/users/ada/ask", json={"question": "Which jazz?"}, timeout=1.0)
        assert within(20, lambda: lock.waiting == 1)
        assert globex.ask("Which jazz?").status_code == 200

    # The long text is prepared although its client has left, and later searches do not wait.
    assert within(60, lambda: requests_in_progress(acme) == 0)
    with lock.hold():
        assert acme.post("/v1/users/ada/search", json={"query": "jazz"}).status_code == 200


class HangingEmbedder:
    """A server that embeds texts, and answers nothing while it hangs. It hangs at first."""

    def __init__(self) -> None:
        self.hangs = True
        self.server = StubServer(embedding_fault=lambda: "stall" if self.hangs else None)

    def start_service(self, start_service: StartService, deadline: float) -> Api:
        """Start a service with this embedder, in which embedding a text has so many seconds."""
        remote_embedder = embedder(self.server.model, self.server.url)
        remote_embedder.account.waits = Waits(retries=0, deadline=deadline)
        program = build("turn-rag", embedder=remote_embedder)
        api = start_service(program=program, threads=2, timeout=20.0)
        for breaker in api.service.breakers:
            breaker.pause = 1.0  # after this many seconds it lets a call pass again
        return api


@pytest.fixture
def hanging_embedder() -> Iterator[HangingEmbedder]:
    hanging = HangingEmbedder()
    with hanging.server:
        yield hanging


def test_a_question_whose_embedder_hangs_fails_at_the_deadline_of_the_embedder(
    start_service: StartService, hanging_embedder: HangingEmbedder
) -> None:
    client = hanging_embedder.start_service(start_service, deadline=0.5)
    client.add("I moved to Lisbon.")

    started = time.monotonic()
    refused = client.ask("Where do I live?")
    seconds = time.monotonic() - started

    assert refused.status_code == 502
    assert "does not answer" in refused.json()["error"]["message"]
    assert 0.5 <= seconds < 5


def test_sessions_are_stored_while_questions_wait_for_an_embedder_that_hangs(
    start_service: StartService, hanging_embedder: HangingEmbedder
) -> None:
    client = hanging_embedder.start_service(start_service, deadline=0.5)
    client.add("I moved to Lisbon.")

    with ThreadPoolExecutor(4) as clients:
        for number in range(4):
            clients.submit(client.ask, f"Who is number {number}?")
        assert client.add("I like jazz.").status_code == 201


def test_after_five_failures_of_an_embedder_questions_fail_at_once_until_it_works_again(
    start_service: StartService, hanging_embedder: HangingEmbedder
) -> None:
    """The breaker before the embedder opens after five failures in a row."""
    client = hanging_embedder.start_service(start_service, deadline=0.1)
    client.add("I moved to Lisbon.")
    for number in range(5):
        assert client.ask(f"Who is number {number}?").status_code == 502
    requests_before = len(hanging_embedder.server.requests)

    assert client.ask("Where do I live?").status_code == 502
    assert client.get("/ready").json()["parts"]["model"] is False
    # The embedder was not asked any more.
    assert len(hanging_embedder.server.requests) == requests_before

    hanging_embedder.hangs = False
    assert within(20, lambda: client.ask("Where do I live?").status_code == 200)
    assert client.get("/ready").json()["parts"]["model"] is True


def test_a_request_ends_at_its_own_deadline_though_its_embedder_hangs(
    start_service: StartService,
) -> None:
    with StubServer(embedding_fault=lambda: "stall") as embedding_server:
        remote_embedder = embedder(embedding_server.model, embedding_server.url)
        # The embedder itself may take longer than the second that a request has.
        client = start_service(program=build("turn-rag", embedder=remote_embedder), timeout=1.0)
        client.add("I moved to Lisbon.")

        started = time.monotonic()
        response = client.ask("Where do I live?")
        seconds = time.monotonic() - started

        # At this moment the service sees either that the embedder has failed (502), or that the
        # time of the request is over (504).
        assert response.status_code in (502, 504)
        assert seconds < 5
        assert within(5, lambda: requests_in_progress(client) == 0)


# Stores and token files


def test_a_store_that_hangs_is_noticed_in_time_and_holds_one_thread(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the state of the service is asked for, one thread waits for the store.

    `/ready` says which parts of the service work, and `/health` that the service itself runs.
    """
    # Otherwise `/ready` would wait two seconds each time.
    monkeypatch.setattr(store_call, "WAIT", 0.3)
    client = start_service().as_tenant(None)
    may_go_on = threading.Event()
    hanging_threads: set[int] = set()

    def hang(*_arguments: Any) -> None:
        # The threads of the background worker use the store all the time.
        if not threading.current_thread().name.startswith("mempiler-worker"):
            hanging_threads.add(threading.get_ident())
        may_go_on.wait(20)

    with listening("before_cursor_execute", hang):
        try:
            started = time.monotonic()
            for _ in range(5):
                readiness = client.get("/ready")
                assert readiness.status_code == 503
                assert readiness.json()["parts"]["store"] is False
                assert client.get("/health").status_code == 200
            seconds = time.monotonic() - started
        finally:
            may_go_on.set()
    assert seconds < 15
    assert len(hanging_threads) == 1

    assert within(20, lambda: client.get("/ready").status_code == 200)


def test_a_store_that_cannot_be_written_is_not_ready_and_the_log_says_why(
    start_service: StartService, caplog: pytest.LogCaptureFixture
) -> None:
    """`/ready` tells apart whether the store can be read (`store`) and written (`disk`)."""

    def forbid_writing(connection: Any) -> None:
        connection.exec_driver_sql("PRAGMA query_only=ON")

    def allow_writing(connection: Any) -> None:
        connection.exec_driver_sql("PRAGMA query_only=OFF")

    client = start_service().as_tenant(None)

    with listening("begin", forbid_writing):
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


# The pool of requests


def test_a_request_that_has_to_wait_for_its_slot_is_prepared_before_it_waits() -> None:
    """A request is prepared by reading the store as it is when the request comes.

    If that happened after the wait, a request of a user who is forgotten meanwhile would store
    something of this user.
    """
    events: list[str] = []

    async def client_stays() -> None:
        await asyncio.Event().wait()

    async def run_request(pool: Pool, tenant: str) -> None:
        async def work(deadline: Deadline) -> None:
            events.append(f"{tenant} works")
            await asyncio.sleep(0.01)
            events.append(f"{tenant} has worked")

        await pool.run(
            work,
            tenant,
            receive=client_stays,
            before_wait=lambda: events.append(f"{tenant} is prepared"),
        )

    async def run_both() -> None:
        pool = Pool(slots=1, queue=8, timeout=10.0)
        await asyncio.gather(run_request(pool, "acme"), run_request(pool, "globex"))

    asyncio.run(run_both())

    # The first request gets the only slot at once, and needs no preparation.
    assert "acme is prepared" not in events
    # The second request has to wait for the first one.
    assert events.index("acme has worked") < events.index("globex works")
    assert events.index("globex is prepared") < events.index("globex works")
