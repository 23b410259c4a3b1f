"""Tells turns that say something new from those that only ask again, or say the same again.

Who asks a question ten times has ten stored turns that are nearer to it than any answer. In a ranking such turns stand
behind all others: a question that adds no word to the query and to the questions before it, and the same words once
more of the same speaker. A question that tells something ("Did you know I moved to Lisbon?") adds words, and keeps its
place. What people say again on another day ("I ran today") is news, and keeps its place, too.

Questions are known by the question marks of most scripts; in English and Chinese also by how they begin or end.

Example:
    >>> from mempiler.memory.entry import Entry
    >>> from mempiler.memory.search.repeats import RepeatFilter
    >>> said = RepeatFilter("Where do I live?")
    >>> texts = ("where do I live", "Did you know I moved to Lisbon?", "I live in Lisbon.", "I live in Lisbon!")
    >>> [said.register(Entry(id="t", kind="turn", text=text)) for text in texts]
    [False, True, True, False]
"""

from __future__ import annotations

import re
from datetime import date, datetime
from string import punctuation
from typing import NamedTuple, Protocol

from ...records.normalize import normalize_text
from .bm25 import MAX_QUERY_CHARS, query_terms, tokens

TURN = "turn"
"""The kind of entries and hits that are turns of a dialogue as they were said."""
LONGEST = 1000
"""Characters of a turn beyond which it is taken to say something new: to compare it would take too long."""
ASSISTANTS = frozenset(("assistant", "ai", "bot", "助手", "助理"))
"""Speakers that have no days of their own to tell of, folded."""

_QUESTION_MARKS = frozenset("?？؟\u037e፧᥅꘏꛷⁇⁈⁉﹖︖⸮‽")
"""Of Latin, Chinese, Arabic, Greek, Ethiopic and other scripts."""
_ENDS = "".join(sorted(_QUESTION_MARKS)) + ".!。！．…।۔"
_SENTENCE = re.compile(rf"[^{_ENDS}]+[{_ENDS}]*")
_VERB = "is|are|am|was|were|do|does|did|has|have|had|can|could|will|would|should|may"
_ENGLISH_QUESTION = re.compile(
    rf"(?:what|where|when|who|whom|whose|which|why|how)(?:['’]s| (?:{_VERB}|many|much|old|long|often))\b"
    rf"|(?:what|whose|which|how) \w+ (?:{_VERB})\b",
    re.IGNORECASE,
)
"""How a text begins that asks without a mark."""
_CHINESE_QUESTION = re.compile("哪|谁|什么|怎么|多少|[吗呢]$")
"""What a text holds that asks without a mark."""
_SIGNS = punctuation + "“”‘’«»¿¡、，；：" + _ENDS


class Said(Protocol):
    """What an entry and a hit have in common."""

    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def time(self) -> datetime | None: ...


class _Saying(NamedTuple):
    """What makes two turns the same."""

    speaker: str | None
    words: str
    day: date | None
    """None for questions and for what an assistant says: on another day they tell no more."""


class RepeatFilter:
    """What a query asks, and what the turns of a ranking have said so far.

    Args:
        query: The query.
    """

    def __init__(self, query: str) -> None:
        self._asked = set(words_asked(query))
        self._sayings: set[_Saying] = set()

    def register(self, turn: Said) -> bool:
        """Take in the next turn of the ranking, and return whether it says something new.

        Whatever is not a turn does.
        """
        if turn.kind != TURN or len(turn.text) > LONGEST:
            return True

        text = _spoken(turn)
        asks = is_question(text)
        day = turn.time.date() if turn.time else None
        if asks or is_assistant(turn.speaker):
            day = None
        saying = _Saying(turn.speaker, _plain(text), day)
        if saying in self._sayings:
            return False
        self._sayings.add(saying)
        if not asks:
            return True

        words = set(tokens(text))
        is_new = not words <= self._asked
        self._asked |= words
        return is_new


def words_asked(query: str) -> frozenset[str]:
    """The words of a query that say something."""
    return frozenset(query_terms(query[:MAX_QUERY_CHARS]))


def asks_no_more(turn: Said, asked: frozenset[str]) -> bool:
    """Whether a turn is a question that holds no words but these of a query."""
    if turn.kind != TURN or len(turn.text) > LONGEST:
        return False
    text = _spoken(turn)
    return is_question(text) and asked.issuperset(tokens(text))


def is_assistant(speaker: str | None) -> bool:
    """Whether a speaker is an assistant, by the names that chats give it."""
    return normalize_text(speaker or "") in ASSISTANTS


def is_question(text: str) -> bool:
    """Whether a text asks in all of its sentences."""
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text)]
    spoken = [sentence for sentence in sentences if any(map(str.isalnum, sentence))]
    if len(spoken) == 1 and not _has_question_mark(spoken[0]):
        words = spoken[0].rstrip(_SIGNS)
        return bool(_ENGLISH_QUESTION.match(words) or _CHINESE_QUESTION.search(words))
    return bool(spoken) and all(map(_has_question_mark, spoken))


def _has_question_mark(sentence: str) -> bool:
    end = sentence[len(sentence.rstrip(_SIGNS)) :]
    return not _QUESTION_MARKS.isdisjoint(end)


def _spoken(turn: Said) -> str:
    return turn.text.removeprefix(f"{turn.speaker}: ")


def _plain(text: str) -> str:
    """The words of a text without case, spacing and the signs around them; a text of signs as it is."""
    words = [word.strip(_SIGNS) for word in normalize_text(text).split()]
    return " ".join(filter(None, words)) or text
