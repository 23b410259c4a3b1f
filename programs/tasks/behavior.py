"""Behaviour prediction: which of some options a user takes in a situation.

Every method sees the same newest records beside its memory (PraMem, equation 2: the k records right
before the situation), so methods differ by their memory alone. A memory is asked with every record
before the situation in it, as in the released evaluator. Only what `Writer.recent_mode` leaves out,
such as PraMem's experience, ends where the history does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dspy

from ...records import Context, Hit, Item, Profile, Query
from ...records.token_counts import count_fitting_lines
from ...signatures.behavior import PredictBehavior, chosen_option
from .task import Task, with_items

SUFFIX_TOKENS = 8_000
"""Most tokens of the newest records: the input window of all methods in PraMem, section 4.1."""


class BehaviorPrediction(Task):
    """Predict one of the options from the recalled context and the newest records.

    The answer is free if there are no options. An answer that names no option is returned as the
    model wrote it, and counts as a failed parse. With `task.reask=5` it is asked for up to five
    times more, as the released evaluator does.

    The memory is searched with the question. Lines that stand in the newest records already are not
    shown a second time.

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

    def shown_items(self, history: Sequence[Item], new_items: Sequence[Item]) -> list[Item]:
        """Return profiles, and the newest records that fit into `suffix_tokens`."""
        candidates = newest_actions([*history, *new_items], self.suffix_tokens)
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
        """Answer, and ask again while the answer names none of the options."""
        prediction = super().forward(context, query)
        for attempt in range(1, self.settings.reask + 1):
            if not query.options or prediction.answer in query.options:
                break
            prediction = self._ask_again(context, query, attempt)
        return prediction

    def _ask_again(self, context: Context, query: Query, attempt: int) -> dspy.Prediction:
        """Return another answer: it is sampled, and under an id of its own.

        A cache would answer an equal request with the same words.
        """
        lm = self.answer.lm or dspy.settings.lm
        rollout = lm.kwargs.get("rollout_id") or ""
        config = {"rollout_id": f"{rollout}/again {attempt}", "temperature": 1.0}
        prediction = self.answer(**self.prompt_inputs(context, query), config=config)
        return self.build_outputs(prediction, query)

    def build_outputs(self, prediction: dspy.Prediction, query: Query) -> dspy.Prediction:
        """Return the outputs with the option that the answer names, if it names one."""
        if not query.options:
            return prediction
        option = chosen_option(str(prediction.get("answer") or ""), query.options)
        if option is None:
            return prediction

        outputs = dict(prediction.items())
        outputs["answer"] = option
        return dspy.Prediction(**outputs)


def newest_actions(items: Sequence[Item], max_tokens: int) -> list[Item]:
    """Return the newest turns whose lines fit into `max_tokens`, in time order within their items.

    An item that does not fit as a whole is cut at its beginning. Profiles come first: all of them,
    and they cost nothing.
    """
    profiles = [item for item in items if isinstance(item, Profile)]
    others = [item for item in items if item.turns and not isinstance(item, Profile)]

    room = count_fitting_lines(_lines_newest_first(others), max_tokens)

    newest: list[Item] = []
    for item in reversed(others):
        if room <= 0:
            break
        turns = item.turns[-room:]
        is_whole = len(turns) == len(item.turns)
        newest.append(item if is_whole else item.select_turns({turn.id for turn in turns}))
        room -= len(turns)
    newest.reverse()
    return [*profiles, *newest]


def _lines_newest_first(items: Sequence[Item]) -> Iterator[str]:
    """Yield the lines of items, newest first; few of them are read if little fits."""
    for item in reversed(items):
        yield from reversed(item.lines())


def unseen(context: Context, query: Query) -> Context:
    """Return the context without the turns that the task shows as they are."""
    shown_ids = query.shown_turn_ids
    hits: list[Hit] = []
    for hit in context.hits:
        is_shown_turn = hit.id in shown_ids and hit.sources == (hit.id,)
        if not is_shown_turn:
            hits.append(hit)
    return context.model_copy(update={"hits": tuple(hits)})
