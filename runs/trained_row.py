"""One row of a training: a model's scores on the test users, question by question, and the training it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..optimizers.logo_grpo.policy import PolicyScore
from .results import Row
from .statistics import interval

_BULKY = ("steps", "ids", "groups", "scores", "asked")
"""What stays in the row's file."""


class TrainedRow(BaseModel):
    """A model's scores on the test users, and the training it comes from."""

    model_config = ConfigDict(frozen=True)

    name: str
    """The objective; "start" for the model that all begin from."""
    seed: int | None
    model: str
    """Its folder or hub id."""
    n: int
    """Test questions."""
    users: int
    greedy: float
    greedy_interval: tuple[float, float] | None
    sampled: float
    """At the temperature of the training."""
    sampled_interval: tuple[float, float] | None
    greedy_failures: float
    """Share of completions that could not be read."""
    sampled_failures: float
    tokens: int = 0
    """Generated for training."""
    trained_steps: int = 0
    best_step: int | None = None
    """The step whose weights were kept."""
    validation: float | None = None
    """Sampled score of those weights on the validation users."""
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()
    """What a reader has to know besides the scores."""
    steps: tuple[dict[str, Any], ...] = ()
    """The journal's rows: training steps and validations."""
    ids: tuple[str, ...] = ()
    """Of the test questions."""
    groups: tuple[str, ...] = ()
    """The user of each."""
    scores: dict[str, tuple[float, ...]] = {}
    """Of each question, "greedy" and "sampled"."""
    asked: tuple[Row, ...] = ()
    """What was answered, greedily; for people to look at."""

    @property
    def label(self) -> str:
        """Name and seed."""
        return self.name if self.seed is None else f"{self.name}.{self.seed}"

    def numbers(self) -> dict[str, float]:
        """What is logged as metrics."""
        names = ("n", "greedy", "sampled", "greedy_failures", "sampled_failures", "tokens", "trained_steps", "seconds")
        return {name: float(getattr(self, name)) for name in names}

    def summary(self) -> dict[str, Any]:
        """Plain JSON without steps and single questions."""
        return self.model_dump(mode="json", exclude=set(_BULKY))

    def curve(self, key: str) -> list[tuple[float, float]]:
        """One number of the journal over the tokens generated up to then."""
        found, tokens = [], 0.0
        for step in self.steps:
            tokens += step.get("tokens", 0.0)
            if key in step:
                found.append((tokens, step[key]))
        return found


def measured(
    name: str, seed: int | None, model: str, greedy: PolicyScore, sampled: PolicyScore, asked: Sequence[Row] = ()
) -> TrainedRow:
    """A row from two scorings of one model, with what the greedy one answered."""
    return TrainedRow(
        name=name,
        seed=seed,
        model=model,
        n=greedy.n,
        users=len(set(greedy.groups)),
        greedy=greedy.score,
        greedy_interval=_interval(greedy),
        sampled=sampled.score,
        sampled_interval=_interval(sampled),
        greedy_failures=greedy.format_failures,
        sampled_failures=sampled.format_failures,
        ids=greedy.ids,
        groups=greedy.groups,
        scores={"greedy": greedy.scores, "sampled": sampled.scores},
        asked=tuple(asked),
    )


def _interval(score: PolicyScore) -> tuple[float, float] | None:
    found = interval(score.scores, score.groups)
    return None if found is None else (found.low, found.high)
