"""The page of a run as lines and tables, for terminals and for `print(result)` in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..console import WideTable, format_estimate, table
from ..results import Evaluation
from ..rows import REASONS
from ..statistics import Difference
from ..tables import ResultTable
from .page import CategoryScores, Page

if TYPE_CHECKING:
    from rich.console import RenderableType


def page_lines(page: Page) -> Iterator[RenderableType]:
    """Yield facts, scores, the verdict, retrieval, and what became of questions and calls."""
    warning = f" ({page.warning})" if page.warning else ""
    yield f"{page.name}: {page.title}{warning}"
    yield from page.notes
    for fact in page.facts:
        yield f"{fact.name}: {fact.value}"

    if page.total is not None:
        yield _score_table(page, page.total)
        yield _interval_line(page.total)
    yield from _aggregate_tables(page)
    if page.verdict:
        yield page.verdict

    if page.questions:
        yield _context_table(page)
        yield _reason_table(page)
    yield from _call_lines(page)
    yield from _failure_lines(page)

    wrong_count = sum(not question.last.right for question in page.questions)
    if wrong_count and page.command != "compare":
        wrong = "the wrong answers" if page.asks_for_answers else "the questions without support"
        yield f"mempiler show {page.name} --wrong: {wrong} ({wrong_count})"


def page_table(page: Page, report: Path | None = None) -> ResultTable:
    """Return the scores by category, the differences and the verdict, for a page with two phases.

    Args:
        page: The page of a compile, a training or a comparison.
        report: Its HTML file, to which a notebook links.
    """
    categories = list(page.categories)
    if page.total is not None:
        categories.append(page.total)
    rows: list[list[str]] = []
    for category in categories:
        rows.append([*_score_cells(category), _difference_cell(category.difference)])

    notes = list(page.notes)
    if page.verdict:
        notes.append(page.verdict)
    warning = f" ({page.warning})" if page.warning else ""
    column_names = ["category", "n", *page.phases, "difference"]
    return ResultTable(f"{page.title}{warning}", column_names, rows, notes, report)


def _score_table(page: Page, total: CategoryScores) -> WideTable:
    """Return the table of scores by category, with all questions in the last row.

    Several evaluations stand side by side, with the difference of the last to the first. A single
    one has its further metrics instead.
    """
    if len(page.phases) == 1:
        [evaluation] = page.phases.values()
        return _metric_table(page, total, evaluation)

    rows: list[tuple[str, ...]] = []
    for category in (*page.categories, total):
        rows.append((*_score_cells(category), _difference_cell(category.difference)))
    column_names = ("category", "n", *page.phases, "difference")
    # A line is drawn before the last row.
    return table(column_names, rows, ruled_row=len(rows) - 1)


def _metric_table(page: Page, total: CategoryScores, evaluation: Evaluation) -> WideTable:
    """Return the scores, metrics and failures of the only evaluation of a page."""
    metrics = evaluation.metrics()
    metrics_by_category = evaluation.by_category()

    rows: list[tuple[str, ...]] = []
    for category in page.categories:
        values = metrics_by_category[category.key]
        category_cells = [format_estimate(values.get(name)) for name in metrics]
        rows.append((*_score_cells(category), *category_cells, str(values["failures"])))
    total_cells = [format_estimate(value) for value in metrics.values()]
    rows.append((*_score_cells(total), *total_cells, str(evaluation.failures)))

    [phase] = page.phases
    column_names = ("category", "n", phase, *metrics, "failures")
    # A line is drawn before the row of all questions.
    return table(column_names, rows, ruled_row=len(rows) - 1)


def _score_cells(category: CategoryScores) -> list[str]:
    """Return the cells of a category: name, number of questions, and the score of every phase."""
    name = category.name if category.in_headline else f"{category.name} (not in score)"
    question_count = str(category.scores[-1].n)
    scores = [format_estimate(score.value, score) for score in category.scores]
    return [name, question_count, *scores]


def _difference_cell(difference: Difference) -> str:
    """Return a difference with its interval; a dash without questions."""
    mean = difference.mean if difference.n else None
    return format_estimate(mean, difference.interval, "{:+.3f}")


def _interval_line(total: CategoryScores) -> str:
    """Return a line on the intervals of the scores: which units they were resampled by."""
    units = {score.unit for score in total.scores if score.unit}
    if not units:
        return "too few questions for an interval"
    return f"95 % intervals, resampled by {units.pop()}"


def _aggregate_tables(page: Page) -> Iterator[WideTable]:
    """Yield a table for each evaluation with metrics of all questions together, e.g. macro-F1."""
    for phase, evaluation in page.phases.items():
        if not evaluation.aggregate:
            continue

        title = "over all answers" if evaluation.asks_for_answers else "over all questions"
        has_several_phases = len(page.phases) > 1
        if has_several_phases:
            title = f"{phase}, {title}"

        rows = [(name, format_estimate(value)) for name, value in evaluation.aggregate.items()]
        yield table((title, ""), rows)


def _context_table(page: Page) -> WideTable:
    """Return a table of means over the questions: recall of evidence, and lengths of what was read.

    It has a column for each phase.
    """
    rows: list[tuple[str, ...]] = []
    for figures in page.retrieval:
        rows.append((figures.name, *(format_estimate(value) for value in figures.values)))

    entry_cells: list[str] = []
    context_cells: list[str] = []
    prompt_cells: list[str] = []
    for evaluation in page.phases.values():
        context = evaluation.context()
        entry_cells.append(f"{context['hits']:.1f}")
        context_cells.append(f"{context['tokens']:,.0f}")
        prompt_tokens = evaluation.prompt_tokens
        prompt_cells.append("-" if prompt_tokens is None else f"{prompt_tokens:,.0f}")
    rows.append(("entries of the context", *entry_cells))
    rows.append(("tokens of the context", *context_cells))
    rows.append(("tokens of all prompts", *prompt_cells))
    return table(("per question, mean", *page.phases), rows)


def _reason_table(page: Page) -> WideTable:
    """Return how many questions were right, and why the others were not."""
    rows: list[tuple[str, ...]] = []
    for reason, counts in page.reasons.items():
        rows.append((REASONS[reason], *(str(count) for count in counts)))
    return table(("questions", *page.phases), rows)


def _call_lines(page: Page) -> Iterator[str]:
    """Yield a line for every predictor some of whose answers were lost, asked again or cut off."""
    for phase, evaluation in page.phases.items():
        for predictor, outcomes in evaluation.call_outcomes.items():
            lost = outcomes.get("lost", 0)
            retried = outcomes.get("retried", 0)
            cut = evaluation.faults.get(predictor, {}).get("cut", 0)
            if not lost and not retried and not cut:
                continue
            line = f"{predictor}, {phase}: {lost} lost, {retried} retried"
            if cut:
                line += f", {cut} answers cut off at the token limit"
            yield line


def _failure_lines(page: Page) -> Iterator[str]:
    """Yield one line on failed questions and writes, if there are any."""
    has_failures = False
    counts: list[str] = []
    for phase, evaluation in page.phases.items():
        questions = evaluation.failures
        writes = evaluation.write_failures
        counts.append(f"{phase}: {questions} questions and {writes} writes failed")
        has_failures = has_failures or questions > 0 or writes > 0
    if has_failures:
        yield f"{'; '.join(counts)}; mempiler show {page.name} --failed"
