"""`mempiler show`: a run in the terminal, from its scores down to one question with its prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UnknownNameError, UserError, one_line
from .options import JSON
from .overview import page_lines
from .printing import output, report

if TYPE_CHECKING:
    from ..runs.pages.page import Page, Question

_AT_ONCE = 20
"""Questions that are listed without --all."""


@click.command("show")
@click.argument("run", default="last")
@click.option("--wrong", is_flag=True, help="the questions whose answer is wrong, with what went wrong")
@click.option("--failed", is_flag=True, help="the questions and memory writes that failed, and what was mended")
@click.option("--category", help="the questions of a category")
@click.option("--question", "id", metavar="ID", help="one question: what was recalled, and the prompt")
@click.option("--all", "everything", is_flag=True, help=f"list all questions, not the first {_AT_ONCE}")
@click.option("--prompts", is_flag=True, help="of a saved program: what each of its predictors is asked with, whole")
@JSON
def command(run: str, id: str | None, everything: bool, prompts: bool, **chosen: Any) -> None:
    """Show what came out of a RUN, which questions it got wrong, and why; or the prompts of a saved program.

    RUN is its folder, the end of the folder's name, its MLflow run id, or `last`. The same and more is in the page
    report.html of the run's folder. With --prompts it is the folder of a program, or its address.
    """
    from ..runs.folder import RUN, RunFolder
    from ..runs.pages.html import HTML
    from ..runs.pages.page import open_page

    if prompts:
        from ..programs.state import prompts_text
        from ..runs.artifact import read_states

        output().print(prompts_text(read_states(run)), end="")
        return
    page, html = open_page(run), RunFolder.open(run).path / HTML
    # As it can be asked for again: a folder elsewhere has no name here.
    page = page.model_copy(update={"name": run}) if (Path(run) / RUN).is_file() else page
    if id is not None:
        question = _named(page, id)
        report(_plain(page, question), _question_lines(page, question))
    elif any(value not in (False, None) for value in chosen.values()):
        found = _chosen(page, **chosen)
        told: dict[str, Any] = {"run": page.name, "questions": [_plain(page, each) for each in found]}
        told |= _writes_and_faults(page) if chosen["failed"] else {}
        report(told, chain(_failure_lines(told), _listed(page, found, everything or chosen["failed"])))
    else:
        report(page.summary(), chain(page_lines(page), [f"page: {html}"] if html.is_file() else []))


def _chosen(page: Page, wrong: bool, failed: bool, category: str | None) -> list[Question]:
    keys = {name: key for key, name in page.names.items()} | {key: key for key in page.names}
    if category is not None and category not in keys:
        raise UnknownNameError(f"category of {page.name}", category, list(page.names.values()))
    found = [each for each in page.questions if category is None or each.last.category == keys[category]]
    found = [each for each in found if not failed or any(row and row.failure for row in each.rows)]
    return [each for each in found if not wrong or not each.last.right]


def _named(page: Page, id: str) -> Question:
    named = [each for each in page.questions if each.last.id == id]
    found = named or [each for each in page.questions if id in each.last.id]
    if len(found) != 1:
        told = "no question" if not found else f"{len(found)} questions"
        raise UserError(f"{page.name} has {told} {id!r}; `mempiler show {page.name} --all --wrong` lists ids")
    return found[0]


def _listed(page: Page, found: Sequence[Question], everything: bool) -> Iterator[str]:
    from ..runs.rows import REASONS

    shown = found if everything else found[:_AT_ONCE]
    for each in shown:
        row = each.last
        yield f"{row.id} ({page.names[row.category]}) {row.score:.3f}: {REASONS[row.reason]}"
        for name, text in (("question", row.question), ("gold", row.gold), *_answers(page, each)):
            yield f"  {name}: {one_line(text) or '(nothing)'}"
    rest = f", the first {len(shown)} are shown; --all lists them" if len(shown) < len(found) else ""
    yield f"{len(found)} of {len(page.questions)} questions{rest}"
    if found:
        yield f"mempiler show {page.name} --question {found[0].last.id}: what stood behind one"


def _writes_and_faults(page: Page) -> dict[str, Any]:
    """The memory writes that failed, and how often an answer of a predictor had to be mended, or asked for again."""
    faults: dict[str, Counter[str]] = {}
    for found in page.phases.values():
        for predictor, counts in found.faults.items():
            faults.setdefault(predictor, Counter()).update(counts)
    writes = [
        {"phase": phase, **each.model_dump()} for phase, found in page.phases.items() for each in found.failed_writes
    ]
    return {"writes": writes, "faults": faults}


def _failure_lines(told: dict[str, Any]) -> Iterator[str]:
    for predictor, kinds in told.get("faults", {}).items():
        yield f"{predictor}: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"
    for each in told.get("writes", ()):
        yield f"{each['phase']}, writing {each['where']}: {each['kind']}: {each['message']}"


def _answers(page: Page, question: Question) -> Iterator[tuple[str, str]]:
    for phase, row in zip(page.phases, question.rows, strict=True):
        if row is not None:
            name = "answer" if len(page.phases) == 1 else f"answer {phase}"
            yield name, row.answer if row.failure is None else f"{row.failure.kind}: {row.failure.message}"


def _question_lines(page: Page, question: Question) -> Iterator[str]:
    from ..runs.rows import REASONS

    row, seen = question.last, question.last.seen
    yield row.question
    yield f"{row.id}, score {row.score:.3f}: {REASONS[row.reason]}"
    for name, text in [("gold", row.gold), *_answers(page, question)]:
        yield f"{name}: {text}"
    if seen is None:
        yield "an older version answered this, and kept nothing of what was recalled and asked"
        return
    if seen.feedback:
        yield f"the metric says: {seen.feedback}"
    missing = [line or turn for turn, line in question.evidence.items() if turn not in seen.found]
    if missing:
        yield "\ngold evidence that was not recalled:"
        yield from (f"  {line}" for line in missing)
    yield f"\nrecalled, {len(seen.entries)} entries (* gold evidence):"
    yield from (f"{'*' if seen.is_gold(entry) else ' '} {entry.line}" for entry in seen.entries)
    for call in seen.calls:
        yield f"\nprompt of {call.predictor} ({call.outcome}):"
        yield from (f"--- {role}\n{text}" for role, text in call.messages)
        yield f"--- answer\n{call.answer}"


def _plain(page: Page, question: Question) -> dict[str, Any]:
    """A question as JSON, what became of it by phase."""
    found = question.plain()
    shown = zip(page.phases, found.pop("shown"), strict=True)
    return {**found, "phases": {phase: each for phase, each in shown if each is not None}}
