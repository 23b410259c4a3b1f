"""The entries of a memory, one by one, in every method."""

import io
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mempiler import (
    ConflictError,
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
from mempiler.memory.transfer import export_users, import_users
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


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "memories.sqlite") as opened:
        yield opened


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


@pytest.mark.parametrize("method", METHODS)
def test_what_a_search_finds_is_listed_and_can_be_read(method: str, store: Store, make_history: Any) -> None:
    memory = memory_of(store, method)
    for item in make_history(3).items:
        memory.add(item)
    listed, found = everything(memory), memory.search("Oslo Quito Hanoi friends", 100)
    assert listed
    for hit in found.entries:
        entry = listed[hit.id]
        assert (entry.text, entry.kind, entry.turns) == (hit.text, hit.kind, hit.sources)
        assert memory.get(hit.id) == entry
        assert bool(entry.sessions) == bool(entry.turns)
    assert memory.get("nothing of that name") is None


SECRET = "mk0123456789"


def told(memory: Any, question: str) -> str:
    """All that a question can bring to light: search, recall, answer, the list of entries."""
    found = memory.search(question, 100)
    hits = [*found.entries, *found.waiting, *memory.recall(question).hits]
    notes = memory.recall(question).notes.values()
    return "\n".join([*(hit.text for hit in hits), *notes, *(entry.text for entry in everything(memory).values())])


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
    before = told(memory, QUESTION)
    assert SECRET in before
    while held := [entry.id for entry in everything(memory).values() if SECRET in entry.text]:
        assert memory.delete(held[-1], by="Ada").what == "delete"
    deleted = {row.entry for row in store.amendments(memory.owner)}

    def gone() -> bool:
        other = memory_of(store, method)  # a program of its own sees what another process sees
        return all(SECRET not in told(one, QUESTION) and not set(everything(one)) & deleted for one in (memory, other))

    assert gone()
    add(memory, "D4", "It rained all week in the mountains.")
    assert gone()
    memory.rebuild(force=True)
    assert SECRET not in told(memory, QUESTION)
    assert "piano" in told(memory, "piano")
    for row in reversed(store.amendments(memory.owner)):
        memory.undo(row.entry)
    assert SECRET in told(memory, QUESTION)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_shown_of_a_memory_holds_no_deleted_word(method: str, store: Store) -> None:
    """Nor what an entry said before it was reworded; also where a method keeps names and labels beside its entries."""
    memory, other = memory_of(store, method), "I walk to the bakery every morning."
    add(memory, "D1", other, f"The code of the safe in the cellar is {SECRET}.")
    add(memory, "D2", "My sister plays the piano on Sundays.")

    def shown() -> str:
        found = contents_shown(memory.program.method, memory.look(), store.dump(memory.owner))
        text = found.document.settled or found.document.memory
        assert json.loads(text) == memory_shown(memory.program.method, memory.look())
        return "".join(turn.text for one in found.items for turn in one.item.turns) + text

    assert SECRET in shown()
    while held := [entry.id for entry in everything(memory).values() if SECRET in entry.text]:
        memory.delete(held[-1], by="Ada")
    assert [word in shown() for word in (SECRET, "piano", "bakery", "(deleted)")] == [False, *[True] * 3]
    memory.rebuild(force=True)
    assert (SECRET in shown(), "piano" in shown()) == (False, True)
    for row in reversed(store.amendments(memory.owner)):
        memory.undo(row.entry)
    assert SECRET in shown()


def test_what_is_shown_is_what_holds_of_turns(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", "I like tea.", "I like rum.", "I like milk.")
    add(memory, "D2", "I like tea.", remember=False)
    memory.delete("D1:1")
    memory.update("D1:2", "I like gin.")
    (one, two) = contents_shown(memory.program.method, memory.look(), store.dump(memory.owner)).items
    assert [turn.text for turn in (*one.item.turns, *two.item.turns)] == [
        "(deleted)",
        "I like gin.",
        "I like milk.",
        "I like tea.",
    ]
    memory.remember()
    assert memory_shown(memory.program.method, memory.look())["turns"][-1]["text"] == "Ada: I like tea."
    memory.delete("D1:2")
    found = contents_shown(memory.program.method, memory.look(), store.dump(memory.owner))
    assert [turn.text for turn in found.items[0].item.turns] == ["(deleted)", "(deleted)", "I like milk."]


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


def test_the_vector_of_a_deleted_entry_leaves_the_index(store: Store) -> None:
    memory = memory_of(store, "memory-r2")
    add(memory, "D1", "I walk to the bakery.", f"The code of the safe is {SECRET}.")
    indexes, size = memory.program.method.reader.indexes, len(everything(memory))
    memory.search("safe")
    assert len(memory.read().line.indexes[indexes].index) == size
    held = [entry.id for entry in everything(memory).values() if SECRET in entry.text]
    for id in held:
        memory.delete(id)
    memory.search("safe")
    index = memory.read().line.indexes[indexes].index
    assert set(index.ids).isdisjoint(held)
    assert len(index) == len(everything(memory))


def test_saying_it_again_in_another_session_is_a_new_entry(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", "I like tea.")
    assert memory.delete("D1:1")
    add(memory, "D2", "I like tea.")
    assert list(everything(memory)) == ["D2:1"]


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


def test_forgetting_erases_amendments_with_what_they_were_of(store: Store, tmp_path: Path) -> None:
    memory = memory_of(store, "turn-rag")
    for id in ("D1", "D2"):
        add(memory, id, f"The code of {id} is {SECRET}.")
        memory.delete(f"{id}:1")
    memory.forget_session("D1")
    assert [row.entry for row in store.amendments(memory.owner)] == ["D2:1"]
    assert SECRET not in told(memory, QUESTION)
    memory.forget()
    assert store.amendments(memory.owner) == []
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_amendments_at_the_same_time_are_all_there(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", *(f"note {n}" for n in range(8)))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: memory_of(store, "turn-rag").delete(f"D1:{n}"), range(1, 9)))
    assert [row.number for row in store.amendments(memory.owner)] == list(range(1, 9))
    assert everything(memory) == {}


def test_amendments_move_with_their_user(store: Store, tmp_path: Path) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", "I like tea.", "I like rum.")
    memory.update("D1:1", "I like milk.", by="Ada")
    memory.delete("D1:2")
    memory.undo("D1:2")
    file = io.StringIO()
    export_users(store, file)
    with Store(tmp_path / "other.sqlite") as other:
        import_users(other, file.getvalue().splitlines(), "backup")
        assert other.amendments(memory.owner) == store.amendments(memory.owner)
        assert everything(memory_of(other, "turn-rag")) == everything(memory)


SESSIONS = {
    "D1": {"channel": "phone", "year": 2023, "paid": True},
    "D2": {"channel": "mail", "year": 2024},
    "D3": {"channel": "phone", "year": 2025.5, "paid": False},
    "D4": {},
}


CHOSEN: list[tuple[Any, set[str]]] = [
    (None, {"D1", "D2", "D3", "D4"}),
    ({}, {"D1", "D2", "D3", "D4"}),
    ({"channel": "phone"}, {"D1", "D3"}),
    ({"channel": {"in": ["mail", "fax"]}}, {"D2"}),
    ({"year": {"gte": 2024}}, {"D2", "D3"}),
    ({"year": {"gt": 2023, "lt": 2025}}, {"D2"}),
    ({"year": {"lte": 2023.0}}, {"D1"}),
    ({"channel": {"gt": "mail"}}, {"D1", "D3"}),
    ({"channel": "phone", "paid": True}, {"D1"}),
    ({"paid": 1}, set()),
    ({"year": "2024"}, set()),
    ({"year": {"gt": "1"}}, set()),
    ({"nothing": "x"}, set()),
]


def test_conditions_choose_sessions_before_and_after_they_are_remembered(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    for n, (id, metadata) in enumerate(SESSIONS.items(), 1):
        turns = (Turn(id=f"{id}:1", speaker="Ada", text=f"I saw a boat in {id}"),)
        memory.add(Session(id=id, time=datetime(2024, n, 1), turns=turns), remember=False, metadata=metadata)
    for _ in range(2):
        for where, found in CHOSEN:
            hits = [hit for hits in memory.search("boat", where=where) for hit in hits]
            recalled = memory.recall("boat", where=where).hits
            sessions = [{hit.id.partition(":")[0] for hit in one} for one in (hits, recalled)]
            assert sessions == [found, found], where
            late = memory.recall("boat", where=where, since=datetime(2024, 2, 1), until=datetime(2024, 3, 1)).hits
            assert {hit.id for hit in late} == {"D2:1"} & {f"{id}:1" for id in found}, where
        memory.remember()
    assert memory.get("D1:1").sessions[0].metadata == SESSIONS["D1"]


CHANNELS, YEARS = ("phone", "mail", None), (2023, 2024, None)
MOMENTS = some.none() | some.integers(1, 12).map(lambda month: datetime(2024, month, 2))
RANGES: list[tuple[Any, set[int]]] = [
    ({"gte": 2024}, {2024}),
    ({"lt": 2024}, {2023}),
    ({"in": [2023, 2024]}, {2023, 2024}),
]


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A memory of 24 notes, of some channels, years and months, the last of which wait."""
    with Store(tmp_path_factory.mktemp("noted") / "memories.sqlite") as store:
        memory = memory_of(store, "turn-rag")
        for n in range(24):
            about = {"channel": CHANNELS[n % 3], "year": YEARS[n // 3 % 3]}
            turns = (Turn(id=f"D{n}:1", speaker="Ada", text=f"note {n}"),)
            said = Session(id=f"D{n}", time=datetime(2024, 1 + n % 12, 1) if n % 5 else None, turns=turns)
            metadata = {name: value for name, value in about.items() if value}
            memory.add(said, remember=n == 17, metadata=metadata)
        yield memory


@settings(deadline=None, max_examples=60)
@given(
    channel=some.sampled_from(CHANNELS),
    years=some.none() | some.sampled_from(RANGES),
    since=MOMENTS,
    until=MOMENTS,
    limit=some.integers(1, 30),
)
def test_the_pages_of_a_choice_are_together_what_is_chosen_of_the_whole(
    noted: Any, channel: Any, years: Any, since: Any, until: Any, limit: int
) -> None:
    def fits(entry: Any) -> bool:
        about = entry.sessions[0].metadata
        in_time = not (since or until) or (
            entry.time is not None and (since or entry.time) <= entry.time < (until or datetime.max)
        )
        return in_time and channel in (None, about.get("channel")) and (not years or about.get("year") in years[1])

    where = {name: value for name, value in (("channel", channel), ("year", years and years[0])) if value}
    found, cursor = [], None
    while True:
        page = noted.list(cursor, limit, where=where, since=since, until=until)
        assert page.next is None or len(page.entries) == limit
        found += page.entries
        if page.next is None:
            break
        cursor = page.next
    assert found == list(filter(fits, noted.list(limit=1000).entries))


@pytest.mark.parametrize("method", sorted({*METHODS} - {"memory-bank"}))  # which forgets the older session by itself
def test_conditions_hold_in_every_method(method: str, store: Store) -> None:
    memory = memory_of(store, method)
    for n, word in enumerate(("falcon", "otter"), 1):
        turns = (Turn(id=f"D{n}:1", speaker="Ada", text=f"The code word of the safe is {word}."),)
        memory.add(Session(id=f"D{n}", time=datetime(2024, n, 1), turns=turns), metadata={"word": word})
    for word, other in (("falcon", "otter"), ("otter", "falcon"), ("falcon", "otter")):
        where = {"word": word}
        context = memory.recall("What is the code word of the safe?", where=where)
        hits = memory.search("safe", 1000, where=where).entries
        assert {entry.id for entry in memory.list(limit=1000, where=where).entries} >= {hit.id for hit in hits}
        told = "\n".join([context.text(), *(hit.text for hit in hits)])
        answer = memory.ask("What is the code word of the safe?", where=where).answer
        assert (word in told, other in told + answer) == (True, False)


BAD = [
    ("x", "where: .*valid dictionary"),
    ({"a b": 1}, "the name .*a b"),
    ({"$or": []}, "the name"),
    ({1: 1}, "1.*valid string"),
    ({"a": None}, "a.in.0.*no plain value"),
    ({"a": [1]}, "a.in.0.*no plain value"),
    ({"a": {}}, "a: .*is empty"),
    ({"a": {"in": []}}, "a.in: .*at least 1"),
    ({"a": {"in": "x"}}, "a.in: .*tuple"),
    ({"a": {"gte": True}}, "number or a text"),
    ({"a": {"$ne": 1}}, "ne: Extra inputs"),
    ({"a": float("nan")}, "no number"),
    ({"a": 2**60}, "no number"),
    ({"a": "x" * 501}, "501 characters"),
    ({"a": "\0"}, "NUL"),
    ({f"a{n}": 1 for n in range(33)}, "at most 32"),
]


def test_malformed_conditions_and_metadata_are_refused_in_one_line(store: Store) -> None:
    memory = memory_of(store, "turn-rag")
    for where, says in BAD:
        for call in (memory.search, memory.recall, memory.ask, memory.list):
            with pytest.raises(UserError, match=says) as refused:
                call("boat", where=where)
            assert "\n" not in str(refused.value)
        with pytest.raises(UserError):
            memory.add([{"role": "user", "content": "x"}], metadata=where)
    assert store.users() == []


def test_metadata_are_a_part_of_a_session_and_go_with_it(store: Store, tmp_path: Path) -> None:
    memory = memory_of(store, "turn-rag")
    said = [{"role": "user", "content": "I like tea", "time": "2025-01-01"}]
    memory.add(said, id="s", metadata={"mark": SECRET})
    assert memory.add(said, id="s", metadata={"mark": SECRET}).new is False
    with pytest.raises(ConflictError):
        memory.add(said, id="s", metadata={"mark": "other"})
    file = io.StringIO()
    export_users(store, file)
    with Store(tmp_path / "other.sqlite") as other:
        import_users(other, file.getvalue().splitlines(), "backup")
        assert memory_of(other, "turn-rag").search("tea", where={"mark": SECRET}).entries
        memory_of(other, "turn-rag").rebuild(force=True)
        assert memory_of(other, "turn-rag").search("tea", where={"mark": SECRET}).entries
    (tmp_path / "other.sqlite").unlink()
    memory.forget_session("s")
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("memories*"))


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


KILLED = """
import os, signal, sys
from mempiler import Store, build
memory = build("turn-rag").memory(Store(sys.argv[1]), "ada")
memory.delete("D1:1")
memory.update("D1:2", "I like rum.")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_changed_is_seen_by_one_that_goes_on(store: Store, tmp_path: Path) -> None:
    memory = memory_of(store, "turn-rag")
    add(memory, "D1", f"The code is {SECRET}.", "I like tea.")
    assert SECRET in told(memory, QUESTION)
    path = str(tmp_path / "memories.sqlite")
    assert subprocess.run([sys.executable, "-c", KILLED, path], timeout=120).returncode == -signal.SIGKILL
    assert {entry.id: entry.text for entry in everything(memory).values()} == {"D1:2": "Ada: I like rum."}
    assert SECRET not in told(memory, QUESTION)
