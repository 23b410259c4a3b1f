"""Checks of examples and scores that every benchmark needs, whatever reader or scorer made them.

`Benchmark` refuses what these checks call fatal. `check.py` lists all that they find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from numbers import Real
from typing import TypeGuard

import dspy

from ..errors import DataError, UserError
from ..records import History, Item
from ..text import one_line
from .dataset import Finding, category_of
from .empty_cells import is_blank
from .scorer import Score

_MAX_QUOTED = 80
"""Characters of a wrong value that an error message quotes."""
_ROUNDING = 1e-9
"""How far a score may be outside of 0 to 1: sums of shares may exceed 1 by rounding."""


def find_fatal_problems(examples: Iterable[dspy.Example]) -> Iterator[Finding]:
    """Yield what makes examples unusable: no history, a missing or equal id, evidence as a text.

    Labels come from readers of users, so any of them may be of any kind. Two answers under one id
    would be counted as one. Ids are compared as texts, as rows hold them.
    """
    numbers_by_id: dict[str, int] = {}
    for number, example in enumerate(examples, 1):
        if not isinstance(example, dspy.Example):
            problem = f"is {type(example).__name__}, expected a dspy.Example"
            yield Finding("no example", f"example {number}", problem, fatal=True)
            continue

        where = _name_of(example, number)
        if is_blank(example.get("id")):
            yield Finding("missing id", where, "has no id; give each its own", fatal=True)
        elif where in numbers_by_id:
            problem = f"example {numbers_by_id[where]} has this id too; give each its own"
            yield Finding("duplicate id", where, problem, fatal=True)
        numbers_by_id.setdefault(where, number)

        history = example.get("history")
        if history is None:
            yield Finding("missing history", where, "has no history", fatal=True)
        elif not isinstance(history, History):
            problem = f"its history is {type(history).__name__}, expected a History"
            yield Finding("wrong history", where, problem, fatal=True)

        evidence_ids = example.get("evidence_ids")
        if evidence_ids is not None and not _is_list_of_texts(evidence_ids):
            # A text would be read as a list of letters.
            kind = "the text " if isinstance(evidence_ids, str) else ""
            problem = f"evidence_ids is {kind}{_quoted(evidence_ids)}; give a list of turn ids"
            yield Finding("wrong evidence", where, problem, fatal=True)
        recent = example.get("recent")
        if recent is not None and not _is_list_of_items(recent):
            problem = f"recent is {_quoted(recent)}; give a list of items, such as sessions"
            yield Finding("wrong recent items", where, problem, fatal=True)


def find_doubtful_labels(
    examples: Iterable[dspy.Example], categories: Collection[str]
) -> Iterator[Finding]:
    """Yield evidence that is no turn, and categories that a benchmark has not declared.

    Args:
        examples: Those with a fatal problem are left out as far as they cannot be checked.
        categories: The declared ones; any category is right if there are none.
    """
    for number, example in enumerate(examples, 1):
        if not isinstance(example, dspy.Example):
            continue

        where = _name_of(example, number)
        for turn_id in unknown_evidence(example):
            yield Finding("unknown evidence", where, f"{turn_id!r} is no turn of the history")

        category = category_of(example)
        if categories and category not in categories:
            problem = f"{category!r} is none of the benchmark's categories"
            yield Finding("unknown category", where, problem)


def unknown_evidence(example: dspy.Example) -> list[str]:
    """Return the ids in `evidence_ids` that belong to no turn of the example."""
    history = example.get("history")
    evidence_ids = example.get("evidence_ids")
    if not isinstance(history, History) or not _is_list_of_texts(evidence_ids):
        return []

    # Evidence may also lie in the running conversation, which is not in the history yet.
    recent_turns: set[str] = set()
    recent = example.get("recent")
    if _is_list_of_items(recent):
        for item in recent:
            recent_turns.update(turn.id for turn in item.turns)
    unknown: list[str] = []
    for turn_id in evidence_ids:
        if turn_id not in history.turns and turn_id not in recent_turns:
            unknown.append(turn_id)
    return unknown


def refuse_fatal_problems(examples: Iterable[dspy.Example], path: str) -> None:
    """Raise a DataError for the first fatal problem of some examples.

    Args:
        examples: All examples of a benchmark.
        path: Where they came from, for the message.
    """
    for finding in find_fatal_problems(examples):
        raise DataError(f"{path}: {finding.where}: {finding.message}")


def refuse_wrong_score(score: Score, example: dspy.Example, benchmark: str, metric: str) -> None:
    """Refuse what a scorer returned if it is no score from 0 to 1, which would spoil every mean.

    Args:
        score: What the scorer returned.
        example: The question that was scored.
        benchmark: The name of the benchmark, for the message.
        metric: The title of the metric, for the message.

    Raises:
        UserError: It is no `Score`, or its value is no number from 0 to 1.
    """
    scored = f"metric {metric!r} of {benchmark} scored {example.id!r} with"
    # Scorers are written by users, so the type is not certain.
    if not isinstance(score, Score):
        raise UserError(f"{scored} {_quoted(score)}; it must return a Score")
    # NaN is not between any two numbers.
    is_number = isinstance(score.value, Real)
    if not is_number or not -_ROUNDING <= score.value <= 1 + _ROUNDING:
        raise UserError(f"{scored} {_quoted(score.value)}; it must return a number from 0 to 1")


def _name_of(example: dspy.Example, number: int) -> str:
    """Return the id of an example; its number if it has none."""
    example_id = example.get("id")
    return f"example {number}" if is_blank(example_id) else str(example_id)


def _is_list_of_texts(value: object) -> TypeGuard[Collection[str]]:
    """Return whether a value is a list, a tuple or a set of texts.

    An array is none of them: programs ask whether evidence is empty, which no array answers.
    """
    if not isinstance(value, list | tuple | set | frozenset):
        return False
    return all(isinstance(entry, str) for entry in value)


def _is_list_of_items(value: object) -> TypeGuard[Collection[Item]]:
    """Return whether a value is a list, a tuple or a history of items."""
    if not isinstance(value, list | tuple | History):
        return False
    return all(isinstance(entry, Item) for entry in value)


def _quoted(value: object) -> str:
    return one_line(repr(value), _MAX_QUOTED)
