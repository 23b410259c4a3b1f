"""What a program takes for a question or an item, measured with the offline engine."""

from collections.abc import Callable

import mempiler
import pytest
from mempiler.engines.embedders import embedder
from mempiler.programs.catalog import build
from mempiler.records import History
from mempiler.runs.plan_sizes import MeanWork, Work, estimate_writing, measure_program

from .evaluations import asked, locomo

MEAN_WORK = MeanWork(
    answering=Work(1, 100), writing=Work(2, 50), finalizing=Work(3, 10), output_share=0.1
)


def test_items_with_which_several_histories_begin_are_written_once(
    make_history: Callable[..., History],
) -> None:
    program = build("fact-store", embedder=embedder())
    short, long = make_history(2, id="short"), make_history(3, id="long")
    work = estimate_writing(program, [*asked(short, 2), *asked(long, 2)], MEAN_WORK)
    # Three items and two memories.
    assert work == Work(3 * 2 + 2 * 3, 3 * 50 + 2 * 10)


def test_a_memory_that_histories_share_is_measured_once(
    make_history: Callable[..., History],
) -> None:
    program = build("fact-store", embedder=embedder())
    one = asked(make_history(3, id="one"), 2)
    same_items = asked(make_history(3, id="other"), 2)
    alone = measure_program(program, locomo(one), one)
    assert alone.writing.calls > 0
    both = measure_program(program, locomo([*one, *same_items]), [*one, *same_items])
    assert both.writing == alone.writing
    assert both.finalizing == alone.finalizing


def test_histories_of_one_id_are_measured_each_with_its_own_memory(
    make_history: Callable[..., History],
) -> None:
    # Tokens of an answer depend on how long the history is that the prompt shows.
    program = build("full-context", embedder=embedder())
    short, long = make_history(1, id="ann"), make_history(5, id="bob")
    expected = measure_program(
        program, locomo([*asked(short, 2), *asked(long, 2)]), [*asked(short, 2), *asked(long, 2)]
    )

    same_id = make_history(5, id="ann")
    examples = [*asked(short, 2), *asked(same_id, 2)]
    for number, example in enumerate(examples):
        example.id = str(number)
    assert measure_program(program, locomo(examples), examples) == expected


@pytest.mark.parametrize(
    ("method", "benchmark"), [("h2memory", "palbench.restate"), ("pgr", "locomo")]
)
@pytest.mark.slow
def test_an_evaluation_of_finalized_memories_takes_no_more_calls_than_planned(
    method: str, benchmark: str
) -> None:
    plan = mempiler.plan(method, benchmark=benchmark, test=6, optimizer=None, progress=False)
    evaluation = mempiler.evaluate(
        method, benchmark=benchmark, test=6, lm="offline", progress=False
    )
    assert plan.calls.low <= sum(evaluation.calls.values()) <= plan.calls.high
