"""The document of a page: everything that a page or a terminal shows of a run, as one value.

    evaluations, run.json, prompts ── run_page ──> Page ── html ──> report.html
                                                        ── JSON ──> report.json ── `mempiler show`, `compare --page`

Texts that recur, such as recalled turns and the lines of prompts, are in `lines` once and named by their number, so the
document of 2,000 questions is a few megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

RIGHT = 0.5
"""The score from which on an answer is called right, where people look for the wrong ones."""


class Part(BaseModel):
    """A part of a document; frozen."""

    model_config = ConfigDict(frozen=True)


class Measured(Part):
    """A mean, how sure it is, and over how many."""

    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    unit: str = ""
    """What the interval resamples."""


class Category(Part):
    """The scores of one category, or of the headline, phase by phase."""

    key: str
    name: str
    counts: bool
    scores: tuple[Measured, ...]
    difference: Measured | None = None
    """Of the last phase to the first, paired."""


class Calls(Part):
    """How the calls of one predictor ended in one phase."""

    phase: str
    predictor: str
    ok: int
    salvaged: int
    asked_again: int
    lost: int
    faults: dict[str, int] = {}


class Point(Part):
    """A scored candidate of an optimizer."""

    number: int
    score: float
    n: int
    calls: int
    cost: float


class Curve(Part):
    """One number of a training over the tokens generated."""

    label: str
    name: str
    points: tuple[tuple[float, float], ...]


class Change(Part):
    """What a compile changed in one predictor."""

    predictor: str
    instructions: tuple[str, ...]
    """The lines of a unified diff; those of the instructions where nothing changed in them."""
    settings: tuple[tuple[str, str, str], ...] = ()
    """Fields and settings: name, before, after."""
    added: tuple[str, ...] = ()
    """Demos."""
    removed: tuple[str, ...] = ()
    kept: int = 0
    changed: bool = True


class Entry(Part):
    """A recalled entry."""

    line: int
    kind: str
    gold: bool
    """Whether it rests on gold evidence."""


class Call(Part):
    """A prompt and its answer."""

    predictor: str
    outcome: str
    messages: tuple[tuple[str, tuple[int, ...]], ...]
    """Role and lines."""
    answer: tuple[int, ...]
    error: str | None = None


class Shown(Part):
    """One question in one phase."""

    answer: str
    score: float
    right: bool
    why: str
    """Where the answer went wrong, or that it is right; see `reasons.REASONS`."""
    hit: str
    """Whether the gold evidence was recalled: all, part, none, or "" where there is none."""
    parts: dict[str, float] = {}
    recall: dict[str, float] = {}
    found: tuple[str, ...] = ()
    """Ids of the gold evidence that was recalled."""
    entries: tuple[Entry, ...] = ()
    calls: tuple[Call, ...] = ()
    feedback: str = ""
    failure: str | None = None
    left_out: int = 0
    kept: bool = True
    """False where an older version answered, which kept nothing to look at."""


class Question(Part):
    """One question with its answers."""

    id: str
    group: str
    category: str
    counts: bool
    question: str
    gold: str
    evidence: tuple[tuple[str, int], ...] = ()
    """Gold evidence: id and line."""
    shown: tuple[Shown | None, ...]
    """A value per phase."""

    @property
    def change(self) -> str:
        """How the last phase scores against the first: better, worse, same, or "" where there is one phase."""
        first, last = self.shown[0], self.shown[-1]
        if len(self.shown) < 2 or first is None or last is None:
            return ""
        return "same" if abs(last.score - first.score) < 1e-9 else "better" if last.score > first.score else "worse"


class Page(Part):
    """Everything that is shown of a run."""

    command: str
    name: str
    title: str
    warning: str = ""
    notes: tuple[str, ...] = ()
    verdict: str = ""
    """The difference in words."""
    phases: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    metric: str = "score"
    total: Category | None = None
    categories: tuple[Category, ...] = ()
    retrieval: tuple[tuple[str, tuple[float | None, ...]], ...] = ()
    calls: tuple[Calls, ...] = ()
    history: tuple[Point, ...] = ()
    curves: tuple[Curve, ...] = ()
    changes: tuple[Change, ...] = ()
    questions: tuple[Question, ...] = ()
    lines: tuple[str, ...] = ()

    def text(self, lines: Iterable[int]) -> str:
        """Lines by their numbers."""
        return "\n".join(self.lines[n] for n in lines)

    def browsed(self) -> dict[str, Any]:
        """What the script of the page reads."""
        names = {each.key: each.name for each in self.categories}
        questions = [
            {**each.model_dump(mode="json", exclude_defaults=True), "change": each.change} for each in self.questions
        ]
        return {"phases": self.phases, "names": names, "questions": questions, "lines": self.lines}


class Lines:
    """Lines by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> tuple[int, ...]:
        """The numbers of a text's lines."""
        return tuple(self._numbers.setdefault(line, len(self._numbers)) for line in text.split("\n"))

    def one(self, text: str) -> int:
        """The number of a text that is one line."""
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> tuple[str, ...]:
        """Every line, in the order of the numbers."""
        return tuple(self._numbers)
