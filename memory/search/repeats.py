"""Tells turns that say something new from those that only ask again, or say the same again.

After a question was asked ten times, there are ten stored turns that are more similar to it than
any answer. So in a ranking such repeats come after all other hits:

    >>> from mempiler.memory.entry import Entry
    >>> from mempiler.memory.search.repeats import RepeatFilter
    >>> repeats = RepeatFilter("Where do I live?")
    >>> texts = (
    ...     "where do I live",
    ...     "Did you know I moved to Lisbon?",
    ...     "I live in Lisbon.",
    ...     "I live in Lisbon!",
    ... )
    >>> [repeats.register(Entry(id="t", kind="turn", text=text)) for text in texts]
    [False, True, True, False]

A question is a repeat if all its words are in the query or in questions before it. Any other turn
is one if the same speaker said the same on the same day. What people say again on another day ("I
ran today") is news; what an assistant says again is not.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple, Protocol

from ...records.normalize import normalize_text
from .questions import PUNCTUATION, is_question
from .speakers import is_assistant
from .tokens import query_terms, tokens

TURN = "turn"
"""The kind of entries and hits that are turns of a dialogue."""
MAX_COMPARED_CHARS = 1000
"""Most characters of a turn that is compared; longer ones take too long, and count as new."""


class TurnLike(Protocol):
    """The fields of an entry or a hit that decide whether it is a repeat."""

    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def time(self) -> datetime | None: ...


class _Statement(NamedTuple):
    """What a turn says. Equal statements are repeats of one another."""

    speaker: str | None
    words: str
    day: date | None
    """None where the day does not matter."""


class RepeatFilter:
    """Goes through the turns of a ranking, best first, and recognizes repeats.

    Args:
        query: The query of the ranking.
    """

    def __init__(self, query: str) -> None:
        self._asked_words = set(query_words(query))
        """The words of the query and of the questions so far."""
        self._statements: set[_Statement] = set()
        """What turns have said so far."""

    def register(self, turn: TurnLike) -> bool:
        """Note the next hit of the ranking, and return whether it says something new.

        Hits that are no turns always do.
        """
        if not _is_compared(turn):
            return True

        text = _spoken_text(turn)
        is_asking = is_question(text)
        statement = _statement(turn, text, is_asking)
        if statement in self._statements:
            return False

        self._statements.add(statement)
        if not is_asking:
            return True

        # A question is new if it has a word that neither the query nor an earlier question has.
        words = set(tokens(text))
        is_new = not words <= self._asked_words
        self._asked_words |= words
        return is_new


def query_words(query: str) -> frozenset[str]:
    """Return the words of a query, without function words."""
    return frozenset(query_terms(query))


def repeats_query(turn: TurnLike, words: frozenset[str]) -> bool:
    """Return whether a turn is a question without any word that is not in a query.

    Args:
        turn: An entry or a hit.
        words: The `query_words` of the query.
    """
    if not _is_compared(turn):
        return False
    text = _spoken_text(turn)
    return is_question(text) and words.issuperset(tokens(text))


def _is_compared(turn: TurnLike) -> bool:
    """Return whether an entry or a hit can be a repeat at all."""
    return turn.kind == TURN and len(turn.text) <= MAX_COMPARED_CHARS


def _statement(turn: TurnLike, text: str, is_asking: bool) -> _Statement:
    """Return what a turn says.

    Args:
        turn: The turn.
        text: Its text, without the name of the speaker.
        is_asking: Whether the text is a question.
    """
    day = turn.time.date() if turn.time else None
    if is_asking or is_assistant(turn.speaker):
        # The same question on another day is still a repeat, and so is what an assistant says
        # again: unlike a user, it does not tell what it did on that day.
        day = None
    return _Statement(turn.speaker, _plain_words(text), day)


def _spoken_text(turn: TurnLike) -> str:
    """Return the text of a turn without the name of its speaker."""
    return turn.text.removeprefix(f"{turn.speaker}: ")


def _plain_words(text: str) -> str:
    """Return a text without case, extra blanks and punctuation; unchanged if it has no words."""
    words = [word.strip(PUNCTUATION) for word in normalize_text(text).split()]
    plain_text = " ".join(filter(None, words))
    return plain_text or text
