"""The document of a run by its name, and the one that sets two runs side by side."""

from __future__ import annotations

import string
from collections.abc import Sequence

from ...errors import UserError
from ..compare import Recorded, compare, recorded
from ..folder import RunFolder
from ..report import heading
from ..results import Evaluation, difference, question
from ..seen import Asked, Entry, Seen
from ..statistics import MIN_N
from .build import run_page
from .keep import read_page
from .page import Page, Shown


def open_page(name: str) -> Page:
    """The page of a run.

    A run of before there were pages has its scores and answers shown, and nothing of what was recalled or asked.

    Args:
        name: The run's folder, the end of the folder's name, its MLflow run id, or `last`.

    Raises:
        UserError: There is no such run, or it has no result yet.
        DataError: Its files are not what a run writes.
    """
    folder = RunFolder.open(name)
    found = read_page(folder.path)
    if found is not None:
        return found
    command = str(folder.read()["settings"].get("command", ""))
    if command not in ("evaluate", "compile"):
        raise UserError(f"run {folder.path.name} has no page; it is a {command or 'run'} of an older version")
    run = recorded(str(folder.path))
    phases = dict(run.phases)
    if command == "compile" and phases["start"] == phases["result"]:
        del phases["result"]
    return run_page(command, run.name, phases)


def side_by_side(runs: Sequence[Recorded], min_n: int = MIN_N) -> Page:
    """One page of several runs, over the questions that all were asked; the first is the baseline.

    Args:
        runs: Finished ones.
        min_n: Below so many questions there is no verdict.

    Raises:
        UserError: There are too many, or they have no question in common.
    """
    if len(runs) > len(string.ascii_uppercase):
        raise UserError(f"{len(runs)} runs are too many for a page; name {len(string.ascii_uppercase)} at most")
    asked = [{question(row) for row in run.evaluation.rows} for run in runs]
    shared = set.intersection(*asked)
    if not shared:
        named = ", ".join(run.name for run in runs)
        raise UserError(f"{named} have no question in common; compare runs on the same data and part")
    letters = string.ascii_uppercase[: len(runs)]
    sides = {}
    for letter, run in zip(letters, runs, strict=True):
        found = _with_seen(run)
        rows = tuple(row for row in found.rows if question(row) in shared)
        sides[letter] = found.model_copy(update={"rows": rows})
    facts = [(letter, f"{run.name}: {heading(run.evaluation)}") for letter, run in zip(letters, runs, strict=True)]
    notes = dict.fromkeys(note for other in runs[1:] for note in compare(runs[0], other).warnings)
    gaps = {letter: difference(sides["A"].counted, sides[letter].counted, min_n) for letter in letters[1:]}
    verdict = "; ".join(f"{letter} against A: {gap}: {gap.verdict}" for letter, gap in gaps.items())
    name = " against ".join(run.name for run in reversed(runs))
    return run_page("compare", name, sides, facts, list(notes), verdict)


def _with_seen(run: Recorded) -> Evaluation:
    """What was compared of a run, its rows with what its page shows of them."""
    page = None if run.folder is None else read_page(run.folder)
    found = run.evaluation
    if page is None:
        return found
    seen = {each.id: _seen(page, dict(each.evidence), each.shown[-1]) for each in page.questions}
    return found.model_copy(
        update={"rows": tuple(row.model_copy(update={"seen": seen.get(row.id)}) for row in found.rows)}
    )


def _seen(page: Page, evidence: dict[str, int], shown: Shown | None) -> Seen | None:
    if shown is None or not shown.kept:
        return None
    entries = (
        Entry(line=page.lines[each.line], kind=each.kind, sources=shown.found if each.gold else ())
        for each in shown.entries
    )
    calls = (
        Asked(
            predictor=call.predictor,
            outcome=call.outcome,
            messages=tuple((role, page.text(lines)) for role, lines in call.messages),
            answer=page.text(call.answer),
            error=call.error,
        )
        for call in shown.calls
    )
    return Seen(
        entries=tuple(entries),
        evidence={turn: page.lines[line] for turn, line in evidence.items()},
        calls=tuple(calls),
        feedback=shown.feedback,
        left_out=shown.left_out,
    )
