"""GEPA's view of a metric: which step lost the evidence, in words, per predictor."""

import dspy
import pytest
from mempiler import Context, Hit
from mempiler.data.catalog import benchmark
from mempiler.memory.provenance import stored_sources
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
    ("stored", "recalled", "step"),
    [(False, False, "never stored"), (True, False, "stored but not recalled"), (True, True, "recalled")],
)
def test_the_step_that_lost_the_evidence(example, stored, recalled, step):
    assert evidence_step(example, outcome(example, stored, recalled, "")) == {example.focus[0]: step}


@pytest.mark.parametrize(
    ("stored", "recalled", "words"),
    [
        (False, False, "nothing of it was stored"),
        (True, False, "did not find it"),
        (True, True, "the answer was still wrong"),
    ],
)
def test_a_writer_that_saw_the_evidence_hears_what_became_of_it(example, stored, recalled, words):
    views = MetricViews(benchmark("locomo"), writers=WRITERS)
    prediction = outcome(example, stored, recalled, "entirely wrong")
    found = views.feedback(example, prediction, None, "method.writer.extract", call_that_saw(example.focus[0]))
    assert words in found.feedback
    assert example.question in found.feedback


def test_a_writer_that_did_not_see_the_evidence_has_nothing_to_learn(example):
    views = MetricViews(benchmark("locomo"), writers=WRITERS)
    prediction = outcome(example, False, False, "wrong")
    found = views.feedback(example, prediction, None, "method.writer.extract", call_that_saw("D99:1"))
    assert "nothing is to be learnt" in found.feedback


@pytest.mark.parametrize(
    ("stored", "recalled", "words"),
    [(False, False, "was never stored"), (True, False, "stored but not recalled"), (True, True, "was in the context")],
)
def test_the_answering_predictor_hears_whether_it_could_know(example, stored, recalled, words):
    views = MetricViews(benchmark("locomo"), writers=WRITERS)
    assert words in views.feedback(example, outcome(example, stored, recalled, "wrong"), None, "task.answer").feedback


def test_score_and_feedback_agree_with_the_number(example):
    views = MetricViews(benchmark("locomo"))
    prediction = outcome(example, True, True, example.answer)
    found = views.feedback(example, prediction)
    assert found.score == views.number(example, prediction) == 1.0


def test_removed_entries_do_not_count_as_stored():
    memory = FactMemory().apply([Edit("INSERT", speaker="A", content="x", sources=("D1:1",))])
    assert stored_sources(memory) == {"D1:1"}
    assert stored_sources(memory.apply([Edit("DELETE", "m1")], ["m1"])) == frozenset()
