"""What is in a benchmark file and what is wrong with it, row by row, before any model is called.

It also says in which languages is asked, how the metric cuts answers into words, and whether comparing words is unfair
to right answers in these languages.

The checks are the readers themselves, which continue after an error: what a check calls fatal is what `load` refuses. A
benchmark of one's own without `read` is loaded, which reports only the first error.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import computed_field

from ..errors import DataError
from ..records import Record
from .benchmark import Benchmark
from .catalog import benchmark_class
from .dataset import Dataset, Finding, FindingListener
from .languages import Language, count_languages
from .load_options import coerce_options
from .scorer import Scorer

UNFAIR_SHARE = 0.05
"""Least part of the questions that must be in a language for it to matter to the advice."""


class Report(Record):
    """What a check found."""

    path: str
    benchmark: str
    """The benchmark that the file was read as."""
    counts: dict[str, int]
    """How many conversations, sessions, turns, image turns, questions, and questions of each category."""
    findings: tuple[Finding, ...]
    """Everything odd or wrong, in file order."""
    languages: dict[str, int]
    """How many questions, with their gold answers, are in each language, most frequent first; see `languages`."""
    metric: str
    """The metric's name and title."""
    splitter_description: str
    """How the metric cuts answers into the words that it compares; "" where it compares none."""
    advice: str
    """Why another metric is recommended, in one line; "" where none is."""

    @computed_field
    @property
    def ok(self) -> bool:
        """Whether the benchmark would load the file."""
        return not any(row.fatal for row in self.findings)

    @computed_field
    @property
    def kinds(self) -> dict[str, int]:
        """How many rows there are of each kind, most frequent first."""
        return dict(Counter(row.kind for row in self.findings).most_common())


def check(benchmark: str, path: str | Path, *, metric: str | None = None, **options: Any) -> Report:
    """Checks a file as a benchmark's, with options of its reader.

    Never raises for what is in the file: one that cannot be read at all is a report with one fatal row.

    Args:
        benchmark: A name of the catalog, or `module:Class`.
        path: The file or folder.
        metric: One of the benchmark's metrics; the first if None.
        **options: What the benchmark's `read` takes, e.g. `size` of longmemeval.

    Raises:
        UnknownNameError: No such benchmark, no such metric of it, or no such option of its reader.
    """
    kind, path = benchmark_class(benchmark), Path(path)
    metric = metric or next(iter(kind.metrics))
    scorer = kind.make_scorer(metric)
    known = inspect.signature(kind.read).parameters.values()
    kind.refuse_options(options, (each.name for each in known if each.kind is each.KEYWORD_ONLY))
    rows: list[Finding] = []
    reading = Dataset((), ())
    try:
        reading = _read(kind, path, rows.append, coerce_options(benchmark, kind.read, options))
        if not reading.examples:
            rows.append(Finding("no questions", "whole file", "holds no question that can be read", fatal=True))
    except DataError as error:
        rows.append(Finding("unreadable file", "whole file", str(error).removeprefix(f"{path}: "), fatal=True))

    languages = count_languages(_asked_and_answered(reading))
    return Report(
        path=str(path),
        benchmark=benchmark,
        counts=_counts(reading, kind),
        findings=tuple(rows),
        languages={language.name: count for language, count in languages.items()},
        metric=metric if metric == scorer.title else f"{metric} ({scorer.title})",
        splitter_description=scorer.splitter.description if scorer.splitter else "",
        advice=_advice(languages, scorer, kind),
    )


def _asked_and_answered(reading: Dataset) -> Iterator[str]:
    """Each question with its gold answer, which alone is often too short to tell its language."""
    for example in reading.examples:
        yield f"{example.get('question') or ''} {example.get('answer') or ''}"


def _advice(languages: Mapping[Language, int], scorer: Scorer, kind: type[Benchmark]) -> str:
    """Recommend a judge where the metric compares words and the languages make that unfair; "" where it is fair."""
    if scorer.splitter is None or scorer.required_judges:
        return ""

    # Close languages are taken for each other now and then, so a few questions are no reason.
    least = UNFAIR_SHARE * sum(languages.values())
    reasons: list[str] = []
    for language, count in languages.items():
        if language.unfair_reason and count >= least:
            reasons.append(f"{language.name}: {language.unfair_reason}")
    if not reasons:
        return ""

    judged = next((name for name, make in kind.metrics.items() if make().required_judges), None)
    remedy = f"choose --metric {judged} with --judge-lm MODEL" if judged else "choose a metric of your own"
    return f"{scorer.title} takes other forms of a word for other words ({'; '.join(reasons)}); {remedy}"


def _read(kind: type[Benchmark], path: Path, on_finding: FindingListener, options: Mapping[str, Any]) -> Dataset:
    found = kind.read(path, on_finding, **options)
    if found is not None:
        return found
    examples = kind.load(path).examples
    return Dataset(tuple({example.history.id: example.history for example in examples}.values()), examples)


def _counts(reading: Dataset, kind: type[Benchmark]) -> dict[str, int]:
    sessions = [session for history in reading.histories for session in history.items]
    turns = [turn for session in sessions for turn in session.turns]
    asked = Counter(str(example.get("category") or "all") for example in reading.examples)
    # Numbered categories are shown by name too.
    names = {name: kind.categories.get(name, "") if name.isdigit() else "" for name in {*asked, *kind.categories}}
    return {
        "conversations": len(reading.histories),
        "sessions": len(sessions),
        "turns": len(turns),
        "image turns": sum(turn.caption is not None for turn in turns),
        "questions": len(reading.examples),
        **{f"category {name} {names[name]}".strip(): asked[name] for name in sorted(names)},
    }
