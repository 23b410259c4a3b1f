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
        """Run this step's optimizer on a copy of the student.

        BetterTogether passes the other arguments too, but the optimizer takes them from its job.

        Args:
            student: The result of the steps before.
            trainset: The training questions, which BetterTogether shuffles before each step.
            teacher: Not used.
            valset: Not used.
            **kwargs: Not used.
        """
        # An earlier step may have trained the weights: its LM is bound to the student.
        start_lm = trained_lm(student, self._job.task_lm) or self._job.task_lm
        job = replace(self._job, student=student.deepcopy(), train=trainset, task_lm=start_lm)
        try:
            compiled = self._optimizer.run(job)
        except Exception as error:
            # BetterTogether only logs the error, and ends with the best result of the steps before.
            # So it is reported here.
            self._job.on_failure(error)
            raise

        # This step may have trained the weights too. Some optimizers reset predictors, so that no
        # LM is bound to them; BetterTogether needs one to score the result.
        end_lm = trained_lm(compiled, start_lm) or start_lm
        compiled.set_lm(end_lm)
        return compiled
