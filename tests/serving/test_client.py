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


def one_message(text: str, time: datetime | None = None) -> list[dict[str, Any]]:
    """Return a session of one message by Ada; it has no id, but the call that adds it may name one.

    Without a time the message gets the present one.
    """
    return [{"role": "user", "name": "Ada", "content": text, "time": time}]


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
"""The type of the fixture `memory_of`."""


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
def ada(memory_of: MemoryOf) -> Any:
    """Ada's memory, which is empty."""
    return memory_of("ada")


@pytest.fixture
def write_queued_sessions(shared_service: SharedService) -> Callable[[], None]:
    """Write all sessions that were added into the memories, as a service does in the background.

    Each turn becomes an entry: "chat-1:1" is the first turn of the session "chat-1".
    """
    memories = Memories(build("turn-rag"), shared_service.store, language_model("offline"))
    return lambda: write_all_queued(memories)


WriteQueued = Callable[[], None]


def all_hits(search_result: Any) -> list[Any]:
    """Return what a search found in entries and in turns that are not written yet."""
    return [*search_result.entries, *search_result.pending]


def test_a_session_is_stored_once_under_its_id(ada: Any) -> None:
    first_result = ada.add(one_message("I moved to Lisbon."), id="chat-1")
    second_result = ada.add(one_message("I moved to Lisbon."), id="chat-1")

    assert first_result.id == "chat-1"
    assert first_result.position == 1
    assert first_result.new is True
    assert second_result.new is False


def test_another_session_under_a_stored_id_is_refused(ada: Any) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")

    with pytest.raises(ConflictError, match="chat-1"):
        ada.add(one_message("Something else."), id="chat-1")


def test_a_session_object_keeps_its_id(ada: Any) -> None:
    turn = Turn(id="", speaker="Ada", text="I flew to Oslo.")
    session = Session(id="journey", time=datetime(2025, 6, 1), turns=(turn,))

    assert ada.add(session).id == "journey"


def test_a_search_finds_what_the_user_said(ada: Any) -> None:
    ada.add(one_message("I moved to Lisbon.", time=datetime(2025, 3, 5, 18, 20)), id="chat-1")
    ada.add(one_message("I flew to Oslo."), id="chat-2")

    (hit,) = all_hits(ada.search("Where is Lisbon?", k=1))

    assert hit.id == "chat-1:1"
    assert hit.text == "Ada: I moved to Lisbon."
    assert hit.kind == "turn"
    assert hit.sources == ("chat-1:1",)
    assert hit.time == datetime(2025, 3, 5, 18, 20)


def test_a_search_finds_nothing_of_other_users(memory_of: MemoryOf) -> None:
    ada = memory_of("ada")
    ben = memory_of("ben")
    ada.add(one_message("I moved to Lisbon."))

    assert all_hits(ben.search("Lisbon")) == []


def test_an_answer_comes_with_what_was_recalled_for_it(ada: Any) -> None:
    """The offline model answers with the sentence that fits the question best."""
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    ada.add(one_message("I flew to Oslo for the summer."), id="chat-2")

    reply = ada.ask("Where did Ada move?")

    assert reply.answer == "I moved to Lisbon."
    assert reply.context.sources[0] == "chat-1:1"
    assert reply.context.hits[0].text == "Ada: I moved to Lisbon."


def test_a_forgotten_session_is_found_no_more(ada: Any) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")

    was_there = ada.forget_session("chat-1")

    assert was_there
    assert all_hits(ada.search("Lisbon")) == []
    assert not ada.forget_session("chat-1")


def test_a_receipt_says_how_much_of_a_forgotten_user_was_deleted(ada: Any) -> None:
    ada.add(one_message("I moved to Lisbon."))
    ada.add(one_message("I flew to Oslo."))

    receipt = ada.forget()

    assert receipt.known is True
    assert receipt.sessions == 2
    assert receipt.turns == 2
    assert receipt.erased is True


def test_a_forgotten_user_is_gone(ada: Any) -> None:
    """The receipt of a second forgetting is false: nothing was left."""
    ada.add(one_message("I moved to Lisbon."))

    ada.forget()

    assert all_hits(ada.search("Lisbon")) == []
    assert not ada.forget()


def test_a_memory_without_sessions_has_no_entries(ada: Any) -> None:
    assert ada.entries.list() == EntryPage()
    assert ada.entries.get("chat-1:1") is None
    assert ada.entries.history("chat-1:1") == ()
    assert ada.entries.update("chat-1:1", "x") is None
    assert ada.entries.delete("chat-1:1") is None
    assert ada.entries.undo("chat-1:1") is None


def test_an_entry_is_a_turn_with_its_session(ada: Any, write_queued_sessions: WriteQueued) -> None:
    """The entry "chat-1:1" is the first turn of the session "chat-1"."""
    time = datetime(2025, 3, 5, 18, 20)
    ada.add(one_message("I moved to Lisbon.", time), id="chat-1", metadata={"channel": "phone"})
    write_queued_sessions()

    entry = ada.entries.get("chat-1:1")

    assert entry == ListedEntry(
        id="chat-1:1",
        text="Ada: I moved to Lisbon.",
        kind="turn",
        time=time,
        speaker="Ada",
        turns=("chat-1:1",),
        sessions=(Origin(id="chat-1", metadata={"channel": "phone"}),),
    )
    assert ada.entries.list().entries == (entry,)


def test_entries_are_listed_page_by_page(ada: Any, write_queued_sessions: WriteQueued) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    ada.add(one_message("I flew to Oslo."), id="chat-2")
    write_queued_sessions()

    first_page = ada.entries.list(limit=1)
    second_page = ada.entries.list(limit=1, cursor=first_page.next)

    assert [entry.id for entry in first_page.entries] == ["chat-1:1"]
    assert first_page.next == "chat-1:1"
    assert [entry.id for entry in second_page.entries] == ["chat-2:1"]
    assert second_page.next is None


def test_an_entry_is_updated(ada: Any, write_queued_sessions: WriteQueued) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()

    change = ada.entries.update("chat-1:1", "I moved to Porto.", by="the desk")

    assert change.what == "update"
    assert change.new == "Ada: I moved to Porto."
    assert change.by == "the desk"
    assert ada.entries.get("chat-1:1").text == "Ada: I moved to Porto."


def test_an_update_that_changes_nothing_is_refused(
    ada: Any, write_queued_sessions: WriteQueued
) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()

    with pytest.raises(UserError, match="says this already"):
        ada.entries.update("chat-1:1", "I moved to Lisbon.")


def test_an_entry_is_deleted(ada: Any, write_queued_sessions: WriteQueued) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    ada.add(one_message("I flew to Oslo."), id="chat-2")
    write_queued_sessions()

    ada.entries.delete("chat-1:1")

    assert ada.entries.get("chat-1:1") is None
    assert [entry.id for entry in ada.entries.list().entries] == ["chat-2:1"]


def test_a_deletion_returns_the_deleted_text_and_who_deleted_it(
    ada: Any, write_queued_sessions: WriteQueued
) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()

    change = ada.entries.delete("chat-1:1", by="the desk")

    assert change.what == "delete"
    assert change.text == "Ada: I moved to Lisbon."
    assert change.new is None
    assert change.by == "the desk"


def test_a_deleted_entry_cannot_be_deleted_again(
    ada: Any, write_queued_sessions: WriteQueued
) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()
    ada.entries.delete("chat-1:1")

    assert ada.entries.delete("chat-1:1") is None


def test_changes_are_undone_one_by_one_from_the_latest(
    ada: Any, write_queued_sessions: WriteQueued
) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()
    ada.entries.update("chat-1:1", "I moved to Porto.")
    ada.entries.delete("chat-1:1")

    assert ada.entries.undo("chat-1:1").what == "undo"
    assert ada.entries.get("chat-1:1").text == "Ada: I moved to Porto."
    assert ada.entries.undo("chat-1:1").what == "undo"
    assert ada.entries.get("chat-1:1").text == "Ada: I moved to Lisbon."
    # Now all changes are undone.
    assert ada.entries.undo("chat-1:1") is None
    assert ada.entries.get("chat-1:1").text == "Ada: I moved to Lisbon."


def test_the_history_of_an_entry_begins_with_its_writing(
    ada: Any, write_queued_sessions: WriteQueued
) -> None:
    ada.add(one_message("I moved to Lisbon.", time=datetime(2025, 3, 5, 18, 20)), id="chat-1")
    write_queued_sessions()

    (written,) = ada.entries.history("chat-1:1")

    assert written == EntryChange(
        what="written",
        text="Ada: I moved to Lisbon.",
        at=datetime(2025, 3, 5, 18, 20),
        turns=("chat-1:1",),
    )


def test_the_history_of_an_entry_has_all_its_changes(
    ada: Any, write_queued_sessions: WriteQueued
) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()
    ada.entries.update("chat-1:1", "I moved to Porto.")
    ada.entries.delete("chat-1:1")
    ada.entries.undo("chat-1:1")

    history = ada.entries.history("chat-1:1")

    assert [change.what for change in history] == ["written", "update", "delete", "undo"]


def test_the_history_of_an_entry_has_the_old_and_the_new_text_of_an_update(
    ada: Any, write_queued_sessions: WriteQueued
) -> None:
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()
    change = ada.entries.update("chat-1:1", "I moved to Porto.", by="the desk")

    _written, update = ada.entries.history("chat-1:1")

    assert update.text == "Ada: I moved to Lisbon."
    assert update.new == "Ada: I moved to Porto."
    assert update.by == "the desk"
    assert update.number == 1
    assert update.at == change.at


def test_a_history_is_read_page_by_page(ada: Any, write_queued_sessions: WriteQueued) -> None:
    """The page after a change begins behind its number."""
    ada.add(one_message("I moved to Lisbon."), id="chat-1")
    write_queued_sessions()
    ada.entries.update("chat-1:1", "I moved to Porto.")
    ada.entries.update("chat-1:1", "I moved to Faro.")

    first_page = ada.entries.history("chat-1:1", limit=2)
    second_page = ada.entries.history("chat-1:1", after=first_page[-1].number, limit=2)
    page_after_the_end = ada.entries.history("chat-1:1", after=second_page[-1].number, limit=2)

    assert [change.text for change in first_page] == [
        "Ada: I moved to Lisbon.",
        "Ada: I moved to Lisbon.",
    ]
    assert [change.new for change in second_page] == ["Ada: I moved to Faro."]
    assert page_after_the_end == ()


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param({"where": {"channel": "mail"}}, id="metadata"),
        pytest.param(
            {"where": {"floor": {"lt": 5}, "channel": {"in": ("mail", "fax")}}},
            id="two conditions on metadata",
        ),
        pytest.param({"since": datetime(2025, 5, 1), "until": datetime(2025, 7, 1)}, id="times"),
        pytest.param(
            {"since": datetime(2025, 5, 1, tzinfo=UTC), "until": datetime(2025, 7, 1, tzinfo=UTC)},
            id="times with a zone",
        ),
    ],
)
def test_search_ask_and_list_look_only_at_the_chosen_sessions(
    ada: Any, write_queued_sessions: WriteQueued, choice: dict[str, Any]
) -> None:
    """Each choice is met by the session "june" alone."""
    by_phone = {"channel": "phone", "floor": 5}
    by_mail = {"channel": "mail", "floor": 4}
    ada.add(one_message("I moved.", datetime(2025, 3, 5)), id="march", metadata=by_phone)
    ada.add(one_message("I flew to Oslo.", datetime(2025, 6, 1)), id="june", metadata=by_mail)
    ada.add(one_message("I came back.", datetime(2025, 9, 9)), id="september", metadata=by_phone)
    write_queued_sessions()

    search_result = ada.search("Ada", **choice)
    reply = ada.ask("Where is Ada?", **choice)
    page = ada.entries.list(**choice)

    assert [hit.id for hit in search_result.entries] == ["june:1"]
    assert [hit.id for hit in reply.context.hits] == ["june:1"]
    assert [entry.id for entry in page.entries] == ["june:1"]


def test_metadata_that_are_no_text_or_number_are_refused(ada: Any) -> None:
    with pytest.raises(UserError, match="metadata"):
        ada.add(one_message("I moved to Lisbon."), metadata={"channel": object()})


# What only a client has.


@pytest.fixture
def acme(client: Any) -> Iterator[Client]:
    """The Python client under test, of the tenant `acme`.

    The fixture `client` sends plain HTTP requests to the same service.
    """
    with Client(client.address, TOKENS["acme"]) as acme_client:
        yield acme_client


def test_an_unknown_user_has_no_status_no_sessions_and_no_memory(acme: Client) -> None:
    ada = acme.memory("ada")

    assert ada.status() is None
    assert ada.sessions() == ()
    assert ada.read() == {}
    assert ada.end("chat") is None


def test_a_client_lists_a_session_that_was_added_as_queued(acme: Client) -> None:
    """It waits to be written into the memory."""
    ada = acme.memory("ada")
    ada.add(one_message("I moved to Lisbon."), id="chat-1")

    (session,) = ada.sessions()

    assert session.id == "chat-1"
    assert session.state == "queued"
    assert session.turns == 1


def test_a_client_lists_the_session_of_a_chat_as_open(client: Any, acme: Client) -> None:
    client.chat("Hello there.", user="ada", metadata={"session": "tuesday"})

    (session,) = acme.memory("ada").sessions()

    assert session.id == "tuesday"
    assert session.state == "open"
    assert session.turns == 2  # the message and its answer


def test_a_session_is_queued_after_a_client_has_ended_it(client: Any, acme: Client) -> None:
    ada = acme.memory("ada")
    client.chat("Hello there.", user="ada", metadata={"session": "tuesday"})

    ended_session = ada.end("tuesday")

    assert ended_session is not None
    assert ended_session.position == 1
    status = ada.status()
    assert status is not None
    assert status.queued == 1


def test_a_client_reads_the_memory_as_the_service_sends_it(client: Any, acme: Client) -> None:
    ada = acme.memory("ada")
    ada.add(one_message("I moved to Lisbon."))

    assert ada.read() == client.get("/v1/users/ada/memory").json()["memory"]


def test_the_service_lists_users_page_by_page(client: Any, acme: Client) -> None:
    for user in ("ada", "bob", "cleo"):
        acme.memory(user).add(one_message("Hello."))

    page = client.get("/v1/users", params={"after": "ada", "limit": 1}).json()

    assert [user["user"] for user in page["users"]] == ["bob"]
    assert page["next"] == "bob"


def test_a_client_lists_more_users_than_fit_on_a_page(acme: Client) -> None:
    """A page has at most a hundred users."""
    names = [f"user-{number}" for number in range(100, 202)]
    for name in names:
        acme.memory(name).add(one_message("Hello."))

    assert [status.user for status in acme.users()] == names


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


def positional_parameters(some_class: type, method: str) -> list[str]:
    """Return the names of the parameters of a method that may be passed by position, in order."""
    return [
        name
        for name, parameter in parameters_of(some_class, method).items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]


@pytest.mark.parametrize(("remote", "async_remote", "local"), MEMORY_CLASSES)
def test_both_clients_have_the_same_methods_with_the_same_arguments(
    remote: type, async_remote: type, local: type
) -> None:
    """`remote` is of `Client`, and `async_remote` of `AsyncClient`, whose methods are awaited."""
    assert public_names(async_remote) == public_names(remote)
    for method in public_names(remote) - {"entries"}:
        async_method = getattr(async_remote, method)
        assert inspect.iscoroutinefunction(async_method), method
        async_signature = str(inspect.signature(async_method))
        assert async_signature == str(inspect.signature(getattr(remote, method))), method


@pytest.mark.parametrize(("remote", "async_remote", "local"), MEMORY_CLASSES)
def test_a_client_takes_positional_arguments_in_the_order_of_a_memory_of_this_process(
    remote: type, async_remote: type, local: type
) -> None:
    """So a program can go from a local memory to a service without a change of its calls."""
    for method in public_names(remote) - {"entries"}:
        positional_names = positional_parameters(remote, method)
        local_names = list(parameters_of(local, method))
        assert local_names[: len(positional_names)] == positional_names, method


@pytest.mark.parametrize(("remote", "async_remote", "local"), MEMORY_CLASSES)
def test_a_client_has_the_default_values_of_a_memory_of_this_process(
    remote: type, async_remote: type, local: type
) -> None:
    """So a program can go from a local memory to a service without a change of its calls."""
    for method in public_names(remote) - {"entries"}:
        local_parameters = parameters_of(local, method)
        for name, parameter in parameters_of(remote, method).items():
            # Only a local memory may be asked without a question: by other fields of its program.
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
    """A name stands in addresses such as `/v1/users/NAME`, and must not lead to another one."""
    with pytest.raises(UserError, match="user"):
        offline_client.memory(name)


@pytest.mark.parametrize("entry_id", ["", ".", "..", "a/b", "\x00", "\ud800", None])
def test_an_id_of_an_entry_that_cannot_stand_in_an_address_is_refused(
    offline_client: Client, entry_id: Any
) -> None:
    """A client asks for an entry at `/v1/users/ada/entries/ID`."""
    with pytest.raises(UserError):
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


ANSWER_LISBON = Reply(200, {"answer": "Lisbon", "evidence": []})
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
    """They are escaped in the address of a request; `by` says who deletes the entry."""
    server = serve_replies(error_reply(404, "there is no such entry"))

    with Client(server.url) as client:
        client.memory("ada").entries.delete(entry_id, by="a&b")

    (address,) = server.request_paths
    path, _, query = address.partition("?")
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
    "failures",
    [
        pytest.param([], id="none"),
        pytest.param([BUSY, error_reply(429, "slow down", retry_after=0)], id="busy twice"),
        pytest.param([CUT_CONNECTION], id="broken connection"),
    ],
)
def test_a_question_is_sent_again_until_it_is_answered(
    serve_replies: ServeReplies, failures: list[Reply | None]
) -> None:
    """A question changes nothing, so it may be sent twice. `retries=2` allows three attempts."""
    server = serve_replies(*failures, ANSWER_LISBON)

    with Client(server.url, retries=2) as client:
        reply = client.memory("ada").ask("Where?")

    assert reply.answer == "Lisbon"
    assert len(server.request_paths) == len(failures) + 1


def ask_once(server: ScriptedServer, error_class: type[MempilerError]) -> str:
    """Ask a question that fails, check that it is sent once, and return the text of the error.

    Two retries are allowed, and none is made.
    """
    with Client(server.url, retries=2) as client, pytest.raises(error_class) as raised:
        client.memory("ada").ask("Where?")

    assert type(raised.value) is error_class
    assert len(server.request_paths) == 1
    return str(raised.value)


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (400, UserError),
        (404, UserError),
        (409, ConflictError),
        (502, EndpointError),
        (504, ServiceError),
    ],
)
def test_an_error_that_another_try_cannot_help_is_raised_at_once_with_its_message(
    serve_replies: ServeReplies, status: int, error_class: type[MempilerError]
) -> None:
    server = serve_replies(error_reply(status, "the reason"))

    assert ask_once(server, error_class) == "the reason"


def test_a_client_does_not_wait_for_two_hours(serve_replies: ServeReplies) -> None:
    """The service says by `Retry-After` when the request may be sent again, in seconds."""
    server = serve_replies(error_reply(429, "the budget is spent", retry_after=7200))

    assert ask_once(server, ServiceError).startswith("the budget is spent")


@pytest.mark.parametrize("status", [200, 404])
def test_a_page_of_another_server_is_an_error(serve_replies: ServeReplies, status: int) -> None:
    """The address is that of some server of web pages."""
    server = serve_replies(Reply(status, "<html>welcome</html>"))

    assert "what answers here is no service" in ask_once(server, ServiceError)


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
    """With `retries=2` a question is sent three times, and it fails each time."""
    server = serve_replies(reply, reply, reply)

    with Client(server.url, retries=2) as client, pytest.raises(MempilerError) as raised:
        client.memory("ada").ask("Where?")

    assert type(raised.value) is ServiceError
    assert str(raised.value).startswith(message)
    assert len(server.request_paths) == 3


def add_without_id(memory: RemoteMemory) -> None:
    memory.add(one_message("I moved to Lisbon."))


def add_with_id(memory: RemoteMemory) -> None:
    memory.add(one_message("I moved to Lisbon."), id="chat-1")


def forget(memory: RemoteMemory) -> None:
    memory.forget()


def delete_entry(memory: RemoteMemory) -> None:
    memory.entries.delete("chat-1:1")


def get_entry(memory: RemoteMemory) -> None:
    memory.entries.get("chat-1:1")


@pytest.mark.parametrize("send_request", [add_with_id, get_entry])
def test_a_repeatable_request_is_sent_again_when_the_connection_breaks(
    serve_replies: ServeReplies, send_request: Callable[[RemoteMemory], None]
) -> None:
    """A session with an id is stored once, however often it is sent; a reading changes nothing."""
    server = serve_replies(CUT_CONNECTION, CUT_CONNECTION)

    with Client(server.url, retries=1) as client, pytest.raises(ServiceError):
        send_request(client.memory("ada"))

    assert len(server.request_paths) == 2


@pytest.mark.parametrize("send_request", [add_without_id, forget, delete_entry])
def test_a_request_that_may_have_been_done_is_not_sent_again(
    serve_replies: ServeReplies, send_request: Callable[[RemoteMemory], None]
) -> None:
    """The connection breaks before the reply, so the client cannot know whether it was done."""
    server = serve_replies(CUT_CONNECTION, CUT_CONNECTION)

    with Client(server.url, retries=1) as client, pytest.raises(ServiceError):
        send_request(client.memory("ada"))

    assert len(server.request_paths) == 1


def test_a_request_is_sent_again_when_a_busy_service_did_nothing_for_it(
    serve_replies: ServeReplies,
) -> None:
    """A service that is busy (503) has stored nothing, so the session cannot be stored twice."""
    server = serve_replies(BUSY, BUSY)

    with Client(server.url, retries=1) as client, pytest.raises(ServiceError):
        client.memory("ada").add(one_message("I moved to Lisbon."))

    assert len(server.request_paths) == 2


def test_a_request_that_did_not_reach_the_service_is_sent_again(
    serve_replies: ServeReplies,
) -> None:
    """At the first attempt the server does not listen yet, so nothing can have been stored."""
    stored = Reply(201, {"id": "D1", "position": 1, "new": True})
    server = serve_replies(stored, listens=False)
    start_after_first_attempt = threading.Timer(0.1, server.start)

    # The first attempt is refused at once, the last one comes after more than a second.
    with Client(server.url, retries=3) as client:
        start_after_first_attempt.start()
        added = client.memory("ada").add(one_message("I moved to Lisbon."))

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
