"""The baselines, MemoryBank and ConditionMem among them: what each recalls, and in which order.

A baseline is a simple memory to which methods are compared. A RAG baseline searches: "turn-rag" for
the nearest turns, "session-rag" for the nearest sessions. "truncation" and "full-context" show the
last turns that fit into a number of tokens. "recursive-summary" has a model rewrite one summary
after every session. A reader recalls hits; the hit of a turn has the id of the turn.

Also the logs that Mem-PAL shows beside the memory of any baseline.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import dspy
import pytest
from mempiler import Context, History, Logs, Query, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.programs.baselines.memory_bank import Strength
from mempiler.records import Item, format_time


def session(
    number: int,
    *texts: str,
    speakers: tuple[str, str] = ("Ann", "Bob"),
    session_id: str | None = None,
    time: datetime | None = None,
) -> Session:
    """Return the session D<number>, in which two speakers say the texts in turn.

    The turns are D<number>:1, D<number>:2, ... By default it is on the third of the month <number>.
    """
    turns = tuple(
        Turn(id=f"D{number}:{position + 1}", speaker=speakers[position % 2], text=text)
        for position, text in enumerate(texts)
    )
    return Session(
        id=session_id or f"D{number}",
        time=time or datetime(2024, number, 3),
        turns=turns,
    )


def recall(name: str, history: History, question: str, **config: Any) -> Context:
    """Return what a baseline that calls no model recalls of a history."""
    program = build(name, **config)
    memory = program.remember(history).memory
    return program.method.reader.recall(memory, Query(text=question))


def test_turn_rag_recalls_the_nearest_turns() -> None:
    """`k` is the number of turns."""
    family = session(1, "My sister moved to Oslo.", "Far away.", "She mends violins there.")
    history = History(id="ann", items=(family,))

    context = recall("turn-rag", history, "Who mends violins?", k=1)

    assert [hit.text for hit in context.hits] == ["Ann: She mends violins there."]


def test_session_rag_recalls_all_turns_of_the_nearest_sessions() -> None:
    """`k` is the number of sessions, whose turns come in the order in which they were said."""
    pets = session(1, "I adopted a greyhound.", "Lovely!")
    family = session(2, "My sister moved to Oslo.", "Far away.")
    bread = session(3, "We baked rye bread.", "Did the greyhound like it?")
    history = History(id="ann", items=(pets, family, bread))

    context = recall("session-rag", history, "What about the greyhound?", k=2)

    assert [hit.id for hit in context.hits] == ["D1:1", "D1:2", "D3:1", "D3:2"]


@pytest.mark.parametrize("baseline", ["truncation", "full-context"])
@pytest.mark.parametrize(
    ("max_tokens", "turn_ids"),
    [
        (22, ["D3:3"]),
        (1000, ["D3:1", "D3:2", "D3:3"]),
    ],
)
def test_truncation_and_full_context_recall_the_last_turns_that_fit(
    baseline: str, max_tokens: int, turn_ids: list[str]
) -> None:
    """Into 22 tokens the last turn fits, and no other beside it."""
    bread = session(3, "We baked rye bread.", "Was it good?", "Burnt, but the greyhound liked it.")
    history = History(id="ann", items=(bread,))

    context = recall(baseline, history, "Anything?", max_tokens=max_tokens)

    assert [hit.id for hit in context.hits] == turn_ids


@pytest.mark.parametrize(
    ("baseline", "question"),
    [
        pytest.param("no-memory", "Who adopted a greyhound?", id="no-memory"),
        pytest.param("session-rag", "Xylophone?", id="session-rag, unrelated question"),
    ],
)
def test_nothing_is_recalled(baseline: str, question: str) -> None:
    """The baseline "no-memory" recalls nothing at all, others nothing for an unrelated question."""
    history = History(id="ann", items=(session(1, "I adopted a greyhound."),))

    context = recall(baseline, history, question)

    assert context.hits == ()


def test_two_sessions_with_the_same_id_are_both_recalled() -> None:
    """Data sets may give two sessions one id, here "S". Their turns have different ids."""
    bread = session(1, "Rye bread.", session_id="S")
    beer = session(2, "Rye beer.", session_id="S")
    history = History(id="twice", items=(bread, beer))

    context = recall("session-rag", history, "rye")

    assert [hit.id for hit in context.hits] == ["D1:1", "D2:1"]


# The summary that is rewritten with each session.


def summary_script(*replies: Any) -> Any:
    """Return a script of a model that gives one reply after the other."""

    def reply(kind: str, text: str, n: int) -> Any:
        # Calls are counted from 1.
        return replies[n - 1]

    return reply


def test_the_summary_is_rewritten_session_by_session(scripted: Any) -> None:
    """The baseline "recursive-summary" has a model rewrite one summary after every session."""
    first_session = session(1, "I adopted a greyhound.")
    second_session = session(2, "My sister moved to Oslo.")
    history = History(id="ann", items=(first_session, second_session))
    lm = scripted(summary_script({"summary": "Ann has a dog."}, {"summary": "Ann has a sister."}))
    program = build("recursive-summary")

    with dspy.context(lm=lm):
        memory = program.remember(history).memory
    [hit] = program.method.reader.recall(memory, Query(text="Anything?")).hits

    assert hit.text == "Ann has a sister."
    # The newest session comes first.
    assert hit.sources == ("D2:1", "D1:1")


EMPTY_SUMMARY = {"summary": ""}
NO_SUMMARY = "{{{"
"""An answer that cannot be read."""


@pytest.mark.parametrize(
    ("failed_replies", "message"),
    [
        # The second session is tried as it came, and in two halves. An answer that cannot be read
        # is asked for once more each time, an empty one is not.
        pytest.param([NO_SUMMARY] * 2 * 3, "summary", id="malformed"),
        pytest.param([EMPTY_SUMMARY] * 3, "after session D2 is empty", id="empty"),
    ],
)
def test_a_failed_update_leaves_the_summary_as_it_was_and_is_counted(
    scripted: Any, failed_replies: list[Any], message: str
) -> None:
    """Of three sessions, the second cannot be summed up. Its turns stay as failed items."""
    first_session = session(1, "I adopted a greyhound.")
    second_session = session(2, "My sister moved to Oslo.", "Far away.")
    third_session = session(3, "Bob ate the bread.")
    history = History(id="ann", items=(first_session, second_session, third_session))
    replies_to_first = [{"summary": "Ann has a dog."}]
    replies_to_third = [{"summary": "Ann has a dog. Bob eats."}]
    script = summary_script(*replies_to_first, *failed_replies, *replies_to_third)

    with dspy.context(lm=scripted(script)):
        cached_memory = build("recursive-summary").remember(history)

    assert cached_memory.memory.summary == "Ann has a dog. Bob eats."
    assert cached_memory.memory.sources == ("D3:1", "D1:1")
    assert failed_turn_ids(cached_memory.memory) == ["D2:1", "D2:2"]
    failures = failures_of(cached_memory)
    assert [failure.where for failure in failures] == ["update_summary"] * 3
    assert all(message in failure.message for failure in failures)


def failed_turn_ids(memory: Any) -> list[str]:
    return [turn.id for failed in memory.failed_items for turn in failed.item.turns]


def failures_of(cached_memory: Any) -> list[Any]:
    """Return the failures of all items that were written on the way to a memory."""
    return [failure for part in cached_memory.ancestors() for failure in part.failures]


@pytest.mark.parametrize(
    ("max_words", "summary"),
    [
        (8, "Ann has a dog. It sheds a lot."),
        (6, "Ann has a dog."),
        (3, "Ann has a"),
    ],
)
def test_a_summary_over_the_limit_loses_its_last_sentences(
    scripted: Any, max_words: int, summary: str
) -> None:
    """Whole sentences are left out. A first sentence that is too long itself is cut."""
    history = History(id="short", items=(session(1, "I adopted a greyhound."),))
    script = summary_script({"summary": "Ann has a dog.\nIt sheds a lot."})

    with dspy.context(lm=scripted(script)):
        memory = build("recursive-summary", max_words=max_words).remember(history).memory

    assert memory.summary == summary


# Logs beside any baseline.
#
# In the benchmark Mem-PAL, a session is a batch of logs of the user's phone, followed by a dialogue
# with the assistant. "logs+turn-rag" is the baseline turn-rag for the dialogues, and shows the logs
# beside it: those of the current session in full, and of the earlier ones nothing, a summary, or
# those that a search finds.

SEARCHING_BASELINES = ["turn-rag", "session-rag", "condition-mem", "memory-bank"]
HANDLING_OF_EARLIER_LOGS = {
    "no-memory": "none",
    "recursive-summary": "summary",
    "turn-rag": "search",
    "session-rag": "search",
    "condition-mem": "search",
    "memory-bank": "search",
}
"""What Mem-PAL does with the logs of earlier sessions, by baseline."""

ASSISTANT_SECOND = ("user", "assistant")


def logs(number: int, *texts: str) -> Logs:
    """Return logs L<number>:1, L<number>:2, ... of one day."""
    turns = tuple(
        Turn(
            id=f"L{number}:{position}",
            speaker="phone",
            text=text,
            time=datetime(2024, number, 2, hour=position),
        )
        for position, text in enumerate(texts, start=1)
    )
    return Logs(id=f"L{number}", time=datetime(2024, number, 2), turns=turns)


L1 = logs(1, "bought running shoes", "booked a dentist")
D1 = session(1, "Which running shoes suit me?", "Try the light ones.", speakers=ASSISTANT_SECOND)
L2 = logs(2, "ran around the lake in new shoes", "watched a film")
D2 = session(2, "My knee hurts after the run.", "Rest it.", speakers=ASSISTANT_SECOND)
L3 = logs(3, "searched for a knee brace", "set an alarm")
L1_D1_L2_D2 = History(id="ann", items=(L1, D1, L2, D2))
"""Two sessions; the current one is the second."""

L1_D1_L2_D2_L3 = History(id="ann", items=(L1, D1, L2, D2, L3))
"""Three sessions; the current one is the third, whose dialogue has not been held yet."""


def running_shoes_script(kind: str, text: str, n: int) -> dict[str, Any]:
    """Give records and summaries about running shoes, each with the number of its call."""
    if kind == "records":
        record = {
            "turn_id": "D1:1",
            "condition": "buying shoes",
            "content": f"likes running shoes {n}",
        }
        return {"records": [record]}
    return {kind: f"{kind} about running shoes, number {n}."}


def build_with_logs(baseline: str, **config: Any) -> Any:
    """Return a baseline that handles logs as Mem-PAL lets it."""
    all_config = {"earlier": HANDLING_OF_EARLIER_LOGS[baseline], **config}
    return build(f"logs+{baseline}", embedder=embedder("offline"), **all_config)


def recall_running_shoes(
    scripted: Any, program: Any, history: History, shown_by_task: tuple[Item, ...] = ()
) -> list[Any]:
    """Return the hits of a query for running shoes, after a history was written.

    Args:
        scripted: The fixture that makes a scripted model.
        program: The baseline.
        history: What is written.
        shown_by_task: Items that the prompt of the task shows anyway.
    """
    with dspy.context(lm=scripted(running_shoes_script)):
        memory = program.remember(history).memory
        query = Query(text="running shoes", shown_items=shown_by_task)
        return list(program.method.reader.recall(memory, query).hits)


@pytest.mark.parametrize("baseline", HANDLING_OF_EARLIER_LOGS)
def test_all_logs_of_the_current_session_come_last(scripted: Any, baseline: str) -> None:
    """A session is a batch of logs of the user's phone, and then a dialogue with the assistant.

    The current session has the logs L3:1 and L3:2, and no dialogue yet.
    """
    hits = recall_running_shoes(scripted, build_with_logs(baseline), L1_D1_L2_D2_L3)

    assert [(hit.id, hit.kind) for hit in hits[-2:]] == [("L3:1", "log"), ("L3:2", "log")]


def test_logs_are_current_after_their_dialogue_until_there_are_newer_ones(scripted: Any) -> None:
    """The dialogue D2 has been held after the logs L2:1 and L2:2, and no logs have come since."""
    hits = recall_running_shoes(scripted, build_with_logs("turn-rag"), L1_D1_L2_D2)

    assert [(hit.id, hit.kind) for hit in hits[-2:]] == [("L2:1", "log"), ("L2:2", "log")]


@pytest.mark.parametrize("baseline", HANDLING_OF_EARLIER_LOGS)
def test_current_logs_that_the_task_shows_itself_are_not_recalled(
    scripted: Any, baseline: str
) -> None:
    """Otherwise the prompt would show the logs L3:1 and L3:2 twice."""
    program = build_with_logs(baseline)

    hits = recall_running_shoes(scripted, program, L1_D1_L2_D2_L3, shown_by_task=(L3,))

    assert not any(hit.id.startswith("L3:") for hit in hits)


@pytest.mark.parametrize("baseline", SEARCHING_BASELINES)
def test_the_nearest_earlier_logs_are_recalled_after_the_dialogues(
    scripted: Any, baseline: str
) -> None:
    """The query is "running shoes", of which the earlier logs L1:1 and L2:1 tell.

    By `k=1`, the nearest of these is recalled. The logs L3:1 and L3:2 are those of the current
    session, and always recalled.
    """
    config: dict[str, Any] = {"k": 1, "inner_k": 1}
    if baseline == "memory-bank":
        # In the time that the example spans, all that was said would be forgotten.
        config["inner_forgetting"] = False

    hits = recall_running_shoes(scripted, build_with_logs(baseline, **config), L1_D1_L2_D2_L3)

    *dialogue_ids, earlier_log_id, _, _ = [hit.id for hit in hits]
    assert earlier_log_id in ("L1:1", "L2:1")
    assert dialogue_ids
    assert not any(hit_id.startswith("L") for hit_id in dialogue_ids)


def test_logs_have_a_summary_beside_that_of_the_dialogues(scripted: Any) -> None:
    """A model rewrites both summaries: one after every dialogue, one after every batch of logs."""
    logs_of_january = logs(1, "bought running shoes")
    dialogue_of_january = session(1, "Which shoes suit me?")
    logs_of_february = logs(2, "ran around the lake")
    items = (logs_of_january, dialogue_of_january, logs_of_february)
    lm = scripted(running_shoes_script)
    program = build_with_logs("recursive-summary")

    with dspy.context(lm=lm):
        memory = program.remember(History(id="ann", items=items)).memory
    hits = program.method.reader.recall(memory, Query(text="x")).hits

    assert lm.engine.calls == {"summary": 1, "log_summary": 2}
    summary_of_dialogues, summary_of_logs = hits[:2]
    assert summary_of_dialogues.id == "summary"
    assert summary_of_dialogues.sources == ("D1:1",)
    assert summary_of_logs.id == "log_summary"
    assert set(summary_of_logs.sources) == {"L1:1", "L2:1"}


def test_an_empty_summary_of_logs_leaves_the_one_before_it_and_is_counted(scripted: Any) -> None:
    """The model sums up the logs L1 and L3, and gives an empty summary for L2."""
    empty = {"log_summary": ""}
    script = summary_script(
        {"log_summary": "Ann runs."},
        # L2 is tried as it came, and in two halves.
        empty,
        empty,
        empty,
        {"log_summary": "Ann runs. Ann has a bad knee."},
    )
    program = build("logs+no-memory", earlier="summary")

    with dspy.context(lm=scripted(script)):
        cached_memory = program.remember(L1_D1_L2_D2_L3)

    memory = cached_memory.memory
    assert memory.log_summary.summary == "Ann runs. Ann has a bad knee."
    assert failed_turn_ids(memory) == ["L2:1", "L2:2"]
    places_of_failures = [failure.where for failure in failures_of(cached_memory)]
    assert places_of_failures == ["update_logs", "update_logs", "update_logs"]


# MemoryBank.
#
# A MemoryBank keeps pieces: turns, and digests of sessions. Whenever a piece is recalled, it gets
# stronger. With time it is forgotten, and the later the stronger it is.

START = datetime(2024, 1, 1)


def days_after_start(days: float) -> datetime:
    return START + timedelta(days=days)


@pytest.mark.parametrize(
    ("days", "recalls", "exponent"),
    [
        (0, 1, 0),
        (5, 1, -1),
        (5, 2, -1 / 2),
        (10, 2, -1),
        (30, 1, -6),
    ],
)
def test_the_retention_of_a_piece_falls_exponentially(
    days: int, recalls: int, exponent: float
) -> None:
    """The retention says how much is still remembered of a piece of a MemoryBank, from 0 to 1.

    The days since the last recall count the less the more recalls there were. After five days and
    one recall, the setting `days=5.0` gives exp(-1).
    """
    strength = Strength(recalls=recalls, last=START)

    retention = strength.retention(now=days_after_start(days), days=5.0)

    assert retention == pytest.approx(math.exp(exponent))


def test_the_last_recall_of_a_piece_may_have_a_time_zone() -> None:
    """Python does not subtract a time with a zone from a time without one."""
    strength = Strength(recalls=1, last=START.replace(tzinfo=UTC))

    retention = strength.retention(now=days_after_start(5), days=5.0)

    assert retention == pytest.approx(math.exp(-1))


FIRST_WORDS_ON_PEPPER = session(
    1,
    "My greyhound Pepper limps.",
    "Let a vet look at the paw.",
    time=days_after_start(0),
    speakers=ASSISTANT_SECOND,
)
SECOND_WORDS_ON_PEPPER = session(
    2,
    "Pepper the greyhound limps again.",
    "See the vet once more.",
    time=days_after_start(2),
    speakers=ASSISTANT_SECOND,
)
WORDS_ON_BREAD = session(
    3,
    "I bake rye bread.",
    "Let it cool.",
    time=days_after_start(4),
    speakers=ASSISTANT_SECOND,
)
PEPPER = History(
    id="ann",
    items=(FIRST_WORDS_ON_PEPPER, SECOND_WORDS_ON_PEPPER, WORDS_ON_BREAD),
)


class WrittenBank(NamedTuple):
    """A MemoryBank that a scripted model has written."""

    reader: Any
    memory: Any
    engine: Any


def name_and_number(kind: str, text: str, n: int) -> dict[str, str]:
    """Answer with the name of the output field and the number of the call: "event_digest 2"."""
    return {kind: f"{kind} {n}"}


def write_bank(scripted: Any, history: History, **config: Any) -> WrittenBank:
    """Write a history under MemoryBank; the model answers by `name_and_number`."""
    program = build("memory-bank", embedder=embedder("offline"), **config)
    lm = scripted(name_and_number)
    with dspy.context(lm=lm):
        memory = program.remember(history).memory
    return WrittenBank(program.method.reader, memory, lm.engine)


def test_memory_bank_stores_the_turns_of_a_session_and_a_digest_of_them(scripted: Any) -> None:
    """A digest says what happened in a session; the scripted model numbers its answers."""
    history = History(id="ann", items=(session(1, "My greyhound limps.", "See a vet."),))

    memory = write_bank(scripted, history).memory

    texts = {piece.id: piece.text for piece in memory.pieces}
    assert texts == {
        "D1:1": "Ann: My greyhound limps.",
        "D1:2": "Bob: See a vet.",
        "digest-1": "event_digest 1",
    }


def test_memory_bank_recalls_what_happened_in_all_sessions_and_a_portrait_of_the_user(
    scripted: Any,
) -> None:
    """A model writes one account of both at the end of the history, from notes on all sessions."""
    history = History(id="ann", items=(session(1, "My greyhound limps."), session(2, "I bake.")))

    bank = write_bank(scripted, history)

    context = bank.reader.recall(bank.memory, Query(text="Pepper"))
    assert context.notes == {
        "what happened": "overall_events 1",
        "the user": "user_portrait 1",
    }


def test_a_turn_that_the_user_speaks_of_again_is_strengthened(scripted: Any) -> None:
    """What a user says is searched for among the older pieces, and the nearest one is recalled.

    The settings `k=1` and `days=1000.0` say that one piece is recalled at a time, and that hardly
    anything is forgotten.
    """
    first_session = session(
        1,
        "My greyhound Pepper limps.",
        "Let a vet look at the paw.",
        time=days_after_start(0),
        speakers=ASSISTANT_SECOND,
    )
    second_session = session(
        2,
        "Pepper the greyhound limps again.",
        time=days_after_start(2),
        speakers=ASSISTANT_SECOND,
    )
    history = History(id="ann", items=(first_session, second_session))

    memory = write_bank(scripted, history, k=1, days=1000.0).memory

    strengths = {piece.id: memory.strength(piece) for piece in memory.pieces}
    # The second session recalls the user's turn of the first, but not the assistant's.
    assert strengths["D1:1"] == Strength(recalls=2, last=days_after_start(2))
    assert strengths["D1:2"] == Strength(recalls=1, last=START)


@pytest.mark.parametrize("assistant", ["assistant", "AI", "bot", "助手"])
def test_turns_of_an_assistant_recall_nothing(scripted: Any, assistant: str) -> None:
    """Only what the user speaks of again gets stronger, by whatever name the assistant goes.

    The last name, 助手, is Chinese for assistant.
    """
    words_of_user = session(
        1,
        "My greyhound Pepper limps.",
        time=days_after_start(0),
        speakers=("user", assistant),
    )
    words_of_assistant = session(
        2,
        "How is the greyhound Pepper?",
        time=days_after_start(2),
        speakers=(assistant, "user"),
    )
    history = History(id="ann", items=(words_of_user, words_of_assistant))

    memory = write_bank(scripted, history, days=1000.0).memory

    turns = [piece for piece in memory.pieces if piece.kind == "turn"]
    assert [turn.speaker for turn in turns] == ["user", assistant]
    assert memory.recalled == {}


def test_old_pieces_are_forgotten_by_the_date_of_the_query(scripted: Any) -> None:
    """MemoryBank keeps pieces, turns and digests of sessions, which it forgets with time.

    The last of the three sessions in `PEPPER` is on day 4.
    """
    bank = write_bank(scripted, PEPPER, k=20)
    day_4 = format_time(days_after_start(4))
    day_400 = format_time(days_after_start(400))

    early_context = bank.reader.recall(bank.memory, Query(text="greyhound", date=day_4))
    late_context = bank.reader.recall(bank.memory, Query(text="greyhound", date=day_400))

    assert len(early_context.hits) > 0
    assert late_context.hits == ()
    assert late_context.counts["forgotten"] == len(bank.memory.pieces)
    # The accounts of all sessions are not forgotten.
    assert late_context.notes == early_context.notes


# ConditionMem.
#
# A model writes records of each session. A record is something to know of the user, with the
# condition under which it matters.


def write_records(scripted: Any, sessions: list[Session], *records: dict[str, str]) -> Any:
    """Return the records that ConditionMem stores if the model answers with these every time."""
    history = History(id="ann", items=tuple(sessions))
    program = build("condition-mem", embedder=embedder("offline"))
    with dspy.context(lm=scripted(lambda *_prompt: {"records": list(records)})):
        return program.remember(history).memory.records


def test_a_record_of_condition_mem_has_its_condition_and_its_turn(scripted: Any) -> None:
    """A record is something to know of the user, with the condition under which it matters."""
    greyhound = {
        "turn_id": "[D1:1]",
        "condition": "a limping dog",
        "content": "has a greyhound, Pepper",
    }

    [record] = write_records(scripted, [session(1, "Pepper limps.", "See a vet.")], greyhound)

    assert record.text == "has a greyhound, Pepper (when: a limping dog)"
    assert record.sources == ("D1:1",)


def test_a_record_of_an_unknown_turn_rests_on_its_whole_session(scripted: Any) -> None:
    """A model may name a turn that does not exist, such as D7:7."""
    vet = {"turn_id": "D7:7", "content": "wants a vet"}

    [record] = write_records(scripted, [session(1, "Pepper limps.", "See a vet.")], vet)

    assert record.sources == ("D1:1", "D1:2")


def test_a_record_without_content_or_with_that_of_an_earlier_one_is_left_out(
    scripted: Any,
) -> None:
    """The model finds the same records in both sessions."""
    greyhound = {"turn_id": "D1:1", "content": "has a greyhound"}
    empty = {"content": " "}
    sessions = [session(1, "Pepper limps."), session(2, "Pepper limps again.")]

    [record] = write_records(scripted, sessions, greyhound, empty)

    assert record.text == "has a greyhound"
    assert record.sources == ("D1:1",)
