"""Cut the questions of a benchmark into train, dev and test.

Conversations stay whole. A seed shuffles them; dev gets the first quarter, test the second, train
the rest:

    dev | test | train ...............................
                 dev takes more ->      <- test takes more

A dev or test part with too few questions for a verdict takes conversations from train, where train
can spare them. What test holds depends on the file and the seed, never on the sizes or the metric
that a command asks for: a program can be evaluated on `--split test` later, with other options, and
no question of it was trained on.

With two conversations the first is train, and the questions of the second are cut into dev (a
third) and test. With one conversation its questions are cut in three.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import dspy

MIN_QUESTIONS = 20
"""Dev and test get so many questions where the data allow:

a verdict needs them, unless a run says otherwise.
"""

MIN_LEFT = 10
"""So many questions stay in a part from which another part takes some."""


@dataclass(frozen=True)
class Question:
    """An example, and what a split looks at."""

    example: dspy.Example
    position: int
    """The position of the question in the file."""
    group: str
    """Its conversation or user."""
    in_headline: bool
    """Whether it is part of the headline score, by which verdicts are given."""


@dataclass(frozen=True)
class Sizes:
    """How many questions a command asks for in each part; None for all of them."""

    train: int | None = None
    dev: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class Unit:
    """Questions that stay together: all of a conversation, or one question.

    Single questions are units where a conversation is cut.
    """

    questions: list[Question]
    total_questions: int
    """How many the file holds, those of other categories than the chosen ones included."""


@dataclass(frozen=True)
class SplitCandidates:
    """Which questions may be in which part, before sizes are chosen."""

    train: list[Unit]
    dev: list[Unit]
    test: list[Unit]
    units_are_conversations: bool
    """False where one conversation had to be cut: then some units are single questions."""
    train_may_shrink: bool
    """Whether dev may take units from the front of train."""

    @property
    def lendable(self) -> list[Unit]:
        """The units that train can lend to dev: from its front on, all but the last.

        Dev borrows the first of them, as many as it needs. What dev borrows is not in train.
        """
        return self.train[:-1] if self.train_may_shrink else []

    def questions(self, units: Iterable[Unit]) -> list[Question]:
        """Return the questions of some units.

        If the units are conversations, the questions are sorted as in the file. If a conversation
        was cut into single questions, they keep the random order of the units.
        """
        questions = [question for unit in units for question in unit.questions]
        if self.units_are_conversations:
            questions.sort(key=lambda question: question.position)
        return questions


def split_questions(
    cut: SplitCandidates, sizes: Sizes, seed: int, min_dev: int = MIN_QUESTIONS
) -> tuple[list[Question], list[Question], list[Question]]:
    """Return the questions of train, dev and test.

    If the units of dev hold too few questions, dev also takes units from the front of train. Train
    loses each of these units as a whole. A part may be empty, or smaller than the size that is
    asked for.

    Args:
        cut: The units of each part.
        sizes: How many questions each part gets. They are chosen at random, and the questions of a
            smaller size are always among those of a larger one.
        seed: The seed of all random choices.
        min_dev: How many questions of the headline score, by which verdicts are given, dev needs.
            It has no effect if `sizes` gives a size for dev.
    """
    if sizes.dev is None:
        num_borrowed = _num_borrowed_for_headline(cut, min_dev)
        dev_units = [*cut.dev, *cut.train[:num_borrowed]]
        dev = cut.questions(dev_units)
    else:
        # The candidates begin with the questions of dev's own units. Those of train follow, unit by
        # unit. So the first `sizes.dev` candidates use only the first `num_borrowed` units of
        # train, and train can keep the others.
        num_borrowed = _num_borrowed_for_size(cut, sizes.dev)
        dev = candidates_for_dev(cut, seed)[: sizes.dev]

    remaining_units = cut.train[num_borrowed:]
    train = cut.questions(remaining_units)
    if sizes.train is not None:
        train = _shuffled(train, random.Random(f"{seed} train"))[: sizes.train]

    test = cut.questions(cut.test)
    if sizes.test is not None:
        test = candidates_for_test(cut, seed)[: sizes.test]
    return train, dev, test


def cut_questions(
    questions: Sequence[Question],
    seed: int,
    fixed: Sequence[Collection[str]] | None = None,
    file_sizes: Mapping[str, int] | None = None,
) -> SplitCandidates:
    """Decide which questions may be in which part.

    Args:
        questions: All of them, in file order.
        seed: Decides what is random.
        fixed: The conversations of train, dev and test, where the field has agreed on them.
        file_sizes: How many questions the file holds about each conversation; None if `questions`
            are all of them.
    """
    rng = random.Random(seed)
    by_group: dict[str, list[Question]] = {}
    for question in questions:
        by_group.setdefault(question.group, []).append(question)
    conversations = {
        group: Unit(asked, len(asked) if file_sizes is None else file_sizes[group])
        for group, asked in by_group.items()
    }

    if fixed is not None:
        train, dev, test = (
            [unit for group, unit in conversations.items() if group in part] for part in fixed
        )
        return SplitCandidates(
            train, dev, test, units_are_conversations=True, train_may_shrink=False
        )
    if len(conversations) == 2:
        first, second = conversations.values()
        return _cut_second_conversation(first, second, rng)
    if len(conversations) == 1:
        units = _single_questions(questions, rng)
        held_out = len(units) // 3
    else:
        units = [
            conversations[group] for group in rng.sample(list(conversations), len(conversations))
        ]
        held_out = max(1, len(units) // 4)

    cut = SplitCandidates(
        dev=units[:held_out],
        test=units[held_out : 2 * held_out],
        train=units[2 * held_out :],
        units_are_conversations=len(conversations) > 1,
        train_may_shrink=True,
    )
    return _with_larger_test(cut)


def candidates_for_dev(cut: SplitCandidates, seed: int) -> list[Question]:
    """Return every question that dev can hold.

    A dev of size n holds the first n of them. The units that train lends come last, one after the
    other, so that dev borrows no more of them than it needs.
    """
    rng = random.Random(f"{seed} dev")
    candidates = _shuffled(cut.questions(cut.dev), rng)
    for unit in cut.lendable:
        candidates.extend(rng.sample(unit.questions, len(unit.questions)))
    return candidates


def candidates_for_test(cut: SplitCandidates, seed: int) -> list[Question]:
    """Return every question that test can hold.

    A test of size n holds the first n of them.
    """
    return _shuffled(cut.questions(cut.test), random.Random(f"{seed} test"))


def _single_questions(questions: Sequence[Question], rng: random.Random) -> list[Unit]:
    """Return each question as a unit of its own, in random order."""
    return [
        Unit([question], total_questions=1)
        for question in rng.sample(list(questions), len(questions))
    ]


def _cut_second_conversation(first: Unit, second: Unit, rng: random.Random) -> SplitCandidates:
    """Cut two conversations: the first is train, the second is cut into dev and test."""
    units = _single_questions(second.questions, rng)
    dev_size = len(units) // 3
    # By dev it is decided whether a compiled program is better, so dev is filled before test. Test
    # may be small, but not nearly empty.
    leaves_enough_for_test = len(units) - MIN_QUESTIONS >= MIN_LEFT
    if dev_size < MIN_QUESTIONS and leaves_enough_for_test:
        dev_size = MIN_QUESTIONS
    return SplitCandidates(
        # Train is a single conversation, which cannot lend itself.
        train=[first],
        dev=units[:dev_size],
        test=units[dev_size:],
        units_are_conversations=False,
        train_may_shrink=False,
    )


def _with_larger_test(cut: SplitCandidates) -> SplitCandidates:
    """Let test take units from the end of train until it has `MIN_QUESTIONS` questions.

    Nothing is moved if train has too few units for that, or if train and dev together would keep
    too few questions for their own needs.

    All questions of the file are counted, also those of other categories than the chosen ones and
    those outside of the headline score. So test holds the same conversations whatever metric and
    categories a command chooses.
    """
    train = list(cut.train)
    test = list(cut.test)
    while len(train) > 1 and _file_size(test) < MIN_QUESTIONS:
        test.append(train.pop())

    is_test_filled = _file_size(test) >= MIN_QUESTIONS
    # Dev needs `MIN_QUESTIONS` too, and it may take all of train but `MIN_LEFT`.
    needed_by_others = MIN_QUESTIONS + MIN_LEFT
    if not is_test_filled or _file_size([*train, *cut.dev]) < needed_by_others:
        return cut
    return replace(cut, train=train, test=test)


def _num_borrowed_for_headline(cut: SplitCandidates, min_dev: int) -> int:
    """Return how many units dev borrows to have `min_dev` questions of the headline score.

    0 if train cannot spare them: it keeps `MIN_LEFT` such questions.
    """
    num_borrowed = 0
    while _count_in_headline([*cut.dev, *cut.train[:num_borrowed]]) < min_dev:
        num_borrowed += 1
        if num_borrowed > len(cut.lendable):
            return 0
        if _count_in_headline(cut.train[num_borrowed:]) < MIN_LEFT:
            return 0
    return num_borrowed


def _num_borrowed_for_size(cut: SplitCandidates, size: int) -> int:
    """Return how many units dev borrows to have `size` questions; all of them if not enough."""
    num_questions = len(cut.questions(cut.dev))
    num_borrowed = 0
    for unit in cut.lendable:
        if num_questions >= size:
            break
        num_questions += len(unit.questions)
        num_borrowed += 1
    return num_borrowed


def _shuffled(questions: list[Question], rng: random.Random) -> list[Question]:
    """Return the questions in random order, with one that counts for the score in front.

    So even the smallest part has a score.
    """
    shuffled = rng.sample(questions, len(questions))
    for position, question in enumerate(shuffled):
        if question.in_headline:
            shuffled.insert(0, shuffled.pop(position))
            break
    return shuffled


def _count_in_headline(units: Iterable[Unit]) -> int:
    """Return how many questions of some units are part of the headline score."""
    return sum(question.in_headline for unit in units for question in unit.questions)


def _file_size(units: Iterable[Unit]) -> int:
    return sum(unit.total_questions for unit in units)
