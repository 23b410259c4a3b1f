"""What a user says of a paper's trainings, e.g. the trainer and what fits the machine; what a row is about stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...optimizers.logo_grpo.training_config import TrainingConfig
from ..config import RunConfig
from ..train import FREE_ON_RESUME
from .paper import Tuning


@dataclass(frozen=True)
class TrainingChoices:
    """Settings that all trainings of a paper have, unless a row is about them."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """As `train --train-set` takes them."""

    def rewarded_by(self, config: RunConfig) -> TrainingChoices:
        """Return the choices with the run's answering model as what gives rewards, where they name no other."""
        if not config.models.answer.name or "answer_lm" in self.settings:
            return self
        reader = {"answer_lm": config.models.answer.name, "answer_api_base": config.models.answer.api_base}
        return replace(self, settings={**reader, **self.settings})

    def config(self, tuning: Tuning, lm: str) -> TrainingConfig:
        """Return how a row's model is trained: what the row is about is kept.

        Raises:
            UserError: A setting is unknown, or does not fit.
        """
        return TrainingConfig.for_model(lm).changed({**self.settings, **tuning.settings})

    def kept_by(self, tuning: Tuning) -> list[str]:
        """Return the names of chosen settings that a row has values of its own for."""
        shared = self.settings.keys() & tuning.settings.keys()
        return sorted(name for name in shared if self.settings[name] != tuning.settings[name])

    @property
    def decisive(self) -> dict[str, Any]:
        """The choices that decide the result of a training: a resumed run has the same."""
        return {name: value for name, value in self.settings.items() if name not in FREE_ON_RESUME}
