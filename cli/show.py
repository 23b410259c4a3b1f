"""`mempiler show`, and the summary that commands print at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UnknownNameError, UserError
from ..text import one_line
from .options import JSON
from .printing import Output, report

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..runs.pages.page import Page
    from ..runs.pages.questions import Question
    from ..runs.question_trace import QuestionTrace


_MOST_SHOWN = 400
"""Characters of an unreadable answer that are printed; --json has more."""


@click.command("show")
@click.argument("run", default="last")
@click.option("--wrong", is_flag=True, help="the questions whose answer is wrong, with what went wrong")
@click.option(
    "--failed",
    is_flag=True,
    help="what failed: questions, memory writes, unreadable proposals of the prompt LM; and what was repaired",
)
@click.option("--category", help="the questions of a category")
@click.option("--question", "id", metavar="ID", help="one question: what was recalled, and the prompt")
@click.option("--prompts", is_flag=True, help="of a saved program, or a run's: all that each predictor is asked with")
@click.option("--config", "as_file", is_flag=True, help="the file that repeats the run, for `--config FILE`")
@JSON
def command(run: str, id: str | None, prompts: bool, as_file: bool, **chosen: Any) -> None:
    """Show what came out of a RUN, which questions it got wrong, and why; or the prompts of a saved program.

    RUN is its folder, the end of the folder's name, its MLflow run id, or `last`. The same and more is in the page
    report.html of the run's folder. With --prompts it may be the folder of a program, or its address, too.
    """
    from ..runs.folder import RUN, RunFolder
    from ..runs.pages.html import HTML
    from ..runs.pages.page import open_page
    from ..runs.pages.text import page_lines

    if prompts:
        from ..programs.prompts_text import prompts_text
        from ..runs.manifest import read_states
        from ..runs.program_address import program_folder

        saved = program_folder(run)
        saved = RunFolder.open(run).saved_program if saved is None or (saved / RUN).is_file() else saved
        Output().print(prompts_text(read_states(saved)), end="")
        return
    folder = RunFolder.open(run)
    if as_file:
        from ..runs.recorded_config import recorded_toml

        text = recorded_toml(folder)
        report({"config": text}, [text.rstrip("\n")])
        return
    page, html = open_page(folder), folder.path / HTML
    # As it can be asked for again: a folder elsewhere has no name here.
    page = page.model_copy(update={"name": run}) if (Path(run) / RUN).is_file() else page
    if id is not None:
        question = _named(page, id)
        report(_plain(page, question), _question_lines(page, question))
    elif any(value not in (False, None) for value in chosen.values()):
        found = _chosen(page, **chosen)
        told: dict[str, Any] = {"run": page.name, "questions": [_plain(page, each) for each in found]}
        if chosen["failed"]:
            told["faults"] = {phase: each.faults for phase, each in page.phases.items()}
            told["writes"] = [
                {"phase": phase, **write.model_dump()}
                for phase, each in page.phases.items()
                for write in each.failed_writes
            ]
            told["unreadable_proposals"] = [asdict(answer) for answer in page.unreadable]
        report(told, chain(_failure_lines(told), _listed(page, found)))
    else:
        report(page.summary(), chain(page_lines(page), [f"page: {html}"] if html.is_file() else []))


def _chosen(page: Page, wrong: bool, failed: bool, category: str | None) -> list[Question]:
    keys = {name: key for key, name in page.category_names.items()} | {key: key for key in page.category_names}
    if category is not None and category not in keys:
        raise UnknownNameError(f"category of {page.name}", category, list(page.category_names.values()))
    found = [each for each in page.questions if category is None or each.last.category == keys[category]]
    found = [each for each in found if not failed or any(row and row.failure for row in each.rows)]
    return [each for each in found if not wrong or not each.last.right]


def _named(page: Page, id: str) -> Question:
    named = [each for each in page.questions if each.last.id == id]
    found = named or [each for each in page.questions if id in each.last.id]
    if len(found) != 1:
        told = "no question" if not found else f"{len(found)} questions"
        raise UserError(f"{page.name} has {told} {id!r}; `mempiler show {page.name} --wrong` lists ids")
    return found[0]


def _listed(page: Page, found: Sequence[Question]) -> Iterator[str]:
    from ..runs.rows import REASONS

    for each in found:
        row = each.last
        yield f"{row.id} ({page.category_names[row.category]}) {row.score:.3f}: {REASONS[row.reason]}"
        for name, text in (("question", row.question), ("gold", row.gold), *_answers(page, each)):
            yield f"  {name}: {one_line(text) or '(nothing)'}"
    yield f"{len(found) or 'none'} of {len(page.questions)} questions"
    if found:
        yield f"mempiler show {page.name} --question {found[0].last.id}: one in full, with its prompts"


def _failure_lines(told: dict[str, Any]) -> Iterator[str]:
    for phase, faults in told.get("faults", {}).items():
        for predictor, kinds in faults.items():
            yield f"{predictor}, {phase}: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}"
    for each in told.get("writes", ()):
        yield f"{each['phase']}, writing {each['where']}: {each['kind']}: {each['message']}"
    for answer in told.get("unreadable_proposals", ()):
        text = one_line(answer["text"], _MOST_SHOWN) or "(nothing)"
        yield f"prompt LM, unreadable answer to {answer['signature']}: {text}"


def _answers(page: Page, question: Question) -> Iterator[tuple[str, str]]:
    for phase, row in zip(page.phases, question.rows, strict=True):
        if row is not None:
            name = "answer" if len(page.phases) == 1 else f"answer {phase}"
            yield name, row.answer if row.failure is None else f"{row.failure.kind}: {row.failure.message}"


def _question_lines(page: Page, question: Question) -> Iterator[str]:
    from ..runs.rows import REASONS

    row, seen = question.last, question.last.trace
    yield row.question
    yield f"{row.id}, score {row.score:.3f}: {REASONS[row.reason]}"
    for name, text in [("gold", row.gold), *_answers(page, question)]:
        yield f"{name}: {text}"
    if seen is None:
        yield "an older version answered this, and kept nothing of what was recalled and asked"
        return
    if seen.feedback:
        yield f"the metric says: {seen.feedback}"
    yield from _evidence_lines(seen)
    recalled = "recalled" if seen.is_recall_known else "reported as recalled"
    marks = "* gold evidence"
    if any(entry.fallback for entry in seen.entries):
        marks += ", ~ shown because nothing was found"
    yield f"\n{recalled}, {len(seen.entries)} entries ({marks}):"
    for entry in seen.entries:
        mark = "*" if seen.is_gold(entry) else "~" if entry.fallback else " "
        yield f"{mark} {entry.line}"
    for call in seen.calls:
        yield f"\nprompt of {call.predictor} ({call.outcome}):"
        yield from (f"--- {role}\n{text}" for role, text in call.messages)
        yield f"--- answer\n{call.answer}"


def _evidence_lines(seen: QuestionTrace) -> Iterator[str]:
    """Yield the gold evidence that was missed; of a program that does not report its recall, what its prompts held."""
    prompted = [turn for turn in seen.evidence if turn in (seen.in_prompts or ())]
    missing = [turn for turn in seen.evidence if turn not in seen.recalled_evidence and turn not in prompted]

    if prompted:
        yield "\ngold evidence that stood in the prompts:"
        yield from (f"  {seen.evidence[turn] or turn}" for turn in prompted)
    if missing and seen.is_recall_known:
        yield "\ngold evidence that was not recalled:"
    elif missing:
        yield "\ngold evidence not found in the prompts; the program does not report whether it recalled it:"
    yield from (f"  {seen.evidence[turn] or turn}" for turn in missing)


def _plain(page: Page, question: Question) -> dict[str, Any]:
    found = question.to_dict()
    shown = zip(page.phases, found.pop("shown"), strict=True)
    return {**found, "phases": {phase: each for phase, each in shown if each is not None}}


def run_lines(run: str | Path, *more: str) -> Iterator[RenderableType]:
    """The page of a run that has just ended, further lines, and where all of it can be looked at."""
    from ..runs.folder import RunFolder
    from ..runs.pages.html import HTML
    from ..runs.pages.page import open_page
    from ..runs.pages.text import page_lines

    folder = RunFolder.open(str(run))
    html = folder.path / HTML
    yield from page_lines(open_page(folder))
    yield from more
    shown = f"page: {html}" if html.is_file() else "no page could be made of it"
    yield f"{shown}; in the terminal: mempiler show {folder.path.name}"
