"""The page of a run: everything that people are shown of a finished run.

A page holds the evaluations of the run, one for each *phase*: "score" of an `evaluate`, "before"
and "after" of a `compile`, "A", "B", ... of a comparison. Beside them stand the facts that the
scores rest on, notes that a reader must know, the verdict in words, the prompts with what a compile
changed in them, and the candidates of the optimizer. Tables such as the scores by category are not
stored: the page computes them from the rows of the evaluations.

    evaluations ── run_page ──> Page ── html.save_page ──> report.json.gz   the page as data
                                                      └──> report.html     the page for browsers
    report.json.gz ── open_page ──> Page ──> mempiler show, mempiler compare, print(result)

Example:
    page = run_page("evaluate", "my-run", {"score": evaluation})
    save_page(folder, page)
    open_page(RunFolder(folder)).total.difference
"""

from __future__ import annotations

import difflib
import gzip
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from ...errors import DataError, UserError
from ...optimizers.frontier import FrontierPoint
from ...optimizers.history import Candidate
from ...optimizers.proposals import UnreadableAnswer
from ...programs.program import MemoryProgram
from ...programs.prompts_text import prompts_text
from ...programs.state import PredictorState, dump_predictor
from ...records import Frozen
from ..folder import RunFolder
from ..question_trace import shorten
from ..results import Evaluation, difference
from ..row_metrics import counted_rows, mean
from ..rows import REASONS, SHOWN_RECALL, Reason, Row
from ..statistics import MIN_N, Difference, bootstrap_interval
from .facts import SMOKE_TEST, Fact, usage_facts
from .questions import Question

PAGE_DATA = "report.json.gz"
"""The file with the data of a page, in the folder of a run."""

_MAX_PROMPT_LINE = 1_200
"""Longest line of a prompt that is shown, in characters."""


@dataclass(frozen=True)
class ScoreEstimate:
    """A mean score and its confidence interval."""

    value: float | None
    """None without questions."""
    n: int
    """Number of questions."""
    low: float | None = None
    """None if there are too few questions for an interval."""
    high: float | None = None
    unit: str = ""
    """What was resampled for the interval, "group" or "question"; "" without one."""


@dataclass(frozen=True)
class CategoryScores:
    """The scores of one category, or of all headline questions, in every phase."""

    key: str
    """What the rows call the category; "" for all headline questions."""
    name: str
    in_headline: bool
    """Whether these questions count in the headline score."""
    scores: tuple[ScoreEstimate, ...]
    """One for each phase."""
    differences: tuple[Difference, ...]
    """Each further phase minus the first, paired; with one phase, that phase minus itself."""

    @property
    def difference(self) -> Difference:
        """The last phase minus the first."""
        return self.differences[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return the scores and the last difference as JSON data."""
        return {
            "key": self.key,
            "name": self.name,
            "in_headline": self.in_headline,
            "scores": [asdict(score) for score in self.scores],
            "difference": self.difference.to_dict(),
        }


class RecallFigures(NamedTuple):
    """A figure of evidence recall, such as recall@5, in every phase."""

    name: str
    values: list[float | None]
    """Means from 0 to 1; None for a phase without this figure."""


class PromptChange(BaseModel, frozen=True):
    """The prompt of a predictor, and what was changed in it."""

    predictor: str
    diff: tuple[str, ...] = ()
    """The lines of a unified diff; all lines, each after a blank, if the text did not change."""
    changed: bool = True
    """Whether the state of the predictor differs."""


class Page(Frozen):
    """Everything that is shown of a run."""

    command: str
    """The command of the run, e.g. "compile"."""
    name: str
    """The name of the run's folder."""
    title: str
    warning: str = ""
    notes: tuple[str, ...] = ()
    """What a reader must know beside the scores, e.g. that the run was stopped."""
    verdict: str = ""
    """The difference in words."""
    phases: dict[str, Evaluation] = Field(default_factory=dict)
    """The evaluations by the names of their phases; the others are compared with the first one."""
    facts: tuple[Fact, ...] = ()
    """What the scores rest on: command, data, models, settings, cost."""
    history: tuple[Candidate, ...] = ()
    """The candidates that the optimizer scored."""
    frontier: tuple[FrontierPoint, ...] = ()
    """The candidates of GEPA by score and tokens."""
    unreadable: tuple[UnreadableAnswer, ...] = ()
    """The first answers of the prompt LM that could not be read."""
    changes: tuple[PromptChange, ...] = ()
    """The prompts, and what was changed in them."""
    min_n: int = MIN_N
    """With fewer questions a difference has no verdict."""

    @property
    def asks_for_answers(self) -> bool:
        """Whether any phase answered its questions; if none did, no answer is right or wrong."""
        if not self.phases:
            return True
        return any(evaluation.asks_for_answers for evaluation in self.phases.values())

    @cached_property
    def category_names(self) -> dict[str, str]:
        """The names of all categories by their keys."""
        keys: set[str] = set()
        names: dict[str, str] = {}
        for evaluation in self.phases.values():
            keys.update(row.category for row in evaluation.rows)
            keys.update(evaluation.expected)
            names.update(evaluation.names)
        return {key: names.get(key, key) for key in sorted(keys)}

    @cached_property
    def total(self) -> CategoryScores | None:
        """The headline scores; None for a page without evaluations."""
        if not self.phases:
            return None
        rows_by_phase = [evaluation.headline_rows for evaluation in self.phases.values()]
        return _category_scores("", "score", rows_by_phase, self.min_n)

    @cached_property
    def categories(self) -> list[CategoryScores]:
        """The scores by category; categories that are not in the headline score are among them."""
        categories: list[CategoryScores] = []
        for key, name in self.category_names.items():
            rows_by_phase: list[list[Row]] = []
            for evaluation in self.phases.values():
                rows_by_phase.append([row for row in evaluation.rows if row.category == key])
            categories.append(_category_scores(key, name, rows_by_phase, self.min_n))
        return categories

    @cached_property
    def retrieval(self) -> list[RecallFigures]:
        """The figures of evidence recall, each with a value for every phase.

        A figure that only some phases have is among them.
        """
        recall_by_phase = [evaluation.retrieval() for evaluation in self.phases.values()]
        names: dict[str, None] = {}
        for recall in recall_by_phase:
            names.update(dict.fromkeys(recall))

        figures: list[RecallFigures] = []
        for name in names:
            title = "evidence recall in context" if name == SHOWN_RECALL else name
            figures.append(RecallFigures(title, [recall.get(name) for recall in recall_by_phase]))
        return figures

    @cached_property
    def questions(self) -> list[Question]:
        """All questions, in the order in which the phases asked them."""
        rows_by_phase: list[dict[str, Row]] = []
        ids: dict[str, None] = {}
        for evaluation in self.phases.values():
            rows = {row.id: row for row in evaluation.rows}
            rows_by_phase.append(rows)
            ids.update(dict.fromkeys(rows))

        questions: list[Question] = []
        for question_id in ids:
            question_rows = tuple(rows.get(question_id) for rows in rows_by_phase)
            questions.append(Question(rows=question_rows))
        return questions

    @cached_property
    def reasons(self) -> dict[Reason, list[int]]:
        """How many questions of each phase have each of the `REASONS`, those of none left out."""
        counts_by_phase: list[Counter[str]] = []
        for evaluation in self.phases.values():
            counts_by_phase.append(Counter(row.reason for row in evaluation.rows))

        reasons: dict[Reason, list[int]] = {}
        for reason in REASONS:
            counts = [phase_counts[reason] for phase_counts in counts_by_phase]
            if any(counts):
                reasons[reason] = counts
        return reasons

    def summary(self) -> dict[str, Any]:
        """Return the object that `show --json` prints: the whole page without its questions."""
        total = None if self.total is None else self.total.to_dict()
        calls: dict[str, dict[str, dict[str, int]]] = {}
        faults: dict[str, dict[str, dict[str, int]]] = {}
        for phase, evaluation in self.phases.items():
            calls[phase] = evaluation.call_outcomes
            faults[phase] = evaluation.faults

        return {
            **self.model_dump(mode="json", exclude={"phases"}),
            "phases": list(self.phases),
            "total": total,
            "categories": [category.to_dict() for category in self.categories],
            "retrieval": self.retrieval,
            "calls": calls,
            "faults": faults,
        }


def run_page(
    command: str,
    name: str,
    phases: Mapping[str, Evaluation],
    facts: Sequence[Fact] = (),
    notes: Sequence[str] = (),
    verdict: str = "",
    changes: Sequence[PromptChange] = (),
    candidates: Sequence[Candidate] = (),
    min_n: int = MIN_N,
    unreadable: Sequence[UnreadableAnswer] = (),
    frontier: Sequence[FrontierPoint] = (),
) -> Page:
    """Make the page of evaluations that asked the same questions.

    To what the caller says, it adds the cost of every phase, and notes on phases that broke, that
    were stopped, or whose differences vary from conversation to conversation.

    Args:
        command: The command of the run, e.g. "compile".
        name: The name of the run's folder.
        phases: One evaluation or more.
        facts: Facts that stand before the cost.
        notes: Notes that stand before the others.
        verdict: The difference in words.
        changes: The prompts.
        candidates: The candidates that the optimizer scored.
        min_n: With fewer questions a difference has no verdict.
        unreadable: Answers of the prompt LM that could not be read.
        frontier: The candidates of GEPA by score and tokens.
    """
    last = list(phases.values())[-1]
    page = Page(
        command=command,
        name=name,
        title=f"{last.program} on {last.benchmark}",
        warning="" if last.comparable else SMOKE_TEST,
        verdict=verdict,
        phases=dict(phases),
        facts=(*facts, *usage_facts(phases)),
        history=tuple(candidates),
        frontier=tuple(frontier),
        unreadable=tuple(unreadable),
        changes=tuple(changes),
        min_n=min_n,
    )
    all_notes = (*notes, *_phase_notes(phases), *_difference_notes(page))
    return page.model_copy(update={"notes": all_notes})


def _phase_notes(phases: Mapping[str, Evaluation]) -> list[str]:
    """Return a note for everything that went wrong in an evaluation."""
    notes: list[str] = []
    for phase, evaluation in phases.items():
        subject = "This" if len(phases) == 1 else phase
        if evaluation.broken:
            notes.append(f"{subject} is a broken run: {evaluation.breakage}.")
        if evaluation.stopped:
            reason = evaluation.stopped
            notes.append(f"{subject} was stopped before all questions were asked: {reason}.")
        if evaluation.repeated_id_warning:
            # This is a sentence with a subject of its own.
            notes.append(f"{phase}: {evaluation.repeated_id_warning}.")
    return notes


def _difference_notes(page: Page) -> list[str]:
    """Return warnings on how the scores of further phases differ from those of the first phase."""
    if page.total is None or len(page.phases) < 2:
        return []

    notes: list[str] = []
    # There is a difference for each phase but the first one.
    further_phases = list(page.phases)[1:]
    for phase, phase_difference in zip(further_phases, page.total.differences, strict=True):
        if phase_difference.warning:
            notes.append(f"{phase}: {phase_difference.warning}")
    return notes


def predictor_states(program: MemoryProgram) -> dict[str, PredictorState]:
    """Return what an optimizer can change in a program, by the name of the predictor."""
    predictors = program.all_predictors()
    return {name: dump_predictor(predictor) for name, predictor in predictors.items()}


def prompt_changes(
    before: Mapping[str, PredictorState], after: Mapping[str, PredictorState]
) -> tuple[PromptChange, ...]:
    """Return the prompt of every predictor, with what was changed in it."""
    changes: list[PromptChange] = []
    for name, state in after.items():
        # A predictor that was not there before was not changed either.
        old_state = before.get(name, state)
        old_lines = _prompt_lines(name, old_state)
        lines = _prompt_lines(name, state)
        # The first two lines of a unified diff name two files, but these are no files.
        diff = list(difflib.unified_diff(old_lines, lines, lineterm=""))[2:]
        if not diff:
            diff = [f" {line}" for line in lines]
        is_changed = old_state != state
        changes.append(PromptChange(predictor=name, diff=tuple(diff), changed=is_changed))
    return tuple(changes)


def _prompt_lines(name: str, state: PredictorState) -> list[str]:
    """Return the lines of a predictor's prompt, long ones shortened."""
    lines = prompts_text({name: state}).splitlines()
    return [shorten(line, _MAX_PROMPT_LINE) for line in lines]


def open_page(folder: RunFolder) -> Page:
    """Read the page of a run.

    Raises:
        UserError: The run has no result yet.
        DataError: The file is not the page of a run.
    """
    path = folder.path / PAGE_DATA
    if not path.is_file():
        state = f"has no result yet (status {folder.read().get('status')})"
        raise UserError(
            f"run {folder.path.name} {state}; finish it with its own command and --resume"
        )
    try:
        return Page.model_validate_json(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        raise DataError(f"{path}: is not the page of a run; evaluate again") from error


def _category_scores(
    key: str, name: str, rows_by_phase: Sequence[Sequence[Row]], min_n: int
) -> CategoryScores:
    """Return the scores of a category and the differences to the first phase."""
    all_rows = [row for rows in rows_by_phase for row in rows]
    is_in_headline = not all_rows or any(row.in_headline for row in all_rows)
    rows_by_phase = [counted_rows(rows) for rows in rows_by_phase]
    first = rows_by_phase[0]
    compared = rows_by_phase[1:]
    if not compared:
        # `CategoryScores` has at least one difference. A single phase is compared with itself.
        compared = rows_by_phase
    return CategoryScores(
        key=key,
        name=name,
        in_headline=is_in_headline,
        scores=tuple(_estimate_score(rows) for rows in rows_by_phase),
        differences=tuple(difference(first, rows, min_n) for rows in compared),
    )


def _estimate_score(rows: Sequence[Row]) -> ScoreEstimate:
    """Return the mean score of some rows with its interval."""
    scores = [row.score for row in rows]
    interval = bootstrap_interval(scores, [row.group for row in rows])
    if interval is None:
        return ScoreEstimate(mean(scores), len(scores))
    return ScoreEstimate(mean(scores), len(scores), interval.low, interval.high, interval.unit)
