"""PraMem: a model practises on a user's own records, and what it learns is the memory.

    records ── wait ──> rounds of practice ──> pool of proposals ── consensus ──> experience
    a round:  trial ──> reflection ──> proposals ──> groundedness, generality ──> pool

The memory holds two kinds of experience: patterns of the user, and alerts to the model's own
biases. Where the history ends, the writer practises 20 rounds, and after every 5 what several
proposals support becomes experience (`writer`). A question is answered from all experience and the
newest records, which the task adds as they are (`reader`).

Critical path: five calls for every 5 rounds, so 20 calls for 20 rounds; one after another they
would be 124. Then one answer.

Source: Li et al., "PraMem: Practice-derived Experiential Memory for Long-horizon Behavior
Prediction", section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import dspy

from ..method import Method
from ..tasks.behavior import BehaviorPrediction
from .reader import ExperiencedPrediction, ExperienceReader
from .settings import ExperienceReaderSettings, PracticeSettings, PraMemSettings
from .writer import PracticeWriter


class PraMem(Method):
    """Practise on a user's records, and recall what practice has taught (Eq. 2)."""

    Settings = PraMemSettings
    tasks: ClassVar[Mapping[str, type[dspy.Module]]] = {
        "behavior-prediction": BehaviorPrediction,
    }

    settings: PraMemSettings

    def __init__(self, settings: PraMemSettings | None = None) -> None:
        settings = settings or PraMemSettings()
        writer = PracticeWriter(settings.restrict_to(PracticeSettings))
        reader = ExperienceReader(settings.restrict_to(ExperienceReaderSettings))
        super().__init__(writer, reader, settings=settings)

    def make_task(self, task: str) -> dspy.Module:
        """Return a new task that predicts what the user will do (Eq. 2).

        By default it has the prompt that all methods share (section 4.1). With the setting
        `two_step` the prompt goes through the recalled experience first (Figure 7).
        """
        if self.settings.two_step:
            return ExperiencedPrediction(self.settings.predict_tokens)
        return BehaviorPrediction(self.settings.predict_tokens)
