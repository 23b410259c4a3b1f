"""What benchmarks of behaviour prediction share: a question is which choice a user made.

All questions of a user have one history, which ends at the first record that is asked about; what
happened since comes in as `recent`. A method's memory has both, as in PraMem's released evaluator;
experience from practice has the history alone (`programs.method.Writer.recent`). No question sees a
record of its own moment or later. An answer that names no option, or several, scores 0 in the
headline and is left out of the published metrics, as in PraMem's released evaluator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dspy

from ..records import Action, Behavior, History, Profile, Turn, format_time
from ..signatures.behavior import chosen_option
from .scorer import Score, ScoredAnswer, Scorer, answer_of

BATCH = 20
"""Records of one `Behavior` item: what a method is given at a time."""


class OptionAccuracy(Scorer):
    """1 when the answer chooses the gold option and no other.

    `parts["unparsed"]` is 1 where it chooses none.
    """

    title = "accuracy"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        choice = chosen_option(answer_of(prediction), example.options)
        is_right = choice == example.answer
        parts = {"unparsed": float(choice is None)}
        return Score(float(is_right), _explain(example, choice), parts)

    def label_pairs(
        self,
        rows: Iterable[ScoredAnswer],
        options: Sequence[str],
        count_unparsed: bool = False,
    ) -> list[tuple[str, str]]:
        """Return the gold option and the chosen option of every answer that chose one.

        Args:
            rows: The answers.
            options: What may be chosen.
            count_unparsed: Whether an answer that chose none counts as a wrong choice. Otherwise it
                is left out.
        """
        pairs: list[tuple[str, str]] = []
        for row in rows:
            choice = None if row.failure else chosen_option(row.answer, options)
            if choice is None and count_unparsed and row.gold in options:
                choice = next(option for option in options if option != row.gold)
            if choice is not None:
                pairs.append((row.gold, choice))
        return pairs


def records(user: str, profile: str, actions: Sequence[Action]) -> History:
    """Return a user's past: the profile, where there is one, and the records in batches."""
    items: list[Profile | Behavior] = []
    if profile.strip():
        profile_id = f"{user}:profile"
        turn = Turn(id=profile_id, speaker="profile", text=profile)
        items.append(Profile(id=profile_id, turns=(turn,)))
    items.extend(batches(user, actions))
    return History(id=user, items=tuple(items))


def batches(user: str, actions: Sequence[Action], start: int = 0) -> tuple[Behavior, ...]:
    """Pack a user's records into `Behavior` items of `BATCH` records; the last may have fewer.

    Args:
        user: The user's id, with which the ids of the items begin.
        actions: The records, in time order.
        start: How many earlier records the user has. The ids go on counting after these.
    """
    items: list[Behavior] = []
    for offset in range(0, len(actions), BATCH):
        batch = actions[offset : offset + BATCH]
        batch_id = _batch_id(user, start + offset, len(batch))
        items.append(Behavior.from_actions(batch_id, batch))
    return tuple(items)


def _batch_id(user: str, start: int, count: int) -> str:
    """Return the id of a batch of records, which tells their numbers from 1: "u1:21-40"."""
    return f"{user}:{start + 1}-{start + count}"


class RecentRecords:
    """The records of one user from the first that is asked about on.

    Every question has those before its own moment as `recent`. Questions share whole batches.

    Args:
        user: The id of their history.
        actions: The records, in time order.
        start: How many records come before.
    """

    def __init__(self, user: str, actions: Sequence[Action], start: int) -> None:
        self._user = user
        self._start = start
        self._batches = batches(user, actions, start)

    def until(self, count: int) -> History:
        """Return the first `count` records, in batches, as a history.

        Whole batches are shared between the histories of all questions; only the last one may be
        a part of a batch. A `History` is returned, and not a list, because an example with many
        records is copied and printed often: a history is frozen, so copies share it, and it prints
        only its id and size.
        """
        num_whole_batches, num_more_records = divmod(count, BATCH)
        items = list(self._batches[:num_whole_batches])
        if num_more_records:
            items.append(self._beginning_of_batch(num_whole_batches, num_more_records))
        return History(id=f"{self._user}:recent", items=tuple(items))

    def _beginning_of_batch(self, number: int, count: int) -> Behavior:
        """Return the first `count` records of a batch.

        The record objects are shared with the batch, since they are needed for many questions.
        """
        batch = self._batches[number]
        return Behavior(
            id=_batch_id(self._user, self._start + number * BATCH, count),
            time=batch.time,
            actions=batch.actions[:count],
            turns=batch.turns[:count],
        )


def format_question(action: Action, question: str) -> str:
    """Return the situation of a record and what is asked about it, on one line.

    The user's reaction is not in it.
    """
    time = f"{format_time(action.time)}; " if action.time else ""
    text = f"{time}{action.scene}; {action.situation}. {question}"
    return " ".join(text.split())


def example(
    *,
    history: History,
    recent: History,
    id: str,  # noqa: A002 (the field of an example)
    question: str,
    options: Sequence[str],
    answer: str,
    category: str,
) -> dspy.Example:
    """Return the example of one question, with its inputs marked."""
    return dspy.Example(
        history=history,
        recent=recent,
        question=question,
        options=list(options),
        evidence_ids=(),
        answer=answer,
        category=category,
        id=id,
    ).with_inputs("history", "recent", "question", "options", "evidence_ids")


def _explain(example: dspy.Example, choice: str | None) -> str:
    """Say whether the choice was right, and what the user did."""
    if choice == example.answer:
        return "Right: this is what the user did."
    if choice is None:
        options = ", ".join(example.options)
        return f"The answer names none of the options, or several: answer with one of {options}."
    return (
        f"Wrong: the answer is {choice}, but the user did {example.answer}. "
        "Go by this user's own records."
    )
