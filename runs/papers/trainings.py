"""Settings that the user chose for the trainings of a paper, e.g. the trainer, or LoRA's rank.

Some variants are trained. The choices hold for all of them, but a setting that a variant is about
stays as the paper has it:

    choices = TrainingChoices({"horizons": [4], "lora": 8})
    choices.training_config(tuning, "local:Qwen/Qwen2.5-7B-Instruct")
    # If the tuning is about {"horizons": [32]}: horizons 32, lora 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...optimizers.logo_grpo.training_config import TrainingConfig
from ..config import RunConfig
from ..train import FREE_ON_RESUME
from .paper import Tuning


@dataclass(frozen=True)
class TrainingChoices:
    """Settings of all trainings of a paper, unless a variant is about them."""

    settings: Mapping[str, object] = field(default_factory=dict)
    """As `train --train-set` takes them."""

    def rewarded_by(self, config: RunConfig) -> TrainingChoices:
        """Return the choices with the model that answers in the run as the one that gives rewards.

        A model that the choices already name for that stays.
        """
        reader = config.models.answer
        if not reader.name or "answer_lm" in self.settings:
            return self
        # Only together, so that no key is sent to another model's address.
        reader_settings = {"answer_lm": reader.name, "answer_api_base": reader.api_base}
        return replace(self, settings={**reader_settings, **self.settings})

    def training_config(self, tuning: Tuning, lm: str) -> TrainingConfig:
        """Return how the model of a variant is trained.

        Args:
            tuning: The tuning of the variant; its own settings come first.
            lm: The model that is trained.

        Raises:
            UserError: A setting is unknown, or does not fit.
        """
        return TrainingConfig.for_model(lm).changed({**self.settings, **tuning.settings})

    def names_fixed_by(self, tuning: Tuning) -> list[str]:
        """Return the names of the choices that a variant has other values for, sorted."""
        names: list[str] = []
        for name, value in self.settings.items():
            if name in tuning.settings and tuning.settings[name] != value:
                names.append(name)
        return sorted(names)

    @property
    def decisive(self) -> dict[str, object]:
        """The choices that decide the result of a training: a resumed run has the same."""
        return {name: value for name, value in self.settings.items() if name not in FREE_ON_RESUME}
