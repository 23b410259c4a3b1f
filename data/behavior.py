"""Behaviour prediction benchmarks: one question is one choice, and the scores are over all answers.

All questions of a user have one history, which ends at the first record that is asked; what happened since comes in as
`recent`. A method's memory has both, as in PraMem's released evaluator; experience from practice has the history alone
(`programs.method.Writer.recent`). No question sees a record of its own moment or later. An answer that names no option,
or several, scores 0 in the headline and is left out of the published metrics, as in PraMem's released evaluator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import dspy

from ..records import Action, Behavior, History, Profile, Turn, format_time
from ..signatures.behavior import chosen_option
from .scorer import Score, ScoredAnswer, Scorer, answer_of

BATCH = 20
"""Records of one `Behavior` item: what a method is given at a time."""


class OptionAccuracy(Scorer):
    """1 when the answer chooses the gold option and no other; `parts["unparsed"]` is 1 where it chooses none."""

    title = "accuracy"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        chosen = chosen_option(answer_of(prediction), example.options)
        right = chosen == example.answer
        return Score(float(right), _explain(example, chosen), {"unparsed": float(chosen is None)})

    def label_pairs(
        self, rows: Iterable[ScoredAnswer], options: Sequence[str], every: bool = False
    ) -> list[tuple[str, str]]:
        """(gold, chosen) of every row that was answered with one of the options.

        Args:
            rows: The answers.
            options: What may be chosen.
            every: Whether other rows have made a wrong choice instead of none.
        """
        pairs = [(row.gold, None if row.failure else chosen_option(row.answer, options)) for row in rows]
        wrong = {gold: next(option for option in options if option != gold) for gold in options} if every else {}
        return [(gold, found) for gold, chosen in pairs if (found := chosen or wrong.get(gold)) is not None]


def records(user: str, profile: str, actions: Sequence[Action]) -> History:
    """A user's past: the profile, where there is one, and the records in batches."""
    first = [Profile(id=f"{user}:profile", turns=(Turn(id=f"{user}:profile", speaker="profile", text=profile),))]
    return History(id=user, items=(*(first if profile.strip() else ()), *batches(user, actions)))


def batches(user: str, actions: Sequence[Action], start: int = 0) -> tuple[Behavior, ...]:
    """Records as `Behavior` items of `BATCH`; `start` counts the records before, for ids."""
    return tuple(
        Behavior.from_actions(f"{user}:{start + n + 1}-{start + n + len(part)}", part)
        for n in range(0, len(actions), BATCH)
        for part in [actions[n : n + BATCH]]
    )


class RecentRecords:
    """The records after the anchor of one user, for the `recent` of every question; whole batches are shared.

    Args:
        user: Their history's id.
        actions: All records from the first test action on, in time order.
        start: How many records come before.
    """

    def __init__(self, user: str, actions: Sequence[Action], start: int) -> None:
        self._user, self._start = user, start
        self._whole = batches(user, actions, start)

    def until(self, count: int) -> History:
        """The first `count` records, as a history: optimizers print its short form, and copying it is free."""
        whole, more = divmod(count, BATCH)
        begun = [self._begun(whole, more)] if more else []
        return History(id=f"{self._user}:recent", items=(*self._whole[:whole], *begun))

    def _begun(self, number: int, count: int) -> Behavior:
        """The first records of a batch, which are the very ones of the batch: a user has many questions."""
        batch, first = self._whole[number], self._start + number * BATCH + 1
        parts = {"actions": batch.actions[:count], "turns": batch.turns[:count]}
        return Behavior(id=f"{self._user}:{first}-{first + count - 1}", time=batch.time, **parts)


def format_question(action: Action, question: str) -> str:
    """The situation of a record in words, and what is asked about it, on one line; the reaction is not in it."""
    when = f"{format_time(action.time)}; " if action.time else ""
    return " ".join(f"{when}{action.scene}; {action.situation}. {question}".split())


def example(
    *, history: History, recent: History, id: str, question: str, options: Sequence[str], answer: str, category: str
) -> dspy.Example:
    """One question, with its inputs marked."""
    labels: Mapping[str, str] = {"answer": answer, "category": category, "id": id}
    made = dspy.Example(
        history=history, recent=recent, question=question, options=list(options), evidence_ids=(), **labels
    )
    return made.with_inputs("history", "recent", "question", "options", "evidence_ids")


def _explain(example: dspy.Example, chosen: str | None) -> str:
    if chosen == example.answer:
        return "Right: this is what the user did."
    if chosen is None:
        return f"The answer names none of the options, or several: answer with one of {', '.join(example.options)}."
    return f"Wrong: the answer is {chosen}, but the user did {example.answer}. Go by this user's own records."
