"""memory-env: a generated benchmark whose answers need facts to be kept up to date, scored by exact match.

Two speakers state, change, restate and retract facts over some sessions (`synthesis.memory_env`). There is no file:
users follow from a seed, and those of train, dev and test are disjoint. An example is the whole history of a user and
one question about its end; its category is what was last done to the fact.

Limits: synthetic and small, made so that a model of half a million weights can learn it. Scores on it compare ways of
training with one another, nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import dspy
from pydantic import Field

from ..errors import DataError
from ..records import History
from .benchmark import Benchmark, fitted
from .dataset import Source
from .scorer import Score, Scorer, answer_of
from .synthesis.memory_env import Ask, Conversation
from .text_metrics import exact_match

Users = Annotated[int, Field(ge=10, le=10_000)]
Sessions = Annotated[int, Field(ge=1, le=32)]
Seed = Annotated[int, Field(ge=0, le=2**31)]


class SameWords(Scorer):
    """1 where the answer has the words of the gold answer, else 0."""

    title = "exact match"

    def score(self, example: dspy.Example, prediction: dspy.Prediction) -> Score:
        answer = answer_of(prediction)
        value = exact_match(answer, example.answer)
        told = ", ".join(example.evidence)
        feedback = "Right." if value else f"Wrong: {answer!r} instead of {example.answer!r}, as {told} says."
        return Score(value, feedback, {"em": value})


class MemoryEnv(Benchmark):
    """Questions about what two speakers said last of themselves.

    Args:
        conversations: The generated users.
        source: Names seed and sizes.
    """

    name = "memory-env"
    task = "memory-lookup"
    metrics: ClassVar[Mapping[str, Callable[[], Scorer]]] = {"exact": SameWords}
    generated: ClassVar[bool] = True

    def __init__(self, conversations: Sequence[Conversation], source: Source) -> None:
        self.talks = {talk.history.id: talk for talk in conversations}
        super().__init__([row for talk in conversations for row in _examples(talk, talk.history)], source)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        users: Users = 160,
        sessions: Sessions = 8,
        seed: Seed = 0,
        **options: Any,
    ) -> MemoryEnv:
        """Generates the benchmark.

        Args:
            path: Not taken: there is no file.
            users: How many users; of ten, six are train, one dev, three test.
            sessions: Sessions per user. More sessions continue the same histories.
            seed: Chooses the users.
            **options: None are known; any is refused.

        Raises:
            DataError: A path was given.
            UnknownNameError: An option that does not exist.
            UserError: A number is none, or out of range.
        """
        cls.refuse_options(options, ("users", "sessions", "seed"))
        if path is not None:
            raise DataError(f"{path}: memory-env is generated and reads no file; leave --data out")
        given = fitted(cls.name, cls.load, {"users": users, "sessions": sessions, "seed": seed})
        users, sessions, seed = given.values()
        talks = [Conversation.make(seed, number, sessions) for number in range(users)]
        digest = hashlib.sha256("".join(talk.history.digest for talk in talks).encode()).hexdigest()
        name = f"memory-env(users={users}, sessions={sessions}, seed={seed})"
        return cls(talks, Source(name, digest, sample=True))

    def fixed_split(self) -> tuple[set[str], set[str], set[str]]:
        """Of every ten users the first six are train, the seventh dev, the others test."""
        parts: tuple[set[str], set[str], set[str]] = (set(), set(), set())
        for number, id in enumerate(self.talks):
            parts[(0, 0, 0, 0, 0, 0, 1, 2, 2, 2)[number % 10]].add(id)
        return parts

    def questions_after(
        self, history: History, sessions: int, examples: Sequence[dspy.Example] = ()
    ) -> tuple[dspy.Example, ...]:
        """Questions about the state after the first sessions of a user, with the answers of that moment.

        Args:
            history: The user.
            sessions: How many sessions have passed, from 1.
            examples: Not looked at: what is asked differs from moment to moment.

        Returns:
            Examples over the shortened history; their ids tell the moment.
        """
        talk = self.talks[history.id]
        head = History(id=history.id, items=talk.history.items[:sessions])
        return tuple(_examples(talk, head, sessions))


def _examples(talk: Conversation, history: History, after: int | None = None) -> list[dspy.Example]:
    moment = "" if after is None else f"@{after}"
    return [_example(ask, history, f"{history.id}{moment}:{n}") for n, ask in enumerate(talk.questions(after))]


def _example(ask: Ask, history: History, id: str) -> dspy.Example:
    return dspy.Example(
        history=history,
        question=ask.question,
        focus=ask.evidence,
        answer=ask.answer,
        evidence=ask.evidence,
        category=ask.kind,
        id=id,
    ).with_inputs("history", "question", "focus")
