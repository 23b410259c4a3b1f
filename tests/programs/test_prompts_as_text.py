"""The prompts of a program as text: everything an optimizer may change is there, whole."""

import dspy
import pytest
from mempiler.programs.catalog import build
from mempiler.programs.state import dump_predictor, prompts_text


@pytest.fixture
def states():
    program = build("memory-r2")
    predictor = program.all_predictors()["task.answer"]
    predictor.signature = predictor.signature.with_instructions("Answer.\n```\nas code\n```")
    predictor.demos = [dspy.Example(question="Who?\nWhere?", answer="Ada", augmented=True)]
    return {name: dump_predictor(each) for name, each in program.all_predictors().items()}


def test_every_predictor_has_its_instructions_fields_and_demos(states):
    said = prompts_text(states)
    for name, state in states.items():
        assert f"{name}\n===" in said
        assert state.instructions in said
        assert all(f"{field.name} ({field.type}): {field.desc}" in said for field in state.fields if field.desc)
    assert "Demo 1 of 1, made by the program\n---" in said
    assert "question: Who?\nWhere?\nanswer: Ada" in said
