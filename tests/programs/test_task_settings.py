"""What can be set of a task, whatever the method: reasons before the answer, and what to say where nothing bears."""

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.errors import UserError
from mempiler.programs.catalog import build
from mempiler.programs.external.program import program_of
from mempiler.records import History
from mempiler.runs.artifact import load, save
from mempiler.signatures.answering import NOT_MENTIONED

METHODS = ("turn-rag", "memory-r2", "rgmem", "pgr", "pgr+turn-rag")


@pytest.mark.parametrize("method", METHODS)
def test_a_reader_is_told_to_decline_and_to_reason_first_only_where_it_is_asked_to(method):
    plain = build(method, embedder=embedder()).task.answer.signature
    told = build(method, embedder=embedder(), **{"task.abstain": True, "task.reasoning": True}).task.answer.signature
    assert told.instructions == f"{plain.instructions}\n{NOT_MENTIONED}"
    assert "Not mentioned" not in plain.instructions
    assert list(told.output_fields) == ["reasoning", "answer"]


def test_reasons_are_read_and_a_saved_program_asks_for_them_too(scripted, tmp_path):
    save(build("turn-rag", **{"task.reasoning": True}), tmp_path / "program")
    program = load(tmp_path / "program")
    assert program.config["task.reasoning"] is True
    history = History.parse([{"role": "user", "content": "My parrot is called Rio."}])
    with dspy.context(lm=scripted(lambda kind, text, n: {"reasoning": "line 1", "answer": "Rio"})):
        found = program(history=history, question="What is the parrot called?")
    assert (found.reasoning, found.answer) == ("line 1", "Rio")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"task.reasons": True},
            "task 'question-answering' has no setting 'reasons'; it has: reasoning=False",
        ),
        ({"task.abstain": 2}, "task 'question-answering': abstain = 2: input should be a valid boolean"),
    ],
)
def test_a_wrong_setting_of_a_task_is_named(settings, said):
    with pytest.raises(UserError, match=said):
        build("turn-rag", **settings)


def test_a_thing_that_answers_by_itself_cannot_be_asked_for_reasons():
    with pytest.raises(UserError, match=r"answers by itself: task\.reasoning does not reach it"):
        program_of(lambda history, question: "x", "mine", "question-answering", config={"task.reasoning": True})


def test_memories_of_learned_operations_keep_the_setting_of_programs_saved_before():
    program = build("memory-r2", embedder=embedder(), abstain=True)
    assert program.config["task.abstain"] is True
