"""The page of a run: its evaluations with what stood behind every answer, and the tables that a reader sees of them.

evaluations, run.json, prompts ── run_page ──> Page ── html ──> report.html
── JSON ──> report.json.gz ── `show`, `compare --page`
"""

from __future__ import annotations

import gzip
import string
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ...errors import DataError, UserError
from ...optimizers.history import Candidate
from ..compare import Recorded, compare, recorded
from ..folder import RunFolder
from ..report import WIRING, heading, spent_facts
from ..results import OUTCOMES, Evaluation, difference, question
from ..rows import ANSWER, REASONS, SHOWN, Row, Seen, shortened
from ..statistics import MIN_N, Interval, interval
from .changes import Change

DOCUMENT = "report.json.gz"


class Measured(BaseModel, frozen=True):
    """A mean, how sure it is, and over how many."""

    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    unit: str = ""
    """What the interval resamples."""


class Category(BaseModel, frozen=True):
    """The scores of one category, or of the headline, phase by phase."""

    key: str
    name: str
    counts: bool
    scores: tuple[Measured, ...]
    difference: Measured | None = None
    """Of the last phase to the first, paired."""


class Calls(BaseModel, frozen=True):
    """How the calls of one predictor ended in one phase."""

    phase: str
    predictor: str
    ended: dict[str, int]
    """By `OUTCOMES`."""
    faults: dict[str, int] = {}


class Curve(BaseModel, frozen=True):
    """One number of a training over the tokens generated."""

    label: str
    name: str
    points: tuple[tuple[float, float], ...]


class Question(BaseModel, frozen=True):
    """One question with its row in every phase; None where it was not asked."""

    rows: tuple[Row | None, ...]

    @property
    def last(self) -> Row:
        """Its row in the last phase that asked it."""
        return next(row for row in reversed(self.rows) if row is not None)

    @property
    def evidence(self) -> dict[str, str]:
        """The gold evidence: turns by id, as prompts show them."""
        return next((row.seen.evidence for row in self.rows if row and row.seen), {})

    @property
    def change(self) -> str:
        """How the last phase scores against the first: better, worse, same, or "" where there is one phase."""
        first, last = self.rows[0], self.rows[-1]
        if len(self.rows) < 2 or first is None or last is None:
            return ""
        return "same" if abs(last.score - first.score) < 1e-9 else "better" if last.score > first.score else "worse"

    def plain(self, text: Callable[[str], Any] = str, line: Callable[[str], Any] = str) -> dict[str, Any]:
        """Plain JSON; `text` stands for a prompt or an answer to it, `line` for a recalled entry or a turn."""
        row = self.last
        return {
            "id": shortened(row.id, ANSWER),
            "group": shortened(row.group, ANSWER),
            "category": row.category,
            "counts": row.counts,
            "question": shortened(row.question, ANSWER),
            "gold": shortened(row.gold, ANSWER),
            "evidence": {turn: line(said) for turn, said in self.evidence.items()},
            "change": self.change,
            "shown": [None if each is None else _answered(each, text, line) for each in self.rows],
        }


def _answered(row: Row, text: Callable[[str], Any], line: Callable[[str], Any]) -> dict[str, Any]:
    seen = row.seen or Seen()
    return {
        "answer": shortened(row.answer, ANSWER),
        "score": round(row.score, 4),
        "right": row.right,
        "why": row.reason,
        "hit": row.hit,
        "parts": {name: round(value, 4) for name, value in row.parts.items()},
        "recall": {name: round(value, 4) for name, value in row.recall.items()},
        "found": seen.found,
        "entries": [{"line": line(each.line), "kind": each.kind, "gold": seen.is_gold(each)} for each in seen.entries],
        "calls": [
            {
                "predictor": call.predictor,
                "outcome": call.outcome,
                "messages": [{"role": role, "content": text(said)} for role, said in call.messages],
                "answer": text(call.answer),
                "error": call.error,
            }
            for call in seen.calls
        ],
        "feedback": seen.feedback,
        "failure": None if row.failure is None else f"{row.failure.kind}: {shortened(row.failure.message, ANSWER)}",
        "left_out": seen.left_out,
        "kept": row.seen is not None,
    }


class Page(BaseModel, frozen=True):
    """Everything that is shown of a run."""

    command: str
    name: str
    title: str
    warning: str = ""
    notes: tuple[str, ...] = ()
    """What a reader has to know beside the scores."""
    verdict: str = ""
    """The difference in words."""
    phases: dict[str, Evaluation] = {}
    """Evaluations by what the page calls them, the one that others are compared with first."""
    facts: tuple[tuple[str, str], ...] = ()
    """What the scores rest on."""
    history: tuple[Candidate, ...] = ()
    """Of an optimizer."""
    curves: tuple[Curve, ...] = ()
    changes: tuple[Change, ...] = ()
    """The prompts, and what was changed in them."""

    @cached_property
    def names(self) -> dict[str, str]:
        """Categories by their keys."""
        found = self.phases.values()
        keys = {row.category for each in found for row in each.rows} | {key for each in found for key in each.expected}
        named = {key: name for each in found for key, name in each.names.items()}
        return {key: named.get(key, key) for key in sorted(keys)}

    @cached_property
    def total(self) -> Category | None:
        """The headline score."""
        found = list(self.phases.values())
        return _category("", "score", found, [each.counted for each in found]) if found else None

    @cached_property
    def categories(self) -> list[Category]:
        """Scores by category, those outside the headline score too."""
        found = list(self.phases.values())
        sides = {key: [[row for row in each.rows if row.category == key] for each in found] for key in self.names}
        return [_category(key, self.names[key], found, rows) for key, rows in sides.items()]

    @cached_property
    def retrieval(self) -> list[tuple[str, list[float | None]]]:
        """Evidence recall, phase by phase."""
        sides = [each.retrieval() for each in self.phases.values()]
        names = dict.fromkeys(name for side in sides for name in side)
        words = {name: name.replace("recall@", "search, best ") for name in names} | {SHOWN: "in the context"}
        return [(words[name], [side.get(name) for side in sides]) for name in names]

    @cached_property
    def calls(self) -> list[Calls]:
        """How calls ended."""
        return [
            Calls(
                phase=phase,
                predictor=predictor,
                ended={name: counts.get(name, 0) for name in OUTCOMES},
                faults=found.faults.get(predictor, {}),
            )
            for phase, found in self.phases.items()
            for predictor, counts in found.answers.items()
        ]

    @cached_property
    def questions(self) -> list[Question]:
        """All that were asked, in the order of the phases."""
        sides = [{row.id: row for row in each.rows} for each in self.phases.values()]
        ids = dict.fromkeys(id for side in sides for id in side)
        return [Question(rows=tuple(side.get(id) for side in sides)) for id in ids]

    @cached_property
    def reasons(self) -> dict[str, list[int]]:
        """How many questions there are of each of the `REASONS`, phase by phase; without those that have none."""
        counts = [Counter(row.reason for row in each.rows) for each in self.phases.values()]
        return {key: [each[key] for each in counts] for key in REASONS if any(each[key] for each in counts)}

    def summary(self) -> dict[str, Any]:
        """The object that `show --json` prints: all but the questions."""
        total = self.total
        return {
            **self.model_dump(mode="json", exclude={"phases"}),
            "phases": list(self.phases),
            "total": total and total.model_dump(mode="json"),
            "categories": [each.model_dump(mode="json") for each in self.categories],
            "retrieval": self.retrieval,
            "calls": [each.model_dump(mode="json") for each in self.calls],
        }


def run_page(
    command: str,
    name: str,
    phases: Mapping[str, Evaluation],
    facts: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
    verdict: str = "",
    changes: Sequence[Change] = (),
    candidates: Sequence[Candidate] = (),
) -> Page:
    """The page of evaluations that asked the same questions; arguments are the fields of `Page`."""
    found, notes = list(phases.values()), list(notes)
    for each in found:
        notes += [f"This is a broken run: {each.breakage}."] if each.broken else []
        notes += [f"Stopped before all questions were asked: {each.stopped}."] if each.stopped else []
    return Page(
        command=command,
        name=name,
        title=f"{found[-1].program} on {found[-1].benchmark}",
        warning="" if found[-1].comparable else WIRING,
        notes=tuple(notes),
        verdict=verdict,
        phases=dict(phases),
        facts=(*facts, *spent_facts(phases)),
        history=tuple(candidates),
        changes=tuple(changes),
    )


def side_by_side(runs: Sequence[Recorded], min_n: int = MIN_N) -> Page:
    """One page of several runs, over the questions that all were asked; the first is the baseline.

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
    named = dict(zip(string.ascii_uppercase, runs, strict=False))
    sides = {}
    for letter, run in named.items():
        rows = tuple(row for row in _with_seen(run) if question(row) in shared)
        sides[letter] = run.evaluation.model_copy(update={"rows": rows})
    facts = [(letter, f"{run.name}: {heading(run.evaluation)}") for letter, run in named.items()]
    notes = dict.fromkeys(note for other in runs[1:] for note in compare(runs[0], other).warnings)
    gaps = {letter: difference(sides["A"].counted, side.counted, min_n) for letter, side in sides.items()}
    verdict = "; ".join(f"{letter} against A: {gap}: {gap.verdict}" for letter, gap in gaps.items() if letter != "A")
    return run_page("compare", " against ".join(run.name for run in reversed(runs)), sides, facts, list(notes), verdict)


def _with_seen(run: Recorded) -> Iterator[Row]:
    page = None if run.folder is None else read_page(run.folder)
    seen = {} if page is None else {each.last.id: each.last.seen for each in page.questions}
    return (row.model_copy(update={"seen": seen.get(row.id)}) for row in run.evaluation.rows)


def read_page(folder: Path) -> Page | None:
    """The page of a run; None where it has none, as runs of older versions and those that are not finished."""
    path = folder / DOCUMENT
    if not path.is_file():
        return None
    try:
        return Page.model_validate_json(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        raise DataError(f"{path}: is not the page of a run; evaluate again") from error


def open_page(name: str) -> Page:
    """The page of a run, by any of its names (`RunFolder.open`); of one that keeps none, scores and answers.

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


def _measured(rows: Sequence[Row]) -> Measured:
    values = [row.score for row in rows]
    if not values:
        return Measured(value=None, n=0)
    span = interval(values, [row.group for row in rows])
    return Measured(value=sum(values) / len(values), n=len(values), **_ends(span))


def _ends(span: Interval | None) -> dict[str, Any]:
    return {} if span is None else {"low": span.low, "high": span.high, "unit": span.unit}


def _category(key: str, name: str, found: Sequence[Evaluation], rows: Sequence[Sequence[Row]]) -> Category:
    gap = None
    if len(found) > 1:
        told = difference(rows[0], rows[-1])
        gap = Measured(value=told.mean, n=told.n, **_ends(told.interval)) if told.n else None
    counts = all(row.counts for some in rows for row in some)
    return Category(key=key, name=name, counts=counts, scores=tuple(map(_measured, rows)), difference=gap)
