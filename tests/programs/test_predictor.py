"""Predictors: the demos nearest to their inputs, and all that an optimizer may change of them as text."""

import dspy
import pytest
from mempiler.programs.catalog import build
from mempiler.programs.predictor import predictor
from mempiler.programs.state import dump_predictor, prompts_text
from mempiler.signatures.answering import AnswerFromContext

POOL = [
    dspy.Example(question="When did Ann move to Lisbon?", answer="May 2023"),
    dspy.Example(question="What instrument does Bob play?", answer="cello"),
    dspy.Example(question="Which dog breed does Cleo own?", answer="whippet"),
    dspy.Example(question="When did Dan move to Oslo?", answer="June 2022"),
]


def chosen(question, nearest):
    made = predictor(AnswerFromContext)
    made.demos, made.nearest = POOL, nearest
    return [demo.answer for demo in made.choose({"context": "", "question": question})]


@pytest.mark.parametrize(
    ("question", "nearest", "answers"),
    [
        ("When did Eve move to Rome?", 2, ["May 2023", "June 2022"]),
        ("Which instrument does Eve play?", 1, ["cello"]),
        ("Zzz?", 2, ["May 2023", "cello"]),
        ("anything", 9, ["May 2023", "cello", "whippet", "June 2022"]),
        ("anything", None, ["May 2023", "cello", "whippet", "June 2022"]),
    ],
)
def test_the_nearest_demos_are_shown_in_the_order_of_the_pool(question, nearest, answers):
    assert chosen(question, nearest) == answers


def test_every_predictor_has_its_instructions_fields_and_demos_in_the_text():
    program = build("memory-r2")
    predictor = program.all_predictors()["task.answer"]
    predictor.signature = predictor.signature.with_instructions("Answer.\n```\nas code\n```")
    predictor.demos = [dspy.Example(question="Who?\nWhere?", answer="Ada", augmented=True)]
    states = {name: dump_predictor(each) for name, each in program.all_predictors().items()}
    said = prompts_text(states)
    for name, state in states.items():
        assert f"{name}\n===" in said
        assert state.instructions in said
        assert all(f"{field.name} ({field.type}): {field.desc}" in said for field in state.fields if field.desc)
    assert "Demo 1 of 1, made by the program\n---" in said
    assert "question: Who?\nWhere?\nanswer: Ada" in said
