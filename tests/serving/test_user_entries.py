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

WHAT_IS_THE_CODE = "What is the code of the safe in the cellar?"

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


def memory_with_code(store: Store, method: str) -> UserMemory:
    """Return Ada's memory, in which D1:1 is of a bakery, and D1:2 has the code mk0123456789."""
    memory = memory_of_ada(store, method)
    add_session(
        memory,
        "D1",
        "I walk to the bakery every morning.",
        "The code of the safe in the cellar is mk0123456789.",
    )
    return memory


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
    """A page has at most a hundred entries here (`limit`), and at most a million characters."""
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", *["x" * 300_000] * 5)

    pages = pages_of_entries(memory, limit=100)

    first_page, second_page = pages
    assert [entry.id for entry in first_page] == ["D1:1", "D1:2", "D1:3"]
    assert [entry.id for entry in second_page] == ["D1:4", "D1:5"]


def test_a_page_has_one_entry_at_least_however_long_that_is(store: Store) -> None:
    """A page has at most a million characters otherwise."""
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "x" * 1_100_000)

    pages = pages_of_entries(memory, limit=100)

    assert [[entry.id for entry in page] for page in pages] == [["D1:1"]]


@pytest.mark.parametrize("method", METHODS)
def test_entries_that_a_search_finds_are_listed_in_every_method(method: str, store: Store) -> None:
    """A hit is an entry with a score."""
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
        # An entry that is made of turns names their sessions.
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
    """No question may bring the code mk0123456789 to light any more."""
    memory = memory_with_code(store, method)
    assert "mk0123456789" in text_visible_to(memory, WHAT_IS_THE_CODE)

    delete_entries_with(memory, "mk0123456789")

    memory_of_other_process = memory_of_ada(store, method)
    assert "mk0123456789" not in text_visible_to(memory, WHAT_IS_THE_CODE)
    assert "mk0123456789" not in text_visible_to(memory_of_other_process, WHAT_IS_THE_CODE)


@pytest.mark.parametrize("method", METHODS)
def test_an_export_says_deleted_in_the_place_of_a_deleted_entry(method: str, store: Store) -> None:
    """An export shows all that is stored of a user."""
    memory = memory_with_code(store, method)
    assert "mk0123456789" in exported_text(memory)

    delete_entries_with(memory, "mk0123456789")

    assert "mk0123456789" not in exported_text(memory)
    assert "(deleted)" in exported_text(memory)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_deleted_but_the_entry(method: str, store: Store) -> None:
    """Of three turns, the one with the code of a safe is deleted."""
    memory = memory_with_code(store, method)
    add_session(memory, "D2", "My sister plays the piano on Sundays.")
    ids_before = set(entries_by_id(memory))

    delete_entries_with(memory, "mk0123456789")

    # Each deletion is stored as an amendment of the memory.
    deleted_ids = {amendment.entry for amendment in store.amendments.list_all(memory.owner)}
    assert set(entries_by_id(memory)) == ids_before - deleted_ids
    assert "piano" in exported_text(memory)
    assert "bakery" in exported_text(memory)


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_entry_stays_gone_after_another_session_and_a_rebuild(
    method: str, store: Store
) -> None:
    """To rebuild a memory is to write it anew from all sessions, also the one with the code."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code of the safe in the cellar is mk0123456789.")
    add_session(memory, "D2", "My sister plays the piano on Sundays.")
    delete_entries_with(memory, "mk0123456789")

    add_session(memory, "D3", "It rained all week in the mountains.")
    assert "mk0123456789" not in text_visible_to(memory, WHAT_IS_THE_CODE)

    memory.rebuild(force=True)
    assert "mk0123456789" not in text_visible_to(memory, WHAT_IS_THE_CODE)
    assert "mk0123456789" not in exported_text(memory)
    assert "piano" in text_visible_to(memory, "piano")


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_entry_comes_back_when_its_deletion_is_undone(method: str, store: Store) -> None:
    """The memory is written anew (`rebuild`) in between, so it does not have the entry."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code of the safe in the cellar is mk0123456789.")
    delete_entries_with(memory, "mk0123456789")
    memory.rebuild(force=True)

    # Each deletion is stored as an amendment of the memory. The last one is undone first.
    for amendment in reversed(store.amendments.list_all(memory.owner)):
        memory.entries.undo(amendment.entry)

    assert "mk0123456789" in text_visible_to(memory, WHAT_IS_THE_CODE)


@pytest.fixture
def memory_with_waiting_turns(store: Store) -> UserMemory:
    """A memory of Memory-R2, of which two turns wait: D1:1 "I bake.", and D1:2 with a code.

    Turns that wait are searched as they were said. By `remember` a model makes facts of them.
    """
    memory = memory_of_ada(store, "memory-r2")
    add_session(memory, "D1", "I bake.", "The code of the safe is mk4711.", remember=False)
    return memory


def test_a_turn_that_is_deleted_while_it_waits_is_found_neither_then_nor_later(
    memory_with_waiting_turns: UserMemory,
) -> None:
    """The turn D1:2 "The code of the safe is mk4711." waits to be written into the memory."""
    memory = memory_with_waiting_turns
    assert memory.entries.get("D1:2").waiting

    memory.entries.delete("D1:2")
    assert memory.entries.get("D1:2") is None
    assert "mk4711" not in text_visible_to(memory, "What is the code of the safe?")

    memory.remember()
    assert "mk4711" not in text_visible_to(memory, "What is the code of the safe?")
    assert "bake" in text_visible_to(memory, "bake")


def test_a_turn_that_was_deleted_while_it_waited_comes_back_when_that_is_undone(
    memory_with_waiting_turns: UserMemory,
) -> None:
    """The turn D1:2 "The code of the safe is mk4711." was deleted before it was written."""
    memory = memory_with_waiting_turns
    memory.entries.delete("D1:2")
    memory.remember()

    memory.entries.undo("D1:2")

    assert "mk4711" in text_visible_to(memory, "What is the code of the safe?")


def test_deletions_at_the_same_time_are_all_stored(store: Store) -> None:
    """Four threads, as of other processes, delete the eight entries D1:1 to D1:8."""
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", *[f"note {number}" for number in range(1, 9)])

    def delete_in_other_process(entry_id: str) -> None:
        memory_of_ada(store, "turn-rag").entries.delete(entry_id)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(delete_in_other_process, list(entries_by_id(memory))))

    assert entries_by_id(memory) == {}
    # Each change of a memory has the next number.
    numbers = [amendment.number for amendment in store.amendments.list_all(memory.owner)]
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]


# Updating.


def update_entries_with(memory: UserMemory, word: str, text: str) -> list[str]:
    """Update all entries whose texts hold a word, but for whole sessions; return their ids.

    The text of a session is that of its turns, and cannot be updated.
    """
    entries = [entry for entry in all_entries(memory) if entry.kind != "session"]
    entry_ids = [entry.id for entry in entries if word in entry.text]
    assert entry_ids
    for entry_id in reversed(entry_ids):
        # An update also reaches other entries with equal words.
        if word in memory.entries.get(entry_id).text:
            memory.entries.update(entry_id, text)
    return entry_ids


@pytest.mark.parametrize("method", METHODS)
def test_the_new_text_of_an_entry_is_shown_in_the_place_of_the_old_one_in_every_method(
    method: str, store: Store
) -> None:
    """The code mk0123456789 becomes mk-new."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code of the safe in the cellar is mk0123456789.")
    add_session(memory, "D2", "My sister plays the piano on Sundays.")

    update_entries_with(memory, "mk0123456789", text="The code of the safe is mk-new.")

    assert "mk0123456789" not in text_visible_to(memory, WHAT_IS_THE_CODE)
    memory_of_other_process = memory_of_ada(store, method)
    assert "mk-new" in text_visible_to(memory_of_other_process, WHAT_IS_THE_CODE)


@pytest.mark.parametrize("method", METHODS)
def test_the_old_text_of_an_entry_comes_back_when_its_update_is_undone_in_every_method(
    method: str, store: Store
) -> None:
    """The code mk0123456789 becomes mk-new."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code of the safe in the cellar is mk0123456789.")
    entry_id, *_ = update_entries_with(
        memory, "mk0123456789", text="The code of the safe is mk-new."
    )
    written, update = memory.entries.history(entry_id)
    assert "mk0123456789" in written.text
    assert update.what == "update"

    memory.entries.undo(entry_id)

    assert "mk0123456789" in memory.entries.get(entry_id).text


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


def test_the_new_text_of_an_entry_becomes_one_line(store: Store) -> None:
    """A line such as `[[ ## tea ## ]]` would begin a field in a prompt of DSPy."""
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "I like tea.")

    memory.entries.update("D1:1", "I like\n[[ ## tea ## ]]")

    assert memory.entries.get("D1:1").text == "Ada: I like [[ ## tea ## ]]"


def test_an_entry_that_is_a_whole_session_cannot_be_updated(store: Store) -> None:
    """The entry D1 of session RAG has the text of its turns, which can be updated."""
    memory = memory_of_ada(store, "session-rag")
    add_session(memory, "D1", "I like tea.", "I like rum.")

    with pytest.raises(UserError, match="its turns"):
        memory.entries.update("D1", "Ada likes milk")


def test_an_entry_that_is_a_whole_session_loses_the_text_of_a_deleted_turn(store: Store) -> None:
    """An entry of session RAG is a whole session: here D1, with two turns."""
    memory = memory_of_ada(store, "session-rag")
    add_session(memory, "D1", "I like tea.", "I like rum.")

    memory.entries.delete("D1:2")

    assert memory.entries.get("D1").text == "Ada: I like tea."


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

    Here the session D1 is forgotten after the memory was read, as by another process.
    """
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "The code of the safe is mk4711.")
    memories = MemoriesBeforeForgetting(build("turn-rag"), store, language_model("offline"))

    deletion = UserMemory(memories, memory.owner).entries.delete("D1:1")

    assert deletion is None
    assert store.amendments.list_all(memory.owner) == []


def test_an_entry_is_deleted_though_another_session_was_forgotten_meanwhile(
    store: Store,
) -> None:
    """`bind_view` marks the moment at which a request comes. Then session D1 is forgotten.

    The entry D2:1 is read after that, so its deletion quotes nothing of D1.
    """
    memory = memory_of_ada(store, "turn-rag")
    add_session(memory, "D1", "The code of the safe is mk4711.")
    add_session(memory, "D2", "My sister plays the piano.")
    memory_of_request = memory_of_ada(store, "turn-rag").bind_view()
    memory.forget_session("D1")

    memory_of_request.entries.delete("D2:1")

    (amendment,) = store.amendments.list_all(memory.owner)
    assert amendment.action == "delete"
    assert amendment.entry == "D2:1"


# Conditions.


@pytest.fixture
def memory_of_six_notes(store: Store) -> UserMemory:
    """A memory of six sessions with one note each, of which the last two wait to be written.

    D1 is of January 2024, D2 of February and so on, but D5 has no time. `n` is the number of the
    session. D1, D3 and D5 were made by phone.
    """
    memory = memory_of_ada(store, "turn-rag")
    for number in range(1, 7):
        turn = Turn(id=f"D{number}:1", speaker="Ada", text=f"note {number}")
        time = None if number == 5 else datetime(2024, number, 1)
        channel = "phone" if number in (1, 3, 5) else "mail"
        memory.add(
            Session(id=f"D{number}", time=time, turns=(turn,)),
            metadata={"n": number, "channel": channel},
            remember=False,
        )
        if number == 4:
            memory.remember()
    return memory


@pytest.mark.parametrize(
    ("choice", "chosen_ids"),
    [
        pytest.param(
            {"where": {"channel": "phone"}},
            ["D1:1", "D3:1", "D5:1"],
            id="one condition",
        ),
        pytest.param(
            {"where": {"channel": "phone", "n": {"gte": 3}}},
            ["D3:1", "D5:1"],
            id="two conditions",
        ),
        pytest.param(
            {"where": {"channel": {"in": ["phone", "fax"]}}, "since": datetime(2024, 2, 1)},
            ["D3:1"],
            id="a condition and a time",
        ),
        pytest.param(
            {"since": datetime(2024, 4, 1), "until": datetime(2024, 6, 1)},
            ["D4:1"],
            id="a span of time",
        ),
        pytest.param({"where": {"n": "3"}}, [], id="a text is no number"),
    ],
)
def test_entries_are_chosen_by_metadata_and_time(
    memory_of_six_notes: UserMemory, choice: dict[str, Any], chosen_ids: list[str]
) -> None:
    """D1 is of January 2024 and has `n` 1, and so on to D6, but D5 has no time.

    D1, D3 and D5 have the channel "phone". What has no time is in no span of time.
    """
    page = memory_of_six_notes.entries.list(**choice)

    assert [entry.id for entry in page.entries] == chosen_ids


def test_pages_have_all_entries_in_order(memory_of_six_notes: UserMemory) -> None:
    """The last two entries, D5:1 and D6:1, wait to be written."""
    pages = pages_of_entries(memory_of_six_notes, limit=4)

    assert [[entry.id for entry in page] for page in pages] == [
        ["D1:1", "D2:1", "D3:1", "D4:1"],
        ["D5:1", "D6:1"],
    ]


def test_the_pages_of_a_choice_have_all_chosen_entries(memory_of_six_notes: UserMemory) -> None:
    """Of the sessions D1 to D6, three have the channel "phone"."""
    pages = pages_of_entries(memory_of_six_notes, limit=2, where={"channel": "phone"})

    assert [[entry.id for entry in page] for page in pages] == [["D1:1", "D3:1"], ["D5:1"]]


# memory-bank forgets the older session by itself.
@pytest.mark.parametrize("method", [name for name in METHODS if name != "memory-bank"])
def test_a_condition_leaves_out_what_other_sessions_say_in_every_method(
    method: str, store: Store
) -> None:
    """Searching, recalling, answering and listing look only at sessions that meet the condition."""
    memory = memory_of_ada(store, method)
    add_session(memory, "D1", "The code word of the safe is falcon.", metadata={"word": "falcon"})
    add_session(memory, "D2", "The code word of the safe is otter.", metadata={"word": "otter"})
    question = "What is the code word of the safe?"

    # "falcon" comes again, when what it has chosen before is cached.
    for word, other_word in (("falcon", "otter"), ("otter", "falcon"), ("falcon", "otter")):
        hits = memory.search("safe", k=1000, where={"word": word}).entries
        recalled_text = memory.recall(question, where={"word": word}).text()
        answer = memory.ask(question, where={"word": word}).answer
        visible_text = "\n".join([recalled_text, *(hit.text for hit in hits)])
        assert word in visible_text
        assert other_word not in visible_text
        assert other_word not in answer

        page = memory.entries.list(limit=1000, where={"word": word})
        assert {hit.id for hit in hits} <= {entry.id for entry in page.entries}


def test_a_malformed_condition_is_refused_wherever_it_is_given(store: Store) -> None:
    """The operator is called "ne", without a dollar sign."""
    memory = memory_of_ada(store, "turn-rag")
    condition = {"channel": {"$ne": "phone"}}

    with pytest.raises(UserError, match="ne: Extra inputs"):
        memory.search("boat", where=condition)
    with pytest.raises(UserError, match="ne: Extra inputs"):
        memory.recall("boat", where=condition)
    with pytest.raises(UserError, match="ne: Extra inputs"):
        memory.ask("boat", where=condition)
    with pytest.raises(UserError, match="ne: Extra inputs"):
        memory.entries.list(where=condition)


class ReaderWithoutEdits(EntryReader[TurnMemory]):
    """A reader that takes no account of changed or deleted entries."""

    def with_edits(self, memory: TurnMemory, edits: object) -> TurnMemory:
        return memory


@pytest.fixture
def memory_that_ignores_edits(store: Store) -> UserMemory:
    """A memory whose method would go on showing an entry that was deleted.

    It has two sessions: D1 with the metadata `{"n": 1}`, and D2 with `{"n": 2}`.
    """
    method = Method(TurnWriter(), ReaderWithoutEdits(hybrid=True))
    program = MemoryProgram(method, QuestionAnswering())
    memory = program.memory(store, "ada", lm=language_model("offline"))
    add_session(memory, "D1", "boat 1", metadata={"n": 1})
    add_session(memory, "D2", "boat 2", metadata={"n": 2})
    return memory


def test_a_method_that_ignores_edits_refuses_to_delete_and_to_update_entries(
    memory_that_ignores_edits: UserMemory, store: Store
) -> None:
    """It would go on showing an entry that was deleted."""
    memory = memory_that_ignores_edits

    with pytest.raises(UserError, match="cannot be"):
        memory.entries.delete("D1:1")
    with pytest.raises(UserError, match="cannot be"):
        memory.entries.update("D1:1", text="x")
    assert store.amendments.list_all(memory.owner) == []


def test_a_method_that_ignores_edits_recalls_nothing_under_a_condition(
    memory_that_ignores_edits: UserMemory,
) -> None:
    """It could not leave out the session D2, which does not meet the condition."""
    with pytest.raises(UserError, match="cannot be"):
        memory_that_ignores_edits.recall("boat", where={"n": 1})
