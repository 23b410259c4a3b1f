"""`Client` and `AsyncClient`: the contract of a memory of this process, kept over HTTP; errors, retries, addresses."""

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import httpx
import mempiler
import pytest
from mempiler import (
    AsyncClient,
    Behavior,
    Client,
    EndpointError,
    ServiceError,
    Session,
    Turn,
    UserError,
    UserMemory,
    build,
)
from mempiler.engines.lm import language_model
from mempiler.memory.results import EntryChange, EntryPage, ListedEntry, Origin
from mempiler.serving.client.async_remote_memory import AsyncRemoteEntries, AsyncRemoteMemory
from mempiler.serving.client.remote_memory import RemoteEntries, RemoteMemory
from mempiler.serving.memories.entries import UserEntries
from mempiler.serving.memories.memories import Memories
from mempiler.serving.worker.writers import write_all_queued

from .conftest import TOKENS

LISBON = [
    {
        "role": "user",
        "name": "Ada",
        "content": "I moved to Lisbon.",
        "time": datetime(2025, 3, 5, 18, 20),
    }
]
FLEW = Turn(id="", speaker="Ada", text="I flew to Oslo for the summer.")
OSLO = Session(id="chat-2", time=datetime(2025, 6, 1), turns=(FLEW,))


class Blocking:
    """A memory of asyncio, called from a thread that waits."""

    def __init__(self, memory: Any, runner: asyncio.Runner) -> None:
        self._memory, self._runner = memory, runner

    @property
    def entries(self) -> "Blocking":
        return Blocking(self._memory.entries, self._runner)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._memory, name)
        return lambda *given, **named: self._runner.run(method(*given, **named))


@pytest.fixture(params=["in process", "client", "client, asyncio"])
def memory(request: Any, connect: Any, store: Any) -> Iterator[Callable[[str], Any]]:
    """Memories of users over one store, by three ways."""
    api = connect()
    if request.param == "in process":
        yield lambda user: build("turn-rag").memory(store, user, lm=language_model("offline"))
    elif request.param == "client":
        with Client(api.address, TOKENS["acme"]) as client:
            yield client.memory
    else:
        with asyncio.Runner() as runner:
            remote = AsyncClient(api.address, TOKENS["acme"])
            yield lambda user: Blocking(remote.memory(user), runner)
            runner.run(remote.close())


def written(store: Any) -> None:
    write_all_queued(Memories(build("turn-rag"), store, language_model("offline")))


def test_the_contract_of_a_memory(memory: Any) -> None:
    ada, ben = memory("ada"), memory("ben")
    assert not ada.search("Lisbon").pending
    first = ada.add(LISBON, id="chat-1")
    assert first.id == "chat-1"
    assert first.position == 1
    assert first.new is True
    assert ada.add(LISBON, id="chat-1").new is False
    with pytest.raises(mempiler.ConflictError, match="chat-1"):
        ada.add([{"role": "user", "content": "Something else."}], id="chat-1")
    assert ada.add(OSLO).id == "chat-2"
    assert ada.add([{"role": "user", "content": "Hello."}]).id == "D3"

    found = ada.search("Where is Lisbon?", k=1)
    (hit,) = (*found.entries, *found.pending)
    assert hit.id == "chat-1:1"
    assert hit.text == "Ada: I moved to Lisbon."
    assert hit.kind == "turn"
    assert hit.sources == ("chat-1:1",)
    assert hit.time == datetime(2025, 3, 5, 18, 20)
    late = ada.search("Ada", since=datetime(2025, 5, 1), until=datetime(2025, 7, 1))
    assert [hit.id for hit in (*late.entries, *late.pending)] == ["chat-2:1"]
    with pytest.raises(UserError, match="k"):
        ada.search("Lisbon", k=0)

    answered = ada.ask("Where did Ada move?")
    assert answered.answer == "I moved to Lisbon."
    assert answered.context.sources[0] == "chat-1:1"
    assert answered.context.hits[0].text == "Ada: I moved to Lisbon."
    assert not ben.search("Lisbon").entries + ben.search("Lisbon").pending

    assert ada.forget_session("chat-2")
    assert not ada.forget_session("chat-2")
    receipt = ada.forget()
    assert receipt.known is True
    assert receipt.sessions == 2
    assert receipt.turns == 2
    assert receipt.erased is True
    assert not ada.forget()
    assert not ada.search("Lisbon").pending


def test_a_client_lists_changes_and_deletes_entries_and_undoes_it(memory: Any, store: Any) -> None:
    ada = memory("ada")
    entries = ada.entries
    assert entries.list() == EntryPage()
    assert entries.get("chat-1:1") is None
    assert entries.history("chat-1:1") == ()
    assert entries.update("chat-1:1", "x") is None
    assert entries.delete("chat-1:1") is None
    assert entries.undo("chat-1:1") is None
    ada.add(LISBON, id="chat-1", metadata={"channel": "phone", "year": 2025})
    ada.add(OSLO)
    written(store)

    moved = ListedEntry(
        id="chat-1:1",
        text="Ada: I moved to Lisbon.",
        kind="turn",
        time=LISBON[0]["time"],
        speaker="Ada",
        turns=("chat-1:1",),
        sessions=(Origin(id="chat-1", metadata={"channel": "phone", "year": 2025}),),
    )
    first = ada.entries.list(limit=1)
    assert first.entries == (moved,)
    assert first.next == "chat-1:1"
    assert ada.entries.get("chat-1:1") == moved
    assert [one.id for one in ada.entries.list(first.next).entries] == ["chat-2:1"]
    written_change = EntryChange(what="written", text=moved.text, at=moved.time, turns=moved.turns)
    assert ada.entries.history("chat-1:1") == (written_change,)

    with pytest.raises(UserError, match="says this already"):
        ada.entries.update("chat-1:1", "I moved to Lisbon.")
    changed = ada.entries.update("chat-1:1", "I moved to Porto.", "the desk")
    assert changed.what == "update"
    assert changed.new == "Ada: I moved to Porto."
    assert changed.by == "the desk"
    assert ada.entries.get("chat-1:1").text == changed.new
    deleted = ada.entries.delete("chat-1:1", by="ada")
    assert deleted.what == "delete"
    assert deleted.text == changed.new
    assert deleted.new is None
    assert deleted.by == "ada"
    assert ada.entries.get("chat-1:1") is None
    assert ada.entries.delete("chat-1:1") is None
    assert [one.id for one in ada.entries.list().entries] == ["chat-2:1"]
    assert [ada.entries.undo("chat-1:1").what for _ in range(2)] == ["undo", "undo"]
    assert ada.entries.undo("chat-1:1") is None
    history = ada.entries.history("chat-1:1")
    assert [one.what for one in history] == ["written", "update", "delete", "undo", "undo"]
    assert history[1] == EntryChange(
        what="update",
        text=moved.text,
        new=changed.new,
        at=changed.at,
        by="the desk",
        turns=("chat-1:1",),
        number=1,
    )
    pages = [ada.entries.history("chat-1:1", limit=2)]
    while pages[-1]:
        pages.append(ada.entries.history("chat-1:1", pages[-1][-1].number, 2))
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert sum(pages, ()) == history
    assert ada.entries.history("chat-9:1", 3) == ()
    assert changed.at.tzinfo is None


def test_the_contract_of_what_is_chosen(memory: Any, store: Any) -> None:
    ada = memory("ada")
    ada.add(LISBON, id="chat-1", metadata={"channel": "phone", "year": 2025})
    ada.add(OSLO, metadata={"channel": "mail", "year": 2024})
    written(store)
    chosen: list[tuple[dict[str, Any], set[str]]] = [
        ({"where": {}}, {"chat-1:1", "chat-2:1"}),
        ({"where": {"year": {"lt": 2025}, "channel": {"in": ("mail", "x")}}}, {"chat-2:1"}),
        ({"since": datetime(2025, 5, 1)}, {"chat-2:1"}),
        ({"until": datetime(2025, 5, 1, tzinfo=UTC)}, {"chat-1:1"}),
    ]
    for more, expected in chosen:
        found = (ada.search("Ada", **more).entries, ada.ask("Where is Ada?", **more).context.hits)
        assert [
            {one.id for one in part} for part in (*found, ada.entries.list(**more).entries)
        ] == [expected] * 3, more
    for call in (ada.search, ada.ask, ada.entries.list):
        with pytest.raises(UserError, match="where"):
            call("Ada", where={"year": {"$gt": 1}})
    with pytest.raises(UserError, match="metadata"):
        ada.add(OSLO, metadata={"channel": object()})
    with pytest.raises(mempiler.ConflictError, match="chat-2"):
        ada.add(OSLO, metadata={"channel": "phone"})


def test_a_client_reads_status_sessions_and_memory_and_lists_users(client: Any) -> None:
    with (
        Client(client.address, TOKENS["acme"]) as mine,
        Client(client.address, TOKENS["globex"]) as other,
    ):
        ada = mine.memory("ada")
        assert ada.status() is None
        assert ada.sessions() == ()
        assert ada.read() == {}
        assert ada.end("chat") is None
        ada.add(LISBON, id="chat-1")
        client.chat("Hello there.", metadata={"session": "tuesday"})
        assert [(one.id, one.state, one.turns) for one in ada.sessions()] == [
            ("chat-1", "queued", 1),
            ("tuesday", "open", 2),
        ]
        ended = ada.end("tuesday")
        assert ended is not None
        assert ended.position == 2
        status = ada.status()
        assert status is not None
        assert status.sessions == 2
        assert status.queued == 2
        assert ada.read() == client.get("/v1/users/ada/memory").json()["memory"]
        mine.memory("bob").add(LISBON)
        page = client.get("/v1/users", params={"after": "ada", "limit": 1}).json()
        assert [one["user"] for one in page["users"]] == ["bob"]
        assert page["next"] == "bob"
        names = [f"more-{n}" for n in range(100, 200)]
        for name in names:
            mine.memory(name).add(LISBON)
        assert [[one.user for one in each.users()] for each in (mine, other)] == [
            ["ada", "bob", *names],
            [],
        ]


@pytest.mark.parametrize(
    ("remote", "awaited_remote", "local"),
    [
        (RemoteMemory, AsyncRemoteMemory, UserMemory),
        (RemoteEntries, AsyncRemoteEntries, UserEntries),
    ],
)
def test_both_clients_have_the_methods_and_arguments_of_a_memory(
    remote: Any, awaited_remote: Any, local: Any
) -> None:
    names = {name for name in vars(remote) if not name.startswith("_")}
    assert names
    assert names == {name for name in vars(awaited_remote) if not name.startswith("_")}
    for name in sorted(names - {"entries"}):
        blocking, awaited = getattr(remote, name), getattr(awaited_remote, name)
        assert inspect.iscoroutinefunction(awaited), name
        assert str(inspect.signature(blocking)) == str(inspect.signature(awaited)), name

        # Arguments by place, and defaults, are those of a memory of this process.
        parameters, local_parameters = (
            inspect.signature(method).parameters for method in (blocking, getattr(local, name))
        )
        by_place = [
            one.name for one in parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        assert by_place == list(local_parameters)[: len(by_place)], name
        defaults = {
            one: value.default for one, value in parameters.items() if one in local_parameters
        }
        if name == "ask":
            del defaults["question"]  # a service needs one
        assert defaults == {one: local_parameters[one].default for one in defaults}, name


def test_a_memory_has_the_same_arguments_for_asyncio() -> None:
    for name in ("add", "ask", "search"):
        own, awaited = (
            inspect.signature(getattr(UserMemory, form)).parameters for form in (name, f"a{name}")
        )
        assert own == awaited, name


NAMES = ["", ".", "..", "a/sessions/b", "a?x", "a\n", "a%2Fb", ".hidden", "x" * 600]
ENTRIES = ["", ".", "..", "a/b", "\x00", "\ud800", None]
NO_SESSIONS = [
    Behavior.from_actions("b", []),
    "I moved.",
    {"role": "user", "content": "x"},
    ["I moved."],
]
NO_ADDRESSES = ["", "127.0.0.1:8000", "ftp://x", "http://", "http://x:port", "http://x\0", None]


def test_invalid_arguments_are_refused_before_a_request() -> None:
    with Client("http://127.0.0.1:9") as client:
        ada = client.memory("ada")
        calls: list[tuple[Callable[[Any], Any], list[Any], str]] = [
            (client.memory, NAMES, "user"),
            (ada.entries.get, ENTRIES, "entry|text"),
            (ada.add, NO_SESSIONS, "session"),
            (Client, NO_ADDRESSES, "is no address; give one such as"),
        ]
        for call, values, says in calls:
            for value in values:
                with pytest.raises(UserError, match=says):
                    call(value)


@pytest.mark.parametrize("entry", ["a?b#c", "%2F..", "50 % of it", "a\nb", "...", "ü:1", "&by=x"])
def test_other_ids_of_entries_arrive_as_they_are(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client("http://service") as client:
        sent = answering(monkeypatch, (404, problem("there is no such entry")))
        assert client.memory("ada").entries.delete(entry, by="a&b") is None
        assert (
            unquote(sent[0].url.raw_path.partition(b"?")[0].decode())
            == f"/v1/users/ada/entries/{entry}"
        )
        assert dict(sent[0].url.params) == {"by": "a&b"}


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> list[httpx.Request]:
    """Put scripted answers (status, JSON or text, headers) or exceptions in the place of a service."""
    sent, left = list[httpx.Request](), iter(answers)

    def answer(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        sent.append(request)
        found = next(left)
        if isinstance(found, Exception):
            raise found
        status, body, *headers = found
        content = {"json": body} if isinstance(body, dict) else {"text": body}
        return httpx.Response(status, headers=headers[0] if headers else {}, **content)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", answer)
    return sent


def problem(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "x", "code": 0}}


def test_a_service_that_repeats_the_token_does_not_make_errors_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = "token-0123456789"
    with Client("http://service", token=token) as client:
        answering(monkeypatch, (400, problem(f"you sent {token}")))
        with pytest.raises(UserError, match=r"^you sent \[secret\]$"):
            client.memory("ada").ask("Where?")


HEAVY_MODULES = [
    "aiohttp",
    "dspy",
    "fastapi",
    "litellm",
    "mlflow",
    "numpy",
    "openai",
    "pandas",
    "sqlalchemy",
    "starlette",
]
IMPORT = f"""
import json, sys, time

before = time.process_time()
from mempiler.serving.client import AsyncClient, Client
seconds = time.process_time() - before
from mempiler import AsyncClient, Client
with Client("http://127.0.0.1:9") as client:
    client.memory("ada")
heavy = [name for name in {HEAVY_MODULES} if name in sys.modules]
print(json.dumps([seconds, heavy]))
"""


def test_a_client_is_imported_fast_and_without_what_runs_a_model() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    seconds, heavy = json.loads(done.stdout)
    assert heavy == []
    assert seconds < 2  # of the CPU; .25 on a small server


FINE = (200, {"answer": "Lisbon", "evidence": []})
BUSY = (503, problem("too many requests wait; try again"), {"Retry-After": "0"})
GONE, CUT = httpx.ConnectError("refused"), httpx.ReadError("cut")


@pytest.mark.parametrize(
    ("answers", "attempts", "expected"),
    [
        ([FINE], 1, "Lisbon"),
        ([BUSY, (429, problem("x"), {"Retry-After": "0"}), FINE], 3, "Lisbon"),
        ([CUT, FINE], 2, "Lisbon"),
        (
            [(429, problem("the budget of the day is spent"), {"Retry-After": "7200"})],
            1,
            ServiceError("the budget"),
        ),
        ([(400, problem("question: Field required"))], 1, UserError("question: Field required")),
        ([(404, problem("there is no such user"))], 1, UserError("there is no such user")),
        (
            [(409, problem("another program wrote it"))],
            1,
            mempiler.ConflictError("another program wrote it"),
        ),
        ([(502, problem("the model is down"))], 1, EndpointError("the model is down")),
        ([(504, problem("this took too long"))], 1, ServiceError("this took too long")),
        ([BUSY] * 3, 3, ServiceError("too many requests wait; try again")),
        ([CUT] * 3, 3, ServiceError("the service did not answer: ReadError cut")),
        (
            [(404, "<html>nothing here</html>")],
            1,
            ServiceError("status 404: what answers here is no service"),
        ),
        (
            [(200, "<html>welcome</html>")],
            1,
            ServiceError("POST /v1/users/ada/ask: what answers here is no service"),
        ),
    ],
)
def test_a_call_is_tried_again_and_a_failure_is_the_error_of_its_status(
    answers: Any, attempts: int, expected: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with Client("http://service", retries=2) as client:
        sent = answering(monkeypatch, *answers)
        if isinstance(expected, str):
            assert client.memory("ada").ask("Where?").answer == expected
        else:
            with pytest.raises(mempiler.MempilerError) as caught:
                client.memory("ada").ask("Where?")
            assert type(caught.value) is type(expected)
            assert str(caught.value).startswith(str(expected))
        assert len(sent) == attempts


@pytest.mark.parametrize(
    ("call", "fault", "attempts"),
    [
        (lambda memory: memory.add(LISBON), CUT, 1),
        (lambda memory: memory.add(LISBON, id="chat-1"), CUT, 2),
        (lambda memory: memory.add(LISBON), GONE, 2),
        (lambda memory: memory.add(LISBON), BUSY, 2),
        (lambda memory: memory.forget(), CUT, 1),
        (lambda memory: memory.entries.delete("chat-1:1"), CUT, 1),
        (lambda memory: memory.entries.get("chat-1:1"), CUT, 2),
    ],
)
def test_only_what_cannot_be_done_twice_is_sent_again(
    call: Any, fault: Any, attempts: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with Client("http://service", retries=1) as client:
        sent = answering(monkeypatch, fault, fault)
        with pytest.raises(ServiceError):
            call(client.memory("ada"))
        assert len(sent) == attempts


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_an_address_that_ends_in_v1_is_refused(client_class: Any) -> None:
    with pytest.raises(UserError, match="leave /v1 away"):
        client_class("http://127.0.0.1:8000/v1/")


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
@pytest.mark.parametrize("password", ["pw", "a-long-password", "p%2fss%40word"])
def test_a_refused_address_is_named_without_its_password(client_class: Any, password: str) -> None:
    with pytest.raises(UserError) as caught:
        client_class(f"http://ann:{password}@127.0.0.1:8000/v1")
    assert "http://ann:[secret]@127.0.0.1:8000/v1" in str(caught.value)
    assert password not in str(caught.value)
