"""Compare evaluations from Python: the paired difference of each to the first, with interval and verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .compare import FinishedRun, compare, comparisons, load_run
from .compile import CompileResult
from .console import as_text
from .pages.page import Page
from .pages.text import page_lines, page_table
from .results import Evaluation
from .statistics import MIN_N, Difference

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """Evaluations of the same questions beside one another."""

    runs: tuple[FinishedRun, ...]
    """The baseline first."""
    page: Page
    """Their scores by category and question."""

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The paired difference of each further evaluation to the baseline."""
        return tuple(self.page.total.differences) if self.page.total else ()

    @property
    def difference(self) -> Difference:
        """The difference of the last evaluation to the baseline, where there are just two."""
        return self.differences[-1]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What else differs between the runs, such as the model or the metric."""
        return self.page.notes

    def to_dict(self) -> dict[str, Any]:
        """Return what `mempiler compare --json` prints."""
        return {"runs": [run.usage() for run in self.runs], "comparisons": comparisons(self.page, self.runs)}

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each question, with its score in every evaluation (A is the baseline)."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for question in self.page.questions:
            row = question.last
            scores = {
                letter: None if shown is None else shown.score
                for letter, shown in zip(self.page.phases, question.rows, strict=True)
            }
            rows.append({"id": row.id, "category": row.category, "question": row.question, "gold": row.gold, **scores})
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        return as_text(page_lines(self.page))

    def _repr_html_(self) -> str:
        return page_table(self.page).html()


def compare_evaluations(given: Sequence[str | Evaluation | CompileResult], min_n: int = MIN_N) -> Comparison:
    """Compare two or more evaluations, results or runs on the questions that all were asked.

    Raises:
        UserError: One of them is something else, or they have no question in common.
    """
    runs = [_recorded(one, number) for number, one in enumerate(given, 1)]
    return Comparison(tuple(runs), compare(runs, min_n))


def _recorded(given: str | Evaluation | CompileResult, number: int) -> FinishedRun:
    if isinstance(given, str):
        return load_run(given)
    if isinstance(given, CompileResult):
        return load_run(str(given.run))
    if not isinstance(given, Evaluation):
        raise UserError(
            f"argument {number} is {type(given).__name__}; expected an evaluation, a result or a run's name"
        )
    if given.run_id is None:
        # One that was made by hand: nothing is known beside its rows.
        return FinishedRun(f"evaluation {number}", given, {"benchmark": given.benchmark, "lm": given.lm})
    # The rows in hand count, not those of the folder: a caller may have left some out.
    found = load_run(given.run_id)
    return FinishedRun(found.name, given, found.basis, found.settings)
