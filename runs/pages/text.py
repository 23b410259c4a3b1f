"""The page of a run as lines and tables, for terminals and for `print(result)` in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..console import WideTable, spanned, table
from ..rows import REASONS
from ..statistics import Difference
from ..tables import ResultTable
from .page import Category, Page

if TYPE_CHECKING:
    from rich.console import RenderableType


def page_lines(page: Page) -> Iterator[RenderableType]:
    """Facts, scores by category, the verdict, retrieval, and what became of questions and calls."""
    yield f"{page.name}: {page.title}{f' ({page.warning})' if page.warning else ''}"
    yield from (*page.notes, *(f"{name}: {value}" for name, value in page.facts))
    if page.total is not None:
        yield _scores(page, page.total)
        units = {each.unit for each in page.total.scores if each.unit}
        yield f"95 % intervals, resampled by {units.pop()}" if units else "too few questions for an interval"
    for phase, found in page.phases.items():
        if found.aggregate:
            title = f"{phase}, over all answers" if len(page.phases) > 1 else "over all answers"
            yield table((title, ""), [(name, spanned(value)) for name, value in found.aggregate.items()])
    if page.verdict:
        yield page.verdict
    if page.questions:
        yield _context(page)
        rows = [(REASONS[key], *map(str, counts)) for key, counts in page.reasons.items()]
        yield table(("questions", *page.phases), rows)
    for phase, found in page.phases.items():
        for predictor, ended in found.call_outcomes.items():
            lost, again = ended.get("lost", 0), ended.get("retried", 0)
            cut = found.faults.get(predictor, {}).get("cut", 0)
            if lost or again or cut:
                cut_note = f", {cut} answers cut off at the token limit" if cut else ""
                yield f"{predictor}, {phase}: {lost} lost, {again} retried{cut_note}"
    if any(found.failures or found.write_failures for found in page.phases.values()):
        told = (
            f"{phase}: {found.failures} questions and {found.write_failures} writes failed"
            for phase, found in page.phases.items()
        )
        yield f"{'; '.join(told)}; mempiler show {page.name} --failed"
    wrong = sum(not each.last.right for each in page.questions)
    if wrong and page.command != "compare":
        yield f"mempiler show {page.name} --wrong: the wrong answers ({wrong})"


def _scores(page: Page, total: Category) -> WideTable:
    """Scores with their intervals; of a single evaluation its metrics too, of several the difference."""
    if len(page.phases) > 1:
        rows = [(*_scored(each), _gap(each.difference)) for each in (*page.categories, total)]
        return table(("category", "n", *page.phases, "difference"), rows, section=len(rows) - 1)
    (found,) = page.phases.values()
    summary = found.to_dict()
    metrics, by = summary["metrics"], summary["by"]
    rows = [
        (*_scored(each), *(spanned(by[each.key].get(name)) for name in metrics), str(by[each.key]["failures"]))
        for each in page.categories
    ]
    rows += [(*_scored(total), *map(spanned, metrics.values()), str(found.failures))]
    return table(("category", "n", *page.phases, *metrics, "failures"), rows, section=len(rows) - 1)


def _scored(found: Category) -> tuple[str, ...]:
    name = found.name if found.in_headline else f"{found.name} (not in score)"
    return name, str(found.scores[-1].n), *(spanned(each.value, each) for each in found.scores)


def _context(page: Page) -> WideTable:
    """How much of a question's evidence was recalled, and how long its context and its prompts are."""
    sizes = [(found.context(), found.prompt_tokens) for found in page.phases.values()]
    rows = [(name, *map(spanned, found)) for name, found in page.retrieval]
    rows += [("entries of the context", *(f"{context['hits']:.1f}" for context, _ in sizes))]
    rows += [("tokens of the context", *(f"{context['tokens']:,.0f}" for context, _ in sizes))]
    rows += [("tokens of all prompts", *("-" if prompt is None else f"{prompt:,.0f}" for _, prompt in sizes))]
    return table(("per question, mean", *page.phases), rows)


def _gap(found: Difference) -> str:
    return spanned(found.mean if found.n else None, found.interval, "{:+.3f}")


def page_table(page: Page, report: Path | None = None) -> ResultTable:
    """Return the scores by category, the differences, and the verdict of a page that compares evaluations."""
    rows: list[list[str]] = []
    for category in (*page.categories, page.total):
        if category is not None:
            rows.append([*_scored(category), _gap(category.difference)])
    warning = f" ({page.warning})" if page.warning else ""
    notes = [*page.notes, page.verdict] if page.verdict else list(page.notes)
    return ResultTable(f"{page.title}{warning}", ["category", "n", *page.phases, "difference"], rows, notes, report)
