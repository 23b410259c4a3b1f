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

    def with_reward_model(self, config: RunConfig) -> TrainingChoices:
        """Return the choices with a model whose answers give the rewards of trainings.

        It is the one that answers in the run, `--answer-lm`. If the choices name such a model
        already, or the run has none, they stay as they are.
        """
        model = config.models.answer
        # The address is never added to another model's name: it would receive that model's key.
        if not model.name or "answer_lm" in self.settings:
            return self
        model_settings = {"answer_lm": model.name, "answer_api_base": model.api_base}
        return replace(self, settings={**model_settings, **self.settings})

    def training_config(self, tuning: Tuning, lm: str) -> TrainingConfig:
        """Return how the model of a variant is trained.

        Args:
            tuning: The tuning of the variant. Its settings replace those of the user.
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
    def result_settings(self) -> dict[str, object]:
        """The choices that change the result of a training; a resumed run must have the same.

        Others, such as how many GPUs work, may change.
        """
        return {name: value for name, value in self.settings.items() if name not in FREE_ON_RESUME}
