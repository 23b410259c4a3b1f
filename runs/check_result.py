"""The result of a check: a table of programs and models, and whether the check passes.

    check = mempiler.check("my-program", against="models:/memory@prod", benchmark="jsonl", ...)
    check.passed
    print(check)

One row is the *reference*: the program in use with the model in use. All other rows are compared
with it, question by question. Rows of the checked program are *decisive*: the check fails if one of
them is worse than the reference, has too few questions to tell, or is below a floor. Other rows
only inform.

A *figure* is a number that an evaluation measures, such as the score or the recall. A *floor* is a
minimum that the user sets for a figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from .check_files import JUnitCase, junit_text, markdown_text
from .console import as_text, format_estimate, table
from .detectable_difference import POWER, detectable_difference
from .floors import FloorResult, check_floors
from .pages.facts import SMOKE_TEST
from .results import Evaluation, pair_rows
from .statistics import MIN_N, Difference, bootstrap_interval, compare_paired_scores
from .tables import ResultTable

COLUMN_NAMES = ("program", "LM", "n", "score", "difference", "verdict", "detectable loss")
"""The columns of the table of a check."""


@dataclass(frozen=True)
class CheckRow:
    """A program with a language model, compared with the reference."""

    program: str
    """The name or the address of the program."""
    lm: str
    evaluation: Evaluation
    is_decisive: bool = False
    """Whether the row is of the checked program, so that it can make the check fail."""
    difference: Difference | None = None
    """The score of this row minus that of the reference; None for the reference itself."""
    detectable_loss: float | None = None
    """How large a loss must be for these questions to detect it in 90 % of the cases.

    In points of the score. It says how far a verdict other than "worse" can be trusted. None for
    the reference, and if not even the loss of all points would be detected.
    """
    floors: tuple[FloorResult, ...] = ()
    """The floors of the program, and whether it keeps them."""

    @property
    def name(self) -> str:
        """The program and its model, as sentences and JUnit name the row."""
        return f"{self.program} with {self.lm}"

    @property
    def is_reference(self) -> bool:
        """Whether the other rows are compared with this one."""
        return self.difference is None

    @property
    def is_broken(self) -> bool:
        """Whether so much failed that the score says little about the program."""
        return self.evaluation.broken

    @property
    def verdict(self) -> str:
        """What the comparison says, in a few words."""
        if self.difference is None:
            return "reference"
        if self.is_broken:
            return "broken"
        return self.difference.verdict

    @property
    def comparison_problem(self) -> str | None:
        """Why the comparison makes the check fail, in one line; None if it does not.

        The line begins with "worse", "too few to tell" or "broken run". Too few questions are a
        problem because a check that can never find anything worse would always pass.
        """
        if self.is_broken:
            return f"broken run: {self.evaluation.breakage}"
        if self.difference is None:
            return None
        verdict = self.difference.verdict
        if verdict not in ("worse", "too few to tell"):
            return None
        return f"{verdict}: {self.difference} (scope: {self.difference.scope})"

    @property
    def missed_floors(self) -> tuple[FloorResult, ...]:
        """The floors that the row is below."""
        return tuple(floor for floor in self.floors if not floor.is_met)

    @property
    def problems(self) -> list[str]:
        """Why the row makes the check fail, a line each; none if it does not."""
        problems: list[str] = []
        if self.comparison_problem is not None:
            problems.append(self.comparison_problem)
        problems.extend(str(floor) for floor in self.missed_floors)
        return problems

    def cells(self) -> list[str]:
        """Return the cells of the row, in the order of `COLUMN_NAMES`."""
        difference_cell = "-"
        if self.difference is not None and self.difference.n:
            difference_cell = format_estimate(
                self.difference.mean, self.difference.interval, "{:+.3f}"
            )
        # The questions that count for the score.
        headline_rows = self.evaluation.headline_rows
        scores = [row.score for row in headline_rows]
        groups = [row.group for row in headline_rows]
        score_interval = bootstrap_interval(scores, groups)
        return [
            self.program,
            self.lm,
            str(self.evaluation.n),
            format_estimate(self.evaluation.score, score_interval),
            difference_cell,
            self.verdict,
            format_estimate(self.detectable_loss),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON data."""
        return {
            "program": self.program,
            "lm": self.lm,
            "decisive": self.is_decisive,
            "n": self.evaluation.n,
            "score": self.evaluation.score,
            "verdict": self.verdict,
            "difference": None if self.difference is None else self.difference.to_dict(),
            "detectable_loss": self.detectable_loss,
            "floors": [floor.to_dict() for floor in self.floors],
            "problems": self.problems if self.is_decisive else [],
            "failures": self.evaluation.failures,
            "cost": self.evaluation.metered_usage["cost"],
            "calls": self.evaluation.metered_usage["calls"],
            "run_id": self.evaluation.run_id,
        }


def compare_with_reference(
    row: CheckRow,
    reference: Evaluation,
    floors: Mapping[str, float] | None = None,
    min_n: int = MIN_N,
) -> CheckRow:
    """Return a row of the table, completed by its comparison with the reference and its floors.

    Args:
        row: A program with a model, which is compared with nothing yet.
        reference: The evaluation of the reference, on the same questions.
        floors: Minimums by the name of the figure, such as {"score": 0.8}; none if None.
        min_n: With fewer questions there is no verdict.

    Raises:
        UnknownNameError: The evaluation has no figure that a floor names.
    """
    # Compared are the questions that count for the score and are in both evaluations.
    pairs = pair_rows(reference.headline_rows, row.evaluation.headline_rows)
    own_scores = [pair.after.score for pair in pairs]
    reference_scores = [pair.before.score for pair in pairs]
    groups = [pair.before.group for pair in pairs]

    # How much better or worse the program is, and how small a loss would have been noticed.
    score_difference = compare_paired_scores(own_scores, reference_scores, groups, min_n=min_n)
    detectable_loss = None
    if len(pairs) >= min_n:
        detectable_loss = detectable_difference(own_scores, reference_scores, groups)

    # Figures of a broken evaluation say little about the program, and some may be missing.
    floor_results: tuple[FloorResult, ...] = ()
    if not row.is_broken:
        floor_results = check_floors(row.evaluation, floors or {})

    return replace(
        row,
        difference=score_difference,
        detectable_loss=detectable_loss,
        floors=floor_results,
    )


@dataclass(frozen=True)
class Check:
    """Whether a program may replace the one in use, and with which models."""

    benchmark: str
    """The name of the benchmark that asked the questions."""
    rows: tuple[CheckRow, ...]
    """The reference, and then every other program with every model."""
    notes: tuple[str, ...] = ()
    """What a reader has to know beside the figures, a line each."""
    run: Path | None = None
    """The folder of the run."""
    run_id: str | None = None
    """The id of the run: that of its MLflow run, unless `tracking` was "off"."""

    @property
    def reference(self) -> CheckRow:
        """The row that all others are compared with."""
        return self.rows[0]

    @property
    def decisive_rows(self) -> tuple[CheckRow, ...]:
        """The rows of the program that is checked."""
        return tuple(row for row in self.rows if row.is_decisive)

    @property
    def passed(self) -> bool:
        """Whether no row of the checked program has a problem."""
        return not any(row.problems for row in self.decisive_rows)

    @property
    def broken_rows(self) -> tuple[CheckRow, ...]:
        """The rows of the checked program in which too much failed for a verdict."""
        return tuple(row for row in self.decisive_rows if row.is_broken)

    @property
    def title(self) -> str:
        """What was checked, and the outcome, on one line."""
        outcome = "passed" if self.passed else "failed"
        program = self.decisive_rows[0].program
        smoke_test = "" if self.reference.evaluation.comparable else f" ({SMOKE_TEST})"
        return (
            f"check {outcome}: {program} against {self.reference.program}"
            f" on {self.benchmark}{smoke_test}"
        )

    @cached_property
    def sentences(self) -> list[str]:
        """What the table means, a line each: what failed first, then what could be detected."""
        sentences: list[str] = []
        for row in self.decisive_rows:
            sentences.extend(_outcome_sentences(row))
        for row in self.decisive_rows:
            sentences.append(f"{row.name}: {_detectable_loss_sentence(row)}")
            if row.difference is not None and row.difference.warning is not None:
                sentences.append(row.difference.warning)
        sentences.extend(self.notes)
        return sentences

    def lines(self) -> Iterator[RenderableType]:
        """Yield the lines and the table that the command line prints."""
        yield self.title
        yield table(COLUMN_NAMES, [row.cells() for row in self.rows])
        yield from self.sentences

    def __str__(self) -> str:
        return as_text(self.lines())

    def _repr_html_(self) -> str:
        rows = [row.cells() for row in self.rows]
        return ResultTable(self.title, COLUMN_NAMES, rows, self.sentences).html()

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `mempiler check --json` prints."""
        return {
            "passed": self.passed,
            "benchmark": self.benchmark,
            "comparable": self.reference.evaluation.comparable,
            "power": POWER,
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
            "run": None if self.run is None else str(self.run),
            "run_id": self.run_id,
        }

    def to_markdown(self) -> str:
        """Return the result as Markdown, for the summary of a CI job."""
        rows = [row.cells() for row in self.rows]
        return markdown_text(self.title, COLUMN_NAMES, rows, self.sentences)

    def to_junit(self) -> str:
        """Return the result as JUnit XML: one test for each comparison and each floor."""
        cases: list[JUnitCase] = []
        for row in self.decisive_rows:
            cases.extend(_junit_cases(row, self.reference.program))
        return junit_text(cases)


def _outcome_sentences(row: CheckRow) -> list[str]:
    """Return a line for each problem of a row, and for each floor that it is not below."""
    sentences = [f"failed: {row.name}: {problem}" for problem in row.problems]
    met_floors = [floor for floor in row.floors if floor.is_met]
    sentences.extend(f"passed: {row.name}: {floor}" for floor in met_floors)
    return sentences


def _detectable_loss_sentence(row: CheckRow) -> str:
    """Return how large a loss must be for the questions of a row to detect it."""
    difference = row.difference
    question_count = 0 if difference is None else difference.n
    if row.detectable_loss is None:
        return f"{question_count} questions cannot detect even the loss of all points; ask more"
    return (
        f"the smallest loss that these {question_count} questions detect in {POWER:.0%} of the"
        f" cases is {row.detectable_loss:.3f}; a smaller one may go unnoticed"
    )


def _junit_cases(row: CheckRow, reference_program: str) -> Iterator[JUnitCase]:
    """Yield a test for the comparison of a row, and one for each of its floors."""
    comparison_name = f"not worse than {reference_program}"
    if row.is_broken:
        yield JUnitCase(row.name, comparison_name, error=row.comparison_problem)
        return

    yield JUnitCase(row.name, comparison_name, failure=row.comparison_problem)
    for floor in row.floors:
        failure = None if floor.is_met else str(floor)
        yield JUnitCase(row.name, f"{floor.name} of at least {floor.floor:g}", failure)
