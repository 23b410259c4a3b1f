"""What an optimizer's trace sees of memories that came from the cache."""

import copy

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build


@pytest.fixture
def program():
    return build("memory-r2", embedder=embedder(), chunk_turns=3)


def traced(program, **inputs):
    with dspy.context(trace=[]):
        program(**inputs)
        return list(dspy.settings.trace)


def shown(trace, predictor):
    return [inputs for p, inputs, _ in trace if p is predictor]


def test_a_cached_memory_replays_the_steps_that_saw_the_gold_evidence(scripted, fact_replies, make_history, program):
    history = make_history(4)
    with dspy.context(lm=scripted(fact_replies)):
        traced(program, history=history, question="Where?")
        trace = traced(program, history=history, question="Where?", focus=("D2:5",))
    dialogues = [inputs["dialogue"] for inputs in shown(trace, program.method.writer.extract)]
    assert len(dialogues) == 1
    assert "[D2:5]" in dialogues[0]
    assert len(shown(trace, program.method.writer.manage)) == 1
    assert trace[-1][0] is program.task.answer


def test_steps_are_bound_to_the_running_copy_and_their_inputs_are_copies(scripted, fact_replies, make_history, program):
    history, twin = make_history(2), copy.deepcopy(program)
    with dspy.context(lm=scripted(fact_replies)):
        for _, inputs, _ in traced(program, history=history, question="Where?", focus=("D1:1",))[:-1]:
            inputs.clear()
        trace = traced(twin, history=history, question="Where?", focus=("D1:1",))
    assert all(inputs for _, inputs, _ in trace)
    steps = (twin.method.writer.extract, twin.method.writer.manage, twin.task.answer)
    assert {id(p) for p, _, _ in trace} == {id(p) for p in steps}


def test_without_evidence_the_steps_behind_the_best_hits_are_replayed(scripted, fact_replies, make_history, program):
    with dspy.context(lm=scripted(fact_replies)):
        trace = traced(program, history=make_history(3), question="Who saw Quito with 2 friends?")
    dialogues = [inputs["dialogue"] for inputs in shown(trace, program.method.writer.extract)]
    assert any("[D2:2]" in dialogue for dialogue in dialogues)


def test_plain_evaluation_replays_nothing(scripted, fact_replies, make_history, program):
    with dspy.context(lm=scripted(fact_replies)):
        before = len(dspy.settings.trace)
        for _ in range(3):
            program(history=make_history(2), question="Where?", focus=("D1:1",))
        assert len(dspy.settings.trace) == before + 3
