"""Memory lookup: a task that needs no language model, for synthetic worlds."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

import dspy

from ...records import Context, Hit, Query, comparable
from .task import Task

NO_ENTRY = "none"
"""The answer if no entry matches."""

_WORD = re.compile(r"\w+")
_FUNCTION_WORDS = frozenset(
    {
        "a",
        "an",
        "the",
        "is",
        "are",
        "was",
        "of",
        "what",
        "who",
        "where",
        "which",
        "s",
        "as",
        "has",
    }
)
"""Words of a question that an entry need not hold."""


class MemoryLookup(Task):
    """Answer by code from the oldest entry that holds every word of the question.

    It is for worlds whose notes are a subject, an attribute and a value ("Ada pet parrot"). There a
    reward that depends on the memory alone needs no model that reads. That the oldest entry answers
    makes a stale duplicate cost as much as a missing update.
    """

    name = "memory-lookup"

    def forward(self, context: Context, query: Query) -> dspy.Prediction:
        """Answer with the words of an entry that are not in the question.

        The entry is the oldest one that has all words of the question. From "Ada pet parrot", the
        question "What is Ada's pet?" gets the answer "parrot".
        """
        question_words = set(_content_words(query.text))
        for hit in sorted(context.hits, key=_age):
            entry_words = _content_words(hit.text)
            if question_words.issubset(entry_words):
                other_words = [word for word in entry_words if word not in question_words]
                return dspy.Prediction(answer=" ".join(other_words) or NO_ENTRY)
        return dspy.Prediction(answer=NO_ENTRY)


def _content_words(text: str) -> list[str]:
    """Return the words of a text in lower case, in order, without function words."""
    return [word for word in _WORD.findall(text.lower()) if word not in _FUNCTION_WORDS]


class _Age(NamedTuple):
    """A sort key that puts the oldest entry first."""

    time: datetime
    number: int
    """The digits of its id: entries are numbered as they are written."""
    id: str


def _age(hit: Hit) -> _Age:
    digits = re.sub(r"\D", "", hit.id)
    return _Age(comparable(hit.time), int(digits or 0), hit.id)
