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
from .task import Task, lines_of_items

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
        """Return the user's profiles, and after them the newest turns of all other items.

        Only as many turns are returned as fit into `suffix_tokens` with the dates beside words such
        as "yesterday", if the settings ask for these dates.
        """
        # Dates make lines longer. So what does not fit without dates need not get any, and of what
        # fits without dates, less may fit with them.
        candidates = newest_actions([*history, *new_items], self.suffix_tokens)
        return newest_actions(self.items_as_shown(candidates), self.suffix_tokens)

    def build_inputs(self, context: Context, query: Query) -> dict[str, Any]:
        """Return the inputs of the prompt: what was recalled, the newest records, the question.

        Recalled turns that are among the newest records are not shown twice.
        """
        return {
            "context": without_shown_turns(context, query).text(),
            "records": "\n".join(lines_of_items(query.shown_items)),
            "question": query.text,
            "options": list(query.options),
        }

    def forward(self, context: Context, query: Query) -> dspy.Prediction:
        """Answer a query; ask again, up to `reask` times, if the answer names no option."""
        prediction = super().forward(context, query)
        if not query.options:
            return prediction

        for attempt in range(1, self.settings.reask + 1):
            if prediction.answer in query.options:
                break
            prediction = self._ask_again(context, query, attempt)
        return prediction

    def _ask_again(self, context: Context, query: Query, attempt: int) -> dspy.Prediction:
        """Ask the model once more, and return its new answer to a query.

        The answer is sampled, and the request has a new `rollout_id`: an equal request would get
        the same answer from the cache.

        Args:
            context: What the memory recalled.
            query: The query.
            attempt: The number of the answer, from 1.
        """
        lm = self.answer.lm or dspy.settings.lm
        rollout_id = lm.kwargs.get("rollout_id") or ""
        config = {"rollout_id": f"{rollout_id}/again {attempt}", "temperature": 1.0}
        prediction = self.answer(**self.prompt_inputs(context, query), config=config)
        return self.build_outputs(prediction, query)

    def build_outputs(self, prediction: dspy.Prediction, query: Query) -> dspy.Prediction:
        """Return the outputs of the prompt, with the option that the answer names as the answer.

        An answer that names no option stays as the model wrote it.
        """
        if not query.options:
            return prediction
        option = chosen_option(str(prediction.get("answer") or ""), query.options)
        if option is None:
            return prediction

        outputs = dict(prediction.items())
        outputs["answer"] = option
        return dspy.Prediction(**outputs)


def newest_actions(items: Sequence[Item], max_tokens: int) -> list[Item]:
    """Return all profiles, then the newest other items whose lines fit into `max_tokens`.

    Items stay in time order. The oldest that fits may fit in part: then its newest turns are kept.
    Profiles do not count towards `max_tokens`.
    """
    profiles = [item for item in items if isinstance(item, Profile)]
    records = [item for item in items if item.turns and not isinstance(item, Profile)]

    # A turn is one line, so this is the number of turns that may still be kept.
    free_turns = count_fitting_lines(_lines_newest_first(records), max_tokens)

    newest_records: list[Item] = []
    for record in reversed(records):
        if free_turns <= 0:
            break
        turns = record.turns[-free_turns:]
        free_turns -= len(turns)
        if len(turns) < len(record.turns):
            record_part = record.select_turns({turn.id for turn in turns})
            newest_records.append(record_part)
        else:
            newest_records.append(record)

    newest_records.reverse()
    return [*profiles, *newest_records]


def _lines_newest_first(items: Sequence[Item]) -> Iterator[str]:
    """Yield the lines of items, newest first; few of them are read if little fits."""
    for item in reversed(items):
        yield from reversed(item.lines())


def without_shown_turns(context: Context, query: Query) -> Context:
    """Return a recalled context without the turns that the prompt shows anyway.

    The prompt shows the turns of `query.shown_items` in full. What a memory has learned from these
    turns stays in the context.
    """
    shown_ids = query.shown_turn_ids
    hits: list[Hit] = []
    for hit in context.hits:
        # The sources of a hit are the ids of the turns that it comes from. A recalled turn has only
        # its own id there; what was learned from turns has an id that is no turn's.
        is_turn = hit.sources == (hit.id,)
        is_shown_anyway = is_turn and hit.id in shown_ids
        if not is_shown_anyway:
            hits.append(hit)
    return context.model_copy(update={"hits": tuple(hits)})
