"""The basic handling of logs: what each baseline recalls of them with and without its setting `logs`."""

from datetime import datetime
from typing import Any

import dspy
import pytest
from mempiler import History, Logs, Session, Turn
from mempiler.memory.device_logs import LogMemory
from mempiler.memory.provenance import stored_sources
from mempiler.programs.catalog import build
from mempiler.records import Context

ALL = ["no-memory", "turn-rag", "session-rag", "recursive-summary", "condition-mem", "memory-bank"]
SEARCHING = ["turn-rag", "session-rag", "condition-mem", "memory-bank"]


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


def recalled(scripted: Any, name: str, question: str, history: History = HISTORY, **config: Any) -> Context:
    made = program(name, **config)
    with dspy.context(lm=scripted(reply)):
        return made.method.recall(made.remember(history).memory, question)


@pytest.mark.parametrize("name", ALL)
def test_all_logs_of_the_current_session_come_last(scripted: Any, name: str) -> None:
    found = recalled(scripted, name, "running shoes", logs=True)
    assert [hit.id for hit in found.hits][-2:] == ["L3:1", "L3:2"]


@pytest.mark.parametrize("name", SEARCHING)
def test_of_earlier_logs_the_nearest_are_found_beside_the_dialogues(scripted: Any, name: str) -> None:
    # In the time that the example spans, all that was said would be forgotten.
    more = {"forgetting": False} if name == "memory-bank" else {}
    ids = [hit.id for hit in recalled(scripted, name, "running shoes", logs=True, k=1, **more).hits]
    *dialogue, earlier, _, _ = ids
    assert earlier in ("L1:1", "L2:1")
    assert dialogue
    assert not [id for id in dialogue if id.startswith("L")]


@pytest.mark.parametrize("name", ["no-memory", "recursive-summary"])
def test_those_without_search_recall_no_earlier_logs(scripted: Any, name: str) -> None:
    ids = {hit.id for hit in recalled(scripted, name, "running shoes", logs=True).hits}
    assert not ids & {"L1:1", "L1:2", "L2:1", "L2:2"}


def test_without_the_setting_no_memory_recalls_nothing(scripted: Any) -> None:
    assert recalled(scripted, "no-memory", "running shoes").hits == ()


def test_without_the_setting_logs_are_turns_like_others(scripted: Any) -> None:
    ids = {hit.id for hit in recalled(scripted, "turn-rag", "running shoes", k=2).hits}
    assert ids == {"L1:1", "D1:1"}


@pytest.mark.parametrize("name", ALL)
def test_logs_that_the_task_shows_are_not_recalled_again(scripted: Any, name: str) -> None:
    made = program(name, logs=True)
    with dspy.context(lm=scripted(reply)):
        found = made.method.recall(made.remember(HISTORY).memory, "running shoes", recent=(HISTORY.items[-1],))
    assert not [hit.id for hit in found.hits if hit.id.startswith("L3")]


@pytest.mark.parametrize("name", ALL)
def test_a_memory_with_logs_rests_on_turns_of_its_history(scripted: Any, name: str) -> None:
    made = program(name, logs=True)
    with dspy.context(lm=scripted(reply)):
        memory = made.remember(HISTORY).memory
    sources = stored_sources(memory)
    assert {"L3:1", "L3:2"} <= sources <= set(HISTORY.turns)
    assert type(memory).model_validate_json(memory.model_dump_json()) == memory


@pytest.mark.parametrize("name", ALL)
def test_the_current_logs_stay_after_their_dialogue(scripted: Any, name: str) -> None:
    history = History(id="ann", items=HISTORY.items[:4])
    ids = [hit.id for hit in recalled(scripted, name, "running shoes", history, logs=True).hits]
    assert ids[-2:] == ["L2:1", "L2:2"]


def test_the_summaries_of_dialogues_and_of_logs_are_two(scripted: Any) -> None:
    lm = scripted(reply)
    made = program("recursive-summary", logs=True)
    with dspy.context(lm=lm):
        memory = made.remember(HISTORY).memory
    assert lm.engine.calls == {"summary": 2, "log_summary": 3}
    first, second, *_ = made.method.recall(memory, "x").hits
    assert (first.id, set(first.sources)) == ("summary", {"D1:1", "D1:2", "D2:1", "D2:2"})
    assert (second.id, set(second.sources)) == ("log_summary", {f"L{n}:{t}" for n in (1, 2, 3) for t in (1, 2)})
    asked = [text for kind, text in lm.engine.prompts if kind == "log_summary"]
    assert "log_summary about running shoes, number 1." in asked[1]
    assert not any("[D" in text for text in asked)


def test_without_the_setting_one_summary_takes_in_both(scripted: Any) -> None:
    lm = scripted(reply)
    made = program("recursive-summary")
    with dspy.context(lm=lm):
        made.remember(HISTORY)
    assert lm.engine.calls == {"summary": 5}
    assert set(made.method.writers()) == {"update"}


@pytest.mark.parametrize("name", ["condition-mem", "memory-bank"])
def test_logs_that_are_kept_apart_cost_no_calls(scripted: Any, name: str) -> None:
    counts = []
    for setting in (True, False):
        lm = scripted(reply)
        with dspy.context(lm=lm):
            program(name, logs=setting).remember(HISTORY)
        counts.append(sum(lm.engine.calls.values()))
    per_item = {"condition-mem": 1, "memory-bank": 2}[name]
    assert counts[1] - counts[0] == 3 * per_item


def test_batches_of_one_session_are_current_together() -> None:
    kept = LogMemory().after(logs(1, "a")).after(logs(2, "b"))
    assert [entry.id for entry in kept.current] == ["L1:1", "L2:1"]
    kept = kept.after(talk(2, "Hi.")).after(logs(3, "c"))
    assert ([entry.id for entry in kept.earlier], [entry.id for entry in kept.current]) == (["L1:1", "L2:1"], ["L3:1"])
