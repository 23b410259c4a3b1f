"""MemoryBank: its forgetting curve, what recalls while dialogues are written, its accounts; and ConditionMem."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dspy
import pytest
from mempiler import History, Session, Turn
from mempiler.programs.baselines.written import Strength
from mempiler.programs.catalog import build
from mempiler.records import Query, format_time

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
        assert Strength(strength, last).retention(after(days), 5.0) == pytest.approx(retention, abs=1e-6)


# The method ----------------------------------------------------------------------------------------------------------


def talk(n: int, day: int, *texts: str) -> Session:
    turns = tuple(
        Turn(id=f"D{n}:{t}", speaker=("assistant", "user")[t % 2], text=text) for t, text in enumerate(texts, 1)
    )
    return Session(id=f"D{n}", time=after(day), turns=turns)


HISTORY = History(
    id="ann",
    items=(
        talk(1, 0, "My greyhound Pepper limps.", "Let a vet look at the paw."),
        talk(2, 2, "Pepper the greyhound limps again.", "See the vet once more."),
        talk(3, 4, "I bake rye bread.", "Let it cool."),
    ),
)


def reply(kind: str, text: str, n: int) -> dict[str, Any]:
    return {kind: f"{kind} {n}"}


def program(name: str = "memory-bank", **config: Any) -> Any:
    from mempiler.engines.embedders import embedder

    return build(name, embedder=embedder("offline"), **config)


def remembered(scripted: Any, history: History = HISTORY, **config: Any) -> tuple[Any, Any, Any]:
    made, lm = program(**config), scripted(reply)
    with dspy.context(lm=lm):
        return made.method, made.remember(history).memory, lm


def test_turns_and_digests_are_pieces_and_two_accounts_are_written(scripted: Any) -> None:
    method, memory, lm = remembered(scripted)
    assert [p.id for p in memory.pieces][:3] == ["D1:1", "D1:2", "digest-1"]
    assert lm.engine.calls == {"event_digest": 3, "personality_note": 3, "overall_events": 1, "user_portrait": 1}
    found = method.reader.recall(memory, Query(text="Pepper"))
    assert found.notes == {"what happened": "overall_events 1", "the user": "user_portrait 1"}
    merged = next(text for kind, text in lm.engine.prompts if kind == "overall_events")
    assert "(1 January 2024, Monday) event_digest" in merged


def test_dialogues_recall_what_their_user_speaks_of(scripted: Any) -> None:
    _, memory, _ = remembered(scripted, History(id="ann", items=HISTORY.items[:2]), k=1, days=1000.0)
    strengths = {piece.id: memory.strength(piece) for piece in memory.pieces}
    assert strengths["D1:1"] == (2, after(2))
    assert strengths["D1:2"] == (1, START)


def test_old_pieces_are_forgotten_by_the_date_of_the_query(scripted: Any) -> None:
    method, memory, _ = remembered(scripted, k=20)
    soon = method.reader.recall(memory, Query(text="greyhound", date=format_time(after(4))))
    late = method.reader.recall(memory, Query(text="greyhound", date=format_time(after(400))))
    assert len(soon.hits) > 0
    assert (late.hits, late.counts["forgotten"]) == ((), len(memory.pieces))
    assert late.notes == soon.notes


# ConditionMem --------------------------------------------------------------------------------------------------------


def records(kind: str, text: str, n: int) -> dict[str, Any]:
    if "Pepper limps" in text:
        rows = [{"turn_id": "[D1:1]", "condition": "a limping dog", "content": "has a greyhound, Pepper"}]
        return {"records": [*rows, {"turn_id": "D7:7", "content": "wants a vet"}, {"content": " "}]}
    if "rye" in text:
        return {"records": [{"turn_id": "D3:1", "content": "bakes rye bread"}]}
    return {"records": [{"turn_id": "D2:1", "condition": "a limping dog", "content": "has a greyhound, Pepper"}]}


def test_records_keep_their_condition_and_their_turns(scripted: Any) -> None:
    made = program("condition-mem")
    with dspy.context(lm=scripted(records)):
        memory = made.remember(HISTORY).memory
    assert [(entry.id, entry.text, entry.sources) for entry in memory.records] == [
        ("r1", "has a greyhound, Pepper (when: a limping dog)", ("D1:1",)),
        ("r2", "wants a vet", ("D1:1", "D1:2")),
        ("r3", "bakes rye bread", ("D3:1",)),
    ]
    found = made.method.reader.recall(memory, Query(text="greyhound Pepper"))
    assert found.hits[0].id == "r1"
