"""The Python API of production: durable, the same memory as in a benchmark, safe under threads and asyncio."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMInvalidRequestError
from mempiler import ConflictError, History, MemoryProgram, ProgramError, Session, Store, Turn, UserError, build
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.memory.stored import Owner
from mempiler.programs.catalog import needs_embedder
from mempiler.records import Hit
from mempiler.serving.memories import stamp_of

METHODS = ["turn-rag", "recursive-summary", "memory-r2", "pgr"]


def program(method: str = "turn-rag", **config: Any) -> MemoryProgram:
    return build(method, embedder=embedder() if needs_embedder(method) else None, **config)


def said(text: str, name: str = "Ada") -> list[dict[str, str]]:
    return [{"role": "user", "name": name, "content": text}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.sqlite"


@pytest.mark.parametrize("method", METHODS)
def test_stored_memory_is_what_remembering_the_history_writes(method: str, store: Store, make_history: Any) -> None:
    """However the sessions arrive: one at a time, several at once, or again after one was forgotten; it is searched."""
    own, lm = program(method), language_model("offline")
    memory = own.memory(store, "ada", lm=lm)
    first, second, third, fourth = make_history(4).items
    asyncio.run(memory.aadd(first))
    for item in (second, third):
        memory.add(item, remember=False)
    memory.remember()
    memory.add(fourth)
    memory.forget_session("D2")
    with dspy.context(lm=lm):
        batch = own.remember(History(id="ada", items=(first, third, fourth))).memory
    assert memory.read() == batch
    assert own.memory(store, "ada", lm=lm).read() is memory.read()

    text, calls = first.turns[0].text, lm.meter.read()
    found = memory.search(text, k=3)
    assert lm.meter.read() == calls
    assert len(found.entries) == (0 if method == "recursive-summary" else 3)  # a summary is a note, not an entry
    assert found.entries == memory.search(text, k=9).entries[:3]
    assert found == asyncio.run(memory.asearch(text, 3))


@pytest.mark.parametrize("method", ["no-memory", "turn-rag", "pgr"])
def test_turns_that_are_not_remembered_yet_are_found_raw(method: str, store: Store) -> None:
    memory = program(method).memory(store, "ada", lm=language_model("offline"))
    memory.add(said("I moved to Lisbon."))
    memory.add(said("My cat is called Momo."), remember=False)
    memory.say("chat", said("I began to play the cello."))
    assert "D2:1" in memory.recall("What is the cat called?").sources
    found = memory.ask("Which instrument does Ada play, the cello?")
    assert "chat:1" in found.context.sources
    assert "cello" in found.answer


def test_sources_are_there_until_another_process_forgets_them(store: Store, path: Path) -> None:
    memory = program().memory(store, "ada", lm=language_model("offline"))
    for id, town in (("s", "Lisbon"), ("t", "Porto")):
        memory.add(said(f"I moved to {town}."), id=id)
    ids = ("s:1", "t:1", "nowhere:1")
    hit = Hit(id="x", text="Moved twice.", score=1.0, kind="fact", sources=ids)

    def sources() -> dict[str, tuple[str, bool]]:
        (one,) = memory.evidence([hit])
        return {source.id: (source.text, source.time is None) for source in one.sources}

    assert sources() == {"s:1": ("I moved to Lisbon.", False), "t:1": ("I moved to Porto.", False)}
    with Store(path) as other:
        other.forget_item(memory.owner, "s")
    assert list(sources()) == ["t:1"]
    with Store(path) as other:
        other.forget(memory.owner)
    assert sources() == {}


def test_a_piece_of_work_looks_at_what_it_began_with(store: Store) -> None:
    began, later = (program().memory(store, "ada", lm=language_model("offline")) for _ in range(2))
    later.add(said("I moved to Lisbon."))
    began.begin(began.look())
    later.add(said("My cat is called Momo."))
    assert [len(memory.list().entries) for memory in (began, later)] == [1, 2]
    assert [bool(memory.get("D2:1")) for memory in (began, later)] == [False, True]
    assert ["Momo" in memory.recall("What is the cat called?").text() for memory in (began, later)] == [False, True]


def test_work_stores_nothing_of_a_user_who_was_forgotten_since_it_began(store: Store) -> None:
    own, lm = program(), language_model("offline")
    memory, by_call, by_look, later = (own.memory(store, "ada", lm=lm) for _ in range(4))
    memory.add(said("I moved to Lisbon."))
    by_call.begin()
    by_look.begin(by_look.look())
    memory.forget()
    for begun in (by_call, by_look, by_look.begin()):
        with pytest.raises(ConflictError, match="user 'ada' was forgotten while this was under way"):
            begun.add(said("I moved to Porto."))
    assert later.begin().add(said("I moved to Faro.")).new


def test_undated_messages_are_of_now_and_dated_ones_keep_their_time(store: Store) -> None:
    memory = program().memory(store, "ada")
    memory.add(said("now"))
    memory.add([{**said("then")[0], "time": "2024-03-05T10:00:00"}])
    times = [item.time for item in memory.items()]
    memory.add([{**said("elsewhere")[0], "time": "2024-03-05T10:00:00+02:00"}])
    assert memory.items()[2].time == datetime(2024, 3, 5, 8)
    assert times[1] == datetime(2024, 3, 5, 10)
    assert times[0] is not None
    assert times[0].year >= 2025


def test_changed_writing_prompt_is_noticed_and_rebuilt(store: Store, scripted: Any) -> None:
    lm = scripted(lambda kind, text, n: {kind: "summary of notes" if "in notes" in text else "summary"})
    old, new = program("recursive-summary"), program("recursive-summary", max_words=50)
    old.memory(store, "ada", lm=lm).add(said("I moved to Lisbon."))
    memory = new.memory(store, "ada", lm=lm)
    with pytest.raises(ProgramError, match=r"^the memory of user 'ada' was written by another program .*; run: .*$"):
        memory.ask("Where?")
    memory.add(said("I like tea."), remember=False)
    with pytest.raises(ProgramError, match=r"mempiler memories rebuild PROGRAM --store \S+ --user 'ada'$"):
        memory.remember()
    assert memory.rebuild().items == 2
    assert memory.rebuild().items == 0
    memory.ask("Where?")
    assert memory.rebuild(force=True).items == 2


@pytest.mark.parametrize(
    ("version", "message"), [(0, "an older Mempiler .*mempiler memories rebuild"), (99, "a newer")]
)
def test_documents_of_other_versions_are_refused_with_the_remedy(path: Path, version: int, message: str) -> None:
    import sqlite3

    memory = program().memory(path, "ada", lm=language_model("offline"))
    memory.add(said("I moved to Lisbon."))
    database = sqlite3.connect(path)
    database.execute("UPDATE mempiler_memories SET schema = ?", (version,))
    database.commit()
    database.close()
    with pytest.raises(ProgramError, match=message):
        memory.ask("Where?")
    if version == 0:
        memory.rebuild()
        assert memory.ask("Where did Ada move?").context.sources == ("D1:1",)


def test_what_users_say_goes_into_no_cache_or_history(store: Store) -> None:
    lm = language_model("offline", cache=True)
    with dspy.context(lm=lm):
        program()(
            history=History.from_messages(said("The secret word is plover.")), question="What is the secret word?"
        )
    assert "plover" in repr(dspy.cache.memory_cache)
    memory = program("recursive-summary").memory(store, "ada", lm=lm)
    before = (len(lm.history), len(dspy.settings.trace or []))
    memory.add(said("The secret word is plugh."))
    memory.ask("What is the secret word?")
    assert (len(lm.history), len(dspy.settings.trace or [])) == before
    assert "plugh" not in repr(dspy.cache.memory_cache)


def test_session_that_cannot_be_written_holds_up_nobody(store: Store, scripted: Any) -> None:
    def reply(kind: str, text: str, n: int) -> Any:
        if "poison" in text:
            raise LMInvalidRequestError("refused", model="scripted/test")
        return {kind: "fine"}

    memory = program("recursive-summary").memory(store, "ada", lm=scripted(reply))
    memory.add(said("poison"), id="bad")
    memory.add(said("I moved to Lisbon."), id="good")
    assert [(stored.item.id, stored.state) for stored in store.items(Owner("ada"))] == [
        ("bad", "partial"),
        ("good", "remembered"),
    ]
    assert "refused" in store.items(Owner("ada"))[0].error
    assert "bad:1" in memory.recall("poison").sources


@pytest.mark.parametrize("method", ["turn-rag", "pgr"])
def test_the_last_commit_gives_the_claim_back(method: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = program(method).memory(store, "ada", lm=language_model("offline"))
    released: list[Any] = []
    monkeypatch.setattr(store, "release", released.append)
    for n in range(3):
        memory.add(said(f"I moved to town{n}."), remember=False)
    assert memory.remember().items == 3
    assert released == []
    memory.add(said("I have a dog."), remember=False)
    stamp = stamp_of(memory.program)
    assert store.claim("another", 60, stamp, memory.owner)


def test_a_window_of_time_is_searched_to_its_end(store: Store) -> None:
    memory = program().memory(store, "ada", lm=language_model("offline"))
    for day in range(1, 29):
        memory.add(Session(id=f"s{day}", time=datetime(2025, 3, day), turns=said_turns(day)), remember=day < 28)
    first, second = datetime(2025, 3, 2), datetime(2025, 3, 4)
    assert {hit.id for hit in memory.search("rye bread", 5, first, second).entries} == {"s2:1", "s3:1"}
    assert memory.search("rye bread", 5, first, first) == ((), ())
    assert [hit.id for hit in memory.search("rye bread", 5, since=datetime(2025, 3, 28)).waiting] == ["s28:1"]
    for k in (0, 1001):
        with pytest.raises(UserError, match=f"k is {k}; ask for 1 to 1000"):
            memory.search("rye bread", k)


def said_turns(day: int) -> tuple[Turn, ...]:
    # The later, the shorter, and so the nearer to the query: the window's days are the last to be found.
    return (Turn(id=f"s{day}:1", speaker="Ada", text="rye bread " + "of the baker " * (30 - day)),)
