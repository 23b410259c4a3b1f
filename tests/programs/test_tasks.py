"""Tasks: the query that they make of an example, what the model is shown of it, and what can be set of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import dspy
import pytest
from mempiler import Context, Hit, Logs, Turn, UserError
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.programs.tasks.task import task
from mempiler.records import History, Query
from mempiler.runs.artifact import load, save
from mempiler.signatures.answering import NOT_MENTIONED
from mempiler.signatures.pal import ASSISTANT_ACTIONS

PAL = ("requirement-restatement", "solution-proposal", "solution-selection", "dialogue-reply")
OPTIONS = [f"S{n}: way {n}" for n in range(1, 9)]
LOGS = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))


@pytest.mark.parametrize(
    ("name", "fields", "missing"),
    [
        ("memory-lookup", {}, "question"),
        ("multiple-choice", {"question": "Where?"}, "options"),
        ("multiple-choice", {"question": "Where?", "options": []}, "options"),
    ],
)
def test_a_missing_field_is_one_line_that_names_it(name: str, fields: dict[str, Any], missing: str) -> None:
    with pytest.raises(UserError) as caught:
        task(name)().query(fields)
    assert str(caught.value) == f"task {name} needs {missing}; pass {missing}=..."


def test_the_query_of_an_example_holds_what_is_known_of_the_question_and_no_evidence(make_history: Any) -> None:
    known = {"question": "Who?", "options": [1, "two"], "date": datetime(2023, 5, 8), "mood": "calm"}
    given = {"history": make_history(2), "recent": (LOGS,), "focus": ("D1:1",), **known}
    example = dspy.Example(**given, answer="Ann").with_inputs(*given)
    assert build("turn-rag").query_of(example) == Query(
        text="Who?",
        options=("1", "two"),
        date=datetime(2023, 5, 8),
        speakers=("Bob", "Ann"),
        shown=(LOGS,),
        since=(LOGS,),
        more={"mood": "calm"},
    )


@pytest.fixture
def ask(scripted: Any) -> Any:
    """Asks a task under a scripted model; gives the prediction and the prompt."""

    def run(name: str, recent: Sequence[Any] = (), **fields: Any) -> tuple[dspy.Prediction, str]:
        reply = {"analysis": "x", "answer": ["S2", "S7"]} if name == "solution-selection" else {"answer": "done"}
        lm = scripted(lambda *call: reply)
        context = Context(hits=(Hit(id="f1", text="likes calm"),))
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
            asked = task(name)()
            found = asked(context=context, query=asked.query(fields, recent=recent))
        return found, lm.engine.prompts[0][1]

    return run


@pytest.mark.parametrize("name", PAL)
def test_the_model_sees_context_query_and_recent_logs(name: str, ask: Any) -> None:
    found, text = ask(name, question="how?", options=OPTIONS, recent=(LOGS,))
    assert all(part in text for part in ("likes calm", "how?", "bought a bike"))
    assert found.answer == (["S2", "S7"] if name == "solution-selection" else "done")


@pytest.mark.parametrize(
    ("name", "fields", "about", "modality"),
    [
        ("requirement-restatement", {}, "needs", "question"),
        ("solution-proposal", {}, "solutions", "question"),
        ("solution-selection", {"options": OPTIONS}, "solutions", "question"),
        ("dialogue-reply", {"action": "requirement prediction"}, "needs", "dialogue"),
        ("dialogue-reply", {"action": "feedback response"}, "solutions", "dialogue"),
        ("dialogue-reply", {}, "needs", "dialogue"),
        ("dialogue-reply", {"dialogue": "user: hi\nassistant: hm"}, "solutions", "dialogue"),
    ],
)
def test_methods_are_told_what_a_query_is_about(name: str, fields: dict[str, Any], about: str, modality: str) -> None:
    query = task(name)().query({"question": "how?", **fields})
    assert (query.about, query.modality) == (about, modality)


def test_a_reply_is_of_the_kind_that_is_asked_for(ask: Any) -> None:
    for action, meaning in ASSISTANT_ACTIONS.items():
        _, text = ask("dialogue-reply", question="yes", dialogue="user: fit?\nassistant: why?", action=action)
        assert all(part in text for part in (action, meaning, "assistant: why?"))
    with pytest.raises(UserError, match="'shouting' is no kind of reply; one of: requirement prediction"):
        ask("dialogue-reply", question="yes", action="shouting")


@pytest.mark.parametrize("method", ["turn-rag", "memory-r2", "rgmem", "pgr", "pgr+turn-rag"])
def test_a_reader_is_told_to_decline_and_to_reason_first_only_where_it_is_asked_to(method: str) -> None:
    plain, told = (
        build(method, embedder=embedder(), **settings).task.answer.signature
        for settings in ({}, {"task.abstain": True, "task.reasoning": True})
    )
    assert told.instructions == f"{plain.instructions}\n{NOT_MENTIONED}"
    assert "Not mentioned" not in plain.instructions
    assert list(told.output_fields) == ["reasoning", "answer"]


def test_reasons_are_read_and_a_saved_program_asks_for_them_too(scripted: Any, tmp_path: Any) -> None:
    save(build("turn-rag", **{"task.reasoning": True}), tmp_path / "program")
    program = load(tmp_path / "program")
    assert program.config["task.reasoning"] is True
    history = History.parse([{"role": "user", "content": "My parrot is called Rio."}])
    with dspy.context(lm=scripted(lambda kind, text, n: {"reasoning": "line 1", "answer": "Rio"})):
        found = program(history=history, question="What is the parrot called?")
    assert (found.reasoning, found.answer) == ("line 1", "Rio")


def test_memories_of_learned_operations_keep_the_setting_of_programs_saved_before() -> None:
    program = build("memory-r2", embedder=embedder(), abstain=True)
    assert program.config["task.abstain"] is True
