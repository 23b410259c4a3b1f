"""The optimizer `finetune`: weights of the model, trained on calls behind good answers.

    training questions -> program -> answers -> score above 0 -> calls as messages -> provider
                                                                                        |
                                                                                   trained LM

The model learns the program's own calls, as the adapter shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..engines.model_names import is_local
from ..errors import UserError
from .call_bounds import CallBounds, Range
from .extra_settings import ExtraSettings
from .optimizer import Optimizer

if TYPE_CHECKING:
    from ..programs.program import MemoryProgram
    from .job import OptimizerJob


def _constructor() -> type:
    import dspy

    return dspy.BootstrapFinetune


_CONSTRUCTOR_SETTINGS = ExtraSettings(_constructor, ("multitask",))


@dataclass(frozen=True, kw_only=True)
class Finetune(Optimizer):
    """Train the weights of the model on calls that led to a good answer."""

    name: ClassVar[str] = "finetune"
    changes_in_program: ClassVar[str] = (
        "the weights of the model: it is trained on its own calls that led to a good answer"
    )
    changes_texts: ClassVar[bool] = False
    cost_description: ClassVar[str] = "one pass over the training questions, and a training job"
    needs_description: ClassVar[str] = "an LM whose provider can fine-tune"
    extra_settings: ClassVar = (_CONSTRUCTOR_SETTINGS,)

    exclude_demos: bool = True
    """Whether the model learns its calls without the demos in their prompts."""
    learning_rate: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lora: int | None = None
    """Rank of the adapter that is trained; None trains all weights."""

    def check_requirements(self, job: OptimizerJob) -> None:
        """Raise a UserError if the model cannot be trained, or not with these settings."""
        from ..engines.local.settings import Finetuning

        provider = getattr(job.task_lm, "provider", None)
        can_finetune = getattr(provider, "finetunable", False)
        # A server at the user's own address may be called by a name such as openai/NAME. DSPy then
        # takes it for OpenAI, which can fine-tune, and would send the training data there.
        has_own_address = "api_base" in job.task_lm.kwargs
        if has_own_address or not can_finetune:
            raise UserError(
                f"the provider of {job.task_lm.model} cannot fine-tune; "
                "choose another --lm, or a prompt optimizer"
            )
        if is_local(job.task_lm.model):
            # Raises a UserError if a setting is wrong.
            Finetuning.parse(self._training_settings(job))

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        questions = len(job.train)
        return CallBounds(answers=Range(questions, questions), memory_writings=Range(1, 1))

    def run(self, job: OptimizerJob) -> MemoryProgram:
        """Return the program with the trained model bound to its predictors."""
        from .passed_finetune import PassedFinetune

        # DSPy trains the model that is bound to the predictors.
        job.student.set_lm(job.task_lm)
        teleprompter = PassedFinetune(
            # The model learns the calls behind answers that pass.
            metric=job.metric_views.passed,
            num_threads=job.threads,
            train_kwargs=self._training_settings(job),
            exclude_demos=self.exclude_demos,
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        )
        return teleprompter.compile(job.student, trainset=list(job.train))

    def _training_settings(self, job: OptimizerJob) -> dict[str, Any]:
        """Return the settings for the provider's training job; those that are None are left out."""
        settings: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lora": self.lora,
        }
        training_settings = {name: value for name, value in settings.items() if value is not None}
        if is_local(job.task_lm.model):
            # Only our own training is known to accept a seed.
            return {"seed": job.seed, **training_settings}
        return training_settings


def trained_lm(program: MemoryProgram, start_lm: Any) -> Any:
    """Return the LM with trained weights that is bound to a program; None if there is none.

    Args:
        program: What an optimizer returned.
        start_lm: The LM with which the optimizer began; None if there was none.
    """
    if start_lm is None:
        return None
    for predictor in program.all_predictors().values():
        # A trained LM has a name of its own. Some optimizers bind copies of the LM that sample
        # differently; these keep its name.
        if predictor.lm is not None and predictor.lm.model != start_lm.model:
            return predictor.lm
    return None
