"""The optimizer `better-together`: several optimizers, one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UnknownNameError, UserError
from .bootstrap import Bootstrap
from .bootstrap_random import BootstrapRandom
from .call_bounds import CallBounds, Range
from .copro import Copro
from .extra_settings import ExtraSettings
from .finetune import Finetune
from .gepa import Gepa
from .infer_rules import InferRules
from .job import MAX_ERRORS
from .knn import Knn
from .labeled import Labeled
from .mipro import Mipro
from .optimizer import Optimizer
from .simba import Simba

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob

STEP_OPTIMIZERS: tuple[type[Optimizer], ...] = (
    Labeled,
    Knn,
    Bootstrap,
    BootstrapRandom,
    Mipro,
    Copro,
    Simba,
    Gepa,
    InferRules,
    Finetune,
)
"""The optimizers that a strategy may name: all but `better-together`, which cannot hold itself."""


def _compile_method() -> Callable[..., Any]:
    import dspy

    return dspy.BetterTogether.compile


_COMPILE_SETTINGS = ExtraSettings(_compile_method, ("shuffle_trainset_between_steps",))


@dataclass(frozen=True, kw_only=True)
class BetterTogether(Optimizer):
    """Run several optimizers one after another."""

    name: ClassVar[str] = "better-together"
    changes_in_program: ClassVar[str] = (
        "what several optimizers change, one after another; its setting strategy names them"
    )
    cost_description: ClassVar[str] = "the sum of its steps"
    needs_valset: ClassVar[bool] = True
    extra_settings: ClassVar = (_COMPILE_SETTINGS,)

    strategy: str = "bootstrap -> gepa"
    """Names of optimizers with arrows between them; each has its default settings."""

    def steps(self) -> list[Optimizer]:
        """Return the optimizers that the strategy names, in order.

        Raises:
            UserError: The strategy names `better-together` itself.
            UnknownNameError: There is no optimizer of a name.
        """
        classes_by_name = {step_class.name: step_class for step_class in STEP_OPTIMIZERS}
        steps: list[Optimizer] = []
        for part in self.strategy.split("->"):
            step_name = part.strip()
            if step_name == self.name:
                raise UserError(
                    "better-together cannot hold itself; name other optimizers in its strategy"
                )
            if step_name not in classes_by_name:
                raise UnknownNameError("optimizer", step_name, classes_by_name)
            steps.append(classes_by_name[step_name]())
        return steps

    def check_requirements(self, job: OptimizerJob) -> None:
        for step in self.steps():
            step.check_requirements(job)

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        """Return how many calls are paid at least and at most.

        BetterTogether runs several optimizers, one after the other. It scores the start and the
        result of each of these steps on the valset.
        """
        valset = len(job.val)
        # The start is scored.
        most_answers: float = valset
        most_recalls: float = 0
        most_writings: float = 0
        most_proposals: float = 0
        for step in self.steps():
            bounds = step.call_bounds(job)
            # Every optimizer that a strategy may name knows its bounds.
            if bounds is not None:
                # The step takes its own calls, and then its result is scored.
                most_answers += bounds.answers.high + valset
                most_recalls += bounds.recalls.high
                most_writings += bounds.memory_writings.high
                most_proposals += bounds.proposals.high
        return CallBounds(
            # At least: the steps send no new prompts, so everything after the first scoring is
            # answered from the cache.
            answers=Range(valset, most_answers),
            recalls=Range(0, most_recalls),
            memory_writings=Range(1, max(1, most_writings)),
            proposals=Range(0, most_proposals),
        )

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the result of the step that scores best on the valset."""
        import dspy

        from .step_teleprompter import StepTeleprompter

        # BetterTogether takes optimizers by key, and a strategy of such keys. The keys are the
        # numbers of the steps (s0, s1), because one optimizer may come twice.
        teleprompters: dict[str, Any] = {}
        for number, step in enumerate(self.steps()):
            teleprompters[f"s{number}"] = StepTeleprompter(job, step)

        # BetterTogether requires predictors that have a model bound to them.
        job.student.set_lm(job.task_lm)
        teleprompter = dspy.BetterTogether(metric=job.metric_views.score, **teleprompters)
        compiled: Any = teleprompter.compile(
            job.student,
            trainset=list(job.train),
            valset=list(job.val),
            num_threads=job.threads,
            max_errors=MAX_ERRORS,
            seed=job.seed,
            strategy=" -> ".join(teleprompters),
            **_COMPILE_SETTINGS.select(self.extra),
        )
        return compiled
