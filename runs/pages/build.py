"""Makes the document of a run's page from its evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...optimizers.history import Candidate
from ..report import WIRING, tokens_line
from ..results import OUTCOMES, SHOWN, Evaluation, Row, difference
from ..seen import ANSWER, Asked, Seen, shortened
from ..statistics import Interval, interval
from .page import (
    RIGHT,
    Call,
    Calls,
    Category,
    Change,
    Entry,
    Lines,
    Measured,
    Page,
    Point,
    Question,
    Shown,
)
from .reasons import hit, reason

SCORE = "score"
_FACTS = {
    "task": "Task",
    "lm": "Language model",
    "prompt_lm": "Prompt model",
    "judge_lm": "Judge",
    "embedder": "Embedder",
    "adapter": "Adapter",
    "seed": "Seed",
}
"""Parameters of a run that its page shows, as they are."""


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
    """The page of evaluations that asked the same questions.

    Args:
        command: What ran.
        name: Of the run.
        phases: Evaluations by what the page calls them, the one that others are compared with first.
        facts: What the scores rest on, a name and a value each.
        notes: What a reader has to know beside them.
        verdict: The difference in words.
        changes: The prompts, and what was changed in them.
        candidates: Of an optimizer.
    """
    found, lines = list(phases.values()), Lines()
    last = found[-1]
    warning = "" if last.comparable else WIRING
    questions = _questions(found, lines)
    return Page(
        command=command,
        name=name,
        title=f"{last.program} on {last.benchmark}",
        warning=warning,
        notes=(*notes, *(told for each in found for told in _notes(each))),
        verdict=verdict,
        phases=tuple(phases),
        facts=(*facts, *_spent(phases)),
        total=_category("", SCORE, found, [each.counted for each in found]),
        categories=_categories(found),
        retrieval=_retrieval(found),
        calls=tuple(_calls(phases)),
        history=tuple(Point(**each.to_dict()) for each in candidates),
        changes=tuple(changes),
        questions=questions,
        lines=lines.all(),
    )


def known_facts(parameters: Mapping[str, Any], program: str) -> list[tuple[str, str]]:
    """What `run.json` says of the settings, but no path and no address.

    Args:
        parameters: As `setup.parameters` gives them.
        program: Digest of the program.
    """
    found = [(words, str(parameters[key])) for key, words in _FACTS.items() if parameters.get(key) is not None]
    for words, prefix in (("Settings", "method."), ("LM settings", "lm."), ("Optimizer", "optimizer.")):
        own = {key.removeprefix(prefix): value for key, value in parameters.items() if key.startswith(prefix)}
        told = ", ".join(f"{key} = {value}" for key, value in own.items() if value not in (None, {}, ""))
        found += [(words, told)] if told else []
    digests = [("Data, sha256", parameters.get("data_sha256")), ("Program, digest", program)]
    return found + [(words, str(value)[:16]) for words, value in digests if value]


def _notes(found: Evaluation) -> Iterable[str]:
    if found.broken:
        yield f"This is a broken run: {found.breakage}."
    if found.stopped:
        yield f"Stopped before all questions were asked: {found.stopped}."


def _spent(phases: Mapping[str, Evaluation]) -> Iterable[tuple[str, str]]:
    for name, found in phases.items():
        # A training counts what it takes by itself.
        if not found.calls and not found.seconds:
            continue
        calls = ", ".join(f"{count:,} {role}" for role, count in found.calls.items() if count) or "none"
        cost = "price not known" if found.cost is None else f"${found.cost:.4f}"
        where = f", {name}" if len(phases) > 1 else ""
        yield f"Calls{where}", f"{calls}; {tokens_line(found.tokens)}; {cost}; {found.seconds:.1f} s"


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


def _categories(found: Sequence[Evaluation]) -> tuple[Category, ...]:
    keys = sorted(
        {row.category for each in found for row in each.rows} | {key for each in found for key in each.expected}
    )
    names = {key: name for each in found for key, name in each.names.items()}
    sides = {key: [[row for row in each.rows if row.category == key] for each in found] for key in keys}
    return tuple(_category(key, names.get(key, key), found, rows) for key, rows in sides.items())


def _retrieval(found: Sequence[Evaluation]) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    sides = [each.retrieval() for each in found]
    names = dict.fromkeys(name for side in sides for name in side)
    return tuple(
        (
            "in the context" if name == SHOWN else name.replace("recall@", "search, best "),
            tuple(s.get(name) for s in sides),
        )
        for name in names
    )


def _calls(phases: Mapping[str, Evaluation]) -> Iterable[Calls]:
    for phase, found in phases.items():
        for predictor, counts in found.answers.items():
            ended = {name.replace(" ", "_"): counts.get(name, 0) for name in OUTCOMES}
            yield Calls(phase=phase, predictor=predictor, faults=found.faults.get(predictor, {}), **ended)


def _questions(found: Sequence[Evaluation], lines: Lines) -> tuple[Question, ...]:
    sides = [{row.id: row for row in each.rows} for each in found]
    made = []
    for id in dict.fromkeys(id for side in sides for id in side):
        rows = [side.get(id) for side in sides]
        row = next(each for each in rows if each is not None)
        evidence = next((each.seen.evidence for each in rows if each and each.seen), {})
        made.append(
            Question(
                id=shortened(row.id, ANSWER),
                group=shortened(row.group, ANSWER),
                category=row.category,
                counts=row.counts,
                question=shortened(row.question, ANSWER),
                gold=shortened(row.gold, ANSWER),
                evidence=tuple((turn, lines.one(text)) for turn, text in evidence.items()),
                shown=tuple(None if each is None else _shown(each, lines) for each in rows),
            )
        )
    return tuple(made)


def _shown(row: Row, lines: Lines) -> Shown:
    seen = row.seen or Seen()
    wanted, recalled = set(seen.evidence), {source for each in seen.entries for source in each.sources}
    entries = tuple(
        Entry(line=lines.one(each.line), kind=each.kind, gold=bool(wanted & set(each.sources))) for each in seen.entries
    )
    return Shown(
        answer=shortened(row.answer, ANSWER),
        score=round(row.score, 4),
        right=row.failure is None and row.score >= RIGHT,
        why=reason(row),
        hit=hit(row),
        parts={name: round(value, 4) for name, value in row.parts.items()},
        recall={name: round(value, 4) for name, value in row.recall.items()},
        found=tuple(turn for turn in seen.evidence if turn in recalled),
        entries=entries,
        calls=tuple(_call(each, lines) for each in seen.calls),
        feedback=seen.feedback,
        failure=None if row.failure is None else f"{row.failure.kind}: {shortened(row.failure.message, ANSWER)}",
        left_out=seen.left_out,
        kept=row.seen is not None,
    )


def _call(asked: Asked, lines: Lines) -> Call:
    return Call(
        predictor=asked.predictor,
        outcome=asked.outcome,
        messages=tuple((role, lines.of(text)) for role, text in asked.messages),
        answer=lines.of(asked.answer),
        error=asked.error,
    )
