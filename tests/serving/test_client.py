"""The clients of a service.

`Client` and `AsyncClient` do over HTTP what a memory in this process does. They send requests again
where that is safe, and turn replies into errors. Each test with the fixture `memory_of` runs three
times: with a memory in this process, with a `Client`, and with an `AsyncClient`.
"""

import asyncio
import inspect
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from mempiler import (
    AsyncClient,
    Behavior,
    Client,
    ConflictError,
    EndpointError,
    MempilerError,
    ServiceError,
    Session,
    Store,
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

from .conftest import TOKENS, service_over, serving

LISBON_MESSAGES = [
    {
        "role": "user",
        "name": "Ada",
        "content": "I moved to Lisbon.",
        "time": datetime(2025, 3, 5, 18, 20),
    }
]
"""Messages without an id; the call that adds them may name one."""
OSLO_SESSION = Session(
    id="chat-2",
    time=datetime(2025, 6, 1),
    turns=(Turn(id="", speaker="Ada", text="I flew to Oslo for the summer."),),
)
"""A session that brings its own id."""


# What a memory does, in this process and over HTTP.


class BlockingMemory:
    """A memory of an `AsyncClient` whose methods wait for their results."""

    def __init__(self, memory: Any, runner: asyncio.Runner) -> None:
        self._memory = memory
        self._runner = runner

    @property
    def entries(self) -> "BlockingMemory":
        return BlockingMemory(self._memory.entries, self._runner)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._memory, name)

        def call(*arguments: Any, **named_arguments: Any) -> Any:
            return self._runner.run(method(*arguments, **named_arguments))

        return call


@dataclass(frozen=True)
class SharedService:
    """A service that all tests of memories share; each of them has users of its own."""

    store: Store
    address: str


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedService]:
    """A running service and its store, started once because a start takes a fifth of a second."""
    folder = tmp_path_factory.mktemp("shared-service")
    with Store(folder / "memories.sqlite") as store, serving(service_over(store, folder)) as api:
        yield SharedService(store, api.address)


MemoryOf = Callable[[str], Any]
"""Returns the memory of the user with a name."""


@pytest.fixture(params=["in this process", "client", "asyncio client"])
def memory_of(request: pytest.FixtureRequest, shared_service: SharedService) -> Iterator[MemoryOf]:
    """Return the memory of a user; the same store is reached in three ways."""
    # Nobody meets users of another test.
    test_id = uuid.uuid4().hex

    if request.param == "in this process":
        program = build("turn-rag")
        lm = language_model("offline")
        yield lambda user: program.memory(shared_service.store, f"{user}-{test_id}", lm=lm)
    elif request.param == "client":
        with Client(shared_service.address, TOKENS["acme"]) as client:
            yield lambda user: client.memory(f"{user}-{test_id}")
    else:
        with asyncio.Runner() as runner:
            async_client = AsyncClient(shared_service.address, TOKENS["acme"])
            yield lambda user: BlockingMemory(async_client.memory(f"{user}-{test_id}"), runner)
            runner.run(async_client.close())


@pytest.fixture
def ada_with_two_sessions(memory_of: MemoryOf, shared_service: SharedService) -> Any:
    """Ada's memory, in which two sessions of one turn are written.

    `chat-1` is of 5 March 2025: "I moved to Lisbon.". `chat-2` is of 1 June 2025: "I flew to Oslo
    for the summer.". Their entries are `chat-1:1` and `chat-2:1`.
    """
    memory = memory_of("ada")
    memory.add(LISBON_MESSAGES, id="chat-1", metadata={"channel": "phone", "year": 2025})
    memory.add(OSLO_SESSION, metadata={"channel": "mail", "year": 2024})
    write_all_queued(Memories(build("turn-rag"), shared_service.store, language_model("offline")))
    return memory


def all_hits(search_result: Any) -> list[Any]:
    """Return what a search found in entries and in turns that are not written yet."""
    return [*search_result.entries, *search_result.pending]


def test_a_session_is_stored_once_under_its_id(memory_of: MemoryOf) -> None:
    ada = memory_of("ada")

    first = ada.add(LISBON_MESSAGES, id="chat-1")
    assert first.id == "chat-1"
    assert first.position == 1
    assert first.new is True
    assert ada.add(LISBON_MESSAGES, id="chat-1").new is False

    with pytest.raises(ConflictError, match="chat-1"):
        ada.add([{"role": "user", "content": "Something else."}], id="chat-1")


def test_a_session_gets_an_id_unless_it_has_one(memory_of: MemoryOf) -> None:
    """`OSLO_SESSION` has the id "chat-2". Messages have none, so the call may name one."""
    ada = memory_of("ada")
    ada.add(LISBON_MESSAGES, id="chat-1")

    assert ada.add(OSLO_SESSION).id == "chat-2"
    # Otherwise the id is "D" and the number of the session.
    assert ada.add([{"role": "user", "content": "Hello."}]).id == "D3"


def test_a_search_finds_what_the_user_said_and_nothing_of_other_users(
    memory_of: MemoryOf,
) -> None:
    ada = memory_of("ada")
    ben = memory_of("ben")
    assert all_hits(ada.search("Lisbon")) == []
    ada.add(LISBON_MESSAGES, id="chat-1")
    ada.add(OSLO_SESSION)

    (hit,) = all_hits(ada.search("Where is Lisbon?", k=1))
    assert hit.id == "chat-1:1"
    assert hit.text == "Ada: I moved to Lisbon."
    assert hit.kind == "turn"
    assert hit.sources == ("chat-1:1",)
    assert hit.time == datetime(2025, 3, 5, 18, 20)
    assert all_hits(ben.search("Lisbon")) == []


def test_a_search_finds_only_what_was_said_in_the_given_time(
    memory_of: MemoryOf,
) -> None:
    """`LISBON_MESSAGES` are of March 2025, and `OSLO_SESSION` is of June."""
    ada = memory_of("ada")
    ada.add(LISBON_MESSAGES, id="chat-1")
    ada.add(OSLO_SESSION)

    (hit,) = all_hits(ada.search("Ada", since=datetime(2025, 5, 1), until=datetime(2025, 7, 1)))

    assert hit.id == "chat-2:1"


def test_a_search_for_no_hits_is_refused(memory_of: MemoryOf) -> None:
    with pytest.raises(UserError, match="k"):
        memory_of("ada").search("Lisbon", k=0)


def test_an_answer_comes_with_what_was_recalled_for_it(memory_of: MemoryOf) -> None:
    """The offline model answers with the sentence that fits the question best."""
    ada = memory_of("ada")
    ada.add(LISBON_MESSAGES, id="chat-1")
    ada.add(OSLO_SESSION)

    reply = ada.ask("Where did Ada move?")

    assert reply.answer == "I moved to Lisbon."
    assert reply.context.sources[0] == "chat-1:1"
    assert reply.context.hits[0].text == "Ada: I moved to Lisbon."


def test_a_forgotten_session_and_a_forgotten_user_are_gone(
    memory_of: MemoryOf,
) -> None:
    """To forget is to delete for good. The receipt says how much was deleted."""
    ada = memory_of("ada")
    ada.add(LISBON_MESSAGES, id="chat-1")
    ada.add(OSLO_SESSION)
    ada.add([{"role": "user", "content": "Hello."}])

    assert ada.forget_session("chat-2")
    assert not ada.forget_session("chat-2")

    # Two of the three sessions are still there.
    receipt = ada.forget()
    assert receipt.known is True
    assert receipt.sessions == 2
    assert receipt.turns == 2
    assert receipt.erased is True
    assert not ada.forget()
    assert all_hits(ada.search("Lisbon")) == []


def test_a_memory_without_sessions_has_no_entries(memory_of: MemoryOf) -> None:
    entries = memory_of("ada").entries

    assert entries.list() == EntryPage()
    assert entries.get("chat-1:1") is None
    assert entries.history("chat-1:1") == ()
    assert entries.update("chat-1:1", "x") is None
    assert entries.delete("chat-1:1") is None
    assert entries.undo("chat-1:1") is None


def test_entries_are_listed_page_by_page_with_their_sessions(ada_with_two_sessions: Any) -> None:
    """The fixture has written two sessions of one turn. Each turn is an entry of the memory."""
    lisbon_entry = ListedEntry(
        id="chat-1:1",
        text="Ada: I moved to Lisbon.",
        kind="turn",
        time=datetime(2025, 3, 5, 18, 20),
        speaker="Ada",
        turns=("chat-1:1",),
        sessions=(Origin(id="chat-1", metadata={"channel": "phone", "year": 2025}),),
    )

    first_page = ada_with_two_sessions.entries.list(limit=1)
    assert first_page.entries == (lisbon_entry,)
    assert first_page.next == "chat-1:1"
    assert ada_with_two_sessions.entries.get("chat-1:1") == lisbon_entry

    second_page = ada_with_two_sessions.entries.list(cursor=first_page.next)
    assert [entry.id for entry in second_page.entries] == ["chat-2:1"]
    assert second_page.next is None


def test_an_entry_is_updated(ada_with_two_sessions: Any) -> None:
    """An entry is a piece of a memory: here the turn `chat-1:1`. `by` says who changes it."""
    change = ada_with_two_sessions.entries.update("chat-1:1", "I moved to Porto.", by="the desk")

    assert change.what == "update"
    assert change.new == "Ada: I moved to Porto."
    assert change.by == "the desk"
    assert ada_with_two_sessions.entries.get("chat-1:1").text == "Ada: I moved to Porto."


def test_an_update_that_changes_nothing_is_refused(ada_with_two_sessions: Any) -> None:
    with pytest.raises(UserError, match="says this already"):
        ada_with_two_sessions.entries.update("chat-1:1", "I moved to Lisbon.")


def test_an_entry_is_deleted(ada_with_two_sessions: Any) -> None:
    change = ada_with_two_sessions.entries.delete("chat-1:1", by="ada")

    assert change.what == "delete"
    assert change.text == "Ada: I moved to Lisbon."
    assert change.new is None
    assert change.by == "ada"
    assert ada_with_two_sessions.entries.get("chat-1:1") is None
    assert ada_with_two_sessions.entries.delete("chat-1:1") is None
    assert [entry.id for entry in ada_with_two_sessions.entries.list().entries] == ["chat-2:1"]


@pytest.fixture
def ada_with_changes(ada_with_two_sessions: Any) -> Any:
    """Ada's memory; the entry `chat-1:1` was updated and deleted, and then both was undone."""
    ada_with_two_sessions.entries.update("chat-1:1", "I moved to Porto.", by="the desk")
    ada_with_two_sessions.entries.delete("chat-1:1", by="ada")
    assert ada_with_two_sessions.entries.undo("chat-1:1").what == "undo"
    assert ada_with_two_sessions.entries.undo("chat-1:1").what == "undo"
    return ada_with_two_sessions


def test_an_undo_does_nothing_when_all_changes_are_undone(ada_with_changes: Any) -> None:
    """The fixture has made two changes of the entry, and has undone both."""
    assert ada_with_changes.entries.undo("chat-1:1") is None
    assert ada_with_changes.entries.get("chat-1:1").text == "Ada: I moved to Lisbon."


def test_the_history_of_an_entry_begins_with_its_writing(ada_with_two_sessions: Any) -> None:
    (written,) = ada_with_two_sessions.entries.history("chat-1:1")

    assert written == EntryChange(
        what="written",
        text="Ada: I moved to Lisbon.",
        at=datetime(2025, 3, 5, 18, 20),
        turns=("chat-1:1",),
    )


def test_the_history_of_an_entry_has_all_its_changes(ada_with_changes: Any) -> None:
    """The fixture has updated the entry, has deleted it, and has undone both."""
    history = ada_with_changes.entries.history("chat-1:1")

    assert [change.what for change in history] == ["written", "update", "delete", "undo", "undo"]
    update = history[1]
    assert update == EntryChange(
        what="update",
        text="Ada: I moved to Lisbon.",
        new="Ada: I moved to Porto.",
        at=update.at,
        by="the desk",
        turns=("chat-1:1",),
        number=1,
    )
    assert update.at.tzinfo is None
    deletion = history[2]
    assert deletion.text == "Ada: I moved to Porto."


def test_an_update_returns_the_change_that_the_history_has(ada_with_two_sessions: Any) -> None:
    change = ada_with_two_sessions.entries.update("chat-1:1", "I moved to Porto.", by="the desk")

    update = ada_with_two_sessions.entries.history("chat-1:1")[1]

    assert update.at == change.at
    assert update.new == change.new


def test_the_pages_of_a_history_are_the_whole_history(ada_with_changes: Any) -> None:
    """There are five changes: written, updated, deleted, and two that undo these."""
    entries = ada_with_changes.entries

    first_page = entries.history("chat-1:1", limit=2)
    second_page = entries.history("chat-1:1", after=first_page[-1].number, limit=2)
    third_page = entries.history("chat-1:1", after=second_page[-1].number, limit=2)
    page_after_the_end = entries.history("chat-1:1", after=third_page[-1].number, limit=2)

    assert len(first_page) == 2
    assert len(second_page) == 2
    assert len(third_page) == 1
    assert page_after_the_end == ()
    assert first_page + second_page + third_page == entries.history("chat-1:1")


def test_an_unknown_entry_has_no_history(ada_with_two_sessions: Any) -> None:
    assert ada_with_two_sessions.entries.history("chat-9:1") == ()
    assert ada_with_two_sessions.entries.history("chat-9:1", after=3) == ()


# Session "chat-1" is of March 2025, its year is 2025 and its channel "phone". Session "chat-2" is
# of June 2025, its year is 2024 and its channel "mail".
@pytest.mark.parametrize(
    ("choice", "expected_ids"),
    [
        pytest.param({"where": {}}, {"chat-1:1", "chat-2:1"}, id="no condition"),
        pytest.param(
            {"where": {"year": {"lt": 2025}, "channel": {"in": ("mail", "x")}}},
            {"chat-2:1"},
            id="two conditions",
        ),
        pytest.param({"since": datetime(2025, 5, 1)}, {"chat-2:1"}, id="since"),
        pytest.param({"until": datetime(2025, 5, 1, tzinfo=UTC)}, {"chat-1:1"}, id="until"),
    ],
)
def test_search_ask_and_list_find_what_is_chosen(
    ada_with_two_sessions: Any, choice: dict[str, Any], expected_ids: set[str]
) -> None:
    """Conditions on metadata (`where`) and on time choose the sessions that are looked at."""
    search_result = ada_with_two_sessions.search("Ada", **choice)
    assert {hit.id for hit in search_result.entries} == expected_ids

    reply = ada_with_two_sessions.ask("Where is Ada?", **choice)
    assert {hit.id for hit in reply.context.hits} == expected_ids

    page = ada_with_two_sessions.entries.list(**choice)
    assert {entry.id for entry in page.entries} == expected_ids


def test_malformed_conditions_and_metadata_are_refused(ada_with_two_sessions: Any) -> None:
    malformed_condition = {"year": {"$gt": 1}}

    with pytest.raises(UserError, match="where"):
        ada_with_two_sessions.search("Ada", where=malformed_condition)
    with pytest.raises(UserError, match="where"):
        ada_with_two_sessions.ask("Ada", where=malformed_condition)
    with pytest.raises(UserError, match="where"):
        ada_with_two_sessions.entries.list("Ada", where=malformed_condition)
    with pytest.raises(UserError, match="metadata"):
        ada_with_two_sessions.add(OSLO_SESSION, metadata={"channel": object()})


def test_a_session_under_a_stored_id_with_other_metadata_is_refused(
    ada_with_two_sessions: Any,
) -> None:
    """The fixture has stored `OSLO_SESSION` with the channel "mail"."""
    with pytest.raises(ConflictError, match="chat-2"):
        ada_with_two_sessions.add(OSLO_SESSION, metadata={"channel": "phone"})


# What only a client has.


@pytest.fixture
def acme(client: Any) -> Iterator[Client]:
    """A `Client` of the tenant `acme`; the fixture `client` sends plain requests."""
    with Client(client.address, TOKENS["acme"]) as acme_client:
        yield acme_client


def test_an_unknown_user_has_no_status_no_sessions_and_no_memory(acme: Client) -> None:
    ada = acme.memory("ada")

    assert ada.status() is None
    assert ada.sessions() == ()
    assert ada.read() == {}
    assert ada.end("chat") is None


def test_a_client_reads_status_sessions_and_memory(client: Any, acme: Client) -> None:
    """A session that was added is queued: it waits to be written into the memory.

    A chat keeps its session open until the session is ended.
    """
    ada = acme.memory("ada")
    ada.add(LISBON_MESSAGES, id="chat-1")
    client.chat("Hello there.", metadata={"session": "tuesday"})

    queued_session, open_session = ada.sessions()
    assert queued_session.id == "chat-1"
    assert queued_session.state == "queued"
    assert queued_session.turns == 1
    assert open_session.id == "tuesday"
    assert open_session.state == "open"
    assert open_session.turns == 2

    ended = ada.end("tuesday")
    assert ended is not None
    assert ended.position == 2

    status = ada.status()
    assert status is not None
    assert status.sessions == 2
    assert status.queued == 2

    assert ada.read() == client.get("/v1/users/ada/memory").json()["memory"]


def test_a_client_lists_all_users_of_its_tenant(client: Any, acme: Client) -> None:
    # More than the 100 users of a page.
    names = ["ada", "bob", *(f"more-{number}" for number in range(100, 200))]
    for name in names:
        acme.memory(name).add(LISBON_MESSAGES)

    # The service lists them page by page, and the client puts the pages together.
    page = client.get("/v1/users", params={"after": "ada", "limit": 1}).json()
    assert [user["user"] for user in page["users"]] == ["bob"]
    assert page["next"] == "bob"
    assert [status.user for status in acme.users()] == names


def test_a_client_lists_no_users_of_another_tenant(client: Any, acme: Client) -> None:
    acme.memory("ada").add(LISBON_MESSAGES)

    with Client(client.address, TOKENS["globex"]) as globex:
        assert globex.users() == []


# Methods and arguments.

MEMORY_CLASSES = [
    pytest.param(RemoteMemory, AsyncRemoteMemory, UserMemory, id="memory"),
    pytest.param(RemoteEntries, AsyncRemoteEntries, UserEntries, id="entries"),
]
"""What `Client` and `AsyncClient` have in the place of a class of this process."""


def public_names(some_class: type) -> set[str]:
    """Return the names of the methods and properties that a class itself defines."""
    return {name for name in vars(some_class) if not name.startswith("_")}


def parameters_of(some_class: type, method: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of a method by their names, in order."""
    return dict(inspect.signature(getattr(some_class, method)).parameters)


@pytest.mark.parametrize(("remote", "async_remote", "local"), MEMORY_CLASSES)
def test_both_clients_have_the_same_methods(remote: type, async_remote: type, local: type) -> None:
    """Those of `AsyncClient` are coroutine functions, and a local memory has all of them, too."""
    assert public_names(remote)
    assert public_names(async_remote) == public_names(remote)
    for method in public_names(remote) - {"entries"}:
        blocking_method = getattr(remote, method)
        async_method = getattr(async_remote, method)
        assert inspect.iscoroutinefunction(async_method), method
        blocking_signature = str(inspect.signature(blocking_method))
        assert str(inspect.signature(async_method)) == blocking_signature, method
        assert hasattr(local, method), method


@pytest.mark.parametrize(("remote", "async_remote", "local"), MEMORY_CLASSES)
def test_clients_take_the_arguments_of_a_memory_of_this_process(
    remote: type, async_remote: type, local: type
) -> None:
    """So a program can go from a local memory to a service without a change of its calls."""
    for method in public_names(remote) - {"entries"}:
        remote_parameters = parameters_of(remote, method)
        local_parameters = parameters_of(local, method)

        # Arguments that are passed by position come first, and in the same order.
        positional = [
            name
            for name, parameter in remote_parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        assert positional == list(local_parameters)[: len(positional)], method

        for name, parameter in remote_parameters.items():
            # Only over HTTP a question cannot be left out.
            is_question = method == "ask" and name == "question"
            if name in local_parameters and not is_question:
                assert parameter.default == local_parameters[name].default, (method, name)


@pytest.mark.parametrize(
    ("method", "async_method"), [("add", "aadd"), ("ask", "aask"), ("search", "asearch")]
)
def test_a_memory_has_the_same_arguments_for_asyncio(method: str, async_method: str) -> None:
    assert parameters_of(UserMemory, method) == parameters_of(UserMemory, async_method)


# Arguments that are refused before anything is sent. Nobody listens at this address.


@pytest.fixture
def offline_client() -> Iterator[Client]:
    """A client of a service that is not there."""
    with Client("http://127.0.0.1:9") as client:
        yield client


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/sessions/b", "a?x", "a\n", "a%2Fb", ".hidden", "x" * 600]
)
def test_an_invalid_name_of_a_user_is_refused(offline_client: Client, name: str) -> None:
    """A name is a part of addresses, and none may lead to another address."""
    with pytest.raises(UserError, match="user"):
        offline_client.memory(name)


@pytest.mark.parametrize("entry_id", ["", ".", "..", "a/b", None])
def test_an_id_of_an_entry_that_cannot_stand_in_an_address_is_refused(
    offline_client: Client, entry_id: Any
) -> None:
    """A client asks for an entry at an address that ends in its id."""
    with pytest.raises(UserError, match="entry"):
        offline_client.memory("ada").entries.get(entry_id)


@pytest.mark.parametrize("entry_id", ["\x00", "\ud800"])
def test_an_id_of_an_entry_that_no_store_could_hold_is_refused(
    offline_client: Client, entry_id: str
) -> None:
    with pytest.raises(UserError, match="text"):
        offline_client.memory("ada").entries.get(entry_id)


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(Behavior.from_actions("b", []), id="behaviour"),
        pytest.param("I moved.", id="text"),
        pytest.param({"role": "user", "content": "x"}, id="message"),
        pytest.param(["I moved."], id="list of texts"),
    ],
)
def test_a_value_that_is_no_session_is_refused(offline_client: Client, session: Any) -> None:
    with pytest.raises(UserError, match="session"):
        offline_client.memory("ada").add(session)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://x:port", "http://x\0", None]
)
def test_a_value_that_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(UserError, match="is no address; give one such as"):
        Client(url)


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_an_address_that_ends_in_v1_is_refused(client_class: Any) -> None:
    with pytest.raises(UserError, match="leave /v1 away"):
        client_class("http://127.0.0.1:8000/v1/")


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
@pytest.mark.parametrize("password", ["pw", "a-long-password", "p%2fss%40word"])
def test_a_refused_address_is_named_without_its_password(client_class: Any, password: str) -> None:
    with pytest.raises(UserError) as raised:
        client_class(f"http://ann:{password}@127.0.0.1:8000/v1")

    assert "http://ann:[secret]@127.0.0.1:8000/v1" in str(raised.value)
    assert password not in str(raised.value)


# Requests, replies and errors, against a server that answers what a test says.


@dataclass(frozen=True)
class Reply:
    """What the server answers: JSON, or HTML if the body is a text."""

    status: int
    body: dict[str, Any] | str
    headers: dict[str, str] = field(default_factory=dict)


CUT_CONNECTION = None
"""In the place of a reply: the server reads the request, and closes the connection without one."""


def error_reply(status: int, message: str, retry_after: int | None = None) -> Reply:
    """Return an error as a service answers it."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Reply(status, {"error": {"message": message, "type": "x", "code": 0}}, headers)


ANSWER = Reply(200, {"answer": "Lisbon", "evidence": []})
BUSY = error_reply(503, "too many requests wait; try again", retry_after=0)


class ScriptedServer(ThreadingHTTPServer):
    """A server on this machine that gives one reply after the other, and notes the requests."""

    daemon_threads = True

    def __init__(self, replies: Sequence[Reply | None], listens: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedHandler, bind_and_activate=False)
        self.server_bind()
        self.replies = list(replies)
        self.request_paths: list[str] = []
        if listens:
            self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        """Listen; connections are refused before."""
        self.server_activate()
        serve = partial(self.serve_forever, poll_interval=0.02)
        threading.Thread(target=serve, daemon=True).start()


class ScriptedHandler(BaseHTTPRequestHandler):
    """Answers one request with the next reply of the server."""

    server: ScriptedServer

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.request_paths.append(self.path)
        reply = self.server.replies.pop(0)
        if reply is CUT_CONNECTION:
            self.close_connection = True
            return

        is_json = isinstance(reply.body, dict)
        content = json.dumps(reply.body) if is_json else str(reply.body)
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json" if is_json else "text/html")
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content.encode())

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 (the names of http.server)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Print nothing."""


@pytest.fixture
def serve_replies() -> Iterator[Callable[..., ScriptedServer]]:
    """Start servers that give some replies; all end with the test."""
    servers: list[ScriptedServer] = []

    def start(*replies: Reply | None, listens: bool = True) -> ScriptedServer:
        servers.append(ScriptedServer(replies, listens))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


ServeReplies = Callable[..., ScriptedServer]


@pytest.mark.parametrize(
    "entry_id", ["a?b#c", "%2F..", "50 % of it", "a\nb", "...", "ü:1", "&by=x"]
)
def test_ids_of_entries_with_special_characters_arrive_as_they_are(
    serve_replies: ServeReplies, entry_id: str
) -> None:
    server = serve_replies(error_reply(404, "there is no such entry"))
    with Client(server.url) as client:
        assert client.memory("ada").entries.delete(entry_id, by="a&b") is None

    (target,) = server.request_paths
    path, _, query = target.partition("?")
    assert unquote(path) == f"/v1/users/ada/entries/{entry_id}"
    assert parse_qs(query) == {"by": ["a&b"]}


def test_an_error_does_not_show_the_token_though_the_service_repeats_it(
    serve_replies: ServeReplies,
) -> None:
    token = "token-0123456789"
    server = serve_replies(error_reply(400, f"you sent {token}"))

    with Client(server.url, token=token) as client, pytest.raises(UserError) as raised:
        client.memory("ada").ask("Where?")

    assert str(raised.value) == "you sent [secret]"


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([ANSWER], id="answer"),
        pytest.param([BUSY, error_reply(429, "slow down", retry_after=0), ANSWER], id="busy twice"),
        pytest.param([CUT_CONNECTION, ANSWER], id="broken connection"),
    ],
)
def test_a_question_is_sent_again_until_it_is_answered(
    serve_replies: ServeReplies, replies: list[Reply | None]
) -> None:
    """A question changes nothing, so it may be sent twice. `retries=2` allows three attempts."""
    server = serve_replies(*replies)

    with Client(server.url, retries=2) as client:
        assert client.memory("ada").ask("Where?").answer == "Lisbon"

    assert len(server.request_paths) == len(replies)


@pytest.mark.parametrize(
    ("reply", "error_class", "message"),
    [
        (error_reply(400, "question: Field required"), UserError, "question: Field required"),
        (error_reply(404, "there is no such user"), UserError, "there is no such user"),
        (error_reply(409, "another program wrote it"), ConflictError, "another program wrote it"),
        (error_reply(502, "the model is down"), EndpointError, "the model is down"),
        (error_reply(504, "this took too long"), ServiceError, "this took too long"),
        pytest.param(
            error_reply(429, "the budget of the day is spent", retry_after=7200),
            ServiceError,
            "the budget of the day is spent",
            id="a pause that is too long",
        ),
        pytest.param(
            Reply(404, "<html>nothing here</html>"),
            ServiceError,
            "status 404: what answers here is no service",
            id="error page of another server",
        ),
        pytest.param(
            Reply(200, "<html>welcome</html>"),
            ServiceError,
            "POST /v1/users/ada/ask: what answers here is no service",
            id="page of another server",
        ),
    ],
)
def test_a_failure_that_another_try_cannot_help_is_raised_at_once(
    serve_replies: ServeReplies, reply: Reply, error_class: type[Exception], message: str
) -> None:
    """Two retries are allowed, and none is made: the same request would fail again."""
    server = serve_replies(reply)

    with Client(server.url, retries=2) as client, pytest.raises(MempilerError) as raised:
        client.memory("ada").ask("Where?")

    assert type(raised.value) is error_class
    assert str(raised.value).startswith(message)
    assert len(server.request_paths) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        pytest.param(BUSY, "too many requests wait; try again", id="busy"),
        pytest.param(CUT_CONNECTION, "the service did not answer: ", id="broken connection"),
    ],
)
def test_a_question_fails_when_no_retry_is_left(
    serve_replies: ServeReplies, reply: Reply | None, message: str
) -> None:
    """With `retries=2` a question is sent three times, and the server answers none of them."""
    server = serve_replies(reply, reply, reply)

    with Client(server.url, retries=2) as client, pytest.raises(MempilerError) as raised:
        client.memory("ada").ask("Where?")

    assert type(raised.value) is ServiceError
    assert str(raised.value).startswith(message)
    assert len(server.request_paths) == 3


def add_without_id(memory: RemoteMemory) -> None:
    memory.add(LISBON_MESSAGES)


def add_with_id(memory: RemoteMemory) -> None:
    memory.add(LISBON_MESSAGES, id="chat-1")


def forget(memory: RemoteMemory) -> None:
    memory.forget()


def delete_entry(memory: RemoteMemory) -> None:
    memory.entries.delete("chat-1:1")


def get_entry(memory: RemoteMemory) -> None:
    memory.entries.get("chat-1:1")


def count_attempts(server: ScriptedServer, call: Callable[[RemoteMemory], None]) -> int:
    """Return how often a client that may try again once sends a request that always fails."""
    with Client(server.url, retries=1) as client, pytest.raises(ServiceError):
        call(client.memory("ada"))
    return len(server.request_paths)


@pytest.mark.parametrize("call", [add_with_id, get_entry])
def test_a_repeatable_request_is_sent_again_when_the_connection_breaks(
    serve_replies: ServeReplies, call: Callable[[RemoteMemory], None]
) -> None:
    """A session with an id is stored once, however often it is sent; a reading changes nothing."""
    assert count_attempts(serve_replies(CUT_CONNECTION, CUT_CONNECTION), call) == 2


@pytest.mark.parametrize("call", [add_without_id, forget, delete_entry])
def test_a_request_that_may_have_been_done_is_not_sent_again(
    serve_replies: ServeReplies, call: Callable[[RemoteMemory], None]
) -> None:
    """The connection breaks before the reply, so the client cannot know whether it was done."""
    assert count_attempts(serve_replies(CUT_CONNECTION, CUT_CONNECTION), call) == 1


def test_a_request_is_sent_again_when_a_busy_service_did_nothing_for_it(
    serve_replies: ServeReplies,
) -> None:
    """A service that is busy (503) has stored nothing, so the session cannot be stored twice."""
    assert count_attempts(serve_replies(BUSY, BUSY), add_without_id) == 2


def test_a_request_that_did_not_reach_the_service_is_sent_again(
    serve_replies: ServeReplies,
) -> None:
    """At the first attempt the server does not listen yet, so nothing can have been stored."""
    stored = Reply(201, {"id": "D1", "position": 1, "new": True})
    server = serve_replies(stored, listens=False)
    start_after_first_attempt = threading.Timer(0.1, server.start)

    # The first attempt is refused at once, the last one comes after more than a second.
    with Client(server.url, retries=3) as client:
        ada = client.memory("ada")
        start_after_first_attempt.start()
        added = ada.add(LISBON_MESSAGES)

    assert added.id == "D1"

    assert len(server.request_paths) == 1


# The import.

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
IMPORT_SCRIPT = f"""
import json, sys, time

before = time.process_time()
from mempiler.serving.client import AsyncClient, Client
seconds = time.process_time() - before
from mempiler import AsyncClient, Client
with Client("http://127.0.0.1:9") as client:
    client.memory("ada")
heavy = [name for name in {HEAVY_MODULES} if name in sys.modules]
print(json.dumps({{"seconds": seconds, "heavy_modules": heavy}}))
"""


def test_a_client_is_imported_fast_and_without_what_runs_a_model() -> None:
    """A script that only talks to a service should start at once."""
    process = subprocess.run(
        [sys.executable, "-c", IMPORT_SCRIPT], capture_output=True, text=True, check=True
    )

    report = json.loads(process.stdout)
    assert report["heavy_modules"] == []
    # Seconds of the CPU; a small server takes 0.25.
    assert report["seconds"] < 2
