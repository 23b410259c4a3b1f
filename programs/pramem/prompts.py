"""What practice works with: the settings of PraMem and the prompts that they use.

The steps (`practice`, `review`, `adjustment`) take it, and the writer is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import dspy

from ...signatures.pramem import (
    AdjustExperience,
    PractiseAtOnce,
    PractiseWithExperience,
    ProposeAtOnce,
    ReflectOnPractice,
)
from ...signatures.pramem_review import (
    JudgeGenerality,
    JudgeGroundedness,
    PlanPerturbations,
    WriteScenes,
)
from ..gather import gather
from ..method import Writer
from ..predictor import predictor
from .memory import Kind
from .samples import Weighting

T = TypeVar("T")


class Practising(Writer):
    """A writer with the settings and prompts of practice.

    Args:
        settings: Those of `PraMem`, without that of the answer.
    """

    trial: dspy.Predict
    reflect: dspy.Predict
    plan: dspy.Predict
    judge_groundedness: dspy.Predict
    write_scenes: dspy.Predict
    judge_generality: dspy.Predict
    adjust: dspy.Predict

    rounds: int
    samples: int
    adjust_every: int
    proposals: int
    virtual_scenes: int
    scene_chars: int
    perturbations: int
    practice_tokens: int
    weighting: Weighting
    start: Literal["profile", "empty"]
    min_history: int
    groundedness: bool
    generalizability: bool
    patterns: bool
    alerts: bool
    deep_thinking: bool
    reflection: bool
    consensus: bool
    needed: int
    distinct_records: bool
    seed: int
    parallel: bool

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        vars(self).update(settings)
        self._make_predictors()

    def _make_predictors(self) -> None:
        """Makes the prompts that the settings use, and no others: an optimizer would tune unused ones."""
        self.trial = predictor(PractiseWithExperience if self.deep_thinking else PractiseAtOnce)
        self.reflect = predictor(ReflectOnPractice if self.reflection else ProposeAtOnce)
        if self.groundedness:
            self.plan = predictor(PlanPerturbations)
            self.judge_groundedness = predictor(JudgeGroundedness)
        if self.generalizability:
            self.write_scenes = predictor(WriteScenes)
            self.judge_generality = predictor(JudgeGenerality)
        if self.consensus:
            self.adjust = predictor(AdjustExperience)

    @property
    def config(self) -> dict[str, Any]:
        """The settings by name."""
        own = super().config
        return {**own.pop("settings"), **own}

    @property
    def off(self) -> tuple[Kind, ...]:
        """Kinds of experience that are switched off."""
        kept: dict[Kind, bool] = {"pattern": self.patterns, "alert": self.alerts}
        return tuple(kind for kind, on in kept.items() if not on)

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs calls that do not depend on one another, at the same time or in order."""
        return gather(calls) if self.parallel else [call() for call in calls]
