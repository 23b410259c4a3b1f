"""The contract of one compile: an `OptimizerJob`, from which an optimizer makes a program.

    program, benchmark, training questions, CompileConfig
        |  plan_job: count and split the questions, check the settings and the optimizer's needs
        v
    OptimizerJob
        |  Optimizer.run: one function of `runners` calls the teleprompter of DSPy
        v
    compiled copy of the student, perhaps with logs, bound models, candidate programs
        |  clean_program: take over the prompts, leave the rest behind
        v
    MemoryProgram, fit to be saved

`compile_program` in `compile.py` goes this way. Everything up to the job is free of charge: what is
wrong with the questions, the settings or the models is refused before the first paid call.

An optimizer is a function from a job to a compiled student:

    def run_longest_answers(job: OptimizerJob) -> MemoryProgram:
        demos = sorted(job.train, key=lambda example: -len(example.answer))
        for predictor in job.student.predictors():
            predictor.demos = demos[:4]
        return job.student

It may change the student, which is a copy. It scores answers by a view of `job.metric_views` and
asks models through DSPy, under the language model of the context. It reports an error that ended a
part of its work to `job.on_failure`, and what a user should know to `job.on_note`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from ..engines.metered_lm import MeteredLM
from ..programs.program import MemoryProgram
from .metric_views import MetricViews

MAX_ERRORS = 1_000_000
"""Errors an optimizer tolerates: the budget guard decides when to stop, not a count of errors."""


def ignore_failure(error: Exception) -> None:
    """Do nothing: nobody wants to know what ended a step."""


def ignore_note(line: str) -> None:
    """Do nothing: nobody reads the notes."""


def same_category(example: dspy.Example) -> str:
    """Return one category for all questions."""
    return ""


@dataclass(frozen=True)
class OptimizerJob:
    """Everything that an optimizer is run with."""

    # What is tuned, on what, by which measure.
    student: MemoryProgram
    """The program with its tunable predictors; a copy that the optimizer may change."""
    train: Sequence[dspy.Example]
    """Examples to learn from; all of them for an optimizer without a valset."""
    val: Sequence[dspy.Example]
    """Examples to choose candidates by; empty for an optimizer without a valset."""
    metric_views: MetricViews
    """The benchmark's metric, in the forms that optimizers need."""

    # The models.
    task_lm: dspy.BaseLM
    """Runs the program."""
    prompt_lm: MeteredLM
    """Writes proposals and reflections."""

    # How the optimizer works.
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All settings of the optimizer by name, defaults included."""
    seed: int = 0
    threads: int = 8
    category: Callable[[dspy.Example], str] = same_category
    """Returns the category of a question: labelled demos are spread over the categories."""

    # Whom it tells.
    on_failure: Callable[[Exception], None] = ignore_failure
    """Receives the error that ended one step of several, where the other steps go on."""
    on_note: Callable[[str], None] = ignore_note
    """Receives what a user should know about the result, in one line."""
