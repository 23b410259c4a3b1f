"""Compare evaluations from Python: each with the first, by paired difference and verdict.

`mempiler.compare` returns a `Comparison`. What it computes is in `compare`, which the command line
uses, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .compare import FinishedRun, compare_runs, comparison_dicts, load_run
from .compile_result import CompileResult
from .console import as_text
from .pages.page import Page
from .pages.text import page_lines, page_table
from .results import Evaluation
from .statistics import MIN_N, Difference

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """Evaluations of the same questions, side by side."""

    runs: tuple[FinishedRun, ...]
    """The compared runs; the first is the baseline."""
    page: Page
    """Their scores by category and question."""

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The paired difference of every other evaluation to the baseline."""
        if self.page.total is None:
            return ()
        return self.page.total.differences

    @property
    def difference(self) -> Difference:
        """The difference of the last evaluation to the baseline; of two, the only one."""
        return self.differences[-1]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What else differs between the runs, such as the model or the metric."""
        return self.page.notes

    def to_dict(self) -> dict[str, Any]:
        """Return what `mempiler compare --json` prints."""
        return {
            "runs": [run.summary() for run in self.runs],
            "comparisons": comparison_dicts(self.page, self.runs),
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each question, with its score in every evaluation.

        The columns of the scores are A for the baseline, B, and so on.
        """
        import pandas as pd

        table_rows: list[dict[str, Any]] = []
        for question in self.page.questions:
            last_row = question.last
            table_row: dict[str, Any] = {
                "id": last_row.id,
                "category": last_row.category,
                "question": last_row.question,
                "gold": last_row.gold,
            }
            for letter, row in zip(self.page.phases, question.rows, strict=True):
                table_row[letter] = None if row is None else row.score
            table_rows.append(table_row)
        return pd.DataFrame(table_rows)

    def __str__(self) -> str:
        return as_text(page_lines(self.page))

    def _repr_html_(self) -> str:
        return page_table(self.page).html()


def compare_evaluations(
    evaluations: Sequence[str | Evaluation | CompileResult], min_n: int = MIN_N
) -> Comparison:
    """Compare two or more evaluations on the questions that all were asked.

    Args:
        evaluations: Evaluations, results of `compile`, or names of runs; the first is the baseline.
        min_n: With fewer questions there is no verdict.

    Raises:
        UserError: One of them is something else, or they have no question in common.
    """
    runs: list[FinishedRun] = []
    for number, evaluation in enumerate(evaluations, 1):
        runs.append(_finished_run(evaluation, number))
    return Comparison(tuple(runs), compare_runs(runs, min_n))


def _finished_run(evaluation: str | Evaluation | CompileResult, number: int) -> FinishedRun:
    """Return an argument of `compare_evaluations` as a run.

    Args:
        evaluation: The argument: an evaluation, the result of a compile, or the name of a run.
        number: Its place among the arguments, counted from 1, for messages.

    Raises:
        UserError: The argument is something else.
    """
    if isinstance(evaluation, str):
        return load_run(evaluation)
    if isinstance(evaluation, CompileResult):
        return load_run(str(evaluation.run))
    if not isinstance(evaluation, Evaluation):
        expected = "expected an evaluation, a result or a run's name"
        raise UserError(f"argument {number} is {type(evaluation).__name__}; {expected}")

    if evaluation.run_id is None:
        # No run made it, so there is no record of its data, metric or judge. The evaluation itself
        # names its benchmark and its LM.
        conditions = {"benchmark": evaluation.benchmark, "lm": evaluation.lm}
        return FinishedRun(f"evaluation {number}", evaluation, conditions)
    # The rows of the argument count, not those in the run's folder: callers may drop some.
    run = load_run(evaluation.run_id)
    return FinishedRun(run.name, evaluation, run.conditions, run.settings)
