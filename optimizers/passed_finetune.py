"""DSPy's BootstrapFinetune, which learns from answers that passed."""

from __future__ import annotations

import random
from typing import Any

import dspy
from dspy.clients.utils_finetune import infer_data_format
from dspy.teleprompt.bootstrap_finetune import build_call_data_from_trace
from dspy.teleprompt.bootstrap_trace import bootstrap_trace_data


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
        # The score is a bool of `passed`, -1 for an unreadable completion, or None.
        passed = [run for run in runs if (run["score"] or 0) > 0]

        predictors = student.predictors()
        # All predictors have the same one.
        lm = predictors[0].lm
        adapter = self.adapter[lm] or dspy.settings.adapter or dspy.ChatAdapter()
        # A model is trained for the calls at each position of a run. With `multitask` one model
        # learns all calls: None stands for all positions.
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

        for position, predictor in enumerate(predictors):
            if self.multitask:
                predictor.lm = trained_lms[None]
            else:
                predictor.lm = trained_lms[position]
            if self.exclude_demos:
                # The model learned its calls without demos, so it is asked without them.
                predictor.demos = []
        return student

    def _train_data(
        self, runs: list[Any], position: int | None, adapter: dspy.Adapter
    ) -> list[dict[str, Any]]:
        """Return calls of the runs as training data, in shuffled order.

        Args:
            runs: What `bootstrap_trace_data` returned; the trace of a run has its calls in order.
            position: Which call of each run is returned; None for all calls.
            adapter: Renders the calls.
        """
        calls: list[dict[str, Any]] = []
        for run in runs:
            trace = run["trace"]
            for call_position in range(len(trace)):
                if position is None or call_position == position:
                    call = build_call_data_from_trace(
                        trace, call_position, adapter, self.exclude_demos
                    )
                    calls.append(call)

        # With a fixed seed, the same runs always make the same training data.
        random.Random(0).shuffle(calls)
        return calls
