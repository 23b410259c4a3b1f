"""Predictors that choose the demos nearest to their inputs."""

import dspy
import pytest
from mempiler.programs.predictor import predictor
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
