"""Services over a store of their own: two tenants with tokens, turn RAG, the offline engine or a scripted one."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from recollect import Store, build
from recollect.engines.models import language_model

TOKENS = {"acme": "token-of-the-acme-tenant", "globex": "token-of-the-globex-tenant"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with Store(tmp_path / "memories.sqlite") as opened:
        yield opened


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with a token of each of two tenants."""
    path = tmp_path / "tokens"
    path.write_text("# tenants\n" + "".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    return path


@pytest.fixture
def make_service(store: Store, token_file: Path) -> Callable[..., Any]:
    """Makes a service; `lm` replaces the offline engine, `program` turn RAG, other keywords are settings."""

    def make(lm: Any = None, program: Any = None, tokens: bool = True, **settings: Any) -> Any:
        from recollect.service.service import Service
        from recollect.service.settings import Settings
        from recollect.service.tokens import Tokens

        settings = {"threads": 4, "writers": 0, "grace": 5.0, **settings}
        known = Tokens(token_file) if tokens else None
        return Service(
            program or build("turn-rag"),
            store,
            lm or language_model("offline"),
            "my-model",
            known,
            Settings(**settings),
        )

    return make


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

    def add(self, text: str, user: str = "ada", id: str | None = None) -> Any:
        """Stores a session of one message."""
        body = {"messages": [{"role": "user", "name": "Ada", "content": text}], **({"id": id} if id else {})}
        return self.post(f"/v1/users/{user}/sessions", json=body)

    def ask(self, question: str, user: str = "ada") -> Any:
        """Asks a question."""
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


@pytest.fixture
def connect(make_service: Callable[..., Any]) -> Iterator[Callable[..., Api]]:
    """Starts a service on a free port, with the arguments of `make_service`, and connects a client of `acme` to it."""
    import uvicorn
    from recollect.service.app import make_app

    stack = ExitStack()
    running: list[tuple[uvicorn.Server, threading.Thread, socket.socket]] = []

    def start(*arguments: Any, **settings: Any) -> Api:
        service = make_service(*arguments, **settings)
        bound = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(service), log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        running.append((server, thread, bound))
        until = time.monotonic() + 20
        while not server.started and time.monotonic() < until:
            time.sleep(0.005)
        return Api(f"http://127.0.0.1:{bound.getsockname()[1]}", service, stack)

    yield start
    stack.close()
    for server, thread, bound in running:
        server.should_exit = True
        thread.join(20)
        bound.close()


@pytest.fixture
def client(connect: Callable[..., Api]) -> Api:
    """A client of the tenant `acme`."""
    return connect()
