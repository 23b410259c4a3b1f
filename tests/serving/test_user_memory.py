"""A user's memory in Python: durable, as in a benchmark, and safe under threads and asyncio.

A session that is added is stored, and then written into the memory ("remembered") by the method of
the program. With `remember=False` it waits, and its turns are found as they were said. Sessions
without an id are called D1, D2 and so on, and "D2:1" is the first turn of D2.
"""

import asyncio
import sqlite3
from collections.abc import Callable
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
from mempiler.engines.embedders import embedder
from mempiler.engines.lm import language_model
from mempiler.programs.catalog import needs_embedder

from .conftest import ModelSaying


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
    """A benchmark writes a whole history at once (`program.remember`)."""
    lm = language_model("offline")
    program = build_program(method)
    memory = program.memory(store, "ada", lm=lm)
    first, second, third, fourth = make_history(sessions=4).items

    memory.add(first)
    # The next two sessions are stored first, and then written together.
    memory.add(second, remember=False)
    memory.add(third, remember=False)
    memory.remember()
    asyncio.run(memory.aadd(fourth))

    history = History(id="ada", items=(first, second, third, fourth))
    with dspy.context(lm=lm):
        assert memory.read() == program.remember(history).memory


@pytest.mark.parametrize("method", METHODS)
def test_a_memory_after_a_forgotten_session_is_the_memory_of_the_others(
    method: str, store: Store, make_history: Any
) -> None:
    """A benchmark writes a whole history at once (`program.remember`)."""
    lm = language_model("offline")
    program = build_program(method)
    memory = program.memory(store, "ada", lm=lm)
    first, second, third = make_history(sessions=3).items  # D1 to D3
    for session in (first, second, third):
        memory.add(session)

    memory.forget_session("D2")

    history = History(id="ada", items=(first, third))
    with dspy.context(lm=lm):
        assert memory.read() == program.remember(history).memory


@pytest.mark.parametrize("method", METHODS)
def test_a_memory_is_read_from_the_store_once(method: str, store: Store) -> None:
    """A program keeps the memories that it has read, so a second reading gives the same object."""
    lm = language_model("offline")
    program = build_program(method)
    memory = program.memory(store, "ada", lm=lm)
    memory.add([message("I moved to Lisbon.")])

    memory_read_first = memory.read()
    memory_read_later = program.memory(store, "ada", lm=lm).read()

    assert memory_read_later is memory_read_first


@pytest.mark.parametrize("method", METHODS)
def test_a_search_asks_no_model(method: str, store: Store) -> None:
    lm = language_model("offline")
    memory = build_program(method).memory(store, "ada", lm=lm)
    memory.add([message("I moved to Lisbon."), message("Lisbon is warm.")])
    usage_before = lm.meter.read()

    memory.search("Lisbon", k=1)

    assert lm.meter.read() == usage_before


@pytest.mark.parametrize("method", METHODS)
def test_a_search_under_asyncio_finds_the_same(method: str, store: Store) -> None:
    """`asearch` is `search` for asyncio."""
    memory = memory_of_ada(store, method)
    memory.add([message("I moved to Lisbon."), message("Lisbon is warm.")])

    search_result = memory.search("Lisbon", k=1)

    assert asyncio.run(memory.asearch("Lisbon", k=1)) == search_result


def test_a_search_finds_no_summary(store: Store) -> None:
    """A summary is a note that every question is answered with, and no entry."""
    memory = memory_of_ada(store, "recursive-summary")
    memory.add([message("I moved to Lisbon.")])

    assert memory.search("Lisbon").entries == ()


@pytest.mark.parametrize("method", ["turn-rag", "memory-r2", "pgr"])
def test_a_search_for_more_hits_begins_with_the_same_ones(
    method: str, store: Store, make_history: Any
) -> None:
    """In each turn of the history somebody says "friends"."""
    memory = memory_of_ada(store, method)
    for session in make_history(sessions=4).items:
        memory.add(session)

    three_hits = memory.search("friends", k=3).entries
    nine_hits = memory.search("friends", k=9).entries

    assert len(three_hits) == 3
    assert nine_hits[:3] == three_hits


def test_a_model_may_be_an_object_of_dspy_whose_calls_are_counted(store: Store, stub: Any) -> None:
    """With `recursive-summary` the model is called once for each session."""
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="k")
    memory = build_program("recursive-summary").memory(store, "ada", lm=lm)

    memory.add([message("I moved to Lisbon.")])

    assert len(server.requests) == 1
    metered_lm = memory.memories.lm
    assert metered_lm is not None
    assert metered_lm.meter.read().calls["task"] == 1


def test_an_object_of_dspy_does_not_keep_what_was_said(store: Store, stub: Any) -> None:
    """DSPy by itself keeps all prompts in the `history` of a model."""
    server = stub()
    lm = dspy.LM(server.model, api_base=server.url, api_key="k")
    memory = build_program("recursive-summary").memory(store, "ada", lm=lm)

    memory.add([message("I moved to Lisbon.")])

    assert lm.history == []


def test_a_session_keeps_its_id_unless_another_one_is_given(ada: UserMemory) -> None:
    porto = Session(id="Porto", turns=(Turn(id="", speaker="Ada", text="I moved to Porto."),))
    faro = Session(id="Faro", turns=(Turn(id="", speaker="Ada", text="I moved to Faro."),))

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
        ("2024-03-05T10:00:00", datetime(2024, 3, 5, hour=10)),
        ("2024-03-05T10:00:00+02:00", datetime(2024, 3, 5, hour=8)),
    ],
)
def test_messages_keep_their_time_in_utc(ada: UserMemory, time: str, stored_time: datetime) -> None:
    ada.add([{**message("then"), "time": time}])

    (session,) = ada.items()
    assert session.time == stored_time


# What is found.


@pytest.mark.parametrize("method", ["no-memory", "turn-rag", "pgr"])
def test_turns_of_a_session_that_waits_are_found_as_they_were_said(
    method: str, store: Store
) -> None:
    """With `remember=False` the session D2 is not written into the memory yet."""
    memory = memory_of_ada(store, method)
    memory.add([message("I moved to Lisbon.")])
    memory.add([message("My cat is called Momo.")], remember=False)

    assert "D2:1" in memory.recall("What is the cat called?").sources


@pytest.mark.parametrize("method", ["no-memory", "turn-rag", "pgr"])
def test_turns_of_an_open_session_are_found_as_they_were_said(method: str, store: Store) -> None:
    """The session "chat" goes on, so it is not written into the memory yet."""
    memory = memory_of_ada(store, method)
    memory.add([message("I moved to Lisbon.")])
    memory.say("chat", [message("I began to play the cello.")])

    reply = memory.ask("Which instrument does Ada play, the cello?")

    assert "chat:1" in reply.context.sources
    assert "cello" in reply.answer


def test_turns_that_a_model_failed_to_write_are_found_as_they_were_said(
    store: Store, model_saying: ModelSaying
) -> None:
    """With the method PGR a model writes each session into the memory.

    Here its answers cannot be read, so nothing of the session is in the memory.
    """
    unreadable = "I cannot help with that."
    memory = build_program("pgr").memory(store, "ada", lm=model_saying(unreadable))

    memory.add([message("I moved to Lisbon.")])

    assert [hit.id for hit in memory.search("Lisbon").pending] == ["D1:1"]
    assert memory.recall("Who moved to Lisbon?").sources == ("D1:1",)


@pytest.mark.parametrize("method", ["turn-rag", "pgr+turn-rag", "logs+turn-rag", "session-rag"])
@pytest.mark.parametrize(
    "question",
    [
        pytest.param("Where do I live?", id="other words than the fact"),
        pytest.param("Where did I move to?", id="words of the fact"),
    ],
)
@pytest.mark.parametrize("is_remembered", [False, True], ids=["waiting", "remembered"])
def test_a_fact_is_recalled_after_its_question_was_asked_ten_times(
    method: str, question: str, is_remembered: bool, store: Store
) -> None:
    """The stored questions are more like the question than the fact is, and must not hide it.

    The fact is the turn D1:1.
    """
    memory = memory_of_ada(store, method)
    memory.add([message("I moved to Lisbon in spring.")])
    for number in range(10):
        memory.say(f"chat-{number}", unanswered_question(question, reply="I do not know."))
        if is_remembered:
            memory.end(f"chat-{number}")

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
    """The question was asked before, in the sessions "asked" and "chat", of which one goes on.

    The turns asked:1 and chat:1 are the question, and asked:2 and chat:2 the replies to it.
    """
    ada.add([message("I moved to Lisbon.")], id="fact")
    ada.add(unanswered_question("Where do I live?", reply="You have not told me."), id="asked")
    ada.say("chat", unanswered_question("Where do I live?", reply="I do not know yet."))

    fallback = ada.search("Where do I live?", fallback=True)

    assert [hit.id for hit in fallback.entries] == ["asked:2", "fact:1"]
    assert [hit.id for hit in fallback.pending] == ["chat:2"]


def session_of_march(day: int, text: str) -> Session:
    """Return a session of March 2025 in which Ada says a text; that of 2 March is called "s2"."""
    turn = Turn(id=f"s{day}:1", speaker="Ada", text=text)
    return Session(id=f"s{day}", time=datetime(2025, 3, day), turns=(turn,))


def test_all_entries_in_a_span_of_time_are_found(ada: UserMemory) -> None:
    """The entries after the span are nearer to the query, but take no place among the two hits."""
    ada.add(session_of_march(2, "I bought some rye bread at the baker's in the old town."))
    ada.add(session_of_march(3, "I ate a slice of rye bread with butter in the morning."))
    for day in range(4, 10):
        ada.add(session_of_march(day, "rye bread"))

    search_result = ada.search(
        "rye bread", k=2, since=datetime(2025, 3, 2), until=datetime(2025, 3, 4)
    )

    assert {hit.id for hit in search_result.entries} == {"s2:1", "s3:1"}


def test_turns_that_wait_are_found_in_a_span_of_time(ada: UserMemory) -> None:
    """With `remember=False` a session waits to be written into the memory."""
    ada.add(session_of_march(2, "I bake rye bread."), remember=False)
    ada.add(session_of_march(9, "I bought rye bread."), remember=False)

    search_result = ada.search("rye bread", since=datetime(2025, 3, 5))

    assert [hit.id for hit in search_result.pending] == ["s9:1"]


@pytest.mark.parametrize("k", [0, 1001])
def test_a_search_for_too_few_or_too_many_hits_is_refused(ada: UserMemory, k: int) -> None:
    with pytest.raises(UserError, match=f"k = {k}: give a finite number, 1 to 1000"):
        ada.search("rye bread", k=k)


# Forgetting.


def test_the_sources_of_a_hit_are_shown_with_the_texts_of_its_turns(ada: UserMemory) -> None:
    """This hit rests on the turns s:1 and t:1, and on a turn that is not there."""
    ada.add([message("I moved to Lisbon.")], id="s")
    ada.add([message("I moved to Porto.")], id="t")
    hit = Hit(id="x", text="Moved twice.", sources=("s:1", "t:1", "nowhere:1"))

    (evidence,) = ada.evidence([hit])

    first_source, second_source = evidence.sources
    assert (first_source.id, first_source.text) == ("s:1", "I moved to Lisbon.")
    assert (second_source.id, second_source.text) == ("t:1", "I moved to Porto.")
    assert first_source.time is not None


def test_the_sources_of_a_hit_are_not_shown_after_another_process_has_forgotten_them(
    ada: UserMemory, store_path: Path
) -> None:
    """This hit rests on the turns s:1 and t:1. The session "s" is forgotten."""
    ada.add([message("I moved to Lisbon.")], id="s")
    ada.add([message("I moved to Porto.")], id="t")
    hit = Hit(id="x", text="Moved twice.", sources=("s:1", "t:1"))

    with Store(store_path) as other_process:
        other_process.forgetting.forget_session(ada.owner, "s")

    (evidence,) = ada.evidence([hit])
    assert [source.id for source in evidence.sources] == ["t:1"]


def test_the_sources_of_a_hit_are_not_shown_after_another_process_has_forgotten_the_user(
    ada: UserMemory, store_path: Path
) -> None:
    ada.add([message("I moved to Lisbon.")], id="s")
    hit = Hit(id="x", text="Moved.", sources=("s:1",))

    with Store(store_path) as other_process:
        other_process.forgetting.forget_user(ada.owner)

    (evidence,) = ada.evidence([hit])
    assert evidence.sources == ()


def test_a_request_sees_the_memory_as_it_was_when_it_began(ada: UserMemory, store: Store) -> None:
    """A request binds its memory object to a view, i.e. to what was stored at that time."""
    ada.add([message("I moved to Lisbon.")])
    memory_of_request = memory_of_ada(store)
    memory_of_request.bind_view(memory_of_request.view())

    ada.add([message("My cat is called Momo.")])

    assert "Momo" in ada.recall("What is the cat called?").text()
    assert "Momo" not in memory_of_request.recall("What is the cat called?").text()
    assert memory_of_request.entries.get("D2:1") is None
    assert [entry.id for entry in memory_of_request.entries.list().entries] == ["D1:1"]


@pytest.mark.parametrize("has_read_memory", [True, False])
def test_a_request_stores_nothing_for_a_user_who_was_forgotten_meanwhile(
    ada: UserMemory, store: Store, has_read_memory: bool
) -> None:
    """A request begins with `bind_view`; Ada is forgotten after that."""
    ada.add([message("I moved to Lisbon.")])
    request = memory_of_ada(store)
    request.bind_view(request.view() if has_read_memory else None)
    ada.forget()

    with pytest.raises(ConflictError, match="user 'ada' was forgotten while this was under way"):
        request.add([message("I moved to Porto.")])
    # It does not become a request that begins now.
    with pytest.raises(ConflictError, match="user 'ada' was forgotten while this was under way"):
        request.bind_view().add([message("I moved to Porto.")])


# Other programs and versions.


@pytest.fixture
def memory_of_another_prompt(store: Store, model_saying: ModelSaying) -> UserMemory:
    """A memory with one session, which a program with another prompt has written.

    The method is a summary that a model writes. The setting `max_words` changes its prompt.
    """
    lm = model_saying("Ada moved.")
    writing_program = build_program("recursive-summary", max_words=200)
    writing_program.memory(store, "ada", lm=lm).add([message("I moved to Lisbon.")])

    reading_program = build_program("recursive-summary", max_words=50)
    return reading_program.memory(store, "ada", lm=lm)


def test_a_memory_that_another_prompt_wrote_is_not_read(
    memory_of_another_prompt: UserMemory,
) -> None:
    """A program with other settings of its prompts would write, and expect, another memory."""
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
    """To rebuild a memory is to write it anew from all sessions: here from one."""
    assert memory_of_another_prompt.rebuild().items == 1

    assert memory_of_another_prompt.ask("Where?").answer


def test_a_memory_of_this_prompt_is_rebuilt_only_if_that_is_forced(ada: UserMemory) -> None:
    ada.add([message("I moved to Lisbon.")])
    ada.add([message("I like tea.")])

    assert ada.rebuild().items == 0
    assert ada.rebuild(force=True).items == 2


SetVersion = Callable[[int], None]


@pytest.fixture
def set_format_version(store_path: Path) -> SetVersion:
    """Change the version of all memories in the store, as if another Mempiler had written them.

    The format of stored memories has a version.
    """

    def set_version(version: int) -> None:
        with closing(sqlite3.connect(store_path)) as database, database:
            database.execute("UPDATE mempiler_memories SET schema = ?", [version])

    return set_version


def test_a_memory_of_an_older_version_is_refused_until_it_is_rebuilt(
    store_path: Path, set_format_version: SetVersion
) -> None:
    """To rebuild a memory is to write it anew from all that was said."""
    memory = memory_of_ada(store_path)
    memory.add([message("I moved to Lisbon.")])
    set_format_version(0)

    with pytest.raises(ProgramError, match=r"an older Mempiler .*mempiler memories rebuild"):
        memory.ask("Where?")

    memory.rebuild()
    assert memory.ask("Where did Ada move?").context.sources == ("D1:1",)


def test_a_memory_of_a_newer_version_is_refused(
    store_path: Path, set_format_version: SetVersion
) -> None:
    """An older Mempiler cannot read it."""
    memory = memory_of_ada(store_path)
    memory.add([message("I moved to Lisbon.")])
    set_format_version(99)

    with pytest.raises(ProgramError, match="a newer"):
        memory.ask("Where?")


# asyncio.


OPTIONS = {"options": ["(a) Lisbon", "(b) Oslo"]}


def fields_of(reply: Any) -> dict[str, Any]:
    """Return the fields of an answer, but for its id and the memory that it was given from."""
    fields = reply.toDict()
    del fields["memory"]
    del fields["answer_id"]
    return fields


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
    """`aask` is `ask` for asyncio. Each answer has an id of its own, which is not compared."""
    program = build(method, task=task)
    memory = program.memory(store, "ada", lm=language_model("offline"))
    memory.add([message("I moved to Lisbon.")])

    reply = memory.ask("Where did Ada move?", **fields)
    reply_of_asyncio = asyncio.run(memory.aask("Where did Ada move?", **fields))

    assert fields_of(reply_of_asyncio) == fields_of(reply)
