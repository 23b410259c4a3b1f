"""Split the questions of a round of `mempiler improve` into train and dev questions.

    dev      new questions of half of the users: they decide whether the new program is promoted
    train    all questions of the other users: the optimizer learns from them

A question is new if no earlier round decided on it. No user is in both parts: what an optimizer
learns from a user would help it with other questions of the same user. The old questions of dev
users are in neither part.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

import dspy

from ..data.benchmark import Benchmark
from .decided_questions import question_digest
from .statistics import MIN_GROUPS

MIN_USERS = MIN_GROUPS
"""The least number of dev users, by default. With fewer, the result applies only to these users."""
MIN_TRAIN = 10
"""The least number of train questions."""


@dataclass(frozen=True)
class RoundSplit:
    """The questions of a round."""

    train: tuple[dspy.Example, ...]
    dev: tuple[dspy.Example, ...]
    new_questions: int
    """Questions that no earlier round decided on, in both parts."""
    shortage: str | None
    """What is missing for a round, e.g. "8 more users with such questions"; None if nothing is."""

    @property
    def dev_digests(self) -> frozenset[str]:
        """The digests of the dev questions."""
        return frozenset(question_digest(example) for example in self.dev)


def split_nothing(min_questions: int, min_users: int) -> RoundSplit:
    """Return the split of a round without any question; see `split_round`."""
    shortage = _describe_shortage(min_questions, min_users, MIN_TRAIN)
    return RoundSplit(train=(), dev=(), new_questions=0, shortage=shortage)


@dataclass(frozen=True)
class _User:
    """The questions of one user."""

    new_questions: list[dspy.Example]
    """Questions that no earlier round decided on."""
    old_questions: list[dspy.Example]
    """Questions that an earlier round decided on."""


def split_round(
    benchmark: Benchmark,
    decided: Collection[str],
    min_questions: int,
    min_users: int,
    seed: int,
) -> RoundSplit:
    """Split the questions of a round.

    Users are added to dev in random order until it has half of the new questions, and at least
    `min_questions` of them and `min_users` users. All other users are for train.

    Args:
        benchmark: Has the questions. Those that do not count for its score are left out.
        decided: Digests of the questions on which earlier rounds decided.
        min_questions: The least number of dev questions.
        min_users: The least number of dev users.
        seed: Decides on the order of the users.
    """
    users = _group_by_user(benchmark, decided)
    with_new_questions = [name for name, user in users.items() if user.new_questions]
    new_questions = sum(len(user.new_questions) for user in users.values())
    # The order is another one in every round, but the same one if a round is repeated.
    random.Random(f"{seed} {len(decided)}").shuffle(with_new_questions)

    dev: list[dspy.Example] = []
    dev_users: list[str] = []
    for name in with_new_questions:
        has_half = 2 * len(dev) >= new_questions
        if has_half and len(dev) >= min_questions and len(dev_users) >= min_users:
            break
        dev.extend(users[name].new_questions)
        dev_users.append(name)

    new_train: list[dspy.Example] = []
    old_train: list[dspy.Example] = []
    for name, user in users.items():
        if name not in dev_users:
            new_train.extend(user.new_questions)
            old_train.extend(user.old_questions)
    # `--train N` keeps the first N questions. So the new questions come first.
    train = [*benchmark.interleave(new_train), *benchmark.interleave(old_train)]

    return RoundSplit(
        train=tuple(train),
        dev=tuple(benchmark.interleave(dev)),
        new_questions=new_questions,
        shortage=_describe_shortage(
            missing_questions=min_questions - len(dev),
            missing_users=min_users - len(dev_users),
            missing_train=MIN_TRAIN - len(train),
        ),
    )


def _group_by_user(benchmark: Benchmark, decided: Collection[str]) -> dict[str, _User]:
    """Return the questions of each user, by the name of the user."""
    users: dict[str, _User] = {}
    for example in benchmark.examples:
        if not benchmark.in_headline(example):
            continue
        user = users.setdefault(benchmark.group(example), _User([], []))
        if question_digest(example) in decided:
            user.old_questions.append(example)
        else:
            user.new_questions.append(example)
    return users


def _describe_shortage(
    missing_questions: int, missing_users: int, missing_train: int
) -> str | None:
    """Say what is missing for a round; None if nothing is. Numbers below 1 mean: enough."""
    parts: list[str] = []
    if missing_questions > 0:
        parts.append(f"{missing_questions} more questions that no earlier round decided on")
    if missing_users > 0:
        parts.append(f"{missing_users} more users with such questions")
    if missing_train > 0:
        parts.append(f"{missing_train} more questions of other users to learn from")
    return ", ".join(parts) or None
