"""Answers looked up in a memory by code: the oldest entry that matches a question answers it, without a language model.

    context ── entries that hold every word of the question ── oldest ──> its other words

For synthetic worlds whose notes are a subject, an attribute and a value ("Ada pet parrot"): there a reward that depends
on the memory alone needs no reader model. That the oldest entry answers makes a stale duplicate cost as much as a
missing update. Reading real conversations is left to `question-answering`.

Example:
    >>> from mempiler.programs.tasks.lookup import lookup
    >>> from mempiler.records import Hit
    >>> lookup([Hit(id="m1", text="Ada pet parrot", score=1.0)], "What is Ada's pet?")
    'parrot'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import dspy

from ...records import Context, Hit, Query, comparable
from .task import Task

_PLAIN = frozenset({"a", "an", "the", "is", "are", "was", "of", "what", "who", "where", "which", "s", "as", "has"})
_WORD = re.compile(r"\w+")
NOT_FOUND = "none"
"""The answer where no entry matches."""


class MemoryLookup(Task):
    """Answers from the oldest matching entry; calls no language model and has no prompts."""

    name = "memory-lookup"

    def forward(self, context: Context, query: Query) -> dspy.Prediction:
        return dspy.Prediction(answer=lookup(context.hits, query.text))


def lookup(hits: Sequence[Hit], question: str) -> str:
    """The words that the oldest matching entry has beyond the question, or "none".

    Args:
        hits: Entries in any order. The oldest is the one with the earliest time; of equal times, or without any, the
            one with the lowest number in its id.
        question: Its words, without articles and question words, must all be in a matching entry.
    """
    wanted = set(_words(question))
    for hit in sorted(hits, key=_age):
        found = _words(hit.text)
        if wanted <= set(found):
            rest = [word for word in found if word not in wanted]
            return " ".join(rest) or NOT_FOUND
    return NOT_FOUND


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _PLAIN]


def _age(hit: Hit) -> tuple[datetime, int, str]:
    digits = re.sub(r"\D", "", hit.id)
    return comparable(hit.time), int(digits or 0), hit.id
