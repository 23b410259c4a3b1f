"""Services over a store of their own: two tenants with tokens, turn RAG, the offline engine or a scripted one."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from dspy.utils.exceptions import LMServerError
from mempiler import Store, build
from mempiler.engines.lm import language_model
from mempiler.memory.store.owner import Owner
from mempiler.serving.worker.breaker import CALLER, Breaker

from ..conftest import within
from ..stub_server import StubServer

Reach = Callable[..., tuple["Api", openai.OpenAI, StubServer]]
TOKENS = {"acme": "token-of-the-acme-tenant", "globex": "token-of-the-globex-tenant"}
ADA = Owner("ada", "acme")


def failing(when: Callable[[str, int], bool], answer: str = "summary") -> Callable[[str, str, int], dict[str, str]]:
    """Replies of a model that is down for some prompts, by their text and the number of the call."""

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if when(text, n):
            raise LMServerError("down: SECRET-reason", model="x")
        return {kind: answer}

    return reply


def turns(store: Store) -> list[str]:
    """The texts of Ada's turns, ended sessions first, each with its speaker."""
    items = [stored.item for stored in store.items.list_all(ADA)]
    return [f"{turn.speaker}: {turn.text}" for item in (*items, *store.read(ADA).open_sessions) for turn in item.turns]


def service_over(
    store: Store, folder: Path, lm: Any = None, program: Any = None, tokens: bool = True, spans: Any = None, **s: Any
) -> Any:
    """A service; `lm` replaces the offline engine, `program` turn RAG, other keywords are settings."""
    from mempiler.serving.http.service import Service
    from mempiler.serving.http.token_file import Tokens
    from mempiler.serving.settings import Settings

    path = folder / "tokens"
    path.write_text("".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    settings = Settings(**{"threads": 4, "writers": 0, "grace": 5.0, **s})
    program, lm = program or build("turn-rag"), lm or language_model("offline")
    return Service(program, store, lm, "my-model", Tokens(path) if tokens else None, settings, spans=spans)


class Api(httpx.Client):
    """A client of a service in this process; `service` is what it talks to."""

    def __init__(self, address: str, service: Any, stack: ExitStack, tenant: str | None = "acme") -> None:
        headers = {"Authorization": f"Bearer {TOKENS[tenant]}"} if tenant else {}
        super().__init__(base_url=address, headers=headers, timeout=20)
        self.address, self.service, self._stack = address, service, stack
        stack.enter_context(self)

    def as_tenant(self, tenant: str | None) -> "Api":
        """The same service with the token of another tenant, or with none."""
        return Api(self.address, self.service, self._stack, tenant)

    def add(self, text: str, user: str = "ada", time: str | None = None, **more: Any) -> Any:
        """Stores a session of one message."""
        said = {"role": "user", "name": "Ada", "content": text, "time": time}
        return self.post(f"/v1/users/{user}/sessions", json={"messages": [said], **more})

    def ask(self, question: str, user: str = "ada") -> Any:
        return self.post(f"/v1/users/{user}/ask", json={"question": question})

    def chat(self, *texts: str, user: str = "ada", headers: Any = None, **more: Any) -> Any:
        """Sends a conversation in which user and assistant take turns."""
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
        body = {"model": "x", "user": user, "messages": messages, **more}
        return self.post("/v1/chat/completions", json=body, headers=headers)

    def sessions(self, user: str = "ada") -> dict[str, tuple[str, int]]:
        """State and number of turns of each session."""
        found = self.get(f"/v1/users/{user}/sessions").json()["sessions"]
        return {session["id"]: (session["state"], session["turns"]) for session in found}


@contextmanager
def serving(service: Any) -> Iterator[Api]:
    """Runs a service in a thread, and connects a client of `acme` to it."""
    import uvicorn
    from mempiler.serving.http.app import make_app
    from mempiler.serving.http.server import listen, uvicorn_config

    with listen("127.0.0.1", 0, has_tokens=False) as bound, ExitStack() as stack:
        server = uvicorn.Server(uvicorn_config(make_app(service), service.settings))
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        assert within(20, lambda: server.started)
        try:
            yield Api(f"http://127.0.0.1:{bound.getsockname()[1]}", service, stack)
        finally:
            stack.close()
            service.begin_stop()
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def connect(store: Store, tmp_path: Path) -> Iterator[Callable[..., Api]]:
    """Starts services with the keywords of `service_over`, and connects a client of `acme` to each."""
    with ExitStack() as stack:
        yield lambda lm=None, program=None, **more: stack.enter_context(
            serving(service_over(store, tmp_path, lm, program, **more))
        )


@pytest.fixture
def reach(connect: Callable[..., Api]) -> Iterator[Reach]:
    """A service whose program asks a stub model that answers by `answer`, OpenAI's client of it, and the stub."""
    with ExitStack() as stack:

        def started(
            answer: Any = lambda body: "fine",
            adapter: str = "chat",
            task: str = "question-answering",
            timeout: float = 60.0,
            **stub: Any,
        ) -> tuple[Api, openai.OpenAI, StubServer]:
            server = stack.enter_context(StubServer(answer=answer, **stub))
            options: Any = {"guard": Breaker(), "cache": False, "retries": 0, "deadline": 10}
            lm = language_model(server.model, api_base=server.url, **options)
            client = connect(lm, build("turn-rag", task, adapter=adapter), timeout=timeout)
            key = client.headers["Authorization"].removeprefix("Bearer ")
            asking = openai.OpenAI(base_url=f"{client.address}/v1", api_key=key, timeout=20, max_retries=0)
            return client, stack.enter_context(asking), server

        yield started


@pytest.fixture
def client(connect: Callable[..., Api]) -> Api:
    """A client of the tenant `acme`."""
    return connect()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a service that holds one session of Ada's; shared by tests that change nothing."""
    folder = tmp_path_factory.mktemp("filled")
    with Store(folder / "memories.sqlite") as store, serving(service_over(store, folder)) as client:
        client.add("I moved to Lisbon.", id="s")
        yield client


@pytest.fixture(autouse=True)
def no_caller_of_another_test() -> Iterator[None]:
    """Forget the caller that a test sets: all tests of a process run in one context."""
    CALLER.set(None)
    yield
    CALLER.set(None)
