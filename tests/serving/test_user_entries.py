"""The entries of a memory, one by one: listing, deleting, updating, and choosing by conditions.

An entry is a piece of a memory that a search can find. What it is depends on the method by which
the memory is written: a turn ("D1:2" is the second turn of session "D1"), a session, or a fact that
a model has made of them. A user may delete it, update its text, and undo such a change.
"""

import json
from concurrent.futures import ThreadPoolExecutor
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


def delete_entries_with(memory: UserMemory, word: str) -> None:
    """Delete all entries whose texts hold a word; there must be one at least."""
    entry_ids = ids_of_entries_with(memory, word)
    assert entry_ids

    # One by one, because a deletion may hide other entries as well.
    while entry_ids:
        change = memory.entries.delete(entry_ids[-1], by="Ada")
        assert change is not None
        assert change.what == "delete"
        entry_ids = ids_of_entries_with(memory, word)


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_entry_is_gone_in_every_method_and_process(method: str, store: Store) -> None:
    """An export, which shows all that is stored of a user, has "(deleted)" in its place."""
    memory = memory_of_ada(store, method)
    add_session(
        memory,
        "D1",
        "I walk to the bakery every morning.",
        "The code of the safe in the cellar is mk0123456789.",
    )
    question = "What is the code of the safe in the cellar?"
    assert "mk0123456789" in text_visible_to(memory, question)
    assert "mk0123456789" in exported_text(memory)

    delete_entries_with(memory, "mk0123456789")

    memory_of_other_process = memory_of_ada(store, method)
    assert "mk0123456789" not in text_visible_to(memory, question)
    assert "mk0123456789" not in text_visible_to(memory_of_other_process, question)
    assert "mk0123456789" not in exported_text(memory)
    assert "(deleted)" in exported_text(memory)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_deleted_but_the_entry(method: str, store: Store) -> None:
    memory = memory_of_ada(store, method)
    add_session(
        memory,
        "D1",
        "I walk to the bakery every morning.",
        "The code of the safe in the cellar is mk0123456789.",
    )
    add_session(memory, "D2", "My sister plays the piano on Sundays.")
    ids_before = set(entries_by_id(memory))

    delete_entries_with(memory, "mk0123456789")

    # Each deletion is stored as an amendment of the memory.
    deleted_ids = {amendment.entry for amendment in store.amendments.list_all(memory.owner)}
    assert set(entries_by_id(memory)) == ids_before - deleted_ids
    exported = exported_text(memory)
    assert "piano" in exported
    assert "bakery" in exported


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_entry_stays_gone_after_another_session_and_a_rebuild(
    method: str, store: Store
) -> None:
    """To rebuild a memory is to write it anew from all sessions, also the one with the code."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code of the safe in the cellar is mk0123456789.")
    add_session(memory, "D2", "My sister plays the piano on Sundays.")
    delete_entries_with(memory, "mk0123456789")
    question = "What is the code of the safe in the cellar?"

    add_session(memory, "D4", "It rained all week in the mountains.")
    assert "mk0123456789" not in text_visible_to(memory, question)

    memory.rebuild(force=True)
    assert "mk0123456789" not in text_visible_to(memory, question)
    assert "mk0123456789" not in exported_text(memory)
    assert "piano" in text_visible_to(memory, "piano")


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_entry_comes_back_when_its_deletion_is_undone(method: str, store: Store) -> None:
    """Each deletion is stored beside the sessions, as an amendment, and survives a rebuild."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code of the safe in the cellar is mk0123456789.")
    delete_entries_with(memory, "mk0123456789")
    memory.rebuild(force=True)
    question = "What is the code of the safe in the cellar?"
    assert "mk0123456789" not in text_visible_to(memory, question)

    for amendment in reversed(store.amendments.list_all(memory.owner)):
        memory.entries.undo(amendment.entry)

    assert "mk0123456789" in text_visible_to(memory, question)


def test_a_turn_that_is_deleted_while_it_waits_is_found_neither_then_nor_later(
    store: Store,
) -> None:
    """A turn that waits is searched as it was said. Later Memory-R2 makes facts of it."""
    memory = memory_of_ada(store, "memory-r2")
    add_session(memory, "D1", "I bake.", "The code of the safe is mk4711.", remember=False)
    waiting_entry = memory.entries.get("D1:2")
    assert waiting_entry is not None
    assert waiting_entry.waiting

    memory.entries.delete("D1:2")
    assert memory.entries.get("D1:2") is None
    assert "mk4711" not in text_visible_to(memory, "What is the code of the safe?")

    memory.remember()
    assert "mk4711" not in text_visible_to(memory, "What is the code of the safe?")
    assert "bake" in text_visible_to(memory, "bake")


def test_a_turn_that_was_deleted_while_it_waited_comes_back_when_that_is_undone(
    store: Store,
) -> None:
    """With `remember=False` a turn waits. By `remember` Memory-R2 makes facts of it, by a model."""
    memory = memory_of_ada(store, "memory-r2")
    add_session(memory, "D1", "I bake.", "The code of the safe is mk4711.", remember=False)
    memory.entries.delete("D1:2")
    memory.remember()

    memory.entries.undo("D1:2")

    assert "mk4711" in text_visible_to(memory, "What is the code of the safe?")


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
def test_an_entry_is_updated_and_its_update_undone_in_every_method(
    method: str, store: Store
) -> None:
    """Every entry with the code mk0123456789 gets a text with the code mk-new."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code of the safe in the cellar is mk0123456789.")
    add_session(memory, "D2", "My sister plays the piano on Sundays.")
    question = "What is the code of the safe in the cellar?"
    # The text of a session is that of its turns, and cannot be updated.
    entries = [entry for entry in all_entries(memory) if entry.kind != "session"]
    entry_ids = [entry.id for entry in entries if "mk0123456789" in entry.text]

    for entry_id in reversed(entry_ids):
        # An update also reaches other entries with equal words.
        if "mk0123456789" in memory.entries.get(entry_id).text:
            memory.entries.update(entry_id, "The code of the safe is mk-new.")
        assert "mk-new" in memory.entries.get(entry_id).text

    # The old text is not shown any more; another process shows the new one.
    assert "mk0123456789" not in text_visible_to(memory, question)
    assert "mk-new" in text_visible_to(memory_of_ada(store, method), question)

    # The old text is in the history, and comes back when the update is undone.
    written, update = memory.entries.history(entry_ids[0])
    assert update.what == "update"
    assert "mk0123456789" in written.text
    assert memory.entries.undo(entry_ids[0]).what == "undo"
    assert "mk0123456789" in memory.entries.get(entry_ids[0]).text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(" ", id="a blank"),
        pytest.param("x" * 10_001, id="too long"),
        pytest.param("a\0b", id="a zero byte"),
        pytest.param("\ud800", id="half a character"),
        pytest.param(7, id="a number"),
    ],
)
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
    """Memories in which session D1 is forgotten right after a memory was read."""

    def view(self, owner: Owner) -> Any:
        view = super().view(owner)
        self.store.forgetting.forget_session(owner, "D1")
        return view


def test_deleting_an_entry_stores_nothing_if_its_session_is_forgotten_meanwhile(
    store: Store,
) -> None:
    """A deletion quotes its entry, so it would bring back what was forgotten.

    Here the session D1 is forgotten after its entry D1:1 was read, as by another process.
    """
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "The code of the safe is mk4711.")
    add_session(memory, "D2", "My sister plays the piano.")
    memories = MemoriesBeforeForgetting(build("turn-rag"), store, language_model("offline"))

    assert UserMemory(memories, memory.owner).entries.delete("D1:1") is None

    assert [item.id for item in memory.items()] == ["D2"]
    assert store.amendments.list_all(memory.owner) == []


def test_an_entry_is_deleted_though_another_session_was_forgotten_meanwhile(
    store: Store,
) -> None:
    """`bind_view` marks the moment at which a request comes. Then session D1 is forgotten.

    The entry of D2 is read after that, so its deletion quotes nothing of D1.
    """
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "The code of the safe is mk4711.")
    add_session(memory, "D2", "My sister plays the piano.")
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
        memory.add(session, metadata=metadata, remember=False)
        if number == 8:
            memory.remember()
    return memory


@pytest.mark.parametrize(
    ("choice", "expected_ids"),
    [
        pytest.param(
            {"where": {"channel": "phone"}},
            ["D1:1", "D4:1", "D7:1", "D10:1"],
            id="one condition",
        ),
        pytest.param(
            {"where": {"channel": "phone", "n": {"gte": 7}}},
            ["D7:1", "D10:1"],
            id="two conditions",
        ),
        pytest.param(
            # D10 has the channel, but no time, and what has no time is in no span of time.
            {"where": {"channel": {"in": ["phone", "fax"]}}, "since": datetime(2024, 4, 1)},
            ["D4:1", "D7:1"],
            id="a condition and a time",
        ),
        pytest.param(
            # D5 has no time.
            {"since": datetime(2024, 4, 1), "until": datetime(2024, 6, 1)},
            ["D4:1"],
            id="a span of time",
        ),
        pytest.param({"where": {"n": "7"}}, [], id="a text is no number"),
    ],
)
def test_entries_are_chosen_by_metadata_and_time(
    memory_of_a_year: UserMemory, choice: dict[str, Any], expected_ids: list[str]
) -> None:
    """Session D1 is of January 2024, D2 of February and so on, and their `n` is 1, 2 and so on.

    D1, D4, D7 and D10 have the channel "phone". D5 and D10 have no time. Each has one entry.
    """
    page = memory_of_a_year.entries.list(limit=30, **choice)

    assert [entry.id for entry in page.entries] == expected_ids


@pytest.mark.parametrize(
    ("limit", "expected_page_sizes"),
    [
        (1, [1] * 12),
        (5, [5, 5, 2]),
        (30, [12]),
    ],
)
def test_pages_have_all_entries_in_order(
    memory_of_a_year: UserMemory, limit: int, expected_page_sizes: list[int]
) -> None:
    """Sessions D1 to D12 have one entry each. The last four sessions wait to be written."""
    pages = pages_of_entries(memory_of_a_year, limit)

    assert [len(page) for page in pages] == expected_page_sizes
    ids = [entry.id for page in pages for entry in page]
    assert ids == [f"D{number}:1" for number in range(1, 13)]


@pytest.mark.parametrize("limit", [1, 3])
def test_the_pages_of_a_choice_have_all_chosen_entries(
    memory_of_a_year: UserMemory, limit: int
) -> None:
    """Of the sessions D1 to D12, these four have the channel "phone"."""
    entries = all_entries(memory_of_a_year, limit, where={"channel": "phone"})

    assert [entry.id for entry in entries] == ["D1:1", "D4:1", "D7:1", "D10:1"]


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
    """What is no condition (`where`) is refused as metadata of a session, too."""
    memory = memory_of_ada(store, "turn-rag")

    with pytest.raises(UserError, match=message):
        memory.search("boat", where=where)
    with pytest.raises(UserError, match=message):
        memory.recall("boat", where=where)
    with pytest.raises(UserError, match=message):
        memory.ask("boat", where=where)
    with pytest.raises(UserError, match=message):
        memory.entries.list(where=where)
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
