"""A user's memory in Python: durable, as in a benchmark, and safe under threads and asyncio.

A session that is added is stored, and then written into the memory ("remembered") by the method of
the program. With `remember=False` it waits, and its turns are found as they were said. Sessions
without an id are called D1, D2 and so on, and "D2:1" is the first turn of D2.
"""

import asyncio
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler import (
    ConflictError,
    History,
    Hit,
    MemoryProgram,
    ProgramError,
    Session,
    Store,
    Turn,
    UserError,
    UserMemory,
    build,
)
from mempiler.async_bridge import MAX_THREADS
from mempiler.engines.embedders import embedder
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.lm import language_model
from mempiler.engines.metered_lm import MeteredLM, Metering
from mempiler.memory.store.owner import Owner
from mempiler.programs.catalog import needs_embedder
from mempiler.serving.memories.memories import Memories


def build_program(method: str = "turn-rag", **config: Any) -> MemoryProgram:
    """Build a program with a method, with an embedder if it needs one."""
    return build(method, embedder=embedder() if needs_embedder(method) else None, **config)


def memory_of_ada(store: Store | Path, method: str = "turn-rag") -> UserMemory:
    """Return Ada's memory, with a program of its own as in another process."""
    return build_program(method).memory(store, "ada", lm=language_model("offline"))


def message(text: str, name: str = "Ada") -> dict[str, str]:
    """Return a message of a chat, as a client of OpenAI's protocol writes it."""
    return {"role": "user", "name": name, "content": text}


def unanswered_question(question: str, reply: str) -> list[dict[str, str]]:
    """Return a chat in which the assistant did not know the answer."""
    return [message(question, name="user"), {"role": "assistant", "content": reply}]


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Where the fixture `store` has its file."""
    return tmp_path / "memories.sqlite"


@pytest.fixture
def ada(store: Store) -> UserMemory:
    """Ada's memory, which is empty."""
    return memory_of_ada(store)


# What is written.

METHODS = ["turn-rag", "recursive-summary", "memory-r2", "pgr"]


@pytest.mark.parametrize("method", METHODS)
def test_sessions_that_arrive_one_by_one_give_the_memory_of_the_whole_history(
    method: str, store: Store, make_history: Any
) -> None:
    """A benchmark writes a whole history at once (`program.remember`). The memory is the same.

    Of four sessions, one arrives alone, two at once, and one after another was forgotten.
    """
    lm = language_model("offline")
    program = build_program(method)
    memory = program.memory(store, "ada", lm=lm)
    first, second, third, fourth = make_history(sessions=4).items  # D1 to D4

    asyncio.run(memory.aadd(first))
    memory.add(second, remember=False)
    memory.add(third, remember=False)
    memory.remember()
    memory.add(fourth)
    memory.forget_session("D2")

    history = History(id="ada", items=(first, third, fourth))
    with dspy.context(lm=lm):
        remembered = program.remember(history)
    assert memory.read() == remembered.memory


@pytest.mark.parametrize("method", METHODS)
def test_a_memory_that_is_read_again_is_the_same_object(method: str, store: Store) -> None:
    """Memories are kept, so that they need not be read from the store for each question."""
    lm = language_model("offline")
    program = build_program(method)
    memory = program.memory(store, "ada", lm=lm)
    memory.add([message("I moved to Lisbon.")])

    same_memory = program.memory(store, "ada", lm=lm)

    assert same_memory.read() is memory.read()


@pytest.mark.parametrize("method", METHODS)
def test_a_search_asks_no_model_and_is_the_same_under_asyncio(method: str, store: Store) -> None:
    lm = language_model("offline")
    memory = build_program(method).memory(store, "ada", lm=lm)
    memory.add([message("I moved to Lisbon."), message("Lisbon is warm.")])
    usage_before = lm.meter.read()

    search_result = memory.search("Lisbon", k=1)

    assert lm.meter.read() == usage_before
    # A summary is a note, and not an entry that a search finds.
    assert len(search_result.entries) == (0 if method == "recursive-summary" else 1)
    assert search_result == asyncio.run(memory.asearch("Lisbon", k=1))


@pytest.mark.parametrize("method", ["turn-rag", "memory-r2", "pgr"])
def test_a_search_for_more_hits_begins_with_the_same_ones(
    method: str, store: Store, make_history: Any
) -> None:
    memory = build_program(method).memory(store, "ada", lm=language_model("offline"))
    for session in make_history(sessions=4).items:  # in each turn somebody says "friends"
        memory.add(session)

    three_hits = memory.search("friends", k=3).entries
    nine_hits = memory.search("friends", k=9).entries

    assert len(three_hits) == 3
    assert nine_hits[:3] == three_hits


def test_a_model_may_be_an_object_of_dspy_whose_calls_are_counted(store: Store, stub: Any) -> None:
    """With `recursive-summary` the model adds each session to a summary, in one call."""
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="k")
    memory = build_program("recursive-summary").memory(store, "ada", lm=lm)

    memory.add([message("I moved to Lisbon.")])

    assert len(server.requests) == 1
    metered_lm = memory.memories.lm
    assert metered_lm is not None
    assert metered_lm.meter.read().calls["task"] == 1
    # What was said is not kept in the object.
    assert lm.history == []


def test_a_model_may_be_named_and_its_calls_are_counted(store: Store) -> None:
    """ "offline" names the offline engine, which needs no key and no network."""
    memories = Memories(build_program("turn-rag"), store, "offline")

    assert UserMemory(memories, Owner("bo")).ask("Where?") is not None

    assert memories.lm is not None
    assert memories.lm.meter.read().calls["task"] == 1


def test_a_session_keeps_its_id_unless_another_one_is_given(ada: UserMemory) -> None:
    porto = Session(
        id="Porto", turns=(Turn(id="Porto:1", speaker="Ada", text="I moved to Porto."),)
    )
    faro = Session(id="Faro", turns=(Turn(id="Faro:1", speaker="Ada", text="I moved to Faro."),))

    ada.add(porto)
    ada.add(faro, id="journey")

    assert [item.id for item in ada.items()] == ["Porto", "journey"]


def test_messages_without_a_time_get_the_present_time(ada: UserMemory) -> None:
    ada.add([message("now")])

    (session,) = ada.items()
    now = datetime.now(UTC).replace(tzinfo=None)
    assert session.time is not None
    assert abs(now - session.time) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("time", "stored_time"),
    [
        ("2024-03-05T10:00:00", datetime(2024, 3, 5, 10)),
        ("2024-03-05T10:00:00+02:00", datetime(2024, 3, 5, 8)),
    ],
)
def test_messages_keep_their_time_in_utc(ada: UserMemory, time: str, stored_time: datetime) -> None:
    ada.add([{**message("then"), "time": time}])

    (session,) = ada.items()
    assert session.time == stored_time


# What is found.


@pytest.mark.parametrize("method", ["no-memory", "turn-rag", "pgr"])
def test_turns_that_are_not_in_the_memory_yet_are_found_as_they_were_said(
    method: str, store: Store
) -> None:
    """D2 waits to be written into the memory by the method. A program without a memory writes none.

    The session "chat" goes on, so it is not written either.
    """
    memory = memory_of_ada(store, method)
    memory.add([message("I moved to Lisbon.")])
    memory.add([message("My cat is called Momo.")], remember=False)
    memory.say("chat", [message("I began to play the cello.")])

    assert "D2:1" in memory.recall("What is the cat called?").sources
    reply = memory.ask("Which instrument does Ada play, the cello?")
    assert "chat:1" in reply.context.sources
    assert "cello" in reply.answer


def test_turns_that_a_model_failed_to_write_are_found_as_those_that_wait(
    store: Store, scripted: Any
) -> None:
    """With the method PGR a model writes each session into the memory.

    Its answer to D1 could not be read, so nothing of D1 is in the memory. D2 waits.
    """
    unreadable = scripted(lambda field, prompt, call_number: "I cannot help with that.")
    memory = build_program("pgr").memory(store, "ada", lm=unreadable)
    memory.add([message("I moved to Lisbon.")])
    memory.add([message("My cat is called Momo.")], remember=False)

    assert [hit.id for hit in memory.search("Lisbon").pending] == ["D1:1"]
    assert [hit.id for hit in memory.search("Momo").pending] == ["D2:1"]
    assert memory.recall("Who moved to Lisbon?").sources == ("D1:1",)


@pytest.mark.parametrize("method", ["turn-rag", "pgr+turn-rag", "logs+turn-rag", "session-rag"])
@pytest.mark.parametrize(
    "question",
    [
        pytest.param("Where do I live?", id="other words"),
        pytest.param("Where did I move to?", id="same words"),
    ],
)
@pytest.mark.parametrize("is_remembered", [False, True], ids=["waiting", "remembered"])
def test_a_fact_is_recalled_after_its_question_was_asked_ten_times(
    method: str, question: str, is_remembered: bool, store: Store
) -> None:
    """The stored questions are more like the question than the fact is, and must not hide it."""
    memory = memory_of_ada(store, method)
    memory.add([message("I moved to Lisbon in spring.")])
    for number in range(10):
        chat = f"chat-{number}"
        memory.say(chat, unanswered_question(question, "I do not know."))
        if is_remembered:
            memory.end(chat)

    assert "D1:1" in memory.ask(question).context.sources
    assert "D1:1" in memory.recall(question).sources


def test_a_search_without_hits_falls_back_on_the_newest_entries(ada: UserMemory) -> None:
    """No turn shares a word with the question, so a search finds nothing.

    With `fallback=True` it finds what a question would be answered from instead.
    """
    ada.add([message("I moved to Lisbon.")], id="first")
    ada.add([message("My cat is called Momo.")], id="second")
    assert ada.search("Where do I live?").entries == ()

    fallback = ada.search("Where do I live?", fallback=True)

    assert [hit.id for hit in fallback.entries] == ["second:1", "first:1"]
    assert [hit.score for hit in fallback.entries] == [0.0, 0.0]
    assert fallback.entries == ada.recall("Where do I live?").hits


def test_the_fallback_of_a_search_keeps_to_its_condition(ada: UserMemory) -> None:
    ada.add([message("I moved to Lisbon.")], id="first", metadata={"year": 2024})
    ada.add([message("My cat is called Momo.")], id="second", metadata={"year": 2025})

    fallback = ada.search("Where do I live?", fallback=True, where={"year": 2024})

    assert [hit.id for hit in fallback.entries] == ["first:1"]


def test_a_search_that_finds_something_needs_no_fallback(ada: UserMemory) -> None:
    ada.add([message("I moved to Lisbon.")], id="first")
    ada.add([message("My cat is called Momo.")], id="second")

    search_result = ada.search("Momo?", fallback=True)

    assert [hit.id for hit in search_result.entries] == ["second:1"]


def test_the_fallback_of_a_search_leaves_out_the_question_itself(ada: UserMemory) -> None:
    """The question and the reply to it were stored before it is asked again, in two sessions.

    The first one is written into the memory; the other one goes on, so its turns wait.
    """
    ada.add([message("I moved to Lisbon.")], id="fact")
    ada.add(unanswered_question("Where do I live?", "You have not told me."), id="asked")
    ada.say("chat", unanswered_question("Where do I live?", "I do not know yet."))

    fallback = ada.search("Where do I live?", fallback=True)

    # The turns asked:1 and chat:1 are the question.
    assert [hit.id for hit in fallback.entries] == ["asked:2", "fact:1"]
    assert [hit.id for hit in fallback.pending] == ["chat:2"]


@pytest.fixture
def memory_of_march(ada: UserMemory) -> UserMemory:
    """A memory with a session on each of 28 days of March 2025; the last one waits.

    The turn of 2 March is "s2:1". Each session is about rye bread. The later ones are shorter, and
    so nearer to the query "rye bread": a search finds those of the first days last.
    """
    for day in range(1, 29):
        text = "rye bread " + "of the baker " * (30 - day)
        turn = Turn(id=f"s{day}:1", speaker="Ada", text=text)
        session = Session(id=f"s{day}", time=datetime(2025, 3, day), turns=(turn,))
        ada.add(session, remember=day < 28)
    return ada


def test_all_entries_in_a_span_of_time_are_found(memory_of_march: UserMemory) -> None:
    """There is an entry of each day, "s2:1" of 2 March and so on.

    Entries of later days are nearer to the query, but take no place among the five hits.
    """
    second_of_march = datetime(2025, 3, 2)
    fourth_of_march = datetime(2025, 3, 4)

    search_result = memory_of_march.search(
        "rye bread", k=5, since=second_of_march, until=fourth_of_march
    )

    assert {hit.id for hit in search_result.entries} == {"s2:1", "s3:1"}


def test_nothing_is_found_in_an_empty_span_of_time(memory_of_march: UserMemory) -> None:
    """There is an entry of each day. A span of time ends before its second date."""
    second_of_march = datetime(2025, 3, 2)

    search_result = memory_of_march.search(
        "rye bread", k=5, since=second_of_march, until=second_of_march
    )

    assert search_result.entries == ()
    assert search_result.pending == ()


def test_turns_that_wait_are_found_in_a_span_of_time(ada: UserMemory) -> None:
    """With `remember=False` a session waits to be written into the memory."""
    bread_in_march = {**message("I bake rye bread."), "time": "2025-03-28T10:00:00"}
    bread_in_april = {**message("I bought rye bread."), "time": "2025-04-02T10:00:00"}
    ada.add([bread_in_march], id="march", remember=False)
    ada.add([bread_in_april], id="april", remember=False)

    search_result = ada.search("rye bread", since=datetime(2025, 4, 1))

    assert [hit.id for hit in search_result.pending] == ["april:1"]


@pytest.mark.parametrize("k", [0, 1001])
def test_a_search_for_too_few_or_too_many_hits_is_refused(ada: UserMemory, k: int) -> None:
    with pytest.raises(UserError, match=f"k = {k}: give a finite number, 1 to 1000"):
        ada.search("rye bread", k=k)


# Forgetting.


def test_the_sources_of_a_hit_are_shown_until_another_process_forgets_them(
    ada: UserMemory, store_path: Path
) -> None:
    """The sources of a hit are the turns on which it rests.

    `evidence` reads their texts from the store.
    """
    ada.add([message("I moved to Lisbon.")], id="s")
    ada.add([message("I moved to Porto.")], id="t")
    hit = Hit(
        id="x", text="Moved twice.", score=1.0, kind="fact", sources=("s:1", "t:1", "nowhere:1")
    )

    def texts_of_sources() -> dict[str, str]:
        (evidence,) = ada.evidence([hit])
        for source in evidence.sources:
            assert source.time
        return {source.id: source.text for source in evidence.sources}

    assert texts_of_sources() == {"s:1": "I moved to Lisbon.", "t:1": "I moved to Porto."}
    with Store(store_path) as other_process:
        other_process.forgetting.forget_session(ada.owner, "s")
        assert texts_of_sources() == {"t:1": "I moved to Porto."}

        other_process.forgetting.forget_user(ada.owner)
        assert texts_of_sources() == {}


def test_a_request_sees_the_memory_as_it_was_when_it_began(ada: UserMemory, store: Store) -> None:
    """A request binds its memory object to a view, i.e. to what was stored at that time."""
    ada.add([message("I moved to Lisbon.")])
    memory_of_request = memory_of_ada(store)
    memory_of_request.bind_view(memory_of_request.view())

    ada.add([message("My cat is called Momo.")])

    assert len(memory_of_request.entries.list().entries) == 1
    assert memory_of_request.entries.get("D2:1") is None
    assert "Momo" not in memory_of_request.recall("What is the cat called?").text()

    assert len(ada.entries.list().entries) == 2
    assert ada.entries.get("D2:1")
    assert "Momo" in ada.recall("What is the cat called?").text()


@pytest.mark.parametrize("has_view", [True, False])
def test_a_request_stores_nothing_for_a_user_who_was_forgotten_meanwhile(
    ada: UserMemory, store: Store, has_view: bool
) -> None:
    """The request began before the forgetting, whether or not it has read the memory by then."""
    ada.add([message("I moved to Lisbon.")])
    memory_of_request = memory_of_ada(store)
    memory_of_request.bind_view(memory_of_request.view() if has_view else None)
    ada.forget()

    message_of_error = "user 'ada' was forgotten while this was under way"
    with pytest.raises(ConflictError, match=message_of_error):
        memory_of_request.add([message("I moved to Porto.")])
    # Another call of `bind_view` does not make it a request that begins now.
    with pytest.raises(ConflictError, match=message_of_error):
        memory_of_request.bind_view().add([message("I moved to Porto.")])

    # A request that begins now may store something.
    assert ada.bind_view().add([message("I moved to Faro.")]).new


# Other programs and versions.


@pytest.fixture
def memory_of_another_prompt(store: Store, scripted: Any) -> UserMemory:
    """A memory with one session, which a program with another prompt has written.

    The method is a summary that a model writes. The setting `max_words` changes its prompt.
    """
    lm = scripted(lambda field, prompt, call_number: {field: "Ada moved."})
    writing_program = build_program("recursive-summary", max_words=200)
    writing_program.memory(store, "ada", lm=lm).add([message("I moved to Lisbon.")])

    reading_program = build_program("recursive-summary", max_words=50)
    return reading_program.memory(store, "ada", lm=lm)


def test_a_memory_that_another_prompt_wrote_is_not_read(
    memory_of_another_prompt: UserMemory,
) -> None:
    with pytest.raises(
        ProgramError, match=r"^the memory of user 'ada' was written by another program .*; run: "
    ):
        memory_of_another_prompt.ask("Where?")


def test_a_memory_that_another_prompt_wrote_is_not_written_on(
    memory_of_another_prompt: UserMemory,
) -> None:
    """A session may be stored, but not be written into the memory (`remember`)."""
    memory_of_another_prompt.add([message("I like tea.")], remember=False)

    with pytest.raises(
        ProgramError, match=r"mempiler memories rebuild PROGRAM --store \S+ --user 'ada'$"
    ):
        memory_of_another_prompt.remember()


def test_a_memory_that_another_prompt_wrote_is_read_after_it_was_rebuilt(
    memory_of_another_prompt: UserMemory,
) -> None:
    """To rebuild a memory is to write it anew from all that was said: here from one session."""
    assert memory_of_another_prompt.rebuild().items == 1

    assert memory_of_another_prompt.ask("Where?").answer


def test_a_memory_of_this_prompt_is_rebuilt_only_if_that_is_forced(ada: UserMemory) -> None:
    ada.add([message("I moved to Lisbon.")])
    ada.add([message("I like tea.")])

    assert ada.rebuild().items == 0
    assert ada.rebuild(force=True).items == 2


@pytest.fixture
def set_document_version(store_path: Path) -> Any:
    """Change the version of all memories in the store, as if another Mempiler had written them."""

    def set_version(version: int) -> None:
        with closing(sqlite3.connect(store_path)) as database, database:
            database.execute("UPDATE mempiler_memories SET schema = ?", [version])

    return set_version


def test_a_memory_of_an_older_version_is_refused_until_it_is_rebuilt(
    store_path: Path, set_document_version: Any
) -> None:
    """The format of stored memories has a version. To rebuild a memory is to write it anew."""
    memory = memory_of_ada(store_path)
    memory.add([message("I moved to Lisbon.")])
    set_document_version(0)

    with pytest.raises(ProgramError, match=r"an older Mempiler .*mempiler memories rebuild"):
        memory.ask("Where?")

    memory.rebuild()
    assert memory.ask("Where did Ada move?").context.sources == ("D1:1",)


def test_a_memory_of_a_newer_version_is_refused(
    store_path: Path, set_document_version: Any
) -> None:
    """The format of stored memories has a version. An older Mempiler cannot read a newer one."""
    memory = memory_of_ada(store_path)
    memory.add([message("I moved to Lisbon.")])
    set_document_version(99)

    with pytest.raises(ProgramError, match="a newer"):
        memory.ask("Where?")


# asyncio.


class EngineOfTwoHundred:
    """An engine for asyncio that answers nobody until two hundred ask at once.

    Args:
        engine: Gives the answers.
    """

    def __init__(self, engine: Any) -> None:
        self.most_threads = 0
        """The most threads that there were when an answer was given."""
        self._engine = engine
        self._barrier = asyncio.Barrier(200)

    async def complete(self, request: Any) -> Any:
        async with asyncio.timeout(60):
            await self._barrier.wait()
        self.most_threads = max(self.most_threads, threading.active_count())
        return self._engine.complete(request)

    async def aclose(self) -> None:
        """Close nothing: there is no connection."""


def test_two_hundred_questions_wait_for_the_model_together_and_take_few_threads(
    store: Store, scripted: Any
) -> None:
    """The engine answers nobody until two hundred questions are there at once.

    There are fewer threads (`MAX_THREADS`), so a question must hold none while it waits.
    """
    threads_before = threading.active_count()
    async_engine = EngineOfTwoHundred(
        scripted(lambda field, prompt, call_number: {"answer": "Lisbon"}).engine
    )
    # The engine for threads must not be used.
    engine = scripted(lambda field, prompt, call_number: pytest.fail("a thread asked")).engine
    lm = MeteredLM(
        "waiting/test",
        Metering(guard=BudgetGuard(in_flight=200)),
        engine=engine,
        async_engine=async_engine,
        cache=False,
    )
    memory = build("turn-rag").memory(store, "ada", lm=lm)
    memory.add([message("I moved to Lisbon.")], remember=False)

    async def ask_at_once() -> list[Any]:
        questions = [memory.aask("Where does Ada live?") for _ in range(200)]
        return await asyncio.gather(*questions)

    replies = asyncio.run(ask_at_once())

    assert [reply.answer for reply in replies] == ["Lisbon"] * 200
    # Besides the threads for blocking calls there are a few for event loops and the like.
    assert async_engine.most_threads - threads_before <= MAX_THREADS + 16


OPTIONS = {"options": ["(a) Lisbon", "(b) Oslo"]}


@pytest.mark.parametrize(
    ("method", "task", "fields"),
    [
        ("turn-rag", "multiple-choice", OPTIONS),
        ("turn-rag", "personal-response", {}),
        ("turn-rag", "behavior-prediction", OPTIONS),
        ("turn-rag", "dialogue-reply", {}),
        ("turn-rag", "memory-lookup", {}),
        ("memory-r2", "question-answering", {}),
    ],
)
def test_asyncio_answers_as_a_thread_does(
    store: Store, method: str, task: str, fields: dict[str, Any]
) -> None:
    """`aask` is `ask` for asyncio."""
    program = build(method, task=task)
    memory = program.memory(store, "ada", lm=language_model("offline"))
    memory.add([message("I moved to Lisbon.")])

    reply_of_asyncio = asyncio.run(memory.aask("Where did Ada move?", **fields)).toDict()
    reply = memory.ask("Where did Ada move?", **fields).toDict()

    # Each reply holds the memory object, which is not compared, and an id of its own.
    for name in ("memory", "answer_id"):
        del reply_of_asyncio[name]
        del reply[name]
    assert reply_of_asyncio == reply
