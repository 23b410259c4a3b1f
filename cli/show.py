"""`mempiler show`, and the summary that commands print at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UnknownNameError, UserError
from ..runs.console import Output
from ..text import one_line
from .options import JSON
from .printing import print_result

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..optimizers.proposals import UnreadableAnswer
    from ..records import Failure
    from ..runs.folder import RunFolder
    from ..runs.pages.page import Page
    from ..runs.pages.questions import Question
    from ..runs.question_trace import QuestionTrace
    from ..runs.rows import Row

_MAX_ANSWER_LENGTH = 400
"""Characters of an unreadable answer that are printed; --json has more."""


@click.command("show")
@click.argument("run", default="last")
@click.option(
    "--wrong",
    is_flag=True,
    help="the questions whose answer is wrong, or that have no support, with what went wrong",
)
@click.option(
    "--failed",
    is_flag=True,
    help="what failed: questions, memory writes, unreadable proposals of the prompt LM; and what "
    "was repaired",
)
@click.option("--category", help="the questions of a category")
@click.option(
    "--question",
    "question_id",
    metavar="ID",
    help="one question: what was recalled, and the prompt",
)
@click.option(
    "--prompts",
    is_flag=True,
    help="of a saved program, or a compile's: all that each predictor is asked with",
)
@click.option(
    "--config",
    "prints_config",
    is_flag=True,
    help="the file that repeats the run, for `--config FILE`",
)
@JSON
def command(
    run: str,
    wrong: bool,
    failed: bool,
    category: str | None,
    question_id: str | None,
    prompts: bool,
    prints_config: bool,
) -> None:
    """Show what came out of a RUN, which questions it got wrong, and why; or a program's prompts.

    RUN is its folder, the end of the folder's name, its MLflow run id, or `last`. The same and more
    is in the page report.html of the run's folder. With --prompts it is a compile, the folder of
    a program, or its address.
    """
    from ..runs.folder import RUN, RunFolder
    from ..runs.pages.html import HTML
    from ..runs.pages.page import open_page
    from ..runs.pages.text import page_lines

    if prompts:
        _show_prompts(run)
        return

    folder = RunFolder.open(run)
    if prints_config:
        _show_config(folder)
        return

    page = open_page(folder)
    if (Path(run) / RUN).is_file():
        # The page prints commands that name the run. A folder elsewhere is not found by its name,
        # so they must name its path.
        page = page.model_copy(update={"name": run})

    if question_id is not None:
        question = _find_question(page, question_id)
        print_result(_question_json(page, question), _question_lines(page, question))
        return

    if wrong or failed or category is not None:
        questions = _select_questions(page, wrong, failed, category)
        result: dict[str, Any] = {
            "run": page.name,
            "questions": [_question_json(page, question) for question in questions],
        }
        lines = _question_list_lines(page, questions)
        if failed:
            result.update(_failures_json(page))
            lines = chain(_failure_lines(page), lines)
        print_result(result, lines)
        return

    html_path = folder.path / HTML
    html_lines = [f"page: {html_path}"] if html_path.is_file() else []
    print_result(page.summary(), chain(page_lines(page), html_lines))


def run_lines(run: str | Path, *more: str) -> Iterator[RenderableType]:
    """Yield the summary of a run that has just ended, further lines, and where its page is."""
    from ..runs.folder import RunFolder
    from ..runs.pages.html import HTML
    from ..runs.pages.page import open_page
    from ..runs.pages.text import page_lines

    folder = RunFolder.open(str(run))
    yield from page_lines(open_page(folder))
    yield from more

    html_path = folder.path / HTML
    # Where the page could not be made, the run is complete without it.
    place = f"page: {html_path}" if html_path.is_file() else "no page could be made of it"
    yield f"{place}; in the terminal: mempiler show {folder.path.name}"


def _show_prompts(name: str) -> None:
    """Print the prompts of a saved program, or of the program that a run made.

    Raises:
        UserError: The run made no program, as an evaluation does not.
    """
    from ..programs.prompts_text import prompts_text
    from ..runs.folder import RUN, RunFolder
    from ..runs.manifest import read_states
    from ..runs.program_address import program_folder

    folder = program_folder(name)
    is_saved_program = folder is not None and not (folder / RUN).is_file()
    if folder is None or not is_saved_program:
        # The name is that of a run: its folder, or the end of the folder's name.
        folder = RunFolder.open(name).saved_program
        if not folder.is_dir():
            raise UserError(
                f"{name}: the run made no program whose prompts could be shown;"
                " give the folder of a program, or `--question ID` for the prompts of one answer"
            )
    Output().print(prompts_text(read_states(folder)), end="")


def _show_config(folder: RunFolder) -> None:
    """Print the file that repeats a run."""
    from ..runs.recorded_config import recorded_toml

    text = recorded_toml(folder)
    print_result({"config": text}, [text.rstrip("\n")])


def _find_question(page: Page, question_id: str) -> Question:
    """Return the question of an id, or of a part of it that only one id contains.

    Raises:
        UserError: There is no such question, or several.
    """
    questions = [question for question in page.questions if question.last.id == question_id]
    if not questions:
        questions = [question for question in page.questions if question_id in question.last.id]
    if len(questions) == 1:
        return questions[0]

    count = f"{len(questions)} questions" if questions else "no question"
    fix = f"`mempiler show {page.name} --wrong` lists ids"
    raise UserError(f"{page.name} has {count} {question_id!r}; {fix}")


def _select_questions(
    page: Page, wrong: bool, failed: bool, category: str | None
) -> list[Question]:
    """Return the questions that meet all conditions.

    Args:
        page: The page of the run.
        wrong: Only those whose last answer is wrong.
        failed: Only those that failed in any phase.
        category: Only those of this category, given by its key or its name.

    Raises:
        UnknownNameError: There is no such category.
    """
    category_key = None if category is None else _category_key(page, category)
    questions: list[Question] = []
    for question in page.questions:
        if category_key is not None and question.last.category != category_key:
            continue
        if failed and not any(row and row.failure for row in question.rows):
            continue
        if wrong and question.last.right:
            continue
        questions.append(question)
    return questions


def _category_key(page: Page, category: str) -> str:
    if category in page.category_names:
        return category
    for key, name in page.category_names.items():
        if name == category:
            return key
    raise UnknownNameError(f"category of {page.name}", category, list(page.category_names.values()))


def _question_json(page: Page, question: Question) -> dict[str, Any]:
    """Return a question as JSON data, with its answers by phase."""
    fields = question.to_dict()
    # One for each phase, in the order of the phases; None where a phase did not ask the question.
    answers = fields.pop("shown")

    answers_by_phase: dict[str, Any] = {}
    for phase, answer in zip(page.phases, answers, strict=True):
        if answer is not None:
            answers_by_phase[phase] = answer
    return {**fields, "phases": answers_by_phase}


def _question_list_lines(page: Page, questions: Sequence[Question]) -> Iterator[str]:
    """Yield some questions with their gold answer and answers, and then their number.

    If the run asked for no answers, what the metric says of a question stands in their place.
    """
    from ..runs.rows import REASONS

    for question in questions:
        # Score and reason are those of the last phase, e.g. of "after" in a compile.
        row = question.last
        category = page.category_names[row.category]
        yield f"{row.id} ({category}) {row.score:.3f}: {REASONS[row.reason]}"
        texts = {"question": row.question, "gold": row.gold, **_answers(page, question)}
        for name, text in texts.items():
            yield f"  {name}: {one_line(text) or '(nothing)'}"

    count = str(len(questions)) if questions else "none"
    yield f"{count} of {len(page.questions)} questions"
    if questions:
        show_command = f"mempiler show {page.name} --question {questions[0].last.id}"
        yield f"{show_command}: one in full, with its prompts"


def _answers(page: Page, question: Question) -> dict[str, str]:
    """Return what came of a question in each phase, by a title for each.

    That is its answer, or why it failed, or what the metric says if it asked for no answer.
    """
    answers: dict[str, str] = {}
    for (phase, evaluation), row in zip(page.phases.items(), question.rows, strict=True):
        if row is not None:
            name = "answer" if evaluation.asks_for_answers else "support"
            title = name if len(page.phases) == 1 else f"{name} {phase}"
            answers[title] = _answer_text(row, evaluation.asks_for_answers)
    return answers


def _answer_text(row: Row, asks_for_answers: bool) -> str:
    if row.failure is not None:
        return f"{row.failure.kind}: {row.failure.message}"
    if asks_for_answers:
        return row.answer
    return "" if row.trace is None else row.trace.feedback


def _failures_json(page: Page) -> dict[str, Any]:
    """Return what `--failed --json` prints beside the questions that failed.

    Returns:
        "faults": how many answers had to be repaired or were cut off, by phase, predictor and kind.
        "writes": the memory writes that failed. "unreadable_proposals": answers of the prompt LM
        that an optimizer could not read, in which it was to propose instructions.
    """
    faults_by_phase: dict[str, dict[str, dict[str, int]]] = {}
    for phase, evaluation in page.phases.items():
        faults_by_phase[phase] = evaluation.faults

    failed_writes: list[dict[str, Any]] = []
    for phase, failure in _failed_writes(page):
        failed_writes.append({"phase": phase, **failure.model_dump()})

    return {
        "faults": faults_by_phase,
        "writes": failed_writes,
        "unreadable_proposals": [asdict(answer) for answer in page.unreadable],
    }


def _failure_lines(page: Page) -> Iterator[str]:
    """Yield what `--failed` prints beside the questions that failed, a line each.

    These are answers that had to be repaired, memory writes that failed, and proposals of the
    prompt LM that could not be read.
    """
    for phase, evaluation in page.phases.items():
        for predictor, counts in evaluation.faults.items():
            faults = ", ".join(f"{count} {kind}" for kind, count in counts.items())
            yield f"{predictor}, {phase}: {faults}"
    for phase, failure in _failed_writes(page):
        yield f"{phase}, writing {failure.where}: {failure.kind}: {failure.message}"
    for answer in page.unreadable:
        yield _unreadable_line(answer)


def _failed_writes(page: Page) -> Iterator[tuple[str, Failure]]:
    """Yield the phase and the failure of every memory write that failed."""
    for phase, evaluation in page.phases.items():
        for failure in evaluation.failed_writes:
            yield phase, failure


def _unreadable_line(answer: UnreadableAnswer) -> str:
    text = one_line(answer.text, _MAX_ANSWER_LENGTH) or "(nothing)"
    return f"prompt LM, unreadable answer to {answer.signature}: {text}"


def _question_lines(page: Page, question: Question) -> Iterator[str]:
    """Yield a question in full: answers, evidence, recalled entries and prompts."""
    from ..runs.rows import REASONS

    row = question.last
    yield row.question
    yield f"{row.id}, score {row.score:.3f}: {REASONS[row.reason]}"
    yield f"gold: {row.gold}"
    for title, answer in _answers(page, question).items():
        yield f"{title}: {answer}"

    trace = row.trace
    if trace is None:
        yield "an older version answered this, and kept nothing of what was recalled and asked"
        return

    # Without answers it stands above in their place.
    if trace.feedback and page.asks_for_answers:
        yield f"the metric says: {trace.feedback}"
    yield from _evidence_lines(trace)
    yield from _recall_lines(trace)
    yield from _call_lines(trace)


def _evidence_lines(trace: QuestionTrace) -> Iterator[str]:
    """Yield the gold evidence that the program did not recall, as far as that is known.

    A program that does not report what it recalled has at least prompts. Then the evidence that
    stood in them is listed, and the evidence that did not.
    """
    unseen_turns = [turn for turn in trace.evidence if turn not in trace.recalled_evidence]
    if trace.is_recall_known:
        yield from _turn_lines("gold evidence that was not recalled", unseen_turns, trace)
        return

    prompted_turns = [turn for turn in trace.evidence if turn in (trace.in_prompts or ())]
    yield from _turn_lines("gold evidence that stood in the prompts", prompted_turns, trace)
    unseen_turns = [turn for turn in unseen_turns if turn not in prompted_turns]
    title = (
        "gold evidence not found in the prompts; the program does not report whether it recalled it"
    )
    yield from _turn_lines(title, unseen_turns, trace)


def _turn_lines(title: str, turn_ids: Sequence[str], trace: QuestionTrace) -> Iterator[str]:
    """Yield turns of the gold evidence below a title; nothing if there are no turns."""
    if not turn_ids:
        return
    yield f"\n{title}:"
    for turn_id in turn_ids:
        # The text of a turn is empty where the history does not have the turn.
        yield f"  {trace.evidence[turn_id] or turn_id}"


def _recall_lines(trace: QuestionTrace) -> Iterator[str]:
    """Yield the recalled entries, with marks before gold evidence and fallbacks.

    The entries are those that the program reports. Where it does not report all that it recalled,
    the title says so.
    """
    title = "recalled" if trace.is_recall_known else "reported as recalled"
    legend = "* gold evidence"
    if any(entry.fallback for entry in trace.entries):
        legend += ", ~ shown because nothing was found"
    yield f"\n{title}, {len(trace.entries)} entries ({legend}):"

    for entry in trace.entries:
        mark = " "
        if trace.is_gold(entry):
            mark = "*"
        elif entry.fallback:
            mark = "~"
        yield f"{mark} {entry.line}"


def _call_lines(trace: QuestionTrace) -> Iterator[str]:
    """Yield the prompt and the answer of every call."""
    for call in trace.calls:
        yield f"\nprompt of {call.predictor} ({call.outcome}):"
        for role, text in call.messages:
            yield f"--- {role}\n{text}"
        yield f"--- answer\n{call.answer}"
