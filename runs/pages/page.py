"""The page of a run: its evaluations with the trace of every answer, and the tables that a reader sees of them.

    evaluations, parameters, prompts ── run_page ──> Page ── report.json.gz ──> report.html, `show`, `compare`

A bundled sample or the offline engine is a "smoke test, not comparable".
"""

from __future__ import annotations

import difflib
import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ...errors import DataError, UserError
from ...optimizers.history import Candidate
from ...optimizers.proposals import UnreadableAnswer
from ...programs.program import MemoryProgram
from ...programs.prompts_text import prompts_text
from ...programs.state import PredictorState, dump_predictor
from ...records import Frozen
from ..folder import RunFolder
from ..results import Evaluation, cached_share, difference, mean
from ..rows import ANSWER, REASONS, SHOWN, QuestionTrace, Row, shortened
from ..statistics import MIN_N, Difference, bootstrap_interval

DOCUMENT = "report.json.gz"
SMOKE_TEST = "smoke test, not comparable"
_LINE = 1_200
"""Longest line of a prompt, in characters."""
_FACTS = {
    "task": "Task",
    "metric": "Metric",
    "lm": "Language model",
    "prompt_lm": "Prompt model",
    "judge_lm": "Judge",
    "answer_lm": "Answering model",
    "embedder": "Embedder",
    "adapter": "Adapter",
    "seed": "Seed",
}
"""Parameters of a run that its page shows, as they are."""


@dataclass(frozen=True)
class ScoreEstimate:
    """A mean, how sure it is, and over how many."""

    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    unit: str = ""
    """What the interval resamples."""


@dataclass(frozen=True)
class Category:
    """The scores of one category, or of the headline, phase by phase."""

    key: str
    name: str
    in_headline: bool
    scores: tuple[ScoreEstimate, ...]
    differences: tuple[Difference, ...]
    """Each further phase minus the first, paired; the first minus itself where it is the only one."""

    @property
    def difference(self) -> Difference:
        """The last phase minus the first."""
        return self.differences[-1]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        about = {name: value for name, value in asdict(self).items() if name != "differences"}
        return {**about, "difference": self.difference.to_dict()}


class Change(BaseModel, frozen=True):
    """The prompt of a predictor, and what was changed in it."""

    predictor: str
    diff: tuple[str, ...] = ()
    """The lines of a unified diff of the whole prompt; the prompt itself where nothing changed in it."""
    changed: bool = True


class Question(BaseModel, frozen=True):
    """One question with its row in every phase; None where it was not asked."""

    rows: tuple[Row | None, ...]

    @property
    def last(self) -> Row:
        """Its row in the last phase that asked it."""
        return next(row for row in reversed(self.rows) if row is not None)

    def plain(self, text: Callable[[str], Any] = str, line: Callable[[str], Any] = str) -> dict[str, Any]:
        """Plain JSON; `text` stands for a prompt or an answer to it, `line` for a recalled entry or a turn."""
        row = self.last
        evidence = next((each.trace.evidence for each in self.rows if each and each.trace), {})
        first, last = self.rows[0], self.rows[-1]
        change = ""
        if len(self.rows) > 1 and first is not None and last is not None:
            gain = last.score - first.score
            change = "same" if abs(gain) < 1e-9 else "better" if gain > 0 else "worse"
        return {
            "id": shortened(row.id, ANSWER),
            "group": shortened(row.group, ANSWER),
            "category": row.category,
            "counts": row.in_headline,
            "question": shortened(row.question, ANSWER),
            "gold": shortened(row.gold, ANSWER),
            "evidence": {turn: line(said) for turn, said in evidence.items()},
            "change": change,
            "shown": [None if each is None else _answered(each, text, line) for each in self.rows],
        }


def _answered(row: Row, text: Callable[[str], Any], line: Callable[[str], Any]) -> dict[str, Any]:
    seen = row.trace or QuestionTrace()
    return {
        "answer": shortened(row.answer, ANSWER),
        "score": round(row.score, 4),
        "right": row.right,
        "why": row.reason,
        "hit": row.hit,
        "parts": {name: round(value, 4) for name, value in row.parts.items()},
        "recall": {name: round(value, 4) for name, value in row.recall.items()},
        "found": seen.found,
        "in_prompts": None if seen.in_prompts is None else list(seen.in_prompts),
        "entries": [
            {"line": line(each.line), "kind": each.kind, "gold": seen.is_gold(each), "fallback": each.fallback}
            for each in seen.entries
        ],
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
        "kept": row.trace is not None,
    }


class Page(Frozen):
    """Everything that is shown of a run."""

    command: str
    name: str
    title: str
    warning: str = ""
    notes: tuple[str, ...] = ()
    """What a reader has to know beside the scores."""
    verdict: str = ""
    """The difference in words."""
    phases: dict[str, Evaluation] = Field(default_factory=dict)
    """Evaluations by what the page calls them, the one that others are compared with first."""
    facts: tuple[tuple[str, str], ...] = ()
    """What the scores rest on."""
    history: tuple[Candidate, ...] = ()
    """Of an optimizer."""
    unreadable: tuple[UnreadableAnswer, ...] = ()
    """The first answers of the prompt LM that could not be read."""
    changes: tuple[Change, ...] = ()
    """The prompts, and what was changed in them."""
    min_n: int = MIN_N
    """With fewer questions nothing is told of a difference."""

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
        return _category("", "score", [each.headline_rows for each in found], self.min_n) if found else None

    @cached_property
    def categories(self) -> list[Category]:
        """Scores by category, those outside the headline score too."""
        found = list(self.phases.values())
        sides = {key: [[row for row in each.rows if row.category == key] for each in found] for key in self.names}
        return [_category(key, self.names[key], rows, self.min_n) for key, rows in sides.items()]

    @cached_property
    def retrieval(self) -> list[tuple[str, list[float | None]]]:
        """Evidence recall, phase by phase."""
        sides = [each.retrieval() for each in self.phases.values()]
        names = dict.fromkeys(name for side in sides for name in side)
        words = {SHOWN: "evidence recall in context"}
        return [(words.get(name, name), [side.get(name) for side in sides]) for name in names]

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
            "total": total and total.to_dict(),
            "categories": [each.to_dict() for each in self.categories],
            "retrieval": self.retrieval,
            "calls": {phase: each.call_outcomes for phase, each in self.phases.items()},
            "faults": {phase: each.faults for phase, each in self.phases.items()},
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
    min_n: int = MIN_N,
    unreadable: Sequence[UnreadableAnswer] = (),
) -> Page:
    """The page of evaluations that asked the same questions; arguments are the fields of `Page`."""
    found, notes = list(phases.values()), list(notes)
    for phase, each in phases.items():
        what = "This" if len(phases) == 1 else phase
        notes += [f"{what} is a broken run: {each.breakage}."] if each.broken else []
        notes += [f"{what} was stopped before all questions were asked: {each.stopped}."] if each.stopped else []
        if each.repeated_ids:
            notes.append(f"{phase}: {each.repeated_ids}.")
    page = Page(
        command=command,
        name=name,
        title=f"{found[-1].program} on {found[-1].benchmark}",
        warning="" if found[-1].comparable else SMOKE_TEST,
        verdict=verdict,
        phases=dict(phases),
        facts=(*facts, *spent_facts(phases)),
        history=tuple(candidates),
        unreadable=tuple(unreadable),
        changes=tuple(changes),
        min_n=min_n,
    )
    if page.total is not None and len(phases) > 1:
        # Each further phase has a difference to the first one.
        for phase, difference in zip(list(phases)[1:], page.total.differences, strict=True):
            if difference.warning:
                notes.append(f"{phase}: {difference.warning}")
    return page.model_copy(update={"notes": tuple(notes)})


def states(program: MemoryProgram) -> dict[str, PredictorState]:
    """What an optimizer can change in a program, by predictor."""
    return {name: dump_predictor(predictor) for name, predictor in program.all_predictors().items()}


def program_changes(before: Mapping[str, PredictorState], after: Mapping[str, PredictorState]) -> tuple[Change, ...]:
    """Each predictor's prompt, and what was changed in it."""
    found = []
    for name, state in after.items():
        old = before.get(name, state)
        a, b = ([shortened(line, _LINE) for line in prompts_text({name: each}).splitlines()] for each in (old, state))
        # Without the names of the sides.
        diff = [*difflib.unified_diff(a, b, lineterm="")][2:]
        found.append(Change(predictor=name, diff=tuple(diff or [f" {line}" for line in b]), changed=old != state))
    return tuple(found)


def heading(evaluation: Evaluation) -> str:
    """One line on how reliable the numbers are."""
    warning = "" if evaluation.comparable else f" ({SMOKE_TEST})"
    judge = f", judge {evaluation.judge}" if evaluation.judge else ""
    models = f"LM {evaluation.lm}" + (f", embedder {evaluation.embedder}" if evaluation.embedder else "")
    return f"{evaluation.program} on {evaluation.benchmark}, {models}{judge}{warning}"


def difference_line(difference: Difference, questions: str = "test questions") -> str:
    """Return the paired difference on some questions with its verdict and scope, on one line."""
    return f"{questions}, after minus before: {difference.statement}"


def known_facts(parameters: Mapping[str, Any], program: str) -> list[tuple[str, str]]:
    """What a run's `parameters` say of the settings, and the program's digest, but no path and no address."""
    found = [(words, str(parameters[key])) for key, words in _FACTS.items() if parameters.get(key) is not None]
    for words, prefix in (("Settings", "method."), ("LM settings", "lm."), ("Optimizer", "optimizer.")):
        own = {key.removeprefix(prefix): value for key, value in parameters.items() if key.startswith(prefix)}
        told = ", ".join(f"{key} = {value}" for key, value in own.items() if value not in (None, {}, ""))
        found += [(words, told)] if told else []
    digests = [("Data, sha256", parameters.get("data_sha256")), ("Program, digest", program)]
    return found + [(words, str(value)[:16]) for words, value in digests if value]


def spent_facts(phases: Mapping[str, Evaluation]) -> list[tuple[str, str]]:
    """Calls, tokens, cost and time of evaluations, and what searching takes, a name and a value each."""
    facts = []
    for phase, found in phases.items():
        of = f", {phase}" if len(phases) > 1 else ""
        facts.append((f"LM calls{of}", f"{spent_line(found.metered_usage)}; {found.seconds:.1f} s"))
        if any(row.search is not None for row in found.rows):
            facts.append(
                (f"Retrieval{of}", "p50 {p50:.1f} ms, p95 {p95:.1f} ms, CPU {cpu:.1f} ms".format(**found.search_ms()))
            )
    return facts


def spent_line(usage: Mapping[str, Any]) -> str:
    """Calls, tokens and cost, as `results.counts_of` gives them, on one line."""
    calls = ", ".join(f"{count} {role}" for role, count in usage["calls"].items() if count or role == "task")
    share = cached_share(usage.get("prompt_cache") or {})
    reused = "" if share is None else f" ({share:.0%} of the prompts from the server's cache)"
    tokens, cost = usage["tokens"], "no price known" if usage["cost"] is None else f"${usage['cost']:.4f}"
    guessed = tokens.get("estimated_calls", 0)
    estimated = f" (estimated for {guessed:,} calls: the endpoint reports none, or too few)" if guessed else ""
    taken = f"{tokens.get('input', 0):,} prompt + {tokens.get('output', 0):,} answer tokens"
    return f"{calls}; {taken}{estimated}{reused}; {cost}"


def open_page(folder: RunFolder) -> Page:
    """The page of a run.

    Raises:
        UserError: It has no result yet.
        DataError: Its page is not what a run writes.
    """
    path = folder.path / DOCUMENT
    if not path.is_file():
        state = f"has no result yet (status {folder.read().get('status')})"
        raise UserError(f"run {folder.path.name} {state}; finish it with its own command and --resume")
    try:
        return Page.model_validate_json(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        raise DataError(f"{path}: is not the page of a run; evaluate again") from error


def _category(key: str, name: str, rows: Sequence[Sequence[Row]], min_n: int) -> Category:
    counts = all(row.in_headline for some in rows for row in some)
    gaps = tuple(difference(rows[0], each, min_n) for each in rows[1:] or rows)
    return Category(key, name, counts, tuple(map(_measured, rows)), gaps)


def _measured(rows: Sequence[Row]) -> ScoreEstimate:
    values = [row.score for row in rows]
    span = bootstrap_interval(values, [row.group for row in rows])
    ends = {} if span is None else {"low": span.low, "high": span.high, "unit": span.unit}
    return ScoreEstimate(mean(values), len(values), **ends)
