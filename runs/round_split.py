"""Cut the questions of a round of `mempiler improve`: some decide, others are learned from.

    new questions of a half of the users      dev: they decide
    all questions of the other users          train: the optimizer learns from them

A question is new if no earlier round decided on it. Users stay whole: what an optimizer has learned
from one user must not help with the questions that decide. Old questions of the users of dev are
left out of the round.
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
"""Users whose questions decide, by default: with fewer, a verdict does not speak of other users."""
MIN_TRAIN = 10
"""Questions that an optimizer needs to learn from."""


@dataclass(frozen=True)
class RoundSplit:
    """The questions of a round."""

    train: tuple[dspy.Example, ...]
    dev: tuple[dspy.Example, ...]
    new_questions: int
    """Questions that no earlier round decided on, in both parts."""
    shortage: str | None
    """What is missing for a round, e.g. "8 more new questions"; None if nothing is."""

    @property
    def dev_digests(self) -> frozenset[str]:
        """The digests of the questions that decide."""
        return frozenset(question_digest(example) for example in self.dev)


def split_nothing(min_questions: int, min_users: int) -> RoundSplit:
    """Return the split of a round that has no question at all; see `split_round`."""
    shortage = _describe_shortage(min_questions, min_users, MIN_TRAIN)
    return RoundSplit(train=(), dev=(), new_questions=0, shortage=shortage)


@dataclass(frozen=True)
class _User:
    """The questions of one user."""

    new_questions: list[dspy.Example]
    """Those that no earlier round decided on."""
    old_questions: list[dspy.Example]


def split_round(
    benchmark: Benchmark,
    decided: Collection[str],
    min_questions: int,
    min_users: int,
    seed: int,
) -> RoundSplit:
    """Cut the questions of a round.

    Dev takes users in random order until it has half of the new questions, `min_questions` of them,
    and `min_users` users. The other users are for train.

    Args:
        benchmark: Holds the questions. Those that do not count for its score are left out.
        decided: Digests of the questions on which earlier rounds decided.
        min_questions: New questions that dev needs.
        min_users: Users that dev needs.
        seed: Chooses the users.
    """
    users = _group_by_user(benchmark, decided)
    with_new_questions = [name for name, user in users.items() if user.new_questions]
    new_questions = sum(len(user.new_questions) for user in users.values())
    # Each round chooses anew, and the same round always chooses the same.
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
    # A size that the user asks for cuts the end off, where the old questions are.
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
    """Return the questions of each user, by the user."""
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
    """Return what is missing for a round; None if no number is above 0."""
    parts: list[str] = []
    if missing_questions > 0:
        parts.append(f"{missing_questions} more questions that no earlier round decided on")
    if missing_users > 0:
        parts.append(f"{missing_users} more users with such questions")
    if missing_train > 0:
        parts.append(f"{missing_train} more questions of other users to learn from")
    return ", ".join(parts) or None
