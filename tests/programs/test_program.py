"""Programs as DSPy modules: stages, copies, promises, refusals, and how they are called."""

import asyncio

import dspy
import pytest
from mempiler import History, MemoryProgram, UserError, build, predictor
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.programs.names import METHODS
from mempiler.programs.tasks.task import QuestionAnswering
from mempiler.signatures.answering import AnswerFromContext
from mempiler.testing import check_method


def test_a_frozen_writer_writes_under_the_lm_of_the_stage(scripted, fact_replies, make_history):
    lm, program = scripted(fact_replies), build("memory-r2", embedder=embedder())
    with dspy.context(lm=lm):
        student = program.staged("read")
        student.remember(make_history(1))
        with dspy.context(lm=lm.copy(rollout_id=5, temperature=1.0)):
            student.remember(make_history(1))
    assert lm.engine.calls["operations"] == 3


def test_two_predictors_with_equal_signatures_are_refused():
    class Twice(QuestionAnswering):
        def __init__(self):
            super().__init__()
            self.again = predictor(AnswerFromContext)

    method = build("turn-rag").method
    with pytest.raises(UserError, match=r"task\.answer and task\.again have equal signatures"):
        MemoryProgram(method, Twice())


@pytest.mark.parametrize("name", [*METHODS, "pgr+turn-rag", "pgr+memory-r2", "logs+memory-bank"])
def test_every_method_keeps_the_promises_of_one(name):
    quicker = {"pramem": {"rounds": 5}, "h2memory": {"clusters": 1}}.get(name, {})
    if name == "pramem":
        # Practice on records whose answers cannot be read is over and counted: they are not practised on again.
        with pytest.raises(UserError, match="breaks 1 of its promises: turns are lost where no answer can be read"):
            check_method(name, **quicker)
    else:
        check_method(name, **quicker)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("turn-rag", {"kk": 3}, "'turn-rag' has no setting 'kk'"),
        ("pgr+turn-rag", {"inner_k": "many"}, "k = 'many': input should be a valid integer .default 10"),
        ("memory-r2", {"parts": 0}, "parts = 0: input should be greater than or equal to 1 .how many parts"),
        ("memory-bank", {"days": float("nan")}, "days"),
        ("logs+turn-rag", {"earlier": "all"}, "earlier = 'all': input should be 'search', 'summary' or 'none'"),
        ("pramem", {"start": "empty"}, "'pramem' has no setting 'start'"),
        ("pramem", {"patterns": False, "alerts": False}, "patterns and alerts are all off"),
        ("rgmem", {"use_l0": False, "use_l1": False}, "use_l0 and use_l1 are all off"),
        (
            "h2memory",
            {f"use_{part}": False for part in ("situations", "background", "topics", "principles")},
            "all off",
        ),
        ("pgr", {"kk": 1}, "'pgr' has no setting 'kk'; it has: every=3"),
        ("turn-rag", {"task.reasons": True}, "task 'question-answering' has no setting 'reasons'; it has: reasoning="),
        ("turn-rag", {"task.abstain": 2}, "task 'question-answering': abstain = 2: input should be a valid boolean"),
    ],
)
def test_settings_without_sense_are_one_line(name, settings, message):
    with pytest.raises(UserError, match=message):
        build(name, embedder=embedder(), **settings)


SAID = [
    [
        {"role": "user", "name": "Ada", "content": "I moved to Lisbon with my dog Rex."},
        {"role": "user", "name": "Bob", "content": "How nice! Do you like the hills?"},
    ],
    [{"role": "user", "name": "Ada", "content": "I bought light running shoes."}],
]


def test_a_history_may_be_plain_json_and_a_program_awaited():
    program, questions = build("turn-rag"), ("Where did Ada move?", "What did Ada buy?")

    async def ask():
        return await asyncio.gather(*(program.acall(SAID, question=question) for question in questions))

    with dspy.context(lm=language_model("offline")):
        answers = [found.answer for found in asyncio.run(ask())]
        found = [program(history=SAID, question=question) for question in questions]
        assert found[0].memory == program.remember(History.parse(SAID)).memory
    assert answers == [one.answer for one in found]
    assert "Lisbon" in answers[0]
