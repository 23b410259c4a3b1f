"""An optimizer as a teleprompter, which DSPy's BetterTogether can run as one of its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dspy.teleprompt import Teleprompter

from .finetune import trained_lm
from .job import OptimizerJob
from .optimizer import Optimizer


class StepTeleprompter(Teleprompter):
    """One step of the strategy, as the teleprompter that BetterTogether expects."""

    def __init__(self, job: OptimizerJob, optimizer: Optimizer) -> None:
        super().__init__()
        self._job = job
        self._optimizer = optimizer

    def compile(
        self,
        student: Any,
        *,
        trainset: list[Any],
        teacher: Any = None,
        valset: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Run this step's optimizer on a copy of the student, the result of the steps before.

        BetterTogether passes the other arguments too, but the job has what the optimizer needs.
        """
        # An earlier step may have trained the weights.
        lm = trained_lm(student, self._job.task_lm) or self._job.task_lm
        job = replace(self._job, student=student.deepcopy(), train=trainset, task_lm=lm)
        try:
            compiled = self._optimizer.run(job)
        except Exception as error:
            # BetterTogether goes on with the results of the steps before, and says nothing.
            self._job.on_failure(error)
            raise
        # Optimizers that reset predictors lose the LM, which BetterTogether needs between steps.
        compiled.set_lm(trained_lm(compiled, lm) or lm)
        return compiled
