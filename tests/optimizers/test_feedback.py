"""Views of a metric: whether an answer passed, and for GEPA which step lost the evidence, in words, per predictor."""

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.data.catalog import benchmark
from mempiler.optimizers.metric_views import MetricViews, evidence_step
from mempiler.programs.memory_r2.memory import Edit, FactMemory

WRITERS = ["method.writer.extract", "method.writer.manage"]


@pytest.fixture(scope="module")
def example():
    found = benchmark("locomo").examples
    return next(example for example in found if example.category == "4" and len(example.focus) == 1)


def outcome(example, stored, recalled, answer):
    memory = FactMemory()
    if stored:
        memory = memory.apply([Edit("INSERT", speaker="A", content="something", sources=tuple(example.focus))])
    hits = (Hit(id="m1", text="something", sources=tuple(example.focus)),) if recalled else ()
    return dspy.Prediction(answer=answer, context=Context(hits=hits), memory=memory)


def call_that_saw(turn):
    return [(None, {"dialogue": f"[{turn}] (3 May 2024) Ann: words"}, None)]


@pytest.mark.parametrize(
    ("stored", "recalled", "step", "to_the_writer", "to_the_answer"),
    [
        (False, False, "never stored", "nothing of it was stored", "was never stored"),
        (True, False, "stored but not recalled", "did not find it", "stored but not recalled"),
        (True, True, "recalled", "the answer was still wrong", "was in the context"),
    ],
)
def test_each_predictor_hears_which_step_lost_the_evidence(
    example, stored, recalled, step, to_the_writer, to_the_answer
):
    prediction = outcome(example, stored, recalled, "entirely wrong")
    assert evidence_step(example, prediction) == {example.focus[0]: step}
    views = MetricViews(benchmark("locomo"), writers=WRITERS)
    told = views.feedback(example, prediction, None, "method.writer.extract", call_that_saw(example.focus[0])).feedback
    assert to_the_writer in told
    assert example.question in told
    blind = views.feedback(example, prediction, None, "method.writer.extract", call_that_saw("D99:1"))
    assert "nothing is to be learnt" in blind.feedback
    assert to_the_answer in views.feedback(example, prediction, None, "task.answer").feedback
    right = outcome(example, stored, recalled, example.answer)
    assert views.feedback(example, right).score == views.number(example, right) == 1.0
    assert (views.passed(example, right), views.passed(example, prediction)) == (True, False)
