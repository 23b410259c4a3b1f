"""What an optimizer must leave of the budget, so that its result can be scored.

From what scoring the start on the dev questions took follows what scoring the result on dev, and both on test, will
take: answering goes by questions, writing by the memories that are still to be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import dspy

from ..data.dataset import Split
from ..engines.spending import Spending
from .results import Evaluation, Expense
from .runtime import Runtime

LONGER = 2.0
"""How many times the tokens of its start a compiled program's prompts may need: what is set aside for scoring it."""


def reserve(first: Evaluation, spent: Spending, split: Split, rewrites: bool) -> Spending:
    """What is still to be scored after an optimizer will take, going by the first scoring of the run.

    Args:
        first: The start on the dev questions.
        spent: What that took of the limits.
        split: Whose dev questions are asked once more, and whose test questions twice.
        rewrites: Whether the result may write other memories than the start.
    """
    questions = (len(split.dev) + 2 * len(split.test)) / max(1, len(first.rows))
    dev, test = _histories(split.dev), _histories(split.test)
    memories = (test + (dev + test) * rewrites) / max(1, dev)

    def needed(limit: float, part: str, longer: float) -> float:
        write = _share(first.construction, first.answering, part)
        return limit * longer * (write * memories + (1 - write) * questions)

    return Spending(
        needed(spent.calls, "calls", 1.0),
        needed(spent.tokens, "tokens", LONGER),
        cost=needed(spent.cost, "tokens", LONGER),
        seconds=needed(spent.seconds, "seconds", LONGER),
    )


def first_spent(runtime: Runtime) -> Spending:
    """What the first scoring took; a resumed run, which finds it in its journal, remembers it from the first time."""
    before = Spending(**runtime.folder.read().get("first_spending", {}))
    now = runtime.guard.spent()
    if now.calls > before.calls:
        runtime.folder.update(first_spending=asdict(now))
        return now
    return before


def _histories(part: Sequence[dspy.Example]) -> int:
    return len({example.history.id for example in part})


def _share(writing: Expense | None, answering: Expense, part: str) -> float:
    taken = [_taken(each, part) for each in (writing, answering) if each is not None]
    return taken[0] / sum(taken) if writing is not None and any(taken) else 0.0


def _taken(expense: Expense, part: str) -> float:
    if part == "tokens":
        return float(expense.input_tokens + expense.output_tokens)
    return float(expense.calls if part == "calls" else expense.seconds)
