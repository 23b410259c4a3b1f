"""What an optimizer works on: an `OptimizerJob`.

A job is the work of one optimizer on one program, in memory. A run (`runs.run.Run`) is the larger
whole on disk: it scores the program, gives an optimizer its job, and scores the result.

    program, benchmark, training questions, CompileConfig
        |  plan_job: count and split the questions, check the settings and the requirements
        v
    OptimizerJob
        |  Optimizer.run: call the teleprompter, which is DSPy's word for an optimizer
        v
    compiled copy of the student, perhaps with logs, bound models, candidate programs
        |  clean_program: take over the prompts, leave the rest behind
        v
    MemoryProgram, fit to be saved

`compile_program` in `compile.py` does these steps. Everything up to the job is free of charge:
what is wrong with the questions, the settings or the models is refused before the first paid call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dspy

    from ..engines.metered_lm import MeteredLM
    from ..programs.program import MemoryProgram
    from .frontier import FrontierPoint
    from .metric_views import MetricViews
    from .prompt_rules import PromptRules

MAX_ERRORS = 1_000_000
"""Errors that a teleprompter tolerates: the budget guard decides when to stop."""


def ignore_failure(error: Exception) -> None:
    """Do nothing with the error that ended a step."""


def ignore_note(line: str) -> None:
    """Do nothing with a note."""


def ignore_frontier(points: Sequence[FrontierPoint]) -> None:
    """Do nothing with the candidates of an optimizer."""


def same_category(example: dspy.Example) -> str:
    """Return one category for all questions."""
    return ""


@dataclass(frozen=True)
class OptimizerJob:
    """Everything that an optimizer is run with, besides its own settings."""

    # The program, the questions and the metric.
    student: MemoryProgram
    """The program with its tunable predictors; a copy that the optimizer may change."""
    train: Sequence[dspy.Example]
    """Questions to learn from."""
    val: Sequence[dspy.Example]
    """Questions to choose candidates by; empty for an optimizer without a valset."""
    metric_views: MetricViews
    """The benchmark's metric, in the forms that optimizers need."""

    # The models.
    task_lm: dspy.BaseLM
    """Runs the program."""
    prompt_lm: MeteredLM
    """Writes proposals and reflections."""

    seed: int = 0
    threads: int = 8
    category: Callable[[dspy.Example], str] = same_category
    """Returns the category of a question: labelled demos are spread over the categories."""

    rules: PromptRules | None = None
    """What the prompts of a candidate must not be; None if there are no rules."""
    on_failure: Callable[[Exception], None] = ignore_failure
    """Receives the error that ended one step of several, where the result of the others counts."""
    on_note: Callable[[str], None] = ignore_note
    """Receives what a user should know about the result, in one line."""
    on_frontier: Callable[[Sequence[FrontierPoint]], None] = ignore_frontier
    """Receives the candidates of GEPA, when it has ended."""

    @property
    def predictor_count(self) -> int:
        """How many predictors the optimizer may change."""
        return len(self.student.named_predictors())
