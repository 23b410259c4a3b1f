"""The query that a task makes of an example's fields, and the one way from it to an answer."""

from datetime import datetime
from typing import Any

import dspy
import pytest
from mempiler.errors import UserError
from mempiler.programs.catalog import build
from mempiler.programs.tasks.task import QuestionAnswering, task
from mempiler.records import Logs, Query, Session, Turn

ASKED = datetime(2023, 5, 8)
LOGS = Logs(id="L1", turns=(Turn(id="L1:1", speaker="log", text="bought a bike"),))


@pytest.mark.parametrize(
    ("name", "fields", "missing"),
    [
        ("question-answering", {}, "question"),
        ("multiple-choice", {"question": "Where?"}, "options"),
        ("multiple-choice", {"question": "Where?", "options": []}, "options"),
        ("memory-lookup", {}, "question"),
    ],
)
def test_a_missing_field_is_one_line_that_names_it(name: str, fields: dict[str, Any], missing: str) -> None:
    with pytest.raises(UserError) as caught:
        task(name)().query(fields)
    assert str(caught.value) == f"task {name} needs {missing}; pass {missing}=..."


def test_what_is_known_of_a_question_is_in_its_query() -> None:
    fields = {"question": "Where?", "options": [1, "two"], "date": ASKED, "mood": "calm"}
    query = QuestionAnswering().query(fields, past=(Session(id="D1"),), recent=(LOGS,), speakers=["Ann", "Bob"])
    assert query == Query(
        text="Where?",
        options=("1", "two"),
        date=ASKED,
        speakers=("Ann", "Bob"),
        shown=(LOGS,),
        since=(LOGS,),
        more={"mood": "calm"},
    )


def test_the_query_of_an_example_holds_its_own_fields_and_no_evidence(make_history: Any) -> None:
    history = make_history(2)
    fields = {"question": "Who?", "mood": "calm", "answer": "Ann", "focus": ("D1:1",), "recent": (LOGS,)}
    example = dspy.Example(history=history, **fields).with_inputs("history", "question", "mood", "focus", "recent")
    program = build("turn-rag")
    expected = Query(text="Who?", speakers=("Bob", "Ann"), shown=(LOGS,), since=(LOGS,), more={"mood": "calm"})
    assert program.query_of(example) == expected
