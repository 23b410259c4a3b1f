"""Check a benchmark file row by row, before any model is called.

A check lists everything that is odd or wrong in a file. It also says in which languages questions
are asked, how the metric cuts answers into words, and whether comparing words is unfair to right
answers in these languages.

The checks are those of the readers, which continue after an error. What a check calls fatal is what
`load` refuses. A benchmark without `read` is loaded instead, which reports only the first error.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
from pydantic import computed_field

from ..errors import DataError
from ..records import Record
from .benchmark import Benchmark
from .catalog import benchmark_class
from .dataset import Dataset, Finding, FindingListener, category_of
from .empty_cells import is_empty_cell
from .example_checks import find_doubtful_labels, find_fatal_problems
from .languages import Language, count_languages
from .load_options import coerce_options
from .scorer import Scorer

MIN_LANGUAGE_SHARE = 0.05
"""Least part of the questions that must be in a language for it to matter to the advice."""


class Report(Record):
    """What a check found."""

    path: str
    benchmark: str
    """The benchmark that the file was read as."""
    counts: dict[str, int]
    """Numbers of conversations, sessions, turns, questions, and questions of each category."""
    findings: tuple[Finding, ...]
    """Everything odd or wrong, in file order."""
    languages: dict[str, int]
    """How many questions are in each language, most frequent first; see `languages`."""
    metric: str
    """The metric's name and title."""
    splitter_description: str
    """How the metric cuts answers into words; "" if it compares no words."""
    advice: str
    """Why another metric is recommended, in one line; "" if none is."""

    @computed_field
    @property
    def ok(self) -> bool:
        """Whether the benchmark would load the file."""
        return not any(finding.fatal for finding in self.findings)

    @computed_field
    @property
    def kinds(self) -> dict[str, int]:
        """How many findings there are of each kind, most frequent first."""
        return dict(Counter(finding.kind for finding in self.findings).most_common())


def check(benchmark: str, path: str | Path, *, metric: str | None = None, **options: Any) -> Report:
    """Check a file as a benchmark would read it.

    What is in the file raises nothing: one that cannot be read at all gives a report with one fatal
    finding.

    Args:
        benchmark: A name of the catalog, or `module:Class`.
        path: The file or folder.
        metric: One of the benchmark's metrics; the first if None.
        **options: Options of the benchmark's `read`, e.g. `size` of longmemeval.

    Raises:
        UnknownNameError: There is no such benchmark, metric or option.
    """
    path = Path(path)
    checked_class = benchmark_class(benchmark)
    metric = metric or next(iter(checked_class.metrics))
    scorer = checked_class.make_scorer(metric)
    read_options_of_class = _read_options(checked_class)
    if "categories" not in read_options_of_class:
        # The whole file is checked, also what a run over some categories would leave out.
        options.pop("categories", None)
    checked_class.refuse_options(options, read_options_of_class)

    findings: list[Finding] = []
    dataset = Dataset((), ())
    try:
        read_options = coerce_options(benchmark, checked_class.read, options)
        dataset = _read_dataset(checked_class, path, findings.append, read_options)
        findings.extend(find_fatal_problems(dataset.examples))
        # What is no example has been named; it has no fields that could be counted.
        examples = [each for each in dataset.examples if isinstance(each, dspy.Example)]
        dataset = replace(dataset, examples=tuple(examples))
        findings.extend(find_doubtful_labels(dataset.examples, checked_class.categories))
        if not dataset.examples:
            problem = "holds no question that can be read"
            findings.append(Finding("no questions", "whole file", problem, fatal=True))
    except DataError as error:
        problem = str(error).removeprefix(f"{path}: ")
        findings.append(Finding("unreadable file", "whole file", problem, fatal=True))

    languages = count_languages(_question_texts(dataset))
    return Report(
        path=str(path),
        benchmark=benchmark,
        counts=_counts(dataset, checked_class),
        findings=tuple(findings),
        languages={language.name: count for language, count in languages.items()},
        metric=metric if metric == scorer.title else f"{metric} ({scorer.title})",
        splitter_description=scorer.splitter.description if scorer.splitter else "",
        advice=_advice(languages, scorer, checked_class),
    )


def _read_options(checked_class: type[Benchmark]) -> list[str]:
    """Return the names of the options that a benchmark's `read` takes."""
    parameters = inspect.signature(checked_class.read).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


def _read_dataset(
    checked_class: type[Benchmark],
    path: Path,
    on_finding: FindingListener,
    options: Mapping[str, Any],
) -> Dataset:
    """Read a file with `read`, or, if a benchmark has none, with `load`.

    Args:
        checked_class: The benchmark.
        path: The file or folder.
        on_finding: Receives what is wrong in it.
        options: Options of `read`. There are none if the benchmark has no `read`.
    """
    dataset = checked_class.read_file(path, on_finding, options)
    if dataset is not None:
        return dataset

    examples = checked_class.load(path).examples
    # One user's questions may be about different histories, which have the same id.
    histories = {
        (example.history.id, example.history.digest): example.history for example in examples
    }
    return Dataset(tuple(histories.values()), examples)


def _question_texts(dataset: Dataset) -> Iterator[str]:
    """Yield each question with its gold answer.

    A question alone is often too short to tell its language.
    """
    for example in dataset.examples:
        values = (example.get("question"), example.get("answer"))
        yield " ".join(str(value) for value in values if not is_empty_cell(value))


def _advice(
    languages: Mapping[Language, int], scorer: Scorer, checked_class: type[Benchmark]
) -> str:
    """Recommend a judge where comparing words is unfair to a language; "" where it is fair.

    A right answer has to use the very words of the gold answer then, not other forms of them.
    """
    # Without a splitter, the scorer compares no words.
    if scorer.splitter is None or scorer.required_judges:
        return ""

    # Close languages are taken for each other now and then, so a few questions are no reason.
    min_count = MIN_LANGUAGE_SHARE * sum(languages.values())
    reasons: list[str] = []
    for language, count in languages.items():
        if language.unfair_reason and count >= min_count:
            reasons.append(f"{language.name}: {language.unfair_reason}")
    if not reasons:
        return ""

    remedy = "choose a metric of your own"
    for name, make_scorer in checked_class.metrics.items():
        if make_scorer().required_judges:
            remedy = f"choose --metric {name} with --judge-lm MODEL"
            break
    return (
        f"{scorer.title} takes other forms of a word for other words "
        f"({'; '.join(reasons)}); {remedy}"
    )


def _counts(dataset: Dataset, checked_class: type[Benchmark]) -> dict[str, int]:
    """Return how many conversations, sessions, turns and questions a dataset has."""
    sessions = [session for history in dataset.histories for session in history.items]
    turns = [turn for session in sessions for turn in session.turns]
    counts = {
        "conversations": len(dataset.histories),
        "sessions": len(sessions),
        "turns": len(turns),
        "image turns": sum(turn.caption is not None for turn in turns),
        "questions": len(dataset.examples),
    }

    questions = Counter(category_of(example) for example in dataset.examples)
    for category in sorted({*questions, *checked_class.categories}):
        label = f"category {category}"
        # A number alone says nothing, so its name is shown too.
        if category.isdigit():
            label = f"{label} {checked_class.categories.get(category, '')}".strip()
        counts[label] = questions[category]
    return counts
