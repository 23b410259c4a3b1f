"""`mempiler show`: a run in the terminal, from its scores down to one question with its prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UnknownNameError, UserError
from .failed import show_failed
from .options import JSON
from .overview import print_page
from .printing import output, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from ..runs.pages.page import Page, Question

_AT_ONCE = 20
"""Questions that are listed without --all."""


@click.command("show")
@click.argument("run", default="last")
@click.option("--wrong", is_flag=True, help="the questions whose answer is wrong, with what went wrong")
@click.option("--failed", is_flag=True, help="the questions and memory writes that failed, by kind, and of what")
@click.option("--category", help="the questions of a category")
@click.option("--question", "id", metavar="ID", help="one question: what was recalled, and the prompt")
@click.option("--all", "everything", is_flag=True, help=f"list all questions, not the first {_AT_ONCE}")
@click.option("--prompts", is_flag=True, help="of a saved program: what each of its predictors is asked with, whole")
@JSON
def command(
    run: str,
    wrong: bool,
    failed: bool,
    category: str | None,
    id: str | None,
    everything: bool,
    prompts: bool,
    as_json: bool,
) -> None:
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

        output().print(prompts_text(read_states(run)), soft_wrap=True, end="")
        return
    if failed and (wrong or category is not None or id is not None):
        raise UserError("--failed lists what failed, and takes no other choice; give one of them")
    page = open_page(run)
    console = output()
    path = RunFolder.open(run).path
    # As it can be asked for again: a folder elsewhere has no name here.
    page = page.model_copy(update={"name": run}) if (Path(run) / RUN).is_file() else page
    if failed:
        show_failed(page, as_json)
        return
    if id is not None:
        _show_question(console, page, _named(page, id), as_json)
        return
    listed = wrong or category is not None
    found = _chosen(page, wrong, category)
    if as_json:
        asked = {"run": page.name, "questions": [_plain(page, each) for each in found]}
        print_json(asked if listed else page.summary())
        return
    if listed:
        _list(console, page, found, everything)
        return
    print_page(console, page)
    if (path / HTML).is_file():
        console.print(f"page: {path / HTML}", soft_wrap=True)


def _chosen(page: Page, wrong: bool, category: str | None) -> list[Question]:
    keys = {name: key for key, name in page.names.items()} | {key: key for key in page.names}
    if category is not None and category not in keys:
        raise UnknownNameError(f"category of {page.name}", category, list(page.names.values()))
    found = [each for each in page.questions if category is None or each.last.category == keys[category]]
    return [each for each in found if not wrong or not each.last.right]


def _named(page: Page, id: str) -> Question:
    named = [each for each in page.questions if each.last.id == id]
    found = named or [each for each in page.questions if id in each.last.id]
    if len(found) != 1:
        told = "no question" if not found else f"{len(found)} questions"
        raise UserError(f"{page.name} has {told} {id!r}; `mempiler show {page.name} --all --wrong` lists ids")
    return found[0]


def _list(console: Console, page: Page, found: Sequence[Question], everything: bool) -> None:
    from ..runs.rows import REASONS

    shown = found if everything else found[:_AT_ONCE]
    for each in shown:
        row = each.last
        head = f"{row.id} ({page.names[row.category]}) {row.score:.3f}: {REASONS[row.reason]}"
        console.print(head, style="bold", soft_wrap=True)
        told = [("question", row.question), ("gold", row.gold), *_answers(page, each)]
        for name, text in told:
            console.print(f"  {name}: {_flat(text)}", soft_wrap=True)
    rest = f", the first {len(shown)} are shown; --all lists them" if len(shown) < len(found) else ""
    console.print(f"{len(found)} of {len(page.questions)} questions{rest}", soft_wrap=True)
    if found:
        console.print(f"mempiler show {page.name} --question {found[0].last.id}: what stood behind one", soft_wrap=True)


def _answers(page: Page, question: Question) -> Iterable[tuple[str, str]]:
    for phase, row in zip(page.phases, question.rows, strict=True):
        if row is not None:
            name = "answer" if len(page.phases) == 1 else f"answer {phase}"
            yield name, row.answer if row.failure is None else f"{row.failure.kind}: {row.failure.message}"


def _show_question(console: Console, page: Page, question: Question, as_json: bool) -> None:
    if as_json:
        print_json(_plain(page, question))
        return
    from ..runs.rows import REASONS

    row, seen = question.last, question.last.seen
    console.print(row.question, style="bold", soft_wrap=True)
    console.print(f"{row.id}, score {row.score:.3f}: {REASONS[row.reason]}", soft_wrap=True)
    for name, text in [("gold", row.gold), *_answers(page, question)]:
        console.print(f"{name}: {text}", soft_wrap=True)
    if seen is None:
        console.print("an older version answered this, and kept nothing of what was recalled and asked", soft_wrap=True)
        return
    if seen.feedback:
        console.print(f"the metric says: {seen.feedback}", soft_wrap=True)
    missing = [line or turn for turn, line in question.evidence.items() if turn not in seen.found]
    if missing:
        console.print("\ngold evidence that was not recalled:")
        for line in missing:
            console.print(f"  {line}", soft_wrap=True)
    console.print(f"\nrecalled, {len(seen.entries)} entries (* gold evidence):")
    for entry in seen.entries:
        console.print(f"{'*' if seen.is_gold(entry) else ' '} {entry.line}", soft_wrap=True)
    for call in seen.calls:
        console.print(f"\nprompt of {call.predictor} ({call.outcome}):", style="bold", soft_wrap=True)
        for role, text in call.messages:
            console.print(f"--- {role}\n{text}", soft_wrap=True)
        console.print(f"--- answer\n{call.answer}", soft_wrap=True)


def _plain(page: Page, question: Question) -> dict[str, Any]:
    """A question as JSON, what became of it by phase."""
    found = question.plain()
    shown = zip(page.phases, found.pop("shown"), strict=True)
    return {**found, "phases": {phase: each for phase, each in shown if each is not None}}


def _flat(text: str) -> str:
    return " ".join(text.split()) or "(nothing)"
