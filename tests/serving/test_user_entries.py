"""The entries of a memory, one by one, in every method."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from mempiler import Session, Store, Turn, UserError, build
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.programs.catalog import needs_embedder
from mempiler.serving.memories.redaction import redacted_dump, redacted_memory

RAW = ["turn-rag", "session-rag", "logs+session-rag", "memory-bank"]
"""Those whose entries are what was said."""
METHODS = [*RAW, "memory-r2", "pgr", "pgr+memory-r2", "rgmem", "h2memory", "condition-mem"]


SECRET = "mk0123456789"


def memory_of(store: Store, method: str, user: str = "ada") -> Any:
    made = build(method, embedder=embedder() if needs_embedder(method) else None)
    return made.memory(store, user, lm=language_model("offline"))


def pages(memory: Any, limit: int = 2, **chosen: Any) -> list[Any]:
    """All entries, page by page."""
    found = [memory.entries.list(None, limit, **chosen)]
    while found[-1].next is not None:
        found.append(memory.entries.list(found[-1].next, limit, **chosen))
    return [page.entries for page in found]


def everything(memory: Any) -> dict[str, Any]:
    """All entries by id."""
    return {entry.id: entry for page in pages(memory) for entry in page}


def told(memory: Any, question: str) -> str:
    """All that a question can bring to light: search, recall, answer, the list of entries."""
    found = memory.search(question, 100)
    hits = [*found.entries, *found.pending, *memory.recall(question).hits]
    notes = memory.recall(question).notes.values()
    return "\n".join(
        [
            *(hit.text for hit in hits),
            *notes,
            *(entry.text for entry in everything(memory).values()),
        ]
    )


def shown(memory: Any) -> str:
    """What is shown of a memory, also of what methods keep beside their entries."""
    seen = memory.view()
    found = redacted_dump(seen, memory.store.transfer.dump(memory.owner))
    text = found.document.finalized or found.document.memory
    assert json.loads(text) == redacted_memory(seen)
    return "".join(turn.text for one in found.items for turn in one.item.turns) + text


def test_a_page_of_long_texts_ends_before_its_limit(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", *[f"{n} " + "x" * 300_000 for n in range(8)])
    add(memory, "D2", "y" * 1_100_000)
    found = pages(memory, limit=100)
    assert [len(page) for page in found] == [3, 3, 2, 1]
    assert [entry.id for page in found for entry in page] == [
        *(f"D1:{n}" for n in range(1, 9)),
        "D2:1",
    ]


def add(memory: Any, id: str, *texts: str, **more: Any) -> None:
    turns = tuple(Turn(id=f"{id}:{n}", speaker="Ada", text=text) for n, text in enumerate(texts, 1))
    memory.add(Session(id=id, time=datetime(2024, int(id[1:]), 3), turns=turns), **more)


QUESTION = "What is the code of the safe in the cellar?"
CODE = "I walk to the bakery every morning.", f"The code of the safe in the cellar is {SECRET}."
PIANO = "My sister plays the piano on Sundays."


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_entry_is_gone_in_every_method_until_it_is_undone(
    method: str, store: Store
) -> None:
    """Also in another process, after the next session, after a rebuild, and in what was made of it."""
    memory = memory_of(store, method)
    add(memory, "D1", *CODE)
    add(memory, "D2", PIANO)
    assert SECRET in told(memory, QUESTION)
    assert SECRET in shown(memory)
    before = set(everything(memory))
    while held := [entry.id for entry in everything(memory).values() if SECRET in entry.text]:
        assert memory.entries.delete(held[-1], by="Ada").what == "delete"
    deleted = {row.entry for row in store.amendments.list_all(memory.owner)}
    assert before - set(everything(memory)) == deleted, "and nothing else"

    def gone() -> bool:
        other = memory_of(store, method)  # a program of its own sees what another process sees
        return all(
            SECRET not in told(one, QUESTION) and not set(everything(one)) & deleted
            for one in (memory, other)
        )

    assert gone()
    assert [word in shown(memory) for word in (SECRET, "piano", "bakery", "(deleted)")] == [
        False,
        True,
        True,
        True,
    ]
    add(memory, "D4", "It rained all week in the mountains.")
    assert gone()
    memory.rebuild(force=True)
    assert SECRET not in told(memory, QUESTION)
    assert SECRET not in shown(memory)
    assert "piano" in told(memory, "piano")
    assert "piano" in shown(memory)
    for row in reversed(store.amendments.list_all(memory.owner)):
        memory.entries.undo(row.entry)
    assert SECRET in told(memory, QUESTION)


@pytest.mark.parametrize("method", METHODS)
def test_an_updated_entry_says_the_new_and_no_longer_the_old(method: str, store: Store) -> None:
    memory = memory_of(store, method)
    add(memory, "D1", *CODE)
    add(memory, "D2", PIANO)
    ids = [
        entry.id
        for entry in everything(memory).values()
        if SECRET in entry.text and entry.kind != "session"
    ]
    for id in reversed(ids):  # an update reaches others in equal words, and no other ones
        if (found := memory.entries.get(id)) and SECRET in found.text:
            assert memory.entries.update(id, "The code of the safe is mk-new.", by="Ada")
            assert "mk-new" in memory.entries.get(id).text
    assert SECRET not in told(memory, QUESTION)
    add(memory, "D3", "I bought a bicycle in Porto.")
    assert "mk-new" in told(memory_of(store, method), QUESTION)
    assert [event.what for event in memory.entries.history(id)] == ["written", "update"]
    assert SECRET in memory.entries.history(id)[0].text
    assert memory.entries.undo(id).what == "undo"
    assert SECRET in memory.entries.get(id).text
    assert memory.entries.undo(id) is None


def test_a_turn_that_waits_is_deleted_where_it_is_searched_and_in_what_is_made_of_it(
    store: Store,
) -> None:
    memory = memory_of(store, "memory-r2")
    add(memory, "D1", *CODE, remember=False)
    assert memory.entries.get("D1:2").waiting
    assert memory.entries.delete("D1:2")
    assert memory.entries.get("D1:2") is None
    assert SECRET not in told(memory, QUESTION)
    memory.remember()
    assert SECRET not in told(memory, QUESTION)
    assert "bakery" in told(memory, "bakery")
    memory.entries.undo("D1:2")
    assert SECRET in told(memory, QUESTION)


def test_no_text_that_a_store_could_not_hold(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", "I like tea.")
    for text in ("", " ", "x" * 10_001, "a\0b", "\ud800", 7):
        with pytest.raises(UserError, match="text"):
            memory.entries.update("D1:1", text)
    assert (
        memory.entries.update("D1:1", "I like\n[[ ## tea ## ]]").new
        == "Ada: I like [[ ## tea ## ]]"
    )


def test_an_entry_without_its_own_text_cannot_be_updated(store: Store) -> None:
    memory = memory_of(store, "session-rag")
    add(memory, "D1", "I like tea.", "I like rum.")
    with pytest.raises(UserError, match="its turns"):
        memory.entries.update("D1", "Ada likes milk")
    assert memory.entries.delete("D1:2")
    assert memory.entries.get("D1").text == "Ada: I like tea."
    assert memory.entries.delete("D1")
    assert everything(memory) == {}


def test_amendments_at_the_same_time_are_all_there(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", *(f"note {n}" for n in range(8)))
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(lambda n: memory_of(store, "turn-rag").entries.delete(f"D1:{n}"), range(1, 9))
        )
    assert [row.number for row in store.amendments.list_all(memory.owner)] == list(range(1, 9))
    assert everything(memory) == {}


def test_a_change_of_an_entry_whose_session_is_forgotten_after_it_was_read_stores_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change quotes the entry, and would bring back what was forgotten."""
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", *CODE)
    add(memory, "D2", PIANO)
    view = memory.memories.view

    def view_before_a_session_is_forgotten(owner: Any) -> Any:
        seen = view(owner)
        store.forgetting.forget_session(owner, "D1")
        return seen

    monkeypatch.setattr(memory.memories, "view", view_before_a_session_is_forgotten)
    assert memory.entries.delete("D1:2") is None
    assert store.amendments.list_all(memory.owner) == []


def test_a_request_changes_an_entry_though_a_session_was_forgotten_since_the_request_came(
    store: Store,
) -> None:
    """The entry is read after the forgetting, so it quotes nothing of the session."""
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", *CODE)
    add(memory, "D2", PIANO)
    request_memory = memory_of(store, "turn-rag").bind_view()
    memory.forget_session("D1")

    assert request_memory.entries.delete("D2:1").what == "delete"
    assert [row.entry for row in store.amendments.list_all(memory.owner)] == ["D2:1"]


CHOICES: list[tuple[dict[str, Any], set[int]]] = [
    ({}, {*range(1, 13)}),
    ({"where": {"channel": "phone"}}, {1, 4, 7, 10}),
    ({"where": {"channel": "phone", "n": {"gte": 7}}}, {7, 10}),
    ({"where": {"channel": {"in": ["phone", "fax"]}}, "since": datetime(2024, 4, 1)}, {4, 7}),
    (
        {"since": datetime(2024, 4, 1), "until": datetime(2024, 6, 1)},
        {4},
    ),  # what has no time is in no span
    ({"where": {"n": "7"}}, set()),
]


def test_the_pages_of_a_choice_are_together_what_is_chosen_in_order(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    for n in range(1, 13):
        turns = (Turn(id=f"D{n}:1", speaker="Ada", text=f"note {n}"),)
        said = Session(id=f"D{n}", time=datetime(2024, n, 1) if n % 5 else None, turns=turns)
        metadata = {"n": n, **({"channel": "phone"} if n % 3 == 1 else {})}
        store.items.add(memory.owner, said, f"digest {n}", metadata=metadata)
        if n == 8:
            memory.remember()
    for chosen, expected in CHOICES:
        for limit in (1, 5, 30):
            found = pages(memory, limit, **chosen)
            assert all(len(page) == limit for page in found[:-1])
            assert [entry.id for page in found for entry in page] == [
                f"D{n}:1" for n in sorted(expected)
            ], chosen


@pytest.mark.parametrize("method", METHODS)
def test_entries_that_a_search_finds_are_listed_in_every_method(method: str, store: Store) -> None:
    memory = memory_of(store, method)
    for n, word in enumerate(("falcon", "otter"), 1):
        add(memory, f"D{n}", f"The code word of the safe is {word}.", metadata={"word": word})
    listed = everything(memory)
    assert listed
    for hit in memory.search("safe", 100).entries:
        entry = listed[hit.id]
        assert entry.text == hit.text
        assert entry.kind == hit.kind
        assert entry.turns == hit.sources
        assert memory.entries.get(hit.id) == entry
        assert bool(entry.sessions) == bool(entry.turns)


# memory-bank forgets the older session by itself.
@pytest.mark.parametrize("method", [name for name in METHODS if name != "memory-bank"])
def test_a_condition_leaves_out_what_other_sessions_say_in_every_method(
    method: str, store: Store
) -> None:
    memory = memory_of(store, method)
    for n, word in enumerate(("falcon", "otter"), 1):
        add(memory, f"D{n}", f"The code word of the safe is {word}.", metadata={"word": word})
    question = "What is the code word of the safe?"
    for word, other in (("falcon", "otter"), ("otter", "falcon"), ("falcon", "otter")):
        where = {"word": word}
        hits = memory.search("safe", 1000, where=where).entries
        assert {entry.id for entry in memory.entries.list(limit=1000, where=where).entries} >= {
            hit.id for hit in hits
        }
        told = "\n".join([memory.recall(question, where=where).text(), *(hit.text for hit in hits)])
        assert word in told
        assert other not in told + memory.ask(question, where=where).answer


BAD: list[tuple[Any, str]] = [
    ("x", "where: .*valid dictionary"),
    ({"a b": 1}, "the name .*a b"),
    ({"a": {}}, "a: .*is empty"),
    ({"a": {"$ne": 1}}, "ne: Extra inputs"),
    ({"a": 2**60}, "no number"),
    ({f"a{n}": 1 for n in range(33)}, "at most 32"),
]


def test_malformed_conditions_are_refused_in_one_line(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    for where, says in BAD:
        for call in (memory.search, memory.recall, memory.ask, memory.entries.list):
            with pytest.raises(UserError, match=says):
                call("boat", where=where)
        with pytest.raises(UserError):
            add(memory, "D1", "x", metadata=where)


def test_a_method_that_cannot_leave_entries_out_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_of(store, "turn-rag")
    monkeypatch.setattr(memory.program.method.reader, "with_edits", lambda memory, amend: memory)
    for n in (1, 2):
        add(memory, f"D{n}", f"boat {n}", metadata={"n": n})
    calls: Any = (
        (memory.entries.delete, {}),
        (memory.entries.update, {"text": "x"}),
        (memory.recall, {"where": {"n": 1}}),
    )
    for call, more in calls:
        with pytest.raises(UserError, match="cannot be"):
            call("D1:1", **more)
    assert [hit.id for hit in memory.search("boat", where={"n": 2}).entries] == ["D2:1"]
    assert store.amendments.list_all(memory.owner) == []
