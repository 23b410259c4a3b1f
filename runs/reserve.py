"""What an optimizer must leave of the budget, so that its result can be scored.

The start is scored on the dev questions first; from what that took follows what scoring the result on dev, and both on
test, will take.
"""

from __future__ import annotations

from dataclasses import asdict

from ..engines.guard import Spent
from .results import Evaluation
from .setup import Runtime

LONGER = 2.0
"""How many times the tokens of its start a compiled program's prompts may need: what is set aside for scoring it."""


def reserve(first: Evaluation, spent: Spent, questions: int) -> Spent:
    """What scoring so many questions will take, going by the first scoring of the run."""
    share = questions / max(1, len(first.rows))
    return Spent(
        max_calls=spent.max_calls * share,
        max_tokens=spent.max_tokens * share * LONGER,
        max_usd=spent.max_usd * share * LONGER,
        max_minutes=spent.max_minutes * share * LONGER,
    )


def first_spent(runtime: Runtime) -> Spent:
    """What the first scoring took; a resumed run, which finds it in its journal, remembers it from the first time."""
    before = Spent(**runtime.folder.read().get("first_scoring", {}))
    now = runtime.guard.spent()
    if now.max_calls > before.max_calls:
        runtime.folder.update(first_scoring=asdict(now))
        return now
    return before
