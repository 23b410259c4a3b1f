"""The settings of each optimizer, as small classes that `mempiler.compile` takes.

    mempiler.compile(program, trainset=..., optimizer=mempiler.optimizers.Gepa(max_metric_calls=300))

The class stands for the optimizer of the same name: `Gepa` is "gepa", `BootstrapRandom` is "bootstrap-random".
DSPy's own optimizers take more settings than these; `extra` hands them on:

    Gepa(max_metric_calls=300, extra={"reflection_minibatch_size": 5})

`mempiler list optimizers NAME` prints all settings of an optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

_MISSING = object()
"""The default of a setting that has none here; it equals nothing."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The settings of one optimizer."""

    name: ClassVar[str]
    """What the command line calls the optimizer."""

    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further settings of DSPy's optimizer, by the name of its constructor's argument."""

    def to_dict(self) -> dict[str, Any]:
        """Return all settings by name."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "extra"}
        return {**own, **self.extra}

    def changed_settings(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults."""
        defaults = type(self)().to_dict()
        return {name: value for name, value in self.to_dict().items() if value != defaults.get(name, _MISSING)}


@dataclass(frozen=True, kw_only=True)
class DemoLimits(OptimizerSettings):
    """How long demos may be, in estimated tokens."""

    demo_context_tokens: int = 300
    """Tokens of the recalled context that a labelled demo shows."""
    max_demo_tokens: int = 6000
    """Tokens of all demos of one prompt."""


@dataclass(frozen=True, kw_only=True)
class Labeled(DemoLimits):
    """Show training questions with what is recalled for them and their gold answers."""

    name: ClassVar[str] = "labeled"

    max_labeled_demos: int = 8


@dataclass(frozen=True, kw_only=True)
class Knn(DemoLimits):
    """Show the training questions that are nearest to each new question."""

    name: ClassVar[str] = "knn"

    k: int = 8
    """Demos of one prompt."""


@dataclass(frozen=True, kw_only=True)
class Bootstrap(DemoLimits):
    """Show calls of the program's own that led to a good answer, and labelled demos."""

    name: ClassVar[str] = "bootstrap"

    max_bootstrapped_demos: int = 4
    max_labeled_demos: int = 8
    max_rounds: int = 1
    max_tries: int = 30
    """Training questions that are tried at most."""


@dataclass(frozen=True, kw_only=True)
class BootstrapRandom(DemoLimits):
    """Bootstrap several sets of demos, and keep the best."""

    name: ClassVar[str] = "bootstrap-random"

    max_bootstrapped_demos: int = 4
    max_labeled_demos: int = 8
    num_candidate_programs: int = 6
    max_tries: int = 30


@dataclass(frozen=True, kw_only=True)
class Mipro(DemoLimits):
    """Search instructions and demos together."""

    name: ClassVar[str] = "mipro"

    auto: Literal["light", "medium", "heavy"] | None = None
    """Lets DSPy choose the numbers of candidates and trials."""
    num_candidates: int = 5
    num_trials: int = 8
    minibatch_size: int = 35
    max_bootstrapped_demos: int = 4
    max_labeled_demos: int = 8
    max_tries: int = 30


@dataclass(frozen=True, kw_only=True)
class Copro(OptimizerSettings):
    """Improve instructions one predictor after another."""

    name: ClassVar[str] = "copro"

    breadth: int = 4
    """Instructions that are proposed in each round."""
    depth: int = 2
    """Rounds."""


@dataclass(frozen=True, kw_only=True)
class Simba(DemoLimits):
    """Learn advice and demos from contrasts between good and bad runs."""

    name: ClassVar[str] = "simba"

    bsize: int = 32
    """Training questions of one step."""
    num_candidates: int = 4
    max_steps: int = 4
    max_demos: int = 4


@dataclass(frozen=True, kw_only=True)
class Gepa(OptimizerSettings):
    """Improve instructions by reflection on what went wrong."""

    name: ClassVar[str] = "gepa"

    max_metric_calls: int | None = None
    """Questions that are asked in all; None: three times those it chooses by, and each training question once."""


@dataclass(frozen=True, kw_only=True)
class InferRules(DemoLimits):
    """Induce rules from demos and add them to the instructions."""

    name: ClassVar[str] = "infer-rules"

    num_candidates: int = 4
    num_rules: int = 6
    max_bootstrapped_demos: int = 4
    max_labeled_demos: int = 8
    max_tries: int = 30


@dataclass(frozen=True, kw_only=True)
class BetterTogether(OptimizerSettings):
    """Run several optimizers one after another."""

    name: ClassVar[str] = "better-together"

    strategy: str = "bootstrap -> gepa"


@dataclass(frozen=True, kw_only=True)
class Finetune(OptimizerSettings):
    """Train the weights of the model on calls that led to a good answer."""

    name: ClassVar[str] = "finetune"

    exclude_demos: bool = True
    learning_rate: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lora: int | None = None
    """Rank of the adapter that is trained; None trains all weights."""


ALL_SETTINGS: tuple[type[OptimizerSettings], ...] = (
    Labeled,
    Knn,
    Bootstrap,
    BootstrapRandom,
    Mipro,
    Copro,
    Simba,
    Gepa,
    InferRules,
    BetterTogether,
    Finetune,
)
"""One class for each optimizer of the catalog."""
