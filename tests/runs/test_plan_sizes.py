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


def test_sessions_with_which_two_histories_begin_are_counted_once(
    make_history: Callable[..., History],
) -> None:
    """The first two of the three sessions of the long history are those of the short history.

    So three sessions are written. When a history is written, its memory is finalized.
    """
    program = build("fact-store", embedder=embedder())
    mean_work = MeanWork(
        answering=Work(calls=1, tokens=100),
        writing=Work(calls=2, tokens=50),
        finalizing=Work(calls=3, tokens=10),
        output_share=0.1,
    )
    short_history = make_history(2, id="short")
    long_history = make_history(3, id="long")
    questions = [*questions_about(short_history, 2), *questions_about(long_history, 2)]

    work = estimate_writing(program, questions, mean_work)

    written_sessions = 3
    finalized_memories = 2
    assert work.calls == 2 * written_sessions + 3 * finalized_memories
    assert work.tokens == 50 * written_sessions + 10 * finalized_memories


def test_two_histories_with_the_same_sessions_are_measured_once(
    make_history: Callable[..., History],
) -> None:
    """A program writes one memory for both."""
    program = build("fact-store", embedder=embedder())
    first_questions = questions_about(make_history(3, id="first"), 2)
    questions_of_same_sessions = questions_about(make_history(3, id="second"), 2)
    all_questions = [*first_questions, *questions_of_same_sessions]

    work_of_first = measure_program(program, locomo(first_questions), first_questions)
    work_of_both = measure_program(program, locomo(all_questions), all_questions)

    assert work_of_first.writing.calls > 0
    assert work_of_both.writing == work_of_first.writing
    assert work_of_both.finalizing == work_of_first.finalizing


def test_different_histories_with_the_same_id_are_measured_separately(
    make_history: Callable[..., History],
) -> None:
    """They take as much as the same histories with different ids.

    The program shows the whole history to the model, so a long history takes more tokens.
    """
    program = build("full-context", embedder=embedder())
    about_short_history = questions_about(make_history(1, id="ann"), 2)
    about_long_history = questions_about(make_history(5, id="bob"), 2)
    with_different_ids = [*about_short_history, *about_long_history]
    expected = measure_program(program, locomo(with_different_ids), with_different_ids)

    with_same_id = [*about_short_history, *questions_about(make_history(5, id="ann"), 2)]
    # The ids of questions are made from those of histories, but must differ.
    for number, example in enumerate(with_same_id):
        example.id = str(number)

    assert measure_program(program, locomo(with_same_id), with_same_id) == expected


@pytest.mark.parametrize(
    ("method", "benchmark"), [("h2memory", "palbench.restate"), ("pgr", "locomo")]
)
@pytest.mark.slow
def test_a_plan_counts_the_calls_that_finalize_a_memory(method: str, benchmark: str) -> None:
    """These two methods ask the model once more when a history is written completely."""
    plan = mempiler.plan(method, benchmark=benchmark, test=6, optimizer=None, progress=False)

    evaluation = mempiler.evaluate(
        method, benchmark=benchmark, test=6, lm="offline", progress=False
    )

    assert plan.calls.low <= sum(evaluation.calls.values()) <= plan.calls.high
