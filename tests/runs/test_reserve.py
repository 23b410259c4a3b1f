"""What an optimizer leaves of the budget: answering goes by questions, writing by memories still to be written."""

from itertools import count

import dspy
import pytest
from mempiler.data.dataset import Split
from mempiler.engines.spending import Spending
from mempiler.records import History
from mempiler.runs.promotion import LONGER, reserve
from mempiler.runs.results import Evaluation
from mempiler.runs.rows import Row

SPENT = Spending(100, 1000, cost=10, seconds=3000)


def questions(*counts: int) -> tuple[dspy.Example, ...]:
    """So many questions about each of some histories."""
    asked = ((History(id=f"{counts}-{n}", items=()), each) for n, each in enumerate(counts))
    return tuple(dspy.Example(history=history) for history, each in asked for _ in range(each))


def scored(n: int, writing: Spending | None) -> Evaluation:
    """An evaluation of n questions that took a call, ten tokens and a second each."""
    ids = count()
    row = {"calls": 1, "prompt_tokens": 8, "output_tokens": 2, "answering": 1.0}
    rows = tuple(Row.model_construct(id=str(next(ids)), **row) for _ in range(n))
    return Evaluation.model_construct(rows=rows, construction=writing)


def written(calls: int) -> Spending:
    return Spending(calls, 9 * calls, calls, seconds=calls)


@pytest.mark.parametrize(
    ("split", "writing", "rewrites", "calls"),
    [
        pytest.param(((4,), (6,)), None, False, 100 * 16 / 4, id="nothing is written: by questions alone"),
        pytest.param(((4,), (4,)), written(12), False, 25 * 12 / 4 + 75 * 1, id="the test memory, once"),
        pytest.param(((4,), (4,)), written(12), True, 25 * 12 / 4 + 75 * 3, id="and all of them by the result"),
        pytest.param(((4,), (2, 2)), written(12), False, 25 * 12 / 4 + 75 * 2, id="two memories for the test part"),
        pytest.param(((2, 2), (4,)), written(12), False, 25 * 12 / 4 + 75 / 2, id="the start wrote two"),
        pytest.param(((4,), (4,)), written(0), False, 100 * 12 / 4, id="writing without a call"),
    ],
)
def test_what_is_kept_back(split, writing, rewrites: bool, calls: float) -> None:
    dev, test = (questions(*part) for part in split)
    kept = reserve(scored(4, writing), SPENT, Split((), dev, test), rewrites)
    assert kept.calls == pytest.approx(calls)
    assert kept.tokens == pytest.approx(10 * LONGER * calls)
    assert kept.cost == pytest.approx(0.1 * LONGER * calls)
    assert kept.minutes == pytest.approx(0.5 * LONGER * calls)
