"""How many calls and tokens a program takes, measured before a run with the offline engine.

The offline engine costs nothing. With what it takes for a few questions and items, a plan tells the
user what a whole run will take. An item is a session of a history, which is written into a memory;
histories that begin alike share the memory of their beginning.
"""

from collections.abc import Callable

import mempiler
import pytest
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.records import History
from mempiler.runs.plan_sizes import MeanWork, Work, estimate_writing, measure_program

from .evaluations import locomo, questions_about


def test_items_with_which_two_histories_begin_are_counted_once(
    make_history: Callable[..., History],
) -> None:
    """A memory is finalized when all items are written and the first question is asked."""
    program = build("fact-store", embedder=embedder())
    mean_work = MeanWork(
        answering=Work(calls=1, tokens=100),
        writing=Work(calls=2, tokens=50),
        finalizing=Work(calls=3, tokens=10),
        output_share=0.1,
    )
    short_history = make_history(2, id="short")
    # Its first two items are those of the short one.
    long_history = make_history(3, id="long")
    questions = [*questions_about(short_history, 2), *questions_about(long_history, 2)]

    work = estimate_writing(program, questions, mean_work)

    # Three items are written, with 2 calls each, and two memories are finalized, with 3 calls each.
    assert work.calls == 3 * 2 + 2 * 3
    assert work.tokens == 3 * 50 + 2 * 10


def test_a_memory_that_histories_share_is_measured_once(
    make_history: Callable[..., History],
) -> None:
    program = build("fact-store", embedder=embedder())
    first_questions = questions_about(make_history(3, id="first"), 2)
    questions_of_same_items = questions_about(make_history(3, id="second"), 2)
    all_questions = [*first_questions, *questions_of_same_items]

    work_of_first = measure_program(program, locomo(first_questions), first_questions)
    work_of_both = measure_program(program, locomo(all_questions), all_questions)

    assert work_of_first.writing.calls > 0
    assert work_of_both.writing == work_of_first.writing
    assert work_of_both.finalizing == work_of_first.finalizing


def test_two_histories_with_the_same_id_are_measured_separately(
    make_history: Callable[..., History],
) -> None:
    """They take as much as two histories with different ids."""
    # With this method, the tokens of an answer depend on the length of the history.
    program = build("full-context", embedder=embedder())
    short_questions = questions_about(make_history(1, id="ann"), 2)
    long_questions = questions_about(make_history(5, id="bob"), 2)
    different_ids = [*short_questions, *long_questions]
    expected = measure_program(program, locomo(different_ids), different_ids)

    same_id = [*short_questions, *questions_about(make_history(5, id="ann"), 2)]
    # The ids of questions are made from those of histories.
    for number, example in enumerate(same_id):
        example.id = str(number)

    assert measure_program(program, locomo(same_id), same_id) == expected


@pytest.mark.parametrize(
    ("method", "benchmark"), [("h2memory", "palbench.restate"), ("pgr", "locomo")]
)
@pytest.mark.slow
def test_the_calls_of_an_evaluation_that_finalizes_memories_lie_in_the_planned_range(
    method: str, benchmark: str
) -> None:
    """These two methods also ask the model when they finalize a memory."""
    plan = mempiler.plan(method, benchmark=benchmark, test=6, optimizer=None, progress=False)

    evaluation = mempiler.evaluate(
        method, benchmark=benchmark, test=6, lm="offline", progress=False
    )

    assert plan.calls.low <= sum(evaluation.calls.values()) <= plan.calls.high
