"""How a model is trained: which objectives, from how many seeds, with which numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..errors import UserError
from ..optimizers.logo_grpo.curriculum import Curriculum
from ..optimizers.logo_grpo.settings import Objective, TrainingSettings

TINY = "local:tiny"
"""The model that a training creates and warms up itself."""

OBJECTIVES: dict[str, Objective] = {"logo-grpo": "logo", "grpo": "grpo", "local": "local"}
"""What `--with` takes."""


@dataclass(frozen=True)
class Course:
    """How a model is trained."""

    objective: str = "logo-grpo"
    compared: tuple[str, ...] = ()
    """Further objectives trained from the same start on as many tokens."""
    seeds: int = 1
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    """Objective and seed in it are overwritten."""
    train_kwargs: Mapping[str, Any] = field(default_factory=dict)
    lora: int | None = None
    """Rank of an adapter to train; None trains all weights."""
    dtype: str | None = None
    """Of the weights; None: float32 on the CPU, bfloat16 on a GPU."""
    answer_tokens: int = 512
    """Most tokens of one completion."""
    answer_lm: str | None = None
    """Answers the questions that rewards come from; the model itself if None."""
    warm_up: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the warm-up of local:tiny."""

    @classmethod
    def for_model(cls, lm: str) -> Course:
        """The defaults for a model: those of the paper, or for `local:tiny` what fits two cores and a few minutes."""
        return TINY_COURSE if lm == TINY else cls(train_kwargs={"learning_rate": 1e-5, "beta": 0.001})

    def names(self) -> list[str]:
        """The objectives in the order of training.

        Raises:
            UserError: One is unknown.
        """
        for name in (self.objective, *self.compared):
            if name not in OBJECTIVES:
                raise UserError(f"--with {name!r}: choose one of {', '.join(OBJECTIVES)}")
        return [*dict.fromkeys((*self.compared, self.objective))]

    def shaped(self, name: str, seed: int) -> TrainingSettings:
        """The settings of one objective: groups of a kind that is not trained cost no tokens.

        GRPO gets as many trajectories as LoGo has members of both kinds; "local" keeps two, to start reruns from.
        """
        given = self.settings
        both = given.num_rollouts + round(given.local_n * given.local_fraction)
        counts = {
            "logo-grpo": {},
            "grpo": {"num_rollouts": both},
            "local": {"num_rollouts": min(2, given.num_rollouts), "local_n": max(2, both - 2)},
        }[name]
        return replace(given, objective=OBJECTIVES[name], seed=seed, **(counts if self.compared else {}))


DAPO = {
    "loss_type": "dapo",
    "ratio": "token",
    "clip_high": 0.28,
    "dual_clip": 0.0,
    "log_ratio_clip": 0.0,
    "eps": 1e-4,
}
"""The loss of DAPO, in the place of Memory-R2's."""

TINY_COURSE = Course(
    settings=TrainingSettings(
        num_rollouts=8,
        local_n=8,
        local_fraction=1.0,
        histories=2,
        curriculum=Curriculum((2, 4, 8), steps=None, tokens=50_000),
    ),
    train_kwargs={"learning_rate": 2e-4, "beta": 0.02, **DAPO},
    answer_tokens=96,
)
"""Stable for a model of half a million weights; at lr 5e-4 without KL, plain GRPO collapsed on one seed of four. Its
loss is the one that `docs/local_models.md` was measured with."""


def flat(course: Course) -> dict[str, Any]:
    """The course as one level of names, for logs."""
    found: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, part in value.items():
                walk(f"{prefix}.{key}", part)
        else:
            found[prefix] = list(value) if isinstance(value, tuple) else value

    walk("train", asdict(course))
    return found
