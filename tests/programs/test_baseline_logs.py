"""`logs+METHOD`: what is kept and recalled of device logs beside any method, and without the policy."""

from datetime import datetime
from typing import Any

import dspy
import pytest
from mempiler import History, Logs, Session, Turn
from mempiler.programs.catalog import build
from mempiler.records import Context, Query

SEARCHING = ["turn-rag", "session-rag", "condition-mem", "memory-bank"]
EARLIER = {"no-memory": "none", "recursive-summary": "summary", **dict.fromkeys(SEARCHING, "search")}
ALL = list(EARLIER)


def logs(n: int, *texts: str) -> Logs:
    turns = tuple(
        Turn(id=f"L{n}:{t}", speaker="phone", text=text, time=datetime(2024, n, 2, t))
        for t, text in enumerate(texts, 1)
    )
    return Logs(id=f"L{n}", time=datetime(2024, n, 2), turns=turns)


def talk(n: int, *texts: str) -> Session:
    turns = tuple(
        Turn(id=f"D{n}:{t}", speaker=("assistant", "user")[t % 2], text=text) for t, text in enumerate(texts, 1)
    )
    return Session(id=f"D{n}", time=datetime(2024, n, 3), turns=turns)


HISTORY = History(
    id="ann",
    items=(
        logs(1, "bought running shoes", "booked a dentist"),
        talk(1, "Which running shoes suit me?", "Try the light ones."),
        logs(2, "ran around the lake in new shoes", "watched a film"),
        talk(2, "My knee hurts after the run.", "Rest it."),
        logs(3, "searched for a knee brace", "set an alarm"),
    ),
)


def reply(kind: str, text: str, n: int) -> dict[str, Any]:
    if kind == "records":
        return {"records": [{"turn_id": "D1:1", "condition": "buying shoes", "content": f"likes running shoes {n}"}]}
    return {kind: f"{kind} about running shoes, number {n}."}


def embed() -> Any:
    from mempiler.engines.embedders import embedder

    return embedder("offline")


def program(name: str, **config: Any) -> Any:
    return build(name, embedder=embed(), **config)


def with_logs(name: str, **config: Any) -> Any:
    """The baseline with the handling of logs that Mem-PAL gives it."""
    return program(f"logs+{name}", **{"earlier": EARLIER[name], **config})


def recalled(scripted: Any, made: Any, question: str, history: History = HISTORY) -> Context:
    with dspy.context(lm=scripted(reply)):
        return made.method.reader.recall(made.remember(history).memory, Query(text=question))


@pytest.mark.parametrize("name", ALL)
def test_all_logs_of_the_current_session_come_last(scripted: Any, name: str) -> None:
    found = recalled(scripted, with_logs(name), "running shoes")
    assert [(hit.id, hit.kind) for hit in found.hits][-2:] == [("L3:1", "log"), ("L3:2", "log")]


@pytest.mark.parametrize("name", SEARCHING)
def test_of_earlier_logs_the_nearest_are_found_beside_the_dialogues(scripted: Any, name: str) -> None:
    # In the time that the example spans, all that was said would be forgotten.
    more = {"inner_forgetting": False} if name == "memory-bank" else {}
    ids = [hit.id for hit in recalled(scripted, with_logs(name, k=1, inner_k=1, **more), "running shoes").hits]
    *dialogue, earlier, _, _ = ids
    assert earlier in ("L1:1", "L2:1")
    assert dialogue
    assert not [id for id in dialogue if id.startswith("L")]


@pytest.mark.parametrize("name", ALL)
def test_logs_that_the_task_shows_are_not_recalled_again(scripted: Any, name: str) -> None:
    made = with_logs(name)
    query = Query(text="running shoes", shown=(HISTORY.items[-1],))
    with dspy.context(lm=scripted(reply)):
        found = made.method.reader.recall(made.remember(HISTORY).memory, query)
    assert not [hit.id for hit in found.hits if hit.id.startswith("L3")]


@pytest.mark.parametrize("name", ALL)
def test_the_current_logs_stay_after_their_dialogue(scripted: Any, name: str) -> None:
    history = History(id="ann", items=HISTORY.items[:4])
    ids = [hit.id for hit in recalled(scripted, with_logs(name), "running shoes", history).hits]
    assert ids[-2:] == ["L2:1", "L2:2"]


def test_the_summaries_of_dialogues_and_of_logs_are_two(scripted: Any) -> None:
    lm = scripted(reply)
    made = with_logs("recursive-summary")
    with dspy.context(lm=lm):
        memory = made.remember(HISTORY).memory
    assert lm.engine.calls == {"summary": 2, "log_summary": 3}
    first, second, *_ = made.method.reader.recall(memory, Query(text="x")).hits
    assert (first.id, set(first.sources)) == ("summary", {"D1:1", "D1:2", "D2:1", "D2:2"})
    assert (second.id, set(second.sources)) == ("log_summary", {f"L{n}:{t}" for n in (1, 2, 3) for t in (1, 2)})
    asked = [text for kind, text in lm.engine.prompts if kind == "log_summary"]
    assert "log_summary about running shoes, number 1." in asked[1]
    assert not any("[D" in text for text in asked)


def test_without_the_policy_one_summary_takes_in_both(scripted: Any) -> None:
    lm = scripted(reply)
    made = program("recursive-summary")
    with dspy.context(lm=lm):
        made.remember(HISTORY)
    assert lm.engine.calls == {"summary": 5}
    assert set(made.method.writer.predictors_below()) == {"update"}
