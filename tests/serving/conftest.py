"""Services that run in this process, for two tenants with tokens.

A tenant is a customer of the service, and has users: Ada is the user "ada" of the tenant "acme".
Unless a test says otherwise, the program is turn RAG, by which each turn of a conversation can be
found as it was said, and the model is the offline engine, which answers with the sentence that fits
best.
"""

import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx
import openai
import pytest
from dspy.utils.exceptions import LMServerError
from mempiler import Store, build
from mempiler.engines.lm import language_model
from mempiler.engines.offline.hashed_vectors import hashed_vectors
from mempiler.engines.prices import TokenPrices
from mempiler.memory.store.database import Database
from mempiler.memory.store.owner import Owner
from mempiler.serving.worker.breaker import CALLER, Breaker

from ..conftest import listening, within
from ..stub_server import Answer, StubServer

TOKENS = {
    "acme": "token-of-the-acme-tenant",
    "globex": "token-of-the-globex-tenant",
}
ADA = Owner("ada", "acme")
EVENT_LOOP_THREAD = "service-event-loop"
"""The name of the thread in which `serving` runs a service."""


class ModelSaying(Protocol):
    """The type of the fixture `model_saying`."""

    def __call__(self, answer: str, **settings: Any) -> Any: ...


@pytest.fixture
def model_saying(scripted: Any) -> ModelSaying:
    """Make a language model that always gives the same answer: `model_saying("fine")`."""

    def make(answer: str, **settings: Any) -> Any:
        return scripted(lambda field, prompt, call_number: {field: answer}, **settings)

    return make


class FailingModel(Protocol):
    """The type of the fixture `failing_model`."""

    def __call__(
        self,
        *,
        calls: Container[int] | None = None,
        word: str = "",
        answer: str = "summary",
        **settings: Any,
    ) -> Any: ...


@pytest.fixture
def failing_model(scripted: Any) -> FailingModel:
    """Make a language model whose endpoint is down for some of its calls.

        failing_model()                  every call fails
        failing_model(calls={2})         the second call fails
        failing_model(word="bad")        calls fail whose prompts have the word "bad"

    The other calls get `answer`. The text of the error is "down: SECRET-reason".
    """

    def make(
        *,
        calls: Container[int] | None = None,
        word: str = "",
        answer: str = "summary",
        **settings: Any,
    ) -> Any:
        def reply(field: str, prompt: str, call_number: int) -> dict[str, str]:
            is_down = calls is None or call_number in calls
            if is_down and word in prompt:
                # Tests check that no client gets to read the model's own reason.
                raise LMServerError("down: SECRET-reason", model="x")
            return {field: answer}

        return scripted(reply, **settings)

    return make


class PausingModel:
    """A language model that answers prompts with a certain word only after `go_on` is called.

    `scripted(pausing_model.reply)` makes a model of it.

    Args:
        word: The word; with the empty one it pauses at every prompt.
        answer: What it answers to these prompts.
        other_answer: What it answers to all other prompts, at once.
    """

    def __init__(self, word: str = "", answer: str = "late answer", other_answer: str = "") -> None:
        self._word = word
        self._answer = answer
        self._other_answer = other_answer
        self._is_asked = threading.Event()
        self._may_answer = threading.Event()

    def wait_until_it_is_asked(self) -> None:
        """Wait until a call has begun that it does not answer yet."""
        assert self._is_asked.wait(20)

    def go_on(self) -> None:
        """Answer now, and from now on at once."""
        self._may_answer.set()

    def reply(self, field: str, prompt: str, call_number: int) -> dict[str, str]:
        answer = self._other_answer
        if self._word in prompt:
            self._is_asked.set()
            self._may_answer.wait(30)
            answer = self._answer
        if field == "reasoning":
            return {"reasoning": answer, "answer": answer}
        return {field: answer}


class HangingEmbedding:
    """A function that turns texts into vectors, but hangs at texts with the word "hang".

    It goes on when `may_go_on` is set.
    """

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.texts: list[str] = []
        """All texts that it was called with."""
        self.hanging_texts: list[str] = []
        """The texts at which it hangs, or has hung."""

    def __call__(self, texts: Sequence[str]) -> Any:
        self.texts.extend(texts)
        hanging_texts = [text for text in texts if "hang" in text]
        if hanging_texts:
            self.hanging_texts.extend(hanging_texts)
            self.may_go_on.wait(60)
        return hashed_vectors(texts)


@pytest.fixture
def hanging_embedding() -> Iterator[HangingEmbedding]:
    """A function for embedders that hangs at texts with the word "hang", until the test ends."""
    embedding = HangingEmbedding()
    yield embedding
    embedding.may_go_on.set()


class HangingRequest:
    """A request that hangs while it uses the store, until `go_on` is called."""

    def __init__(self) -> None:
        self._hangs = threading.Event()
        self._may_go_on = threading.Event()

    def wait_until_it_hangs(self) -> None:
        assert self._hangs.wait(20)

    def go_on(self) -> None:
        self._may_go_on.set()

    def use_store(self) -> None:
        """Hang if this is the first use of the store."""
        if not self._hangs.is_set():
            self._hangs.set()
            self._may_go_on.wait(20)


@contextmanager
def first_request_hangs_in_store() -> Iterator[HangingRequest]:
    """Let the first request in the block that uses the store hang, at most until the block ends."""
    request = HangingRequest()

    def before_statement(*_arguments: Any) -> None:
        # The background worker uses the store all the time, for no request.
        if not threading.current_thread().name.startswith("mempiler-worker"):
            request.use_store()

    # SQLAlchemy calls the function before each SQL statement, in the thread of the request.
    with listening("before_cursor_execute", before_statement):
        try:
            yield request
        finally:
            request.go_on()


def turns_of_ada(store: Store) -> list[str]:
    """Return Ada's stored turns as `SPEAKER: TEXT`, those of ended sessions first."""
    ended_sessions = [stored.item for stored in store.items.list_all(ADA)]
    open_sessions = store.read(ADA).open_sessions
    return [
        f"{turn.speaker}: {turn.text}"
        for session in (*ended_sessions, *open_sessions)
        for turn in session.turns
    ]


def only_request_body(model_server: StubServer) -> dict[str, Any]:
    """Return the body of the only request that a stub server got."""
    (request,) = model_server.requests
    return request.body


def service_over(
    store: Store,
    folder: Path,
    lm: Any = None,
    program: Any = None,
    tokens: bool = True,
    spans: Any = None,
    **settings: Any,
) -> Any:
    """Return a service over a store.

    Unless `settings` say otherwise, it has no writers: sessions that are stored wait in the queue
    ("queued"), where they are searched as well, and are not written into the memory.

    Args:
        store: Holds the memories.
        folder: Where the file of tokens is written.
        lm: The language model; the offline engine if None.
        program: The memory program; turn RAG if None.
        tokens: Whether clients need a token.
        spans: The OpenTelemetry provider of spans, if any.
        **settings: Fields of `Settings`.
    """
    # Imported late: FastAPI takes its time, and other tests use this module for its constants.
    from mempiler.serving.http.service import Service
    from mempiler.serving.http.token_file import Tokens
    from mempiler.serving.settings import Settings

    token_file = folder / "tokens"
    token_file.write_text("".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    return Service(
        program or build("turn-rag"),
        store,
        lm or language_model("offline"),
        "my-model",  # The name under which clients ask for the program.
        Tokens(token_file) if tokens else None,
        Settings(**{"threads": 4, "writers": 0, "grace": 5.0, **settings}),
        spans=spans,
    )


class Api(httpx.Client):
    """An HTTP client of a service in this process.

    Args:
        address: The address of the service.
        service: The service itself.
        stack: Closes the client when the service ends.
        tenant: The tenant whose token is sent; None sends no token.
    """

    def __init__(
        self, address: str, service: Any, stack: ExitStack, tenant: str | None = "acme"
    ) -> None:
        headers = {"Authorization": f"Bearer {TOKENS[tenant]}"} if tenant else {}
        super().__init__(base_url=address, headers=headers, timeout=20)
        self.address = address
        self.service = service
        self._stack = stack
        stack.enter_context(self)

    @property
    def port(self) -> int:
        """The port of the service on this machine."""
        port = self.base_url.port
        assert port is not None
        return port

    def as_tenant(self, tenant: str | None) -> "Api":
        """Return a client of the same service with the token of another tenant, or with none."""
        return Api(self.address, self.service, self._stack, tenant)

    def add(self, text: str, user: str = "ada", time: str | None = None, **fields: Any) -> Any:
        """Store a session of one message by Ada; `fields` are further fields of the request."""
        message = {"role": "user", "name": "Ada", "content": text, "time": time}
        return self.post(f"/v1/users/{user}/sessions", json={"messages": [message], **fields})

    def ask(self, question: str, user: str = "ada") -> Any:
        """Ask a question about what a user's memory holds."""
        return self.post(f"/v1/users/{user}/ask", json={"question": question})

    def chat(
        self,
        *texts: str,
        user: str = "ada",
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Any:
        """Send a conversation in which user and assistant take turns; the user speaks first."""
        messages: list[dict[str, str]] = []
        for number, text in enumerate(texts):
            role = "user" if number % 2 == 0 else "assistant"
            messages.append({"role": role, "content": text})
        body = {"model": "x", "user": user, "messages": messages, **fields}
        return self.post("/v1/chat/completions", json=body, headers=headers)

    def requests_in_progress(self) -> int:
        """Return how many requests that may ask the model hold a place in the service."""
        return self.service.model_pool.held.total()

    def sessions(self, user: str = "ada") -> dict[str, tuple[str, int]]:
        """Return state and number of turns of each session, by its id."""
        sessions = self.get(f"/v1/users/{user}/sessions").json()["sessions"]
        return {session["id"]: (session["state"], session["turns"]) for session in sessions}


class ModelService(NamedTuple):
    """A service whose language model is a stub server."""

    api: Api
    openai_client: openai.OpenAI
    """OpenAI's own client of the service."""
    model_server: StubServer


StartService = Callable[..., Api]
"""The type of the fixture `start_service`."""

StartWithStubModel = Callable[..., ModelService]
"""The type of the fixture `start_with_stub_model`."""


@contextmanager
def serving(service: Any) -> Iterator[Api]:
    """Run a service in a thread, and connect a client of the tenant `acme` to it."""
    import uvicorn
    from mempiler.serving.http.app import make_app
    from mempiler.serving.http.server import listen, uvicorn_config

    with listen("127.0.0.1", 0, has_tokens=False) as listener, ExitStack() as clients:
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn_config(make_app(service), service.settings))
        thread = threading.Thread(target=server.run, args=([listener],), name=EVENT_LOOP_THREAD)
        thread.start()
        assert within(20, lambda: server.started)
        try:
            yield Api(f"http://127.0.0.1:{port}", service, clients)
        finally:
            # Clients first, since the server waits until their connections are closed.
            clients.close()
            service.begin_stop()
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def start_service(store: Store, tmp_path: Path) -> Iterator[StartService]:
    """Start a service over `store`, and return a client of `acme`.

    `service_over` says what the keywords mean.
    """
    with ExitStack() as services:

        def start(lm: Any = None, program: Any = None, **options: Any) -> Api:
            service = service_over(store, tmp_path, lm, program, **options)
            return services.enter_context(serving(service))

        yield start


@pytest.fixture
def start_with_stub_model(start_service: StartService) -> Iterator[StartWithStubModel]:
    """Start a service whose model is a stub server, which the service reaches over HTTP.

        api, openai_client, model_server = start_with_stub_model("To Lisbon.")

    The model always says "To Lisbon." here. Bytes are sent as they are, and a function gives the
    answer to the body of a request.
    """
    with ExitStack() as stack:

        def start(
            answer: Answer | str | bytes | dict[str, Any] = "fine",
            adapter: str = "chat",
            task: str = "question-answering",
            timeout: float = 60.0,
            guard: Breaker | None = None,
            settings: Mapping[str, Any] | None = None,
            **stub_options: Any,
        ) -> ModelService:
            """Start the stub server and the service.

            Args:
                answer: What the model says, or a function that returns it.
                adapter: DSPy's adapter by which the program asks its model.
                task: The task of the program.
                timeout: Seconds for a request to the service.
                guard: Admits the calls of the model, or refuses them; a new `Breaker` if None.
                settings: Further settings of the service.
                **stub_options: Further fields of `StubServer`.
            """
            give_answer = answer if callable(answer) else lambda body: answer
            model_server = stack.enter_context(StubServer(answer=give_answer, **stub_options))
            lm = language_model(
                model_server.model,
                api_base=model_server.url,
                guard=guard or Breaker(),
                cache=False,
                retries=0,
                deadline=10,
            )
            program = build("turn-rag", task, adapter=adapter)
            api = start_service(lm, program, timeout=timeout, **(settings or {}))
            openai_client = openai.OpenAI(
                base_url=f"{api.address}/v1", api_key=TOKENS["acme"], timeout=20, max_retries=0
            )
            stack.enter_context(openai_client)
            return ModelService(api, openai_client, model_server)

        yield start


@pytest.fixture
def client(start_service: StartService) -> Api:
    """A client of the tenant `acme`, whose service has an empty store."""
    return start_service()


@pytest.fixture(scope="module")
def client_with_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a service that holds one session of Ada's: "s", "I moved to Lisbon.".

    It is shared by the tests of a module, so they must change nothing.
    """
    folder = tmp_path_factory.mktemp("filled")
    with Store(folder / "memories.sqlite") as store, serving(service_over(store, folder)) as client:
        client.add("I moved to Lisbon.", id="s")
        yield client


# Limits of tenants.


class StoppedClock:
    """The clock of this process; it shows noon, where a minute begins, until a test moves it."""

    noon = 1_800_057_600.0 + 12 * 3600
    """Noon of a day, in seconds since 1970."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.move_to(seconds_after_noon=0)

    def move_to(self, seconds_after_noon: float) -> None:
        """Let the clock show another time."""
        now = self.noon + seconds_after_noon
        self._monkeypatch.setattr(time, "time", lambda: now)


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    """A clock that stands still at noon, so that no minute and no day ends during a test."""
    return StoppedClock(monkeypatch)


def write_limits(folder: Path, **limits: str) -> None:
    """Write the token file again, with limits behind the tokens of some tenants."""
    lines = [f"{tenant} {token} {limits.get(tenant, '')}\n" for tenant, token in TOKENS.items()]
    (folder / "tokens").write_text("".join(lines))


@pytest.fixture
def database(store: Store) -> Iterator[Database]:
    """Another connection to the database of the store, for fakes of the store's parts."""
    database = Database(store.url)
    yield database
    database.close()


USD_PER_TOKEN = 0.001
"""A tenth of a cent: the price of a token of a prompt, and of an answer."""
PRICES = TokenPrices(input=USD_PER_TOKEN, output=USD_PER_TOKEN)
"""US dollars per token of the models that cost something."""


@pytest.fixture
def make_priced_lm(scripted: Any) -> Callable[..., Any]:
    """Make a model that costs a tenth of a cent per token; its guard is a breaker.

    It answers "Lisbon", or what `reply` returns, and with 100 tokens at most: 10 cents.
    """

    def make(reply: Any = lambda field, prompt, call_number: {field: "Lisbon"}) -> Any:
        lm = scripted(reply, guard=Breaker(), prices=PRICES, max_tokens=100)
        lm.callbacks = []
        return lm

    return make


@dataclass(frozen=True)
class Relay:
    """A service that relays chats to a stub model, whose calls cost something."""

    client: Api
    server: StubServer

    @property
    def failed_calls(self) -> int:
        """How many calls of the model count as failed."""
        return self.client.service.lm.meter.read().failed

    def has_no_request(self) -> bool:
        """Return whether no request holds a place in the pool of the model."""
        return self.client.service.model_pool.held.total() == 0


StartRelay = Callable[..., Relay]
"""The type of the fixture `start_relay`."""


@pytest.fixture
def start_relay(start_with_stub_model: StartWithStubModel, tmp_path: Path) -> StartRelay:
    """Start a relay with the keywords of `start_with_stub_model`; a token costs `USD_PER_TOKEN`.

    The tenant `acme` has a budget of `usd_per_day`.
    """

    def start(usd_per_day: float = 100, **stub_options: Any) -> Relay:
        client, _, server = start_with_stub_model(**stub_options)
        client.service.lm.prices = PRICES
        write_limits(tmp_path, acme=f"usd-per-day={usd_per_day}")
        return Relay(client, server)

    return start


@pytest.fixture(autouse=True)
def no_caller_of_another_test() -> Iterator[None]:
    """Reset the user for whom a model is asked (`CALLER`).

    All tests of a process run in one context, so a user that one test sets would still be set in
    the next one.
    """
    CALLER.set(None)
    yield
    CALLER.set(None)
