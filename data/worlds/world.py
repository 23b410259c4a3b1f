"""A world: a generated benchmark, built so that every mechanism of one paper's method is needed to answer.

    seed, user ──> life: items and questions        (a file per paper beside this one)

There is no file. Sentences are those of `grammar`, which the oracle engine reads (`--lm oracle`); the category of a
question names the mechanism that it needs, by construction, as the docstring of its world says. Everything is known:
the answer, the turns it rests on, and what an answer is without the mechanism.

Limits: scores in a world show whether the parts of a method do what they are for. With a language model they say how
well it follows these few forms of sentences; they are comparable with no published number.
"""

from __future__ import annotations

import hashlib
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import dspy

from ...errors import DataError
from ...records import AnyItem, History
from ..benchmark import Benchmark
from ..dataset import Source
from ..fitting import whole
from ..scorer import ExactMatch, Scorer

USERS = 20
MOST_USERS = 10_000
PARTS = (0, 1, 2, 0, 2, 0, 2, 0, 0, 0)
"""The part of each of ten users: 0 is train, 1 dev, 2 test. Three users are one of each."""


@dataclass(frozen=True)
class Ask:
    """A question about the end of a life."""

    question: str
    answer: str
    category: str
    """The mechanism that it needs."""
    evidence: tuple[str, ...]
    """Ids of the turns that decide it."""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further inputs of the task, e.g. its options."""


@dataclass(frozen=True)
class Life:
    """What one user said and did, and what is asked about it."""

    items: Sequence[AnyItem]
    asks: Sequence[Ask]


class World(Benchmark):
    """A generated benchmark; a subclass says how one life is made.

    Args:
        histories: Of each user, in order.
        examples: All questions.
        source: Names seed and sizes.
    """

    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"exact": ExactMatch}
    generated: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, int]] = {}
    """Further options, all whole numbers from 0 on, with what they are unless said."""

    def __init__(self, histories: Sequence[History], examples: Sequence[dspy.Example], source: Source) -> None:
        self.histories = tuple(histories)
        super().__init__(examples, source)

    @classmethod
    @abstractmethod
    def life(cls, rng: random.Random, **sizes: int) -> Life:
        """Makes one user.

        Args:
            rng: The user's own.
            **sizes: Those of `sizes`.
        """

    @classmethod
    def load(
        cls, path: str | Path | None = None, *, users: int | str = USERS, seed: int | str = 0, **options: Any
    ) -> Self:
        """Generates the world.

        Args:
            path: Not taken: there is no file.
            users: How many; of ten, six are train, one dev, three test.
            seed: Chooses the users; the first ones of more users are the same.
            **options: Those of `sizes`.

        Raises:
            DataError: A path was given, or a number is none or out of range.
            UnknownNameError: An option that does not exist.
        """
        cls.refuse_options(options, ("users", "seed", *cls.sizes))
        if path is not None:
            raise DataError(f"{path}: {cls.name} is generated and reads no file; leave --data out")
        count, drawn = whole("users", users, 1, MOST_USERS), whole("seed", seed, 0, 2**31)
        sizes = {name: whole(name, options.get(name, usual), 0, 1_000) for name, usual in cls.sizes.items()}
        histories: list[History] = []
        examples: list[dspy.Example] = []
        for number in range(count):
            life = cls.life(random.Random(f"{cls.name} {drawn} {number}"), **sizes)
            history = History(id=f"{cls.name}-{drawn}-{number}", items=tuple(life.items))
            histories.append(history)
            examples += [_example(ask, history, f"{history.id}:{n}") for n, ask in enumerate(life.asks)]
        digest = hashlib.sha256("".join(history.digest for history in histories).encode()).hexdigest()
        told = "".join(f", {name}={size}" for name, size in sizes.items())
        return cls(histories, examples, Source(f"{cls.name}(users={count}, seed={drawn}{told})", digest, sample=True))

    def fixed_split(self) -> tuple[set[str], set[str], set[str]]:
        """Of every ten users six are train, one is dev, three are test."""
        parts: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        for number, history in enumerate(self.histories):
            parts[PARTS[number % len(PARTS)]].add(history.id)
        return parts


def _example(ask: Ask, history: History, id: str) -> dspy.Example:
    inputs = {"history": history, "question": ask.question, "focus": ask.evidence, **ask.more}
    labels = {"answer": ask.answer, "evidence": ask.evidence, "category": ask.category, "id": id}
    return dspy.Example(**inputs, **labels).with_inputs(*inputs)
