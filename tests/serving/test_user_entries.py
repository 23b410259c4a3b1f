"""The entries of a memory, one by one, in every method."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from mempiler import (
    Entry,
    EntryReader,
    Memory,
    MemoryProgram,
    Method,
    Session,
    Store,
    Turn,
    UserError,
    Writer,
    build,
)
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.programs.catalog import needs_embedder
from mempiler.programs.tasks.task import task
from mempiler.serving.view import contents_shown, memory_shown

METHODS = [
    "turn-rag",
    "session-rag",
    "memory-r2",
    "pgr",
    "pgr+memory-r2",
    "rgmem",
    "h2memory",
    "logs+session-rag",
    "memory-bank",
    "condition-mem",
]


def memory_of(store: Store, method: str, user: str = "ada") -> Any:
    made = build(method, embedder=embedder() if needs_embedder(method) else None)
    return made.memory(store, user, lm=language_model("offline"))


def everything(memory: Any) -> dict[str, Any]:
    """All entries by id, page by page."""
    found, cursor = {}, None
    while True:
        page = memory.list(cursor, limit=2)
        found |= {entry.id: entry for entry in page.entries}
        if page.next is None:
            return found
        cursor = page.next


SECRET = "mk0123456789"


def told(memory: Any, question: str) -> str:
    """All that a question can bring to light: search, recall, answer, the list of entries."""
    found = memory.search(question, 100)
    hits = [*found.entries, *found.waiting, *memory.recall(question).hits]
    notes = memory.recall(question).notes.values()
    return "\n".join([*(hit.text for hit in hits), *notes, *(entry.text for entry in everything(memory).values())])


def shown(memory: Any) -> str:
    """What is shown of a memory, also of what methods keep beside their entries."""
    method, seen = memory.program.method, memory.look()
    found = contents_shown(method, seen, memory.store.dump(memory.owner))
    text = found.document.settled or found.document.memory
    assert json.loads(text) == memory_shown(method, seen)
    return "".join(turn.text for one in found.items for turn in one.item.turns) + text


def add(memory: Any, id: str, *texts: str, remember: bool = True) -> None:
    turns = tuple(Turn(id=f"{id}:{n}", speaker="Ada", text=text) for n, text in enumerate(texts, 1))
    memory.add(Session(id=id, time=datetime(2024, int(id[1:]), 3), turns=turns), remember=remember)


QUESTION = "What is the code of the safe in the cellar?"


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_entry_is_gone_in_every_method_until_it_is_undone(method: str, store: Store) -> None:
    """Also in another process, after the next session, after a rebuild, and in what was made of it."""
    memory = memory_of(store, method)
    add(memory, "D1", "I walk to the bakery every morning.", f"The code of the safe in the cellar is {SECRET}.")
    add(memory, "D2", "My sister plays the piano on Sundays.")
    add(memory, "D3", "I bought a bicycle in Porto.")
    assert (SECRET in told(memory, QUESTION), SECRET in shown(memory)) == (True, True)
    while held := [entry.id for entry in everything(memory).values() if SECRET in entry.text]:
        assert memory.delete(held[-1], by="Ada").what == "delete"
    deleted = {row.entry for row in store.amendments(memory.owner)}

    def gone() -> bool:
        other = memory_of(store, method)  # a program of its own sees what another process sees
        return all(SECRET not in told(one, QUESTION) and not set(everything(one)) & deleted for one in (memory, other))

    assert gone()
    assert [word in shown(memory) for word in (SECRET, "piano", "bakery", "(deleted)")] == [False, True, True, True]
    add(memory, "D4", "It rained all week in the mountains.")
    assert gone()
    memory.rebuild(force=True)
    assert (SECRET in told(memory, QUESTION), SECRET in shown(memory)) == (False, False)
    assert ("piano" in told(memory, "piano"), "piano" in shown(memory)) == (True, True)
    for row in reversed(store.amendments(memory.owner)):
        memory.undo(row.entry)
    assert SECRET in told(memory, QUESTION)


@pytest.mark.parametrize("method", METHODS)
def test_an_updated_entry_says_the_new_and_no_longer_the_old(method: str, store: Store) -> None:
    memory = memory_of(store, method)
    add(memory, "D1", "I walk to the bakery every morning.", f"The code of the safe in the cellar is {SECRET}.")
    add(memory, "D2", "My sister plays the piano on Sundays.")
    ids = [entry.id for entry in everything(memory).values() if SECRET in entry.text and entry.kind != "session"]
    for id in reversed(ids):  # an update reaches others in equal words, and no other ones
        if (found := memory.get(id)) and SECRET in found.text:
            assert memory.update(id, "The code of the safe is mk-new.", by="Ada")
            assert "mk-new" in memory.get(id).text
    assert SECRET not in told(memory, QUESTION)
    add(memory, "D3", "I bought a bicycle in Porto.")
    assert "mk-new" in told(memory_of(store, method), QUESTION)
    assert [event.what for event in memory.history(id)] == ["written", "update"]
    assert SECRET in memory.history(id)[0].text
    assert memory.undo(id).what == "undo"
    assert (SECRET in memory.get(id).text, memory.undo(id)) == (True, None)


def test_a_turn_that_waits_is_deleted_where_it_is_searched_and_in_what_is_made_of_it(store: Store) -> None:
    memory = memory_of(store, "memory-r2")
    add(memory, "D1", "I walk to the bakery.", f"The code of the safe is {SECRET}.", remember=False)
    assert memory.get("D1:2").waiting
    assert memory.delete("D1:2")
    assert (memory.get("D1:2"), SECRET in told(memory, QUESTION)) == (None, False)
    memory.remember()
    assert (SECRET in told(memory, QUESTION), "bakery" in told(memory, "bakery")) == (False, True)
    memory.undo("D1:2")
    assert SECRET in told(memory, QUESTION)


def test_no_text_that_a_store_could_not_hold(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", "I like tea.")
    for text in ("", " ", "x" * 10_001, "a\0b", "\ud800", 7):
        with pytest.raises(UserError, match="text"):
            memory.update("D1:1", text)
    assert memory.update("D1:1", "I like\n[[ ## tea ## ]]").new == "Ada: I like [[ ## tea ## ]]"
    assert memory.update("none", "x") is memory.delete("none") is memory.undo("none") is None
    assert memory.history("none") == ()


def test_what_has_no_text_of_its_own_cannot_be_reworded(store: Store) -> None:
    memory = memory_of(store, "session-rag")
    add(memory, "D1", "I like tea.", "I like rum.")
    with pytest.raises(UserError, match="its turns"):
        memory.update("D1", "Ada likes milk")
    assert memory.delete("D1:2")
    assert memory.get("D1").text == "Ada: I like tea."
    assert memory.delete("D1")
    assert everything(memory) == {}


def test_amendments_at_the_same_time_are_all_there(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", *(f"note {n}" for n in range(8)))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: memory_of(store, "turn-rag").delete(f"D1:{n}"), range(1, 9)))
    assert [row.number for row in store.amendments(memory.owner)] == list(range(1, 9))
    assert everything(memory) == {}


CHOICES: list[tuple[dict[str, Any], set[int]]] = [
    ({}, {*range(1, 13)}),
    ({"where": {"channel": "phone"}}, {1, 4, 7, 10}),
    ({"where": {"channel": "phone", "n": {"gte": 7}}}, {7, 10}),
    ({"where": {"channel": {"in": ["phone", "fax"]}}, "since": datetime(2024, 4, 1)}, {4, 7}),
    ({"since": datetime(2024, 4, 1), "until": datetime(2024, 6, 1)}, {4}),  # what has no time is in no span
    ({"where": {"n": "7"}}, set()),
]


def test_the_pages_of_a_choice_are_together_what_is_chosen_in_order(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    for n in range(1, 13):
        turns = (Turn(id=f"D{n}:1", speaker="Ada", text=f"note {n}"),)
        said = Session(id=f"D{n}", time=datetime(2024, n, 1) if n % 5 else None, turns=turns)
        metadata = {"n": n, **({"channel": "phone"} if n % 3 == 1 else {})}
        store.add(memory.owner, said, f"digest {n}", metadata=metadata)
        if n == 8:
            memory.remember()
    for chosen, expected in CHOICES:
        for limit in (1, 5, 30):
            found, cursor = [], None
            while cursor is not None or not found:
                page = memory.list(cursor, limit, **chosen)
                found.append([entry.id for entry in page.entries])
                cursor = page.next
                if cursor is None:
                    break
            assert all(len(ids) == limit for ids in found[:-1])
            assert [id for ids in found for id in ids] == [f"D{n}:1" for n in sorted(expected)], chosen


@pytest.mark.parametrize("method", METHODS)
def test_what_a_search_finds_is_listed_and_conditions_hold_in_every_method(method: str, store: Store) -> None:
    memory = memory_of(store, method)
    for n, word in enumerate(("falcon", "otter"), 1):
        turns = (Turn(id=f"D{n}:1", speaker="Ada", text=f"The code word of the safe is {word}."),)
        memory.add(Session(id=f"D{n}", time=datetime(2024, n, 1), turns=turns), metadata={"word": word})
    listed = everything(memory)
    assert listed
    for hit in memory.search("safe", 100).entries:
        entry = listed[hit.id]
        assert (entry.text, entry.kind, entry.turns) == (hit.text, hit.kind, hit.sources)
        assert memory.get(hit.id) == entry
        assert bool(entry.sessions) == bool(entry.turns)
    assert memory.get("nothing of that name") is None
    if method == "memory-bank":  # which forgets the older session by itself
        return
    for word, other in (("falcon", "otter"), ("otter", "falcon"), ("falcon", "otter")):
        where = {"word": word}
        context = memory.recall("What is the code word of the safe?", where=where)
        hits = memory.search("safe", 1000, where=where).entries
        assert {entry.id for entry in memory.list(limit=1000, where=where).entries} >= {hit.id for hit in hits}
        told = "\n".join([context.text(), *(hit.text for hit in hits)])
        answer = memory.ask("What is the code word of the safe?", where=where).answer
        assert (word in told, other in told + answer) == (True, False)


BAD: list[tuple[Any, str]] = [
    ("x", "where: .*valid dictionary"),
    ({"a b": 1}, "the name .*a b"),
    ({"a": {}}, "a: .*is empty"),
    ({"a": {"$ne": 1}}, "ne: Extra inputs"),
    ({"a": 2**60}, "no number"),
    ({f"a{n}": 1 for n in range(33)}, "at most 32"),
]


@pytest.mark.parametrize(("where", "says"), BAD, ids=range(6))
def test_malformed_conditions_are_refused_in_one_line(store: Store, where: Any, says: str) -> None:
    memory = memory_of(store, "turn-rag")
    for call in (memory.search, memory.recall, memory.ask, memory.list):
        with pytest.raises(UserError, match=says) as refused:
            call("boat", where=where)
        assert "\n" not in str(refused.value)
    with pytest.raises(UserError):
        memory.add([{"role": "user", "content": "x"}], metadata=where)


class Lines(Memory):
    """A memory whose parts are no entries."""

    lines: tuple[str, ...] = ()

    def entries(self) -> list[Entry]:
        return [Entry(id=str(n), text=line, sources=(f"D{n}:1",)) for n, line in enumerate(self.lines, 1)]


class LineWriter(Writer):
    Memory = Lines

    def write(self, memory: Lines, item: Any, prepared: Any = None) -> Lines:
        return memory.model_copy(update={"lines": (*memory.lines, *(turn.text for turn in item.turns))})


def test_a_method_that_cannot_leave_entries_out_says_so(store: Store) -> None:
    program = MemoryProgram(Method(LineWriter(), EntryReader()), task("question-answering")())
    memory = program.memory(store, "ada", lm=language_model("offline"))
    for n in (1, 2):
        turns = (Turn(id=f"D{n}:1", speaker="Ada", text=f"boat {n}"),)
        memory.add(Session(id=f"D{n}", turns=turns), metadata={"n": n})
    assert list(everything(memory)) == ["1", "2"]
    for call in (
        lambda: memory.delete("1"),
        lambda: memory.update("1", "x"),
        lambda: memory.recall("x", where={"n": 1}),
    ):
        with pytest.raises(UserError, match="cannot be"):
            call()
    assert [hit.id for hit in memory.search("boat", where={"n": 2}).entries] == ["2"]
    assert store.amendments(memory.owner) == []
