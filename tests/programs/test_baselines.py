"""The baselines, MemoryBank and ConditionMem among them: what each recalls, in which order, within which budget."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dspy
import pytest
from mempiler import Context, History, Logs, Query, Session, Turn, build
from mempiler.engines.embedders import embedder
from mempiler.programs.baselines.memory_bank import Strength
from mempiler.records import format_time


def session(
    n: int, *texts: str, speakers: tuple[str, str] = ("Bob", "Ann"), **changed: Any
) -> Session:
    turns = tuple(
        Turn(id=f"D{n}:{t}", speaker=speakers[t % 2], text=text)
        for t, text in enumerate(texts, start=1)
    )
    return Session(**{"id": f"D{n}", "time": datetime(2024, n, 3), "turns": turns, **changed})


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
FIRST_AND_THIRD = ["D1:1", "D1:2", "D1:3", "D3:1", "D3:2", "D3:3"]


def recalled(name: str, question: str, history: History = HISTORY, **config: Any) -> Context:
    program = build(name, **config)
    return program.method.reader.recall(program.remember(history).memory, Query(text=question))


def summaries(*replies: str | dict[str, Any]) -> Any:
    """A scripted updater: its n-th summary is the n-th reply."""
    return lambda kind, text, n: (
        {"summary": reply} if isinstance(reply := replies[n - 1], str) else "{{{"
    )


@pytest.mark.parametrize(
    ("name", "config", "question", "turns"),
    [
        ("session-rag", {"k": 1}, "Who mends violins?", ["D2:1", "D2:2", "D2:3"]),
        ("session-rag", {"k": 2}, "What about the greyhound and its spice?", FIRST_AND_THIRD),
        ("session-rag", {}, "xylophone?", []),
        ("truncation", {"max_tokens": 22}, "Who mends violins?", ["D3:3"]),
        ("truncation", {}, "Who mends violins?", list(HISTORY.turns)),
        ("full-context", {"max_tokens": 22}, "Who mends violins?", ["D3:3"]),
        ("turn-rag", {"k": 1}, "Who mends violins?", ["D2:3"]),
        ("no-memory", {}, "Who mends violins?", []),
    ],
)
def test_each_baseline_recalls_its_turns(
    name: str, config: dict[str, Any], question: str, turns: list[str]
) -> None:
    found = [hit.id for hit in recalled(name, question, **config).hits]
    assert found == turns


def test_two_sessions_of_one_id_stay_two() -> None:
    history = History(
        id="twice", items=(session(1, "Rye bread.", id="S"), session(2, "Rye beer.", id="S"))
    )
    assert [hit.id for hit in recalled("session-rag", "rye", history).hits] == ["D1:1", "D2:1"]


def test_the_summary_is_rewritten_session_by_session(scripted: Any) -> None:
    lm = scripted(
        summaries("Ann has a dog.", "Ann has a dog. Her sister is in Oslo.", "Ann bakes.")
    )
    with dspy.context(lm=lm):
        program = build("recursive-summary", max_words=40)
        memory = program.remember(HISTORY).memory
    (hit,) = program.method.reader.recall(memory, Query(text="Anything?")).hits
    assert hit.text == "Ann bakes."
    assert hit.sources == ("D3:1", "D3:2", "D3:3", "D2:1", "D2:2", "D2:3", "D1:1", "D1:2", "D1:3")
    second = lm.engine.prompts[1][1]
    assert "Ann has a dog." in second
    assert "3 February 2024" in second
    assert "[D2:1] Ann: My sister moved to Oslo." in second
    assert "40" in second


@pytest.mark.parametrize(
    ("broken", "message"), [({}, "summary"), ("", "after session D2 is empty")]
)
def test_a_failed_update_keeps_the_summary_and_is_counted(
    scripted: Any, broken: Any, message: str
) -> None:
    # Tried as it came and in two halves; a malformed answer is asked for once more each time.
    replies = ["Ann has a dog.", *[broken] * (6 if broken == {} else 3), "Ann has a dog. Bob eats."]
    with dspy.context(lm=scripted(summaries(*replies))):
        node = build("recursive-summary").remember(HISTORY)
    assert node.memory.summary == "Ann has a dog. Bob eats."
    assert {source.partition(":")[0] for source in node.memory.sources} == {"D1", "D3"}
    assert [turn.id for left in node.memory.failed_items for turn in left.item.turns] == [
        "D2:1",
        "D2:2",
        "D2:3",
    ]
    failures = [failure for part in node.ancestors() for failure in part.failures]
    assert [(failure.kind, failure.where) for failure in failures] == [
        ("parse", "update_summary")
    ] * 3
    assert all(message in failure.message for failure in failures)


@pytest.mark.parametrize(
    ("max_words", "summary"),
    [(6, "Ann has a dog."), (8, "Ann has a dog. It sheds a lot."), (3, "Ann has a")],
)
def test_a_summary_over_the_limit_loses_its_last_sentences(
    scripted: Any, max_words: int, summary: str
) -> None:
    history = History(id="short", items=HISTORY.items[:1])
    with dspy.context(lm=scripted(summaries("Ann has a dog.\nIt sheds a lot."))):
        memory = build("recursive-summary", max_words=max_words).remember(history).memory
    assert memory.summary == summary


# Logs beside any method


SEARCHING = ["turn-rag", "session-rag", "condition-mem", "memory-bank"]
EARLIER = {
    "no-memory": "none",
    "recursive-summary": "summary",
    **dict.fromkeys(SEARCHING, "search"),
}


def logs(n: int, *texts: str) -> Logs:
    turns = tuple(
        Turn(id=f"L{n}:{t}", speaker="phone", text=text, time=datetime(2024, n, 2, t))
        for t, text in enumerate(texts, 1)
    )
    return Logs(id=f"L{n}", time=datetime(2024, n, 2), turns=turns)


TALK: Any = {"speakers": ("assistant", "user")}
LOGGED = History(
    id="ann",
    items=(
        logs(1, "bought running shoes", "booked a dentist"),
        session(1, "Which running shoes suit me?", "Try the light ones.", **TALK),
        logs(2, "ran around the lake in new shoes", "watched a film"),
        session(2, "My knee hurts after the run.", "Rest it.", **TALK),
        logs(3, "searched for a knee brace", "set an alarm"),
    ),
)


def reply(kind: str, text: str, n: int) -> dict[str, Any]:
    if kind == "records":
        return {
            "records": [
                {
                    "turn_id": "D1:1",
                    "condition": "buying shoes",
                    "content": f"likes running shoes {n}",
                }
            ]
        }
    return {kind: f"{kind} about running shoes, number {n}."}


def with_logs(name: str, **config: Any) -> Any:
    """The baseline with the handling of logs that Mem-PAL gives it."""
    return build(
        f"logs+{name}", embedder=embedder("offline"), **{"earlier": EARLIER[name], **config}
    )


def logs_recalled(
    scripted: Any, made: Any, history: History = LOGGED, shown: tuple[Any, ...] = ()
) -> list[Any]:
    with dspy.context(lm=scripted(reply)):
        query = Query(text="running shoes", shown_items=shown)
        return list(made.method.reader.recall(made.remember(history).memory, query).hits)


@pytest.mark.parametrize(
    ("name", "items", "current"), [*((name, 5, "L3") for name in EARLIER), ("turn-rag", 4, "L2")]
)
def test_all_logs_of_the_current_session_come_last(
    scripted: Any, name: str, items: int, current: str
) -> None:
    """Also after their dialogue, until there are newer ones, and unless the task shows them itself."""
    history = History(id="ann", items=LOGGED.items[:items])
    found = logs_recalled(scripted, with_logs(name), history)
    assert [(hit.id, hit.kind) for hit in found][-2:] == [(f"{current}:{n}", "log") for n in (1, 2)]
    shown = logs_recalled(
        scripted, with_logs(name), history, shown=(LOGGED.items[-1 if items == 5 else 2],)
    )
    assert not [hit.id for hit in shown if hit.id.startswith(current)]


@pytest.mark.parametrize("name", SEARCHING)
def test_the_nearest_earlier_logs_are_found_beside_the_dialogues(scripted: Any, name: str) -> None:
    # In the time that the example spans, all that was said would be forgotten.
    more = {"inner_forgetting": False} if name == "memory-bank" else {}
    ids = [hit.id for hit in logs_recalled(scripted, with_logs(name, k=1, inner_k=1, **more))]
    *dialogue, earlier, _, _ = ids
    assert earlier in ("L1:1", "L2:1")
    assert dialogue
    assert not [id for id in dialogue if id.startswith("L")]


def test_the_summaries_of_dialogues_and_of_logs_are_two(scripted: Any) -> None:
    lm = scripted(reply)
    made = with_logs("recursive-summary")
    with dspy.context(lm=lm):
        memory = made.remember(LOGGED).memory
    assert lm.engine.calls == {"summary": 2, "log_summary": 3}
    first, second, *_ = made.method.reader.recall(memory, Query(text="x")).hits
    assert first.id == "summary"
    assert set(first.sources) == {"D1:1", "D1:2", "D2:1", "D2:2"}
    assert second.id == "log_summary"
    assert set(second.sources) == {f"L{n}:{t}" for n in (1, 2, 3) for t in (1, 2)}
    asked = [text for kind, text in lm.engine.prompts if kind == "log_summary"]
    assert "log_summary about running shoes, number 1." in asked[1]
    assert not any("[D" in text for text in asked)


def test_an_empty_summary_of_logs_keeps_the_one_before_it_and_is_counted(scripted: Any) -> None:
    # The second logs are tried as they came and in two halves.
    replies = ["Ann runs.", "", "", "", "Ann runs. Ann has a bad knee."]
    program = build("logs+no-memory", earlier="summary")
    with dspy.context(lm=scripted(lambda kind, text, n: {"log_summary": replies[n - 1]})):
        node = program.remember(LOGGED)

    assert node.memory.log_summary.summary == "Ann runs. Ann has a bad knee."
    failed_turns = [turn.id for failed in node.memory.failed_items for turn in failed.item.turns]
    assert failed_turns == ["L2:1", "L2:2"]
    failures = [failure for part in node.ancestors() for failure in part.failures]
    assert [failure.where for failure in failures] == ["update_logs"] * 3
    assert [entry.id for entry in node.memory.current] == ["L3:1", "L3:2"]


START = datetime(2024, 1, 1)


def after(days: float) -> datetime:
    return START + timedelta(days=days)


@pytest.mark.parametrize(
    ("days", "strength", "retention"),
    # R = exp(-t / (5 S)): 5 days at strength 1 are exp(-1), at strength 2 exp(-1/2); 10 days at strength 2 exp(-1).
    [(0, 1, 1.0), (5, 1, 0.367879), (5, 2, 0.606531), (10, 2, 0.367879), (30, 1, 0.002479)],
)
def test_the_forgetting_curve_by_hand(days: int, strength: int, retention: float) -> None:
    for last in (START, START.replace(tzinfo=UTC)):
        assert Strength(strength, last).retention(after(days), 5.0) == pytest.approx(
            retention, abs=1e-6
        )


PEPPER = History(
    id="ann",
    items=(
        session(
            1, "My greyhound Pepper limps.", "Let a vet look at the paw.", time=after(0), **TALK
        ),
        session(
            2, "Pepper the greyhound limps again.", "See the vet once more.", time=after(2), **TALK
        ),
        session(3, "I bake rye bread.", "Let it cool.", time=after(4), **TALK),
    ),
)


def program(name: str = "memory-bank", **config: Any) -> Any:
    return build(name, embedder=embedder("offline"), **config)


def remembered(scripted: Any, history: History = PEPPER, **config: Any) -> tuple[Any, Any, Any]:
    made, lm = program(**config), scripted(lambda kind, text, n: {kind: f"{kind} {n}"})
    with dspy.context(lm=lm):
        return made.method, made.remember(history).memory, lm


def test_turns_and_digests_are_pieces_and_two_accounts_are_written(scripted: Any) -> None:
    method, memory, lm = remembered(scripted)
    assert [p.id for p in memory.pieces][:3] == ["D1:1", "D1:2", "digest-1"]
    assert lm.engine.calls == {
        "event_digest": 3,
        "personality_note": 3,
        "overall_events": 1,
        "user_portrait": 1,
    }
    found = method.reader.recall(memory, Query(text="Pepper"))
    assert found.notes == {"what happened": "overall_events 1", "the user": "user_portrait 1"}
    merged = next(text for kind, text in lm.engine.prompts if kind == "overall_events")
    assert "(1 January 2024, Monday) event_digest" in merged


def test_dialogues_recall_what_their_user_speaks_of(scripted: Any) -> None:
    _, memory, _ = remembered(scripted, History(id="ann", items=PEPPER.items[:2]), k=1, days=1000.0)
    strengths = {piece.id: memory.strength(piece) for piece in memory.pieces}
    assert strengths["D1:1"] == (2, after(2))
    assert strengths["D1:2"] == (1, START)


@pytest.mark.parametrize("assistant", ["assistant", "AI", "bot", "助手"])
def test_turns_of_an_assistant_recall_nothing(scripted: Any, assistant: str) -> None:
    # The first turn of a session is by the second speaker.
    dialogues = (
        session(1, "My greyhound Pepper limps.", time=after(0), speakers=(assistant, "user")),
        session(2, "How is the greyhound Pepper?", time=after(2), speakers=("user", assistant)),
    )

    _, memory, _ = remembered(scripted, History(id="ann", items=dialogues), days=1000.0)

    turns = [piece for piece in memory.pieces if piece.kind == "turn"]
    assert [turn.speaker for turn in turns] == ["user", assistant]
    assert memory.recalled == {}


def test_old_pieces_are_forgotten_by_the_date_of_the_query(scripted: Any) -> None:
    method, memory, _ = remembered(scripted, k=20)
    soon = method.reader.recall(memory, Query(text="greyhound", date=format_time(after(4))))
    late = method.reader.recall(memory, Query(text="greyhound", date=format_time(after(400))))
    assert len(soon.hits) > 0
    assert late.hits == ()
    assert late.counts["forgotten"] == len(memory.pieces)
    assert late.notes == soon.notes


def records(kind: str, text: str, n: int) -> dict[str, Any]:
    if "Pepper limps" in text:
        rows = [
            {
                "turn_id": "[D1:1]",
                "condition": "a limping dog",
                "content": "has a greyhound, Pepper",
            }
        ]
        return {"records": [*rows, {"turn_id": "D7:7", "content": "wants a vet"}, {"content": " "}]}
    if "rye" in text:
        return {"records": [{"turn_id": "D3:1", "content": "bakes rye bread"}]}
    return {
        "records": [
            {"turn_id": "D2:1", "condition": "a limping dog", "content": "has a greyhound, Pepper"}
        ]
    }


def test_records_keep_their_condition_and_their_turns(scripted: Any) -> None:
    made = program("condition-mem")
    with dspy.context(lm=scripted(records)):
        memory = made.remember(PEPPER).memory
    assert [(entry.id, entry.text, entry.sources) for entry in memory.records] == [
        ("r1", "has a greyhound, Pepper (when: a limping dog)", ("D1:1",)),
        ("r2", "wants a vet", ("D1:1", "D1:2")),
        ("r3", "bakes rye bread", ("D3:1",)),
    ]
    found = made.method.reader.recall(memory, Query(text="greyhound Pepper"))
    assert found.hits[0].id == "r1"
