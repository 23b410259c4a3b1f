"""The configuration of a training by `mempiler train`: its objective, its numbers, its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields, replace
from typing import Any

from pydantic import PositiveFloat, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass

from ...engines.local.settings import Reinforcement
from ...errors import UnknownNameError, UserError
from ...validation import validation_message
from .reward import RewardSettings, SessionReward
from .settings import Curriculum, Objective, TrainingSettings

TINY = "local:tiny"
"""The model that a training creates and warms up itself."""


@plain_dataclass(frozen=True)
class ObjectiveChoice:
    """What a value of `--optimizer` stands for."""

    objective: Objective
    session_reward: SessionReward | None
    """The reward of global groups; None leaves it to the settings."""


OBJECTIVES: dict[str, ObjectiveChoice] = {
    "grpo": ObjectiveChoice("grpo", "trajectory"),
    "grpo-session": ObjectiveChoice("grpo", "session"),
    "grpo-cumulative": ObjectiveChoice("grpo", "cumulative"),
    "local": ObjectiveChoice("local", None),
    "logo-grpo": ObjectiveChoice("logo", None),
}
"""The values of `--optimizer` that train.

"grpo" is GRPO as the paper describes it, rewarded by whole trajectories. The released ablation
without local groups keeps the reward by session: "grpo-session".
"""


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained."""

    objective: str = "logo-grpo"
    """A key of `OBJECTIVES`."""
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    """Objective and seed in it are overwritten; the session reward too if the objective has one."""
    train_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the training job that differ from the defaults, see `trainer_settings`."""
    lora: PositiveInt | None = None
    """The rank of an adapter to train, with twice that as `lora_alpha`; None trains all weights."""
    dtype: str | None = None
    """The type of the weights; None takes float32 on the CPU, and bfloat16 on a GPU."""
    answer_tokens: PositiveInt = 2048
    """The most tokens of one completion, as released."""
    answer_lm: str | None = None
    """The model that answers the questions of rewards; None takes the trained model itself."""
    answer_api_base: str | None = None
    """The address of the server of `answer_lm`."""
    usd_per_hour: PositiveFloat | None = None
    """The price of the machine that trains, for plans."""
    train_gpus: PositiveInt | None = None
    """GPUs that train, one for each process of torchrun; other numbers of processes are refused."""
    sampling_gpus: PositiveInt | None = None
    """GPUs of the vLLM server that samples, for plans; each has the whole model."""
    reader_gpus: PositiveInt | None = None
    """GPUs over which the server of `answer_lm` spreads its model, for plans."""
    gpu_memory: PositiveFloat | None = None
    """Gigabytes of one GPU, for plans."""

    @classmethod
    def for_model(cls, lm: str) -> TrainingConfig:
        """Return the defaults for a model: the released numbers, or those of `local:tiny`.

        The latter are what two cores do in a few minutes.
        """
        return TINY_CONFIG if lm == TINY else cls()

    @property
    def trainer_settings(self) -> dict[str, Any]:
        """The settings of the training job: the defaults, and `train_kwargs` instead of some."""
        settings: dict[str, Any] = dict(RELEASED)
        if self.lora is not None:
            settings.update(ADAPTER)
        settings.update(self.train_kwargs)
        return settings

    def changed(self, settings: Mapping[str, Any]) -> TrainingConfig:
        """Return a copy of the configuration with new values of some settings.

        The settings are given in one flat mapping. A setting changes the class that has a field of
        its name: this one, `TrainingSettings`, `Curriculum` or `RewardSettings`. All other settings
        are those of the training job. A setting that contains others, such as `curriculum`, is
        replaced as a whole.

        Args:
            settings: The new values, by name.

        Raises:
            UnknownNameError: There is no such setting.
            UserError: A value is of the wrong kind, or does not fit. Or a setting is given both by
                itself and within another, or where it would have no effect.
        """
        _refuse_unknown(settings)
        changes = _Changes.sort(settings)
        changes.refuse_overlaps()
        given_settings = changes.given_training_settings(self.settings)
        _refuse_settings_of_the_run(given_settings)

        # The classes contain one another, so they are changed from the innermost to the outermost.
        try:
            curriculum = replace(self.settings.curriculum, **changes.curriculum)
            reward = replace(self.settings.reward, **changes.reward)
            training_changes: dict[str, Any] = {"curriculum": curriculum, "reward": reward}
            training_changes.update(changes.training)
            training = replace(self.settings, **training_changes)

            train_kwargs = {**self.train_kwargs, **changes.job}
            config_changes: dict[str, Any] = {"settings": training, "train_kwargs": train_kwargs}
            config_changes.update(changes.config)
            config = replace(self, **config_changes)
        except ValidationError as error:
            raise _setting_error(error) from error

        # The objective is looked up here, so that an unknown one is refused, too.
        choice = config._objective_choice()
        if "session_reward" in given_settings:
            config._refuse_other_session_reward(choice, self.settings.session_reward)

        # The job begins only after the warm-up. Its settings are checked here, so that a wrong one
        # is refused before that.
        Reinforcement.parse(config.trainer_settings)
        return config

    def _refuse_other_session_reward(self, choice: ObjectiveChoice, default: SessionReward) -> None:
        """Refuse a session reward that the objective does not use.

        Args:
            choice: What the objective stands for.
            default: The reward before a user gave one. The settings of a recorded training have
                the reward of the objective, or this one if there are no global groups, so neither
                is a mistake there.

        Raises:
            UserError: The objective has another reward, or no global groups.
        """
        given = self.settings.session_reward
        if choice.session_reward not in (None, given):
            raise UserError(
                f"session_reward = {given!r}: --optimizer {self.objective} has "
                f"{choice.session_reward!r}; leave it out, or give {_optimizer_with(given)}"
            )
        if choice.objective == "local" and given != default:
            raise UserError(
                f"session_reward = {given!r}: --optimizer {self.objective} has no global groups, "
                "which it is for; leave it out, or give --optimizer logo-grpo"
            )

    def _objective_choice(self) -> ObjectiveChoice:
        """Return what the objective stands for.

        Raises:
            UserError: The objective is unknown.
        """
        choice = OBJECTIVES.get(self.objective)
        if choice is None:
            names = ", ".join(OBJECTIVES)
            raise UserError(f"--optimizer {self.objective!r}: choose one of {names}")
        return choice

    def training(self, seed: int) -> TrainingSettings:
        """Return the settings of the training, with those that the objective decides.

        Raises:
            UserError: The objective is unknown.
        """
        choice = self._objective_choice()
        return replace(
            self.settings,
            seed=seed,
            objective=choice.objective,
            session_reward=choice.session_reward or self.settings.session_reward,
        )


def _optimizer_with(session_reward: SessionReward) -> str:
    """Return the option that trains by global groups alone with a session reward."""
    for name, choice in OBJECTIVES.items():
        if choice.session_reward == session_reward:
            return f"--optimizer {name}"
    return "--optimizer logo-grpo"


def _setting_error(error: ValidationError) -> UserError:
    """Return a one-line error for the first problem that pydantic found.

    The error names the setting, or a value in a list, such as "horizons.0" for the first horizon.
    """
    problem = error.errors()[0]
    field_name, *inner_location = problem["loc"]
    # Inside of a field, pydantic mixes indices with its names for types. A user knows only indices.
    location = [str(field_name)]
    for part in inner_location:
        if isinstance(part, int):
            location.append(str(part))
    setting = ".".join(location)

    # The message of pydantic would begin with its own location of the problem, so that is skipped.
    reason = validation_message(error, skipped_parts=len(problem["loc"]))
    return UserError(f"a setting of the training: {setting}: {reason}")


@plain_dataclass(frozen=True)
class _Changes:
    """Settings by the class that has a field of their name."""

    config: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    curriculum: dict[str, Any] = field(default_factory=dict)
    reward: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    """All others: settings of the training job."""

    @classmethod
    def sort(cls, settings: Mapping[str, Any]) -> _Changes:
        """Sort settings by class; of several classes with such a field, the first one counts."""
        changes = cls()
        for name, value in settings.items():
            if name in _field_names(TrainingConfig):
                changes.config[name] = value
            elif name in _field_names(TrainingSettings):
                changes.training[name] = value
            elif name in _field_names(Curriculum):
                changes.curriculum[name] = value
            elif name in _field_names(RewardSettings):
                changes.reward[name] = value
            else:
                changes.job[name] = value
        return changes

    def refuse_overlaps(self) -> None:
        """Refuse settings beside the one that contains them.

        For example, `curriculum` contains `horizons`. Only one of the two could count.

        Raises:
            UserError: There are such settings; the error names one.
        """
        contained_settings = {
            "curriculum": self.curriculum,
            "reward": self.reward,
            "settings": {**self.training, **self.curriculum, **self.reward},
            "train_kwargs": self.job,
        }
        for group, contained in contained_settings.items():
            is_given = group in self.config or group in self.training
            if is_given and contained:
                name = next(iter(contained))
                raise UserError(
                    f"settings of the training: {group} contains {name}; give only one of them"
                )

    def given_training_settings(self, before: TrainingSettings) -> Mapping[str, Any]:
        """Return the settings of `TrainingSettings`, also where they stand in a group.

        Args:
            before: The settings before the changes.
        """
        group = self.config.get("settings")
        if isinstance(group, Mapping):
            return group
        if isinstance(group, TrainingSettings):
            return _fields_that_differ(group, TrainingSettings(), before)
        return self.training


def _fields_that_differ(
    settings: TrainingSettings, *others: TrainingSettings
) -> Mapping[str, object]:
    """Return the fields of some settings whose values none of the others have.

    An object has a value in every field. One that differs was given by the user.
    """
    different_fields: dict[str, object] = {}
    for name in _field_names(TrainingSettings):
        value = getattr(settings, name)
        if all(value != getattr(other, name) for other in others):
            different_fields[name] = value
    return different_fields


def _refuse_settings_of_the_run(training_settings: Mapping[str, Any]) -> None:
    """Refuse settings that a training takes from elsewhere and would overwrite.

    Args:
        training_settings: The settings of `TrainingSettings` that a user gave.

    Raises:
        UserError: There is one; the error says what to give instead.
    """
    if "seed" in training_settings:
        seed = training_settings["seed"]
        raise UserError(
            f"settings of the training: seed = {seed!r}: a training has the seed of its run; "
            "give --seed, in Python seed=..., in a file data.seed"
        )
    if "objective" in training_settings:
        objective = training_settings["objective"]
        raise UserError(
            f"settings of the training: objective = {objective!r} within settings has no "
            f"effect; give --optimizer with one of {', '.join(OBJECTIVES)}"
        )


def _field_names(settings_class: type[Any]) -> set[str]:
    return {setting.name for setting in fields(settings_class)}


def _refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Refuse names that neither the training nor its job knows.

    The job would refuse them only after the warm-up.
    """
    known_names = set(Reinforcement.model_fields)
    for settings_class in (TrainingConfig, TrainingSettings, Curriculum, RewardSettings):
        known_names.update(_field_names(settings_class))
    for name in settings:
        if name not in known_names:
            raise UnknownNameError("setting of the training", name, known_names)


RELEASED = {
    "learning_rate": 2e-6,
    "epochs": 2,
    "batch_size": 2048,
    "beta": 0.001,
    "weight_decay": 0.01,
    "old_logprobs": "recomputed",
}
"""The numbers of the released scripts, for all weights.

A mini-batch there is 16, doubled by the trainer, times 16 rollouts: 512 rows of up to four turns.
A turn is one completion here, so the batch has 2,048.
"""

ADAPTER = {"learning_rate": 1e-5, "epochs": 1}
"""Our numbers for an adapter: its few weights begin at zero, so a larger step suits it."""

DAPO = {
    "loss_type": "dapo",
    "ratio": "token",
    "clip_high": 0.28,
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
    "eps": 1e-4,
}
"""The loss of DAPO, instead of the released one."""

TINY_CONFIG = TrainingConfig(
    settings=TrainingSettings(
        num_rollouts=4,
        local_n=12,
        local_fraction=1.0,
        histories=2,
        session_reward="trajectory",
        threads=96,
        validate_every=12,
        reward=RewardSettings(format_penalty=0.5, unknown_id_penalty=0.2),
        curriculum=Curriculum((8,), steps=None, tokens=350_000),
    ),
    train_kwargs={
        "learning_rate": 2e-4,
        "epochs": 2,
        "batch_size": 48,
        "beta": 0.02,
        "weight_decay": 0.0,
        "old_logprobs": "sampled",
        **DAPO,
    },
    answer_tokens=96,
)
"""Numbers that are stable for a model of half a million weights; docs/training.md has their story.

With a learning rate of 5e-4 and no KL term, plain GRPO collapsed on one seed of four. The single
stage has whole histories from the first step on. Two histories a step: with one, the same budget of
tokens gave a seed of LoGo-GRPO no more than an early checkpoint.
"""
