"""The baselines, MemoryBank and ConditionMem among them: what each recalls, and in which order.

A baseline is a simple memory to which methods are compared. A RAG baseline searches: "turn-rag" for
the nearest turns, "session-rag" for the nearest sessions. "truncation" and "full-context" show the
last turns that fit into a number of tokens. "recursive-summary" has a model rewrite one summary
after every session. A reader recalls hits; the hit of a turn has the id of the turn.

Also the logs that Mem-PAL shows beside the memory of any baseline.
"""

from __future__ import annotations

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


HISTORY = History(
    id="ann-bob",
    items=(
        session(
            1, "I adopted a greyhound.", "Lovely! What is its name?", "Pepper, after the spice."
        ),
        session(2, "My sister moved to Oslo.", "Far away.", "She mends violins there."),
        session(3, "We baked rye bread.", "Was it good?", "Burnt, but the greyhound liked it."),
    ),
)
TURNS_OF_SECOND_SESSION = ["D2:1", "D2:2", "D2:3"]
TURNS_OF_FIRST_AND_THIRD_SESSION = ["D1:1", "D1:2", "D1:3", "D3:1", "D3:2", "D3:3"]
ALL_TURNS = ["D1:1", "D1:2", "D1:3", "D2:1", "D2:2", "D2:3", "D3:1", "D3:2", "D3:3"]


def recall(name: str, question: str, history: History = HISTORY, **config: Any) -> Context:
    """Return what a baseline that calls no model recalls."""
    program = build(name, **config)
    memory = program.remember(history).memory
    return program.method.reader.recall(memory, Query(text=question))


# The last turn, D3:3, fits into this many tokens, and no turn before it does.
ROOM_FOR_LAST_TURN = {"max_tokens": 22}


@pytest.mark.parametrize(
    ("baseline", "config", "question", "turn_ids"),
    [
        pytest.param(
            "session-rag",
            {"k": 1},
            "Who mends violins?",
            TURNS_OF_SECOND_SESSION,
            id="session-rag recalls the nearest session",
        ),
        pytest.param(
            "session-rag",
            {"k": 2},
            "What about the greyhound and its spice?",
            TURNS_OF_FIRST_AND_THIRD_SESSION,
            id="session-rag recalls the two nearest sessions",
        ),
        pytest.param(
            "session-rag", {}, "xylophone?", [], id="session-rag recalls no unrelated session"
        ),
        pytest.param(
            "truncation",
            ROOM_FOR_LAST_TURN,
            "Who mends violins?",
            ["D3:3"],
            id="truncation recalls the last turns that fit",
        ),
        pytest.param(
            "truncation",
            {},
            "Who mends violins?",
            ALL_TURNS,
            id="truncation recalls all turns if they fit",
        ),
        pytest.param(
            "full-context",
            ROOM_FOR_LAST_TURN,
            "Who mends violins?",
            ["D3:3"],
            id="full-context recalls the last turns that fit",
        ),
        pytest.param(
            "turn-rag",
            {"k": 1},
            "Who mends violins?",
            ["D2:3"],
            id="turn-rag recalls the nearest turn",
        ),
        pytest.param("no-memory", {}, "Who mends violins?", [], id="no-memory recalls nothing"),
    ],
)
def test_each_baseline_recalls_its_turns(
    baseline: str, config: dict[str, Any], question: str, turn_ids: list[str]
) -> None:
    """Three sessions have the turns D1:1 to D3:3. The first is about a greyhound called Pepper.

    The second is about a sister in Oslo, who mends violins, and the third about bread and, again,
    the greyhound.
    """
    context = recall(baseline, question, **config)

    assert [hit.id for hit in context.hits] == turn_ids


def test_two_sessions_with_the_same_id_are_both_recalled() -> None:
    """Data sets may give two sessions one id, here "S". Their turns have different ids."""
    bread = session(1, "Rye bread.", session_id="S")
    beer = session(2, "Rye beer.", session_id="S")
    history = History(id="twice", items=(bread, beer))

    context = recall("session-rag", "rye", history)

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


def test_the_prompt_of_a_summary_shows_the_summary_so_far_and_the_session(scripted: Any) -> None:
    """It also has the limit of the summary in words, here 40."""
    first_session = session(1, "I adopted a greyhound.")
    second_session = session(2, "My sister moved to Oslo.", time=datetime(2024, 2, 3))
    history = History(id="ann", items=(first_session, second_session))
    lm = scripted(summary_script({"summary": "Ann has a dog."}, {"summary": "Ann has a sister."}))

    with dspy.context(lm=lm):
        build("recursive-summary", max_words=40).remember(history)

    _, second_prompt = lm.engine.prompts[1]
    assert "Ann has a dog." in second_prompt
    assert "3 February 2024" in second_prompt
    assert "[D2:1] Ann: My sister moved to Oslo." in second_prompt
    assert "40" in second_prompt


@pytest.mark.parametrize(
    ("failed_replies", "message"),
    [
        # The session is tried three times: as it came, and in two halves. A malformed answer is
        # asked for once more each time, an empty one is not.
        pytest.param(["{{{"] * 3 * 2, "summary", id="malformed"),
        pytest.param([{"summary": ""}] * 3, "after session D2 is empty", id="empty"),
    ],
)
def test_a_failed_update_leaves_the_summary_as_it_was_and_is_counted(
    scripted: Any, failed_replies: list[Any], message: str
) -> None:
    """The update fails for the second session, and succeeds for the first and the third.

    The turns of a session that could not be written stay beside the memory as failed items.
    """
    first_session = session(1, "I adopted a greyhound.")
    second_session = session(2, "My sister moved to Oslo.", "Far away.")
    third_session = session(3, "Bob ate the bread.")
    history = History(id="ann", items=(first_session, second_session, third_session))
    script = summary_script(
        {"summary": "Ann has a dog."},
        *failed_replies,
        {"summary": "Ann has a dog. Bob eats."},
    )

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


FIRST_LOGS = logs(1, "bought running shoes", "booked a dentist")
FIRST_DIALOGUE = session(
    1, "Which running shoes suit me?", "Try the light ones.", speakers=ASSISTANT_SECOND
)
SECOND_LOGS = logs(2, "ran around the lake in new shoes", "watched a film")
SECOND_DIALOGUE = session(2, "My knee hurts after the run.", "Rest it.", speakers=ASSISTANT_SECOND)
THIRD_LOGS = logs(3, "searched for a knee brace", "set an alarm")
LOGS_AND_DIALOGUES = History(
    id="ann",
    items=(FIRST_LOGS, FIRST_DIALOGUE, SECOND_LOGS, SECOND_DIALOGUE, THIRD_LOGS),
)
"""Three sessions; the current one is the third, whose dialogue has not been held yet."""

UNTIL_SECOND_DIALOGUE = History(
    id="ann", items=(FIRST_LOGS, FIRST_DIALOGUE, SECOND_LOGS, SECOND_DIALOGUE)
)
"""The first two sessions; the current one is the second."""


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


def build_with_logs(name: str, **config: Any) -> Any:
    """Return a baseline that handles logs as Mem-PAL lets it."""
    all_config = {"earlier": HANDLING_OF_EARLIER_LOGS[name], **config}
    return build(f"logs+{name}", embedder=embedder("offline"), **all_config)


def recall_running_shoes(
    scripted: Any,
    program: Any,
    history: History = LOGS_AND_DIALOGUES,
    shown_items: tuple[Item, ...] = (),
) -> list[Any]:
    """Write a history and return the hits of a query; the task shows `shown_items` itself."""
    with dspy.context(lm=scripted(running_shoes_script)):
        memory = program.remember(history).memory
        query = Query(text="running shoes", shown_items=shown_items)
        return list(program.method.reader.recall(memory, query).hits)


@pytest.mark.parametrize("name", HANDLING_OF_EARLIER_LOGS)
def test_all_logs_of_the_current_session_come_last(scripted: Any, name: str) -> None:
    """A session is a batch of logs of the user's phone, and then a dialogue with the assistant.

    The history is L1, D1, L2, D2, L3: the current session has the logs L3 and no dialogue yet.
    """
    hits = recall_running_shoes(scripted, build_with_logs(name), LOGS_AND_DIALOGUES)

    assert [hit.id for hit in hits[-2:]] == ["L3:1", "L3:2"]
    assert [hit.kind for hit in hits[-2:]] == ["log", "log"]


def test_logs_are_current_after_their_dialogue_until_there_are_newer_ones(scripted: Any) -> None:
    """A session is a batch of logs of the user's phone, and then a dialogue with the assistant.

    The history is L1, D1, L2, D2: no logs are newer than L2.
    """
    hits = recall_running_shoes(scripted, build_with_logs("turn-rag"), UNTIL_SECOND_DIALOGUE)

    assert [hit.id for hit in hits[-2:]] == ["L2:1", "L2:2"]
    assert [hit.kind for hit in hits[-2:]] == ["log", "log"]


@pytest.mark.parametrize("name", HANDLING_OF_EARLIER_LOGS)
def test_current_logs_that_the_task_shows_itself_are_not_recalled(scripted: Any, name: str) -> None:
    """Otherwise the prompt would show them twice. The current logs are L3."""
    hits = recall_running_shoes(scripted, build_with_logs(name), shown_items=(THIRD_LOGS,))

    assert not any(hit.id.startswith("L3:") for hit in hits)


def test_logs_that_the_task_shows_after_their_dialogue_are_not_recalled(scripted: Any) -> None:
    """The history is L1, D1, L2, D2, and the task shows the logs L2 itself."""
    program = build_with_logs("turn-rag")

    hits = recall_running_shoes(
        scripted, program, UNTIL_SECOND_DIALOGUE, shown_items=(SECOND_LOGS,)
    )

    assert not any(hit.id.startswith("L2:") for hit in hits)


@pytest.mark.parametrize("name", SEARCHING_BASELINES)
def test_the_nearest_earlier_logs_are_recalled_after_the_dialogues(
    scripted: Any, name: str
) -> None:
    """The history is L1, D1, L2, D2, L3, where L1, L2 and L3 are logs, each of two entries.

    The query is "running shoes", of which the first entries of L1 and of L2 tell.
    """
    # One log and one part of the dialogues are searched for.
    config: dict[str, Any] = {"k": 1, "inner_k": 1}
    if name == "memory-bank":
        # In the time that the example spans, all that was said would be forgotten.
        config["inner_forgetting"] = False

    hits = recall_running_shoes(scripted, build_with_logs(name, **config))

    # The last two are the current logs, and the one before them is the nearest earlier log.
    hit_ids = [hit.id for hit in hits]
    dialogue_ids = hit_ids[:-3]
    earlier_log_id = hit_ids[-3]
    logs_about_running_shoes = ("L1:1", "L2:1")
    assert earlier_log_id in logs_about_running_shoes
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


def test_the_prompt_of_a_summary_of_logs_shows_the_summary_so_far_and_no_dialogue(
    scripted: Any,
) -> None:
    """The scripted model numbers the summaries that it writes."""
    lm = scripted(running_shoes_script)

    with dspy.context(lm=lm):
        build_with_logs("recursive-summary").remember(LOGS_AND_DIALOGUES)

    prompts = [text for kind, text in lm.engine.prompts if kind == "log_summary"]
    assert "log_summary about running shoes, number 1." in prompts[1]
    for prompt in prompts:
        # The turns of dialogues are D1:1, D1:2 and so on.
        assert "[D" not in prompt


def test_an_empty_summary_of_logs_leaves_the_one_before_it_and_is_counted(scripted: Any) -> None:
    """The model sums up the logs L1 and L3, and gives an empty summary for L2.

    These are tried as they came and in two halves.
    """
    script = summary_script(
        {"log_summary": "Ann runs."},
        {"log_summary": ""},
        {"log_summary": ""},
        {"log_summary": ""},
        {"log_summary": "Ann runs. Ann has a bad knee."},
    )
    program = build("logs+no-memory", earlier="summary")

    with dspy.context(lm=scripted(script)):
        cached_memory = program.remember(LOGS_AND_DIALOGUES)

    memory = cached_memory.memory
    assert memory.log_summary.summary == "Ann runs. Ann has a bad knee."
    assert failed_turn_ids(memory) == ["L2:1", "L2:2"]
    places_of_failures = [failure.where for failure in failures_of(cached_memory)]
    assert places_of_failures == ["update_logs", "update_logs", "update_logs"]
    assert [entry.id for entry in memory.current] == ["L3:1", "L3:2"]


# MemoryBank.
#
# A MemoryBank keeps pieces: turns, and digests of sessions. Whenever a piece is recalled, it gets
# stronger. With time it is forgotten, and the later the stronger it is.

START = datetime(2024, 1, 1)


def days_after_start(days: float) -> datetime:
    return START + timedelta(days=days)


@pytest.mark.parametrize("last_recall", [START, START.replace(tzinfo=UTC)], ids=["naive", "UTC"])
@pytest.mark.parametrize(
    ("days", "recalls", "retention"),
    [
        # R = exp(-t / (5 S)), t days after the last recall of a piece with S recalls. The five in
        # the formula is the setting `days`.
        pytest.param(0, 1, 1.0, id="exp(0)"),
        pytest.param(5, 1, 0.367879, id="exp(-1)"),
        pytest.param(5, 2, 0.606531, id="exp(-1/2)"),
        pytest.param(10, 2, 0.367879, id="exp(-1) after two recalls"),
        pytest.param(30, 1, 0.002479, id="exp(-6)"),
    ],
)
def test_the_forgetting_curve_is_as_computed_by_hand(
    days: int, recalls: int, retention: float, last_recall: datetime
) -> None:
    """MemoryBank forgets a piece with time, the later the more often it was recalled.

    The retention says how much is still remembered of a piece, from 0 to 1.
    """
    strength = Strength(recalls=recalls, last=last_recall)

    computed_retention = strength.retention(now=days_after_start(days), days=5.0)

    assert computed_retention == pytest.approx(retention, abs=1e-6)


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


def write_bank(scripted: Any, history: History = PEPPER, **config: Any) -> WrittenBank:
    """Write a history under MemoryBank; the model answers by `name_and_number`."""
    program = build("memory-bank", embedder=embedder("offline"), **config)
    lm = scripted(name_and_number)
    with dspy.context(lm=lm):
        memory = program.remember(history).memory
    return WrittenBank(program.method.reader, memory, lm.engine)


def test_memory_bank_stores_turns_and_digests_and_two_overall_accounts(scripted: Any) -> None:
    """For each session the model notes its events, the digest, and what it shows of the user.

    At the end of the history it writes one account of all events, and one portrait of the user from
    all notes. Here are three sessions, and the scripted model numbers its answers.
    """
    bank = write_bank(scripted)

    assert [piece.id for piece in bank.memory.pieces][:3] == ["D1:1", "D1:2", "digest-1"]
    assert bank.engine.calls == {
        "event_digest": 3,
        "personality_note": 3,
        "overall_events": 1,
        "user_portrait": 1,
    }
    context = bank.reader.recall(bank.memory, Query(text="Pepper"))
    assert context.notes == {
        "what happened": "overall_events 1",
        "the user": "user_portrait 1",
    }
    [overall_prompt] = [text for kind, text in bank.engine.prompts if kind == "overall_events"]
    assert "(1 January 2024, Monday) event_digest" in overall_prompt


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

    The last of the three sessions is on day 4.
    """
    bank = write_bank(scripted, k=20)
    soon = format_time(days_after_start(4))
    late = format_time(days_after_start(400))

    soon_context = bank.reader.recall(bank.memory, Query(text="greyhound", date=soon))
    late_context = bank.reader.recall(bank.memory, Query(text="greyhound", date=late))

    assert len(soon_context.hits) > 0
    assert late_context.hits == ()
    assert late_context.counts["forgotten"] == len(bank.memory.pieces)
    # The overall accounts are not forgotten.
    assert late_context.notes == soon_context.notes


# ConditionMem.
#
# A model writes records of each session. A record is something to know of the user, with the
# condition under which it matters.


def records_script(kind: str, text: str, n: int) -> dict[str, Any]:
    """Give the records of the session of `PEPPER` that a prompt shows."""
    if "Pepper limps" in text:
        greyhound = {
            "turn_id": "[D1:1]",
            "condition": "a limping dog",
            "content": "has a greyhound, Pepper",
        }
        record_of_unknown_turn = {"turn_id": "D7:7", "content": "wants a vet"}
        record_without_content = {"content": " "}
        return {"records": [greyhound, record_of_unknown_turn, record_without_content]}
    if "rye" in text:
        return {"records": [{"turn_id": "D3:1", "content": "bakes rye bread"}]}
    greyhound_again = {
        "turn_id": "D2:1",
        "condition": "a limping dog",
        "content": "has a greyhound, Pepper",
    }
    return {"records": [greyhound_again]}


def test_records_of_condition_mem_have_their_condition_and_their_turns(scripted: Any) -> None:
    """A record is something to know of the user, with the condition under which it matters.

    The scripted model gives three records of the first session: one of the turn D1:1, one of a turn
    that does not exist, and one without content. The first is repeated for the second session.
    """
    program = build("condition-mem", embedder=embedder("offline"))

    with dspy.context(lm=scripted(records_script)):
        memory = program.remember(PEPPER).memory

    # The record of an unknown turn rests on its whole session.
    assert [(record.id, record.text, record.sources) for record in memory.records] == [
        ("r1", "has a greyhound, Pepper (when: a limping dog)", ("D1:1",)),
        ("r2", "wants a vet", ("D1:1", "D1:2")),
        ("r3", "bakes rye bread", ("D3:1",)),
    ]
    context = program.method.reader.recall(memory, Query(text="greyhound Pepper"))
    assert context.hits[0].id == "r1"
