"""What the terminal shows of a run, when it ends and by `mempiler show`: what it rests on, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .printing import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ..runs.pages.page import Category, Measured, Page
    from ..runs.statistics import Difference


def run_lines(run: str | Path, *more: str) -> Iterator[RenderableType]:
    """The page of a run that has just ended, further lines, and where all of it can be looked at."""
    from ..runs.folder import RunFolder
    from ..runs.pages.html import HTML
    from ..runs.pages.page import open_page

    folder = RunFolder.open(str(run))
    html, told = folder.path / HTML, folder.read()
    if html.is_file() or told["settings"].get("command") != "train":  # of others the scores are there without it
        yield from page_lines(open_page(str(folder.path)))
    yield from more
    yield f"MLflow run: {told['run_id']} (mempiler ui)"
    shown = f"page: {html}" if html.is_file() else "no page could be made of it"
    yield f"{shown}; in the terminal: mempiler show {folder.path.name}"


def page_lines(page: Page) -> Iterator[RenderableType]:
    """Facts, scores by category, the verdict, retrieval, and what became of questions and calls."""
    yield f"{page.name}: {page.title}{f' ({page.warning})' if page.warning else ''}"
    yield from (*page.notes, *(f"{name}: {value}" for name, value in page.facts))
    if page.total is not None:
        yield _scores(page, page.total)
        units = {each.unit for each in page.total.scores if each.unit}
        yield f"95 % intervals, resampled by {units.pop()}" if units else "too few questions for an interval"
    for phase, found in page.phases.items():
        yield from _aggregate(f"{phase}, over all answers" if page.phases.keys() - {phase} else "", found.aggregate)
    if page.verdict:
        yield page.verdict
    if page.questions:
        yield _context(page)
        yield _reasons(page)
    for phase, found in page.phases.items():
        for predictor, ended in found.answers.items():
            lost, again = ended.get("lost", 0), ended.get("asked again", 0)
            if lost or again:
                yield f"{predictor}, {phase}: {lost} lost, {again} asked again"
    if any(found.failures or found.write_failures for found in page.phases.values()):
        told = (
            f"{phase}: {found.failures} questions and {found.write_failures} writes failed"
            for phase, found in page.phases.items()
        )
        yield f"{'; '.join(told)}; mempiler show {page.name} --failed"
    wrong = sum(not each.last.right for each in page.questions)
    if wrong and page.command != "compare":
        yield f"mempiler show {page.name} --wrong: these {wrong} questions"


def _scores(page: Page, total: Category) -> Table:
    """Scores with their intervals; of a single evaluation its metrics too, of several the difference."""
    if len(page.phases) > 1:
        rows = [(*_scored(each), _gap(each.difference)) for each in (*page.categories, total)]
        return table(("category", "n", *page.phases, "difference"), rows, section=len(rows) - 1)
    (found,) = page.phases.values()
    summary = found.summary()
    metrics, by = summary["metrics"], summary["by"]
    rows = [
        (*_scored(each), *(_plain(by[each.key].get(name)) for name in metrics), str(by[each.key]["failures"]))
        for each in page.categories
    ]
    rows += [(*_scored(total), *map(_plain, metrics.values()), str(found.failures))]
    return table(("category", "n", *page.phases, *metrics, "failures"), rows, section=len(rows) - 1)


def _scored(found: Category) -> tuple[str, ...]:
    name = found.name if found.counts else f"{found.name} (not in score)"
    return name, str(found.scores[-1].n), *map(_number, found.scores)


def _context(page: Page) -> Table:
    """How much of a question's evidence was recalled, and how long its context and its prompts are."""
    sizes = [(found.context(), found.prompt_tokens) for found in page.phases.values()]
    rows = [(f"evidence recall, {name}", *map(_plain, found)) for name, found in page.retrieval]
    rows += [("entries of the context", *(f"{context['hits']:.1f}" for context, _ in sizes))]
    rows += [("tokens of the context", *(f"{context['tokens']:,.0f}" for context, _ in sizes))]
    rows += [("tokens of all prompts", *("-" if prompt is None else f"{prompt:,.0f}" for _, prompt in sizes))]
    return table(("of a question", *page.phases), rows)


def _reasons(page: Page) -> Table:
    from ..runs.rows import REASONS

    rows = [(REASONS[key], *map(str, counts)) for key, counts in page.reasons.items()]
    return table(("what became of the questions", *page.phases), rows)


def _aggregate(title: str, found: Mapping[str, int | float]) -> Iterator[RenderableType]:
    """The metrics of all answers together: those named "thing METRIC" as a table of things, others on a line."""
    title = title or "over all answers"
    parts = {name: tuple(name.rpartition(" ")[::2]) for name in found}
    tabled = {name: place for name, place in parts.items() if place[0] and place[1].isupper()}
    if tabled:
        metrics = list(dict.fromkeys(metric for _, metric in tabled.values()))
        things = dict.fromkeys(thing for thing, _ in tabled.values())
        rows = [(thing, *(_counted(found.get(f"{thing} {metric}")) for metric in metrics)) for thing in things]
        yield table((title, *metrics), rows)
    words = [f"{name} {_counted(value)}" for name, value in found.items() if name not in tabled]
    if words:
        yield f"{title}: {', '.join(words)}"


def _number(found: Measured) -> str:
    ends = "" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return "-" if found.value is None else f"{found.value:.3f}{ends}"


def _gap(found: Difference) -> str:
    if not found.n:
        return "-"
    ends = "" if found.interval is None else f" [{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
    return f"{found.mean:+.3f}{ends}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _counted(value: float | None) -> str:
    """A number of things as it is, others as scores."""
    return str(value) if isinstance(value, int) else _plain(value)
