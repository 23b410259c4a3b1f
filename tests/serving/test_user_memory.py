"""The Python API of production: durable, the same memory as in a benchmark, safe under threads and asyncio."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dspy
import mempiler
import pytest
from mempiler import History, Hit, MemoryProgram, Session, Store, Turn, UserMemory, build
from mempiler.async_bridge import MAX_THREADS
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.lm import language_model
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.memory.store.owner import Owner
from mempiler.programs.catalog import needs_embedder
from mempiler.serving.memories.memories import Memories

METHODS = ["turn-rag", "recursive-summary", "memory-r2", "pgr"]


def program(method: str = "turn-rag", **config: Any) -> MemoryProgram:
    return build(method, embedder=embedder() if needs_embedder(method) else None, **config)


def said(text: str, name: str = "Ada") -> list[dict[str, str]]:
    return [{"role": "user", "name": name, "content": text}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memories.sqlite"


@pytest.fixture
def ada(store: Store) -> UserMemory:
    return program().memory(store, "ada", lm=language_model("offline"))


@pytest.mark.parametrize("method", METHODS)
def test_stored_memory_is_what_remembering_the_history_writes(
    method: str, store: Store, make_history: Any
) -> None:
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
    assert len(found.entries) == (
        0 if method == "recursive-summary" else 3
    )  # a summary is a note, not an entry
    assert found.entries == memory.search(text, k=9).entries[:3]
    assert found == asyncio.run(memory.asearch(text, 3))


def test_a_model_is_taken_by_its_name_and_as_an_object_and_is_metered(
    store: Store, stub: Any
) -> None:
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="k")
    memory = program("recursive-summary").memory(store, "ada", lm=lm)
    memory.add(said("I moved to Lisbon."))
    assert memory.memories.lm is not None
    assert memory.memories.lm.meter.read().calls["task"] == len(server.requests) == 1
    assert lm.history == []

    by_name = Memories(program("turn-rag"), store, "offline")
    assert UserMemory(by_name, Owner("bo")).ask("Where?") is not None
    assert by_name.lm is not None
    assert by_name.lm.meter.read().calls["task"] == 1


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


def test_turns_whose_answer_was_unreadable_are_found_while_later_ones_wait(
    store: Store, scripted: Any
) -> None:
    unreadable = scripted(lambda kind, text, n: "I cannot help with that.")
    memory = program("pgr").memory(store, "ada", lm=unreadable)
    memory.add(said("I moved to Lisbon."))
    memory.add(said("My cat is called Momo."), remember=False)
    assert [hit.id for hit in memory.search("Lisbon").pending] == ["D1:1"]
    assert [hit.id for hit in memory.search("Momo").pending] == ["D2:1"]
    assert memory.recall("Who moved to Lisbon?").sources == ("D1:1",)


def test_a_session_keeps_its_id_unless_another_one_is_given(ada: UserMemory) -> None:
    first, second = (
        Session(id=id, turns=(Turn(id=f"{id}:1", speaker="Ada", text=f"I moved to {id}."),))
        for id in ("Porto", "Faro")
    )
    ada.add(first)
    ada.add(second, id="journey")
    assert [stored.item.id for stored in ada.store.items.list_all(ada.owner)] == [
        "Porto",
        "journey",
    ]


ASKED_TEN_TIMES = ["turn-rag", "pgr+turn-rag", "logs+turn-rag", "session-rag"]


@pytest.mark.parametrize("method", ASKED_TEN_TIMES)
@pytest.mark.parametrize(
    "question", ["Where do I live?", "Where did I move to?"], ids=["other words", "same words"]
)
@pytest.mark.parametrize("is_remembered", [False, True], ids=["waiting", "remembered"])
def test_a_fact_is_recalled_after_its_question_was_asked_ten_times(
    method: str, question: str, is_remembered: bool, store: Store
) -> None:
    memory = program(method).memory(store, "ada", lm=language_model("offline"))
    memory.add(said("I moved to Lisbon in spring."))
    for number in range(10):
        answered = {"role": "assistant", "content": "I do not know."}
        memory.say(f"chat-{number}", [*said(question, "user"), answered])
        if is_remembered:
            memory.end(f"chat-{number}")
    assert "D1:1" in memory.ask(question).context.sources
    assert "D1:1" in memory.recall(question).sources


def test_the_fallback_of_a_search_is_what_a_question_is_shown(ada: UserMemory) -> None:
    ada.add(said("I moved to Lisbon."), metadata={"year": 2024})
    ada.add(said("My cat is called Momo."), metadata={"year": 2025})
    assert ada.search("Where do I live?") == ((), ())
    shown = ada.search("Where do I live?", fallback=True)
    assert [(hit.id, hit.score) for hit in shown.entries] == [("D2:1", 0.0), ("D1:1", 0.0)]
    assert shown.entries == ada.recall("Where do I live?").hits
    assert [hit.id for hit in ada.search("Momo?", fallback=True).entries] == ["D2:1"]
    earlier = ada.search("Where do I live?", fallback=True, where={"year": 2024})
    assert [hit.id for hit in earlier.entries] == ["D1:1"]

    # The question and what was replied to it are stored by the time it is asked again.
    ada.add(
        [
            *said("Where do I live?", "user"),
            {"role": "assistant", "content": "You have not told me."},
        ]
    )
    ada.say(
        "chat",
        [*said("Where do I live?", "user"), {"role": "assistant", "content": "I do not know yet."}],
    )
    again = ada.search("Where do I live?", fallback=True)
    assert [hit.id for hit in again.entries] == ["D3:2", "D2:1", "D1:1"]
    assert [hit.id for hit in again.pending] == ["chat:2"]


def test_sources_are_there_until_another_process_forgets_them(ada: UserMemory, path: Path) -> None:
    for id, town in (("s", "Lisbon"), ("t", "Porto")):
        ada.add(said(f"I moved to {town}."), id=id)
    hit = Hit(
        id="x", text="Moved twice.", score=1.0, kind="fact", sources=("s:1", "t:1", "nowhere:1")
    )

    def sources() -> dict[str, str]:
        (one,) = ada.evidence([hit])
        assert all(source.time for source in one.sources)
        return {source.id: source.text for source in one.sources}

    assert sources() == {"s:1": "I moved to Lisbon.", "t:1": "I moved to Porto."}
    with Store(path) as other:
        other.forgetting.forget_session(ada.owner, "s")
        assert list(sources()) == ["t:1"]
        other.forgetting.forget_user(ada.owner)
        assert sources() == {}


def test_work_looks_at_what_it_began_with_and_stores_nothing_once_forgotten(
    ada: UserMemory, store: Store
) -> None:
    began, later = program().memory(store, "ada", lm=language_model("offline")), ada
    later.add(said("I moved to Lisbon."))
    began.bind_view(began.view())
    later.add(said("My cat is called Momo."))
    assert [len(memory.entries.list().entries) for memory in (began, later)] == [1, 2]
    assert [bool(memory.entries.get("D2:1")) for memory in (began, later)] == [False, True]
    assert [
        "Momo" in memory.recall("What is the cat called?").text() for memory in (began, later)
    ] == [False, True]
    later.forget()
    for begun in (began, began.bind_view()):
        with pytest.raises(
            mempiler.ConflictError, match="user 'ada' was forgotten while this was under way"
        ):
            begun.add(said("I moved to Porto."))
    assert later.bind_view().add(said("I moved to Faro.")).new


def test_undated_messages_get_the_present_time_and_dated_ones_keep_theirs(store: Store) -> None:
    memory = program().memory(store, "ada")
    memory.add(said("now"))
    for zone in ("", "+02:00"):
        memory.add([{**said("then")[0], "time": f"2024-03-05T10:00:00{zone}"}])
    now, *dated = (item.time for item in memory.items())
    assert dated == [datetime(2024, 3, 5, 10), datetime(2024, 3, 5, 8)]
    assert abs(datetime.now(UTC).replace(tzinfo=None) - now) < timedelta(minutes=1)


def test_changed_writing_prompt_is_noticed_and_rebuilt(store: Store, scripted: Any) -> None:
    lm = scripted(
        lambda kind, text, n: {kind: "summary of notes" if "in notes" in text else "summary"}
    )
    old, new = program("recursive-summary"), program("recursive-summary", max_words=50)
    old.memory(store, "ada", lm=lm).add(said("I moved to Lisbon."))
    memory = new.memory(store, "ada", lm=lm)
    with pytest.raises(
        mempiler.ProgramError,
        match=r"^the memory of user 'ada' was written by another program .*; run: ",
    ):
        memory.ask("Where?")
    memory.add(said("I like tea."), remember=False)
    with pytest.raises(
        mempiler.ProgramError, match=r"mempiler memories rebuild PROGRAM --store \S+ --user 'ada'$"
    ):
        memory.remember()
    assert memory.rebuild().items == 2
    assert memory.rebuild().items == 0
    memory.ask("Where?")
    assert memory.rebuild(force=True).items == 2


@pytest.mark.parametrize(
    ("version", "message"), [(0, "an older Mempiler .*mempiler memories rebuild"), (99, "a newer")]
)
def test_documents_of_other_versions_are_refused_with_the_remedy(
    path: Path, version: int, message: str
) -> None:
    memory = program().memory(path, "ada", lm=language_model("offline"))
    memory.add(said("I moved to Lisbon."))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE mempiler_memories SET schema = ?", (version,))
    with pytest.raises(mempiler.ProgramError, match=message):
        memory.ask("Where?")
    if version == 0:
        memory.rebuild()
        assert memory.ask("Where did Ada move?").context.sources == ("D1:1",)


def test_a_window_of_time_is_searched_to_its_end(ada: UserMemory) -> None:
    for day in range(1, 29):
        # The later, the shorter, and so the nearer to the query: the window's days are the last to be found.
        turn = Turn(id=f"s{day}:1", speaker="Ada", text="rye bread " + "of the baker " * (30 - day))
        ada.add(
            Session(id=f"s{day}", time=datetime(2025, 3, day), turns=(turn,)), remember=day < 28
        )
    first, second = datetime(2025, 3, 2), datetime(2025, 3, 4)
    assert {hit.id for hit in ada.search("rye bread", 5, since=first, until=second).entries} == {
        "s2:1",
        "s3:1",
    }
    assert ada.search("rye bread", 5, since=first, until=first) == ((), ())
    assert [hit.id for hit in ada.search("rye bread", 5, since=datetime(2025, 3, 28)).pending] == [
        "s28:1"
    ]
    for k in (0, 1001):
        with pytest.raises(mempiler.UserError, match=f"k = {k}: give a finite number, 1 to 1000"):
            ada.search("rye bread", k)


class PendingItems:
    """An engine for asyncio that answers nobody until two hundred ask; counts the threads that there are by then."""

    def __init__(self, answers: Any) -> None:
        self.answers, self.all_here, self.threads = answers, asyncio.Barrier(200), 0

    async def complete(self, request: Any) -> Any:
        async with asyncio.timeout(60):
            await self.all_here.wait()
        self.threads = max(self.threads, threading.active_count())
        return self.answers.complete(request)

    async def aclose(self) -> None:
        pass


def test_two_hundred_questions_wait_for_the_model_together_and_take_few_threads(
    store: Store, scripted: Any
) -> None:
    program, before = build("turn-rag"), threading.active_count()
    engine = PendingItems(scripted(lambda kind, text, n: {"answer": "Lisbon"}).engine)
    blocking = scripted(lambda kind, text, n: pytest.fail("a thread asked")).engine
    guard = BudgetGuard(in_flight=200)
    lm = MeteredLM(
        "waiting/test", Metering(guard=guard), engine=blocking, async_engine=engine, cache=False
    )
    memory = program.memory(store, "ada", lm=lm)
    memory.add(said("I moved to Lisbon."), remember=False)

    async def all_at_once() -> list[Any]:
        return list(
            await asyncio.gather(*(memory.aask("Where does Ada live?") for _ in range(200)))
        )

    assert [one.answer for one in asyncio.run(all_at_once())] == ["Lisbon"] * 200
    assert engine.threads - before <= MAX_THREADS + 16


CHOICES = {"options": ["(a) Lisbon", "(b) Oslo"]}


@pytest.mark.parametrize(
    ("method", "task", "query"),
    [
        ("turn-rag", "multiple-choice", CHOICES),
        ("turn-rag", "personal-response", {}),
        ("turn-rag", "behavior-prediction", CHOICES),
        ("turn-rag", "dialogue-reply", {}),
        ("turn-rag", "memory-lookup", {}),
        ("memory-r2", "question-answering", {}),
    ],
)
def test_asyncio_answers_as_a_thread_does(store: Store, method: str, task: str, query: Any) -> None:
    memory = build(method, task=task).memory(store, "ada", lm=language_model("offline"))
    memory.add(said("I moved to Lisbon."))
    awaited = asyncio.run(memory.aask("Where did Ada move?", **query))
    answered = memory.ask("Where did Ada move?", **query)
    assert {**awaited.toDict(), "memory": None} == {**answered.toDict(), "memory": None}
