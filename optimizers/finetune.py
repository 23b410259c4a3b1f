"""The optimizer `finetune`: weights of the model, trained on calls behind good answers.

    training questions -> program -> answers -> score above 0 -> calls as messages -> provider
                                                                                        |
                                                                                   trained LM

The model learns the program's own calls, as the adapter shows them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import dspy
from dspy.clients.utils_finetune import infer_data_format
from dspy.teleprompt.bootstrap_finetune import build_call_data_from_trace
from dspy.teleprompt.bootstrap_trace import bootstrap_trace_data

from ..engines.local.settings import Finetuning
from ..engines.model_names import is_local
from ..errors import UserError
from ..programs.program import MemoryProgram
from .call_bounds import CallBounds, Range
from .extra_settings import ExtraSettings
from .job import OptimizerJob
from .optimizer import Optimizer

_CONSTRUCTOR_SETTINGS = ExtraSettings(dspy.BootstrapFinetune, ("multitask",))


@dataclass(frozen=True, kw_only=True)
class Finetune(Optimizer):
    """Train the weights of the model on calls that led to a good answer."""

    name: ClassVar[str] = "finetune"
    changes_in_program: ClassVar[str] = (
        "the weights of the model, from traces that led to a good answer"
    )
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
        # DSPy's provider for openai/... sends the data to OpenAI itself, whatever the model's own
        # address is.
        has_own_address = "api_base" in job.task_lm.kwargs
        provider = getattr(job.task_lm, "provider", None)
        if has_own_address or not getattr(provider, "finetunable", False):
            raise UserError(
                f"the provider of {job.task_lm.model} cannot fine-tune; "
                "choose another --lm, or a prompt optimizer"
            )
        if is_local(job.task_lm.model):
            Finetuning.parse(self._training_settings(job))

    def call_bounds(self, job: OptimizerJob) -> CallBounds:
        questions = len(job.train)
        return CallBounds(answers=Range(questions, questions), memory_writings=Range(1, 1))

    def run(self, job: OptimizerJob) -> MemoryProgram:
        job.student.set_lm(job.task_lm)
        teleprompter = PassedFinetune(
            metric=job.metric_views.passed,
            num_threads=job.threads,
            train_kwargs=self._training_settings(job),
            exclude_demos=self.exclude_demos,
            **_CONSTRUCTOR_SETTINGS.select(self.extra),
        )
        return teleprompter.compile(job.student, trainset=list(job.train))

    def _training_settings(self, job: OptimizerJob) -> dict[str, Any]:
        """Return what the provider is given: the settings that are set, and the seed."""
        settings: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lora": self.lora,
        }
        training_settings = {name: value for name, value in settings.items() if value is not None}
        if is_local(job.task_lm.model):
            # Other providers are not known to take a seed.
            return {"seed": job.seed, **training_settings}
        return training_settings


def trained_lm(program: MemoryProgram, start: Any) -> Any:
    """Return the LM with trained weights that is bound to a program; None if there is none.

    Args:
        program: What an optimizer returned.
        start: The LM with which the optimizer began.
    """
    if start is None:
        return None
    for predictor in program.all_predictors().values():
        # Some optimizers bind copies of the LM that sample differently; these keep its name.
        if predictor.lm is not None and predictor.lm.model != start.model:
            return predictor.lm
    return None


class PassedFinetune(dspy.BootstrapFinetune):
    """`dspy.BootstrapFinetune` that learns from answers that passed, and from them alone.

    DSPy gives a run whose completion it cannot parse the score -1, and takes every score but 0 for
    a pass.
    """

    def compile(self, student: Any, trainset: list[dspy.Example], teacher: Any = None) -> Any:
        """Train the LM that is bound to the student's predictors, and bind the trained one.

        Args:
            student: The program; one LM is bound to all of its predictors.
            trainset: The questions that it is run on.
            teacher: The program whose calls are learned; the student if None.
        """
        runs = bootstrap_trace_data(teacher or student, trainset, self.metric, self.num_threads)
        passed = [run for run in runs if (run["score"] or 0) > 0]

        predictors = student.predictors()
        lm = predictors[0].lm
        adapter = self.adapter[lm] or dspy.settings.adapter or dspy.ChatAdapter()
        # With `multitask` one model learns all calls; otherwise there is a model for the calls at
        # each position of a run.
        positions: list[int | None] = list(range(len(predictors)))
        if self.multitask:
            positions = [None]

        jobs: dict[int | None, dict[str, Any]] = {}
        for position in positions:
            jobs[position] = {
                "lm": lm,
                "train_data": self._train_data(passed, position, adapter),
                "train_data_format": infer_data_format(adapter),
                "train_kwargs": self.train_kwargs[lm],
            }
        trained_lms = self.finetune_lms(jobs)

        for number, predictor in enumerate(predictors):
            predictor.lm = trained_lms[None if self.multitask else number]
            if self.exclude_demos:
                predictor.demos = []
        return student

    def _train_data(
        self, runs: list[Any], position: int | None, adapter: dspy.Adapter
    ) -> list[dict[str, Any]]:
        """Return the calls at a position of the runs, or all of them, in shuffled order."""
        calls: list[dict[str, Any]] = []
        for run in runs:
            for number in range(len(run["trace"])):
                if position is None or position == number:
                    call = build_call_data_from_trace(
                        run["trace"], number, adapter, self.exclude_demos
                    )
                    calls.append(call)
        random.Random(0).shuffle(calls)
        return calls
