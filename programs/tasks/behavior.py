"""Behaviour prediction: which of some options a user takes in a situation, from memory and the newest records.

Every method sees the same suffix (PraMem, equation 2: the k records right before the situation), so that methods differ
by their memory alone. A memory is asked with every record before the situation in it, as in the released evaluator;
only what `Writer.recent` leaves out, as PraMem's experience, ends where the history does. An answer that names no
option is returned as the model wrote it, and counts as a failed parse; `task.reask=5` asks up to five times more, as
the released evaluator does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dspy

from ...records import Context, Item, Profile, Query
from ...records.token_counts import count_fitting_lines
from ...signatures.behavior import PredictBehavior, chosen_option
from .task import Task, with_items

SUFFIX_TOKENS = 8_000
"""PraMem, section 4.1: the input window of truncation and of every method with a memory."""


class BehaviorPrediction(Task):
    """One of the options, from the recalled context and the newest records; a free answer where there are none.

    The memory is searched with the question. Lines that are in the suffix already are not shown a second time.

    Args:
        suffix_tokens: Most tokens of records, as `records.estimate_tokens` counts them.
    """

    name = "behavior-prediction"
    prompt = PredictBehavior
    inputs = ("question", "options")
    optional = ("options",)
    shows_history = True
    remembers_recent = True

    def __init__(self, suffix_tokens: int = SUFFIX_TOKENS) -> None:
        super().__init__()
        self.suffix_tokens = suffix_tokens

    def shown_items(self, past: Sequence[Item], recent: Sequence[Item]) -> list[Item]:
        """Profiles, and the newest records of history and `recent` within the budget."""
        candidates = newest_actions([*past, *recent], self.suffix_tokens)
        # Resolved dates make lines longer: what does not fit with them is cut off too.
        return newest_actions(self.items_as_shown(candidates), self.suffix_tokens)

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        return {
            "context": unseen(context, query).text(),
            "records": with_items("", query.shown_items),
            "question": query.text,
            "options": list(query.options),
        }

    def forward(self, context: Context, query: Query) -> dspy.Prediction:
        found = super().forward(context, query)
        rollout = (self.answer.lm or dspy.settings.lm).kwargs.get("rollout_id") or ""
        for n in range(self.settings.reask):
            if not query.options or found.answer in query.options:
                break
            # Sampled, and under an id of its own: the same request would have the same answer from a cache.
            config = {"rollout_id": f"{rollout}/again {n + 1}", "temperature": 1.0}
            found = self.build_outputs(self.answer(**self.prompt_inputs(context, query), config=config), query)
        return found

    def build_outputs(self, found: dspy.Prediction, query: Query) -> dspy.Prediction:
        chosen = chosen_option(str(found.get("answer") or ""), query.options) if query.options else None
        return dspy.Prediction(**{**dict(found.items()), "answer": chosen}) if chosen else found


def newest_actions(items: Sequence[Item], max_tokens: int) -> list[Item]:
    """The newest turns whose lines fit, in time order and within their items; profiles first, all of them and for free.

    An item that does not fit as a whole is cut at its beginning.
    """
    profiles = [item for item in items if isinstance(item, Profile)]
    others = [item for item in items if item.turns and not isinstance(item, Profile)]
    room = count_fitting_lines((line for item in reversed(others) for line in reversed(item.lines())), max_tokens)
    kept: list[Item] = []
    while others and room > 0:
        item = others.pop()
        whole = len(item.turns) <= room
        kept.append(item if whole else item.select_turns({turn.id for turn in item.turns[-room:]}))
        room -= len(item.turns)
    return [*profiles, *reversed(kept)]


def unseen(context: Context, query: Query) -> Context:
    """The context without the turns that the task shows as they are."""
    shown = query.shown_turn_ids
    hits = tuple(hit for hit in context.hits if not (hit.id in shown and hit.sources == (hit.id,)))
    return context.model_copy(update={"hits": hits})
