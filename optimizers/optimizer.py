"""The base class of all optimizers.

DSPy calls an optimizer a "teleprompter": an object that takes a program and training questions,
and returns a program with better demos, instructions or weights. Each optimizer here hides one of
DSPy's teleprompters behind the same interface. Its fields are its settings:

    optimizer = mempiler.optimizers.Gepa(max_metric_calls=300)
    mempiler.compile(program, trainset=..., optimizer=optimizer)

A new optimizer is a frozen dataclass with a method `run`. An object of it is passed to `compile`
like those above:

    @dataclass(frozen=True, kw_only=True)
    class LongestAnswers(mempiler.optimizers.Optimizer):
        name = "longest-answers"
        changes_in_program = "demos: the training questions with the longest answers"
        cost_description = "no calls"

        num_demos: int = 4

        def run(self, job):
            longest_first = sorted(job.train, key=lambda example: -len(example.answer))
            for predictor in job.student.predictors():
                predictor.demos = longest_first[: self.num_demos]
            return job.student

`catalog.py` lists those that are known by name. A function that makes a teleprompter of DSPy's may
be passed as well (`custom.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .call_bounds import CallBounds
from .extra_settings import ExtraSettings

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """An optimizer with its settings."""

    # What `mempiler list optimizers` says of an optimizer.
    name: ClassVar[str]
    """The name on the command line."""
    changes_in_program: ClassVar[str]
    """What it changes in a program, in words."""
    cost_description: ClassVar[str]
    """What it costs with its default settings, in words."""
    needs_description: ClassVar[str] = "training questions"
    """What it needs, in words."""

    needs_valset: ClassVar[bool] = False
    """Whether a third of the training questions is set aside to choose candidates by."""

    tunes_prompts: ClassVar[bool] = True
    """Whether it changes prompts, so that a program without any prompt is refused."""
    changes_texts: ClassVar[bool] = True
    """Whether it changes instructions, as the texts of somebody else's memory system are.

    False if it changes demos or weights alone.
    """

    # How settings are checked before anything is paid.
    extra_settings: ClassVar[tuple[ExtraSettings, ...]] = ()
    """Settings of DSPy's functions that `extra` may hold."""
    smallest_values: ClassVar[Mapping[str, float]] = {}
    """Smallest allowed numbers, by setting; other whole numbers are 0 or more."""
    object_settings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Settings that take a Python object, and the texts that they take as well."""

    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further settings of DSPy's optimizer, by the name of its argument."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the optimizer with these settings; those that are no fields become `extra`."""
        field_names = cls.field_names()
        field_values = {name: value for name, value in settings.items() if name in field_names}
        extra = {name: value for name, value in settings.items() if name not in field_names}
        return cls(**field_values, extra=extra)

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of its settings without those in `extra`."""
        return [setting.name for setting in fields(cls) if setting.name != "extra"]

    @classmethod
    def default_settings(cls) -> dict[str, Any]:
        """Return the defaults of all settings by name, those for `extra` included.

        The default of a field that has none is None.
        """
        defaults: dict[str, Any] = {}
        for setting in fields(cls):
            if setting.name == "extra":
                continue
            default: Any = None
            if setting.default is not MISSING:
                default = setting.default
            elif setting.default_factory is not MISSING:
                default = setting.default_factory()
            defaults[setting.name] = default
        for extra_settings in cls.extra_settings:
            defaults.update(extra_settings.defaults())
        return defaults

    def settings(self) -> dict[str, Any]:
        """Return the fields and `extra` as one mapping by name."""
        field_values = {name: getattr(self, name) for name in self.field_names()}
        return {**field_values, **self.extra}

    def changed_settings(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults of the fields, and all of `extra`."""
        changed: dict[str, Any] = {}
        defaults = self.default_settings()
        for name in self.field_names():
            value = getattr(self, name)
            if value != defaults[name]:
                changed[name] = value
        return {**changed, **self.extra}

    def check_requirements(self, job: OptimizerJob) -> None:
        """Raise a UserError if the job lacks something that the optimizer needs.

        It is called before the first paid call.
        """
        return

    def call_bounds(self, job: OptimizerJob) -> CallBounds | None:
        """Return how many calls it makes at least and at most; None if that is not known."""
        return None

    def proposal_warning(self, job: OptimizerJob, calls_left: int | None) -> str | None:
        """Return a line that warns of too few proposals; None if there is nothing to warn of.

        By default only the settings are looked at. Optimizers that can tell how many proposals a
        number of calls allows override this method.

        Args:
            job: What is to be compiled.
            calls_left: How many calls the budget still allows; None if it has no such limit.
        """
        bounds = self.call_bounds(job)
        if bounds is None:
            return None
        # Where the most is 0, the optimizer works without proposals.
        most_proposals = int(bounds.proposals.high)
        if most_proposals == 0:
            return None
        return few_proposals_line(self.name, most_proposals, reason="its settings")

    @abstractmethod
    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Compile the job's student, and return what DSPy's teleprompter returns."""


def few_proposals_line(name: str, most_proposals: int, reason: str) -> str | None:
    """Return a warning if at most one proposal can be made, else None.

    Args:
        name: The optimizer.
        most_proposals: How many proposals there are at most.
        reason: What limits them, e.g. "max_metric_calls = 20"; the warning quotes it.
    """
    if most_proposals >= 2:
        return None
    number = "no proposal" if most_proposals == 0 else "one proposal at most"
    advice = "raise the budget, or learn from fewer questions"
    return f"{name}: the budget allows {number} ({reason}); {advice}"
