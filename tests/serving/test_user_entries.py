"""The entries of a memory, one by one: listing, deleting, updating, and choosing by conditions.

An entry is a piece of a memory that a search can find. What it is depends on the method by which
the memory is written: a turn ("D1:2" is the second turn of session "D1"), a session, or a fact that
a model has made of them. A user may delete it, update its text, and undo such a change.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from mempiler import (
    EntryReader,
    MemoryProgram,
    Method,
    Session,
    Store,
    Turn,
    UserError,
    UserMemory,
    build,
)
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.memory.memory import TurnMemory
from mempiler.memory.results import ListedEntry
from mempiler.memory.store.owner import Owner
from mempiler.programs.baselines.turn_rag import TurnWriter
from mempiler.programs.catalog import needs_embedder
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.redaction import redacted_dump, redacted_memory

METHODS = [
    # The entries of these are what was said.
    "turn-rag",
    "session-rag",
    "logs+session-rag",
    "memory-bank",
    # The entries of these are made of what was said.
    "memory-r2",
    "pgr",
    "pgr+memory-r2",
    "rgmem",
    "h2memory",
    "condition-mem",
]

SECRET = "mk0123456789"
QUESTION = "What is the code of the safe in the cellar?"
BAKERY_SENTENCE = "I walk to the bakery every morning."
SENTENCE_WITH_SECRET = f"The code of the safe in the cellar is {SECRET}."
PIANO_SENTENCE = "My sister plays the piano on Sundays."
MOUNTAIN_SENTENCE = "It rained all week in the mountains."


def memory_of_ada(store: Store, method: str) -> UserMemory:
    """Return Ada's memory, with a program of its own as in another process."""
    program = build(method, embedder=embedder() if needs_embedder(method) else None)
    return program.memory(store, "ada", lm=language_model("offline"))


def add_session(memory: UserMemory, session_id: str, *texts: str, **options: Any) -> None:
    """Add a session, e.g. "D2", in which Ada says these texts: the turns "D2:1", "D2:2" ...

    It is of the month with the number in its id.
    """
    turns = [
        Turn(id=f"{session_id}:{number}", speaker="Ada", text=text)
        for number, text in enumerate(texts, start=1)
    ]
    month = int(session_id.removeprefix("D"))
    memory.add(Session(id=session_id, time=datetime(2024, month, 3), turns=tuple(turns)), **options)


def pages_of_entries(memory: UserMemory, limit: int = 2, **choice: Any) -> list[list[ListedEntry]]:
    """Return the entries of a memory, page by page."""
    page = memory.entries.list(limit=limit, **choice)
    pages = [list(page.entries)]
    while page.next is not None:
        page = memory.entries.list(cursor=page.next, limit=limit, **choice)
        pages.append(list(page.entries))
    return pages


def all_entries(memory: UserMemory, limit: int = 2, **choice: Any) -> list[ListedEntry]:
    """Return the entries of a memory in their order, which are read page by page."""
    entries: list[ListedEntry] = []
    for page in pages_of_entries(memory, limit, **choice):
        entries.extend(page)
    return entries


def entries_by_id(memory: UserMemory) -> dict[str, ListedEntry]:
    """Return all entries of a memory by their ids."""
    return {entry.id: entry for entry in all_entries(memory)}


def ids_of_entries_with(memory: UserMemory, word: str) -> list[str]:
    """Return the ids of the entries whose texts hold a word, in their order."""
    return [entry.id for entry in all_entries(memory) if word in entry.text]


def text_visible_to(memory: UserMemory, question: str) -> str:
    """Return all that a question can bring to light, and the texts of all entries."""
    search_result = memory.search(question, k=100)
    context = memory.recall(question)
    texts = [hit.text for hit in (*search_result.entries, *search_result.pending, *context.hits)]
    texts.extend(context.notes.values())
    texts.extend(entry.text for entry in all_entries(memory))
    return "\n".join(texts)


def exported_text(memory: UserMemory) -> str:
    """Return what an export shows: the sessions, and all that a method keeps in its memory."""
    view = memory.view()
    dump = redacted_dump(view, memory.store.transfer.dump(memory.owner))
    assert dump.document is not None
    memory_json = dump.document.finalized or dump.document.memory
    assert json.loads(memory_json) == redacted_memory(view)

    text_of_sessions = ""
    for stored in dump.items:
        text_of_sessions += "".join(turn.text for turn in stored.item.turns)
    return text_of_sessions + memory_json


# Listing.


def test_a_page_of_long_texts_ends_before_its_limit(store: Store) -> None:
    """A page has at most `limit` entries, here a hundred, and at most a million characters."""
    memory = memory_of_ada(store, "turn-rag")
    # A page has one entry at least, however long that is.
    add_session(memory, "D1", *[f"{number} " + "x" * 300_000 for number in range(8)])
    add_session(memory, "D2", "y" * 1_100_000)

    pages = pages_of_entries(memory, limit=100)

    assert [[entry.id for entry in page] for page in pages] == [
        ["D1:1", "D1:2", "D1:3"],
        ["D1:4", "D1:5", "D1:6"],
        ["D1:7", "D1:8"],
        ["D2:1"],
    ]


@pytest.mark.parametrize("method", METHODS)
def test_entries_that_a_search_finds_are_listed_in_every_method(method: str, store: Store) -> None:
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code word of the safe is falcon.", metadata={"word": "falcon"})
    add_session(memory, "D2", "The code word of the safe is otter.", metadata={"word": "otter"})

    entries = entries_by_id(memory)

    assert entries
    for hit in memory.search("safe", k=100).entries:
        entry = entries[hit.id]
        assert entry.text == hit.text
        assert entry.kind == hit.kind
        assert entry.turns == hit.sources
        assert memory.entries.get(hit.id) == entry
        # An entry that rests on turns has the sessions of these.
        assert bool(entry.sessions) == bool(entry.turns)


# Deleting.


@dataclass(frozen=True)
class MemoryWithDeletion:
    """A memory in which all entries with the secret were deleted."""

    method: str
    memory: UserMemory
    entry_ids_before: set[str]
    deleted_ids: set[str]

    def assert_secret_is_gone(self) -> None:
        """Check that neither this process nor another one shows what was deleted."""
        memory_of_other_process = memory_of_ada(self.memory.store, self.method)
        for memory in (self.memory, memory_of_other_process):
            assert SECRET not in text_visible_to(memory, QUESTION)
            assert entries_by_id(memory).keys().isdisjoint(self.deleted_ids)


@pytest.fixture(params=METHODS)
def deletion(request: pytest.FixtureRequest, store: Store) -> MemoryWithDeletion:
    """A memory in which all entries with the secret were deleted, in every method.

    Session D1 is about a bakery and the secret code of a safe, session D2 about a piano.
    """
    memory = memory_of_ada(store, request.param)
    add_session(memory, "D1", BAKERY_SENTENCE, SENTENCE_WITH_SECRET)
    add_session(memory, "D2", PIANO_SENTENCE)
    assert SECRET in text_visible_to(memory, QUESTION)
    assert SECRET in exported_text(memory)
    entry_ids_before = set(entries_by_id(memory))

    # One by one, because a deletion may hide other entries as well.
    ids_of_secret = ids_of_entries_with(memory, SECRET)
    while ids_of_secret:
        change = memory.entries.delete(ids_of_secret[-1], by="Ada")
        assert change is not None
        assert change.what == "delete"
        ids_of_secret = ids_of_entries_with(memory, SECRET)

    deleted_ids = {amendment.entry for amendment in store.amendments.list_all(memory.owner)}
    return MemoryWithDeletion(request.param, memory, entry_ids_before, deleted_ids)


def test_a_deleted_entry_is_gone_in_every_method(deletion: MemoryWithDeletion) -> None:
    """An export, which shows all that is stored of a user, has "(deleted)" in its place."""
    deletion.assert_secret_is_gone()

    exported = exported_text(deletion.memory)
    assert SECRET not in exported
    assert "(deleted)" in exported


def test_nothing_is_deleted_but_the_entry(deletion: MemoryWithDeletion) -> None:
    """`deletion` has deleted the entries with the secret. The bakery and the piano are left."""
    entry_ids = set(entries_by_id(deletion.memory))

    assert deletion.entry_ids_before - entry_ids == deletion.deleted_ids
    exported = exported_text(deletion.memory)
    assert "piano" in exported
    assert "bakery" in exported


def test_a_deleted_entry_stays_gone_after_another_session_and_a_rebuild(
    deletion: MemoryWithDeletion,
) -> None:
    """To rebuild a memory is to write it anew from all sessions, also the one with the secret."""
    add_session(deletion.memory, "D4", MOUNTAIN_SENTENCE)
    deletion.assert_secret_is_gone()
    deletion.memory.rebuild(force=True)

    assert SECRET not in text_visible_to(deletion.memory, QUESTION)
    assert SECRET not in exported_text(deletion.memory)
    assert "piano" in text_visible_to(deletion.memory, "piano")
    assert "piano" in exported_text(deletion.memory)


def test_a_deleted_entry_comes_back_when_its_deletion_is_undone(
    deletion: MemoryWithDeletion, store: Store
) -> None:
    """Each deletion is stored beside the sessions, as an amendment.

    So it can be undone at any time.
    """
    add_session(deletion.memory, "D4", MOUNTAIN_SENTENCE)
    deletion.memory.rebuild(force=True)
    assert SECRET not in text_visible_to(deletion.memory, QUESTION)

    for amendment in reversed(store.amendments.list_all(deletion.memory.owner)):
        deletion.memory.entries.undo(amendment.entry)

    assert SECRET in text_visible_to(deletion.memory, QUESTION)


def test_a_turn_that_is_deleted_while_it_waits_is_found_neither_then_nor_later(
    store: Store,
) -> None:
    """A turn that waits is searched as it was said. Later a model makes facts of it."""
    memory = memory_of_ada(store, "memory-r2")
    add_session(memory, "D1", BAKERY_SENTENCE, SENTENCE_WITH_SECRET, remember=False)
    waiting_entry = memory.entries.get("D1:2")
    assert waiting_entry is not None
    assert waiting_entry.waiting

    assert memory.entries.delete("D1:2")
    assert memory.entries.get("D1:2") is None
    assert SECRET not in text_visible_to(memory, QUESTION)

    memory.remember()
    assert SECRET not in text_visible_to(memory, QUESTION)
    assert "bakery" in text_visible_to(memory, "bakery")

    memory.entries.undo("D1:2")
    assert SECRET in text_visible_to(memory, QUESTION)


def test_deletions_at_the_same_time_are_all_stored(store: Store) -> None:
    """Each change of a memory gets the next number, from 1."""
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", *[f"note {number}" for number in range(8)])

    def delete_entry(number: int) -> None:
        memory_of_other_process = memory_of_ada(store, "turn-rag")
        memory_of_other_process.entries.delete(f"D1:{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(delete_entry, range(1, 9)))

    numbers = [amendment.number for amendment in store.amendments.list_all(memory.owner)]
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]
    assert entries_by_id(memory) == {}


# Updating.


@pytest.mark.parametrize("method", METHODS)
def test_an_updated_entry_has_its_new_text_and_no_longer_its_old_one(
    method: str, store: Store
) -> None:
    """The new text of each entry with the secret is that the code is mk-new."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", BAKERY_SENTENCE, SENTENCE_WITH_SECRET)
    add_session(memory, "D2", PIANO_SENTENCE)
    # The text of a session is that of its turns, and cannot be updated.
    ids_of_secret = [
        entry.id
        for entry in all_entries(memory)
        if SECRET in entry.text and entry.kind != "session"
    ]

    for entry_id in reversed(ids_of_secret):
        entry = memory.entries.get(entry_id)
        # An update also reaches other entries with equal words.
        if entry is not None and SECRET in entry.text:
            assert memory.entries.update(entry_id, "The code of the safe is mk-new.", by="Ada")
            assert "mk-new" in memory.entries.get(entry_id).text
    assert SECRET not in text_visible_to(memory, QUESTION)

    # Another process sees it, also after the next session.
    add_session(memory, "D3", "I bought a bicycle in Porto.")
    assert "mk-new" in text_visible_to(memory_of_ada(store, method), QUESTION)

    # The old text is in the history, and comes back when the update is undone.
    first_id = ids_of_secret[0]
    history = memory.entries.history(first_id)
    assert [change.what for change in history] == ["written", "update"]
    assert SECRET in history[0].text
    assert memory.entries.undo(first_id).what == "undo"
    assert SECRET in memory.entries.get(first_id).text
    assert memory.entries.undo(first_id) is None


@pytest.mark.parametrize("text", ["", " ", "x" * 10_001, "a\0b", "\ud800", 7])
def test_an_entry_gets_no_text_that_a_store_could_not_hold(store: Store, text: Any) -> None:
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "I like tea.")

    with pytest.raises(UserError, match="text"):
        memory.entries.update("D1:1", text)


def test_the_new_text_of_an_entry_is_one_line(store: Store) -> None:
    """In a prompt of DSPy a line such as `[[ ## tea ## ]]` begins a field."""
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "I like tea.")

    change = memory.entries.update("D1:1", "I like\n[[ ## tea ## ]]")

    assert change is not None
    assert change.new == "Ada: I like [[ ## tea ## ]]"


def test_a_session_whose_text_is_that_of_its_turns_cannot_be_updated(store: Store) -> None:
    """An entry of this method is a whole session. Its turns can be updated."""
    memory = memory_of_ada(store, "session-rag")
    add_session(memory, "D1", "I like tea.", "I like rum.")

    with pytest.raises(UserError, match="its turns"):
        memory.entries.update("D1", "Ada likes milk")


def test_the_entry_of_a_session_loses_the_text_of_a_deleted_turn(store: Store) -> None:
    """An entry of this method is a whole session: here D1, with two turns."""
    memory = memory_of_ada(store, "session-rag")
    add_session(memory, "D1", "I like tea.", "I like rum.")

    assert memory.entries.delete("D1:2")
    assert memory.entries.get("D1").text == "Ada: I like tea."

    assert memory.entries.delete("D1")
    assert entries_by_id(memory) == {}


# Forgetting meanwhile.


class MemoriesBeforeForgetting(Memories):
    """Memories of a process that reads a memory right before another one forgets a session."""

    def view(self, owner: Owner) -> Any:
        view = super().view(owner)
        self.store.forgetting.forget_session(owner, "D1")
        return view


def test_deleting_an_entry_stores_nothing_if_its_session_is_forgotten_meanwhile(
    store: Store,
) -> None:
    """Another process forgets the session after the entry was read.

    A deletion quotes the entry, so it would bring back what was forgotten.
    """
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", BAKERY_SENTENCE, SENTENCE_WITH_SECRET)
    add_session(memory, "D2", PIANO_SENTENCE)
    memories = MemoriesBeforeForgetting(build("turn-rag"), store, language_model("offline"))

    assert UserMemory(memories, memory.owner).entries.delete("D1:2") is None

    assert [item.id for item in memory.items()] == ["D2"]
    assert store.amendments.list_all(memory.owner) == []


def test_an_entry_is_deleted_though_another_session_was_forgotten_meanwhile(
    store: Store,
) -> None:
    """`bind_view` marks the moment at which a request comes. Then session D1 is forgotten.

    The entry of D2 is read after that, so its deletion quotes nothing of D1.
    """
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", BAKERY_SENTENCE, SENTENCE_WITH_SECRET)
    add_session(memory, "D2", PIANO_SENTENCE)
    memory_of_request = memory_of_ada(store, "turn-rag").bind_view()
    memory.forget_session("D1")

    change = memory_of_request.entries.delete("D2:1")

    assert change is not None
    assert change.what == "delete"
    (amendment,) = store.amendments.list_all(memory.owner)
    assert amendment.entry == "D2:1"


# Conditions.


@pytest.fixture
def memory_of_a_year(store: Store) -> UserMemory:
    """A memory of twelve sessions with metadata, of which the last four wait to be written.

    Session `D<n>` is of the month n, but `D5` and `D10` have no time. Four have a channel.
    """
    memory = memory_of_ada(store, "turn-rag")
    for number in range(1, 13):
        turn = Turn(id=f"D{number}:1", speaker="Ada", text=f"note {number}")
        time = None if number in (5, 10) else datetime(2024, number, 1)
        session = Session(id=f"D{number}", time=time, turns=(turn,))
        metadata: dict[str, Any] = {"n": number}
        if number in (1, 4, 7, 10):
            metadata["channel"] = "phone"
        store.items.add(memory.owner, session, f"digest {number}", metadata=metadata)
        if number == 8:
            memory.remember()
    return memory


@pytest.mark.parametrize("limit", [1, 5, 30])
@pytest.mark.parametrize(
    ("choice", "numbers"),
    [
        pytest.param({}, range(1, 13), id="all"),
        pytest.param({"where": {"channel": "phone"}}, [1, 4, 7, 10], id="one condition"),
        pytest.param(
            {"where": {"channel": "phone", "n": {"gte": 7}}}, [7, 10], id="two conditions"
        ),
        # What has no time is in no span of time.
        pytest.param(
            {"where": {"channel": {"in": ["phone", "fax"]}}, "since": datetime(2024, 4, 1)},
            [4, 7],
            id="a condition and a time",
        ),
        pytest.param(
            {"since": datetime(2024, 4, 1), "until": datetime(2024, 6, 1)}, [4], id="a span of time"
        ),
        # A text is no number.
        pytest.param({"where": {"n": "7"}}, [], id="nothing"),
    ],
)
def test_the_pages_of_a_choice_have_all_chosen_entries_in_order(
    memory_of_a_year: UserMemory, choice: dict[str, Any], numbers: Any, limit: int
) -> None:
    """A page has at most `limit` entries.

    Conditions on metadata and time choose among twelve sessions.
    """
    pages = pages_of_entries(memory_of_a_year, limit, **choice)

    for full_page in pages[:-1]:
        assert len(full_page) == limit
    ids = [entry.id for entry in all_entries(memory_of_a_year, limit, **choice)]
    assert ids == [f"D{number}:1" for number in numbers]


# memory-bank forgets the older session by itself.
@pytest.mark.parametrize("method", [name for name in METHODS if name != "memory-bank"])
def test_a_condition_leaves_out_what_other_sessions_say_in_every_method(
    method: str, store: Store
) -> None:
    """Searching, recalling and answering look only at sessions whose metadata meet it."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code word of the safe is falcon.", metadata={"word": "falcon"})
    add_session(memory, "D2", "The code word of the safe is otter.", metadata={"word": "otter"})
    question = "What is the code word of the safe?"

    # The first condition comes again, when what was chosen before is cached.
    for word, other_word in (("falcon", "otter"), ("otter", "falcon"), ("falcon", "otter")):
        where = {"word": word}
        hits = memory.search("safe", k=1000, where=where).entries
        recalled_text = memory.recall(question, where=where).text()
        answer = memory.ask(question, where=where).answer
        visible_text = "\n".join([recalled_text, *(hit.text for hit in hits)])
        assert word in visible_text
        assert other_word not in visible_text
        assert other_word not in answer

        listed_ids = {entry.id for entry in memory.entries.list(limit=1000, where=where).entries}
        assert {hit.id for hit in hits} <= listed_ids


@pytest.mark.parametrize(
    ("where", "message"),
    [
        pytest.param("x", r"where: .*valid dictionary", id="text"),
        pytest.param({"a b": 1}, r"the name .*a b", id="name with a space"),
        pytest.param({"a": {}}, r"a: .*is empty", id="empty condition"),
        pytest.param({"a": {"$ne": 1}}, "ne: Extra inputs", id="unknown operator"),
        pytest.param({"a": 2**60}, "no number", id="number that JSON does not keep"),
        pytest.param({f"a{number}": 1 for number in range(33)}, "at most 32", id="33 conditions"),
    ],
)
def test_malformed_conditions_and_metadata_are_refused(
    store: Store, where: Any, message: str
) -> None:
    """Also as metadata of a session these values are refused."""
    memory = memory_of_ada(store, "turn-rag")

    reading_methods: list[Callable[..., object]] = [
        memory.search,
        memory.recall,
        memory.ask,
        memory.entries.list,
    ]
    for read in reading_methods:
        with pytest.raises(UserError, match=message):
            read("boat", where=where)
    with pytest.raises(UserError):
        add_session(memory, "D1", "x", metadata=where)


class ReaderWithoutEdits(EntryReader[TurnMemory]):
    """A reader that takes no account of changed or deleted entries."""

    def with_edits(self, memory: TurnMemory, edits: object) -> TurnMemory:
        return memory


def test_a_method_that_ignores_changes_refuses_to_delete_and_to_update_entries(
    store: Store,
) -> None:
    """The reader of a method recalls what may answer a question. This one ignores all changes.

    It would go on showing an entry that was deleted, so nothing can be deleted or updated.
    """
    method = Method(TurnWriter(), ReaderWithoutEdits(hybrid=True))
    program = MemoryProgram(method, QuestionAnswering())
    memory = program.memory(store, "ada", lm=language_model("offline"))
    add_session(memory, "D1", "boat 1", metadata={"n": 1})
    add_session(memory, "D2", "boat 2", metadata={"n": 2})

    with pytest.raises(UserError, match="cannot be"):
        memory.entries.delete("D1:1")
    with pytest.raises(UserError, match="cannot be"):
        memory.entries.update("D1:1", text="x")
    with pytest.raises(UserError, match="cannot be"):
        memory.recall("D1:1", where={"n": 1})

    # A search can leave hits out by itself.
    assert [hit.id for hit in memory.search("boat", where={"n": 2}).entries] == ["D2:1"]
    assert store.amendments.list_all(memory.owner) == []
