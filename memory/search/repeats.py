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
    """Who said what, and when. Turns with equal statements are repeats of one another."""

    speaker: str | None
    words: str
    day: date | None
    """None where the day does not matter."""


class Utterance(NamedTuple):
    """What a turn says, as it is compared with the query and with other turns."""

    statement: _Statement
    question_words: frozenset[str] | None
    """The words of a turn that only asks; None if it says something else."""


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
        """Return whether the next hit of a ranking says something new, and remember what it says.

        A turn of a dialogue says nothing new if it only repeats the query or an earlier hit. Hits
        that are no turns always count as new.
        """
        return self.register_utterance(utterance_of(turn))

    def register_utterance(self, utterance: Utterance | None) -> bool:
        """Do what `register` does, for what a turn says; None counts as new."""
        if utterance is None:
            return True
        if utterance.statement in self._statements:
            return False

        self._statements.add(utterance.statement)
        if utterance.question_words is None:
            return True

        # A question is new if it has a word that neither the query nor an earlier question has.
        is_new = not utterance.question_words <= self._asked_words
        self._asked_words |= utterance.question_words
        return is_new


def utterance_of(turn: TurnLike) -> Utterance | None:
    """Return what a turn says, as it is compared with others; None if it cannot be a repeat."""
    if not _is_compared(turn):
        return None

    text = _spoken_text(turn)
    is_asking = is_question(text)
    question_words = frozenset(tokens(text)) if is_asking else None
    return Utterance(_statement_of(turn, text, is_asking), question_words)


def query_words(query: str) -> frozenset[str]:
    """Return the words of a query as stems ("run" for "running"), without words such as "the"."""
    return frozenset(query_terms(query))


def repeats_query(turn: TurnLike, words: frozenset[str]) -> bool:
    """Return whether a turn only asks what a query asks, so that it cannot answer the query.

    It does if it is a question, and all its words are in the query.

    Args:
        turn: An entry or a hit.
        words: The words of the query, from `query_words`.
    """
    if not _is_compared(turn):
        return False
    text = _spoken_text(turn)
    return is_question(text) and words.issuperset(tokens(text))


def _is_compared(turn: TurnLike) -> bool:
    """Return whether an entry or a hit can be a repeat: only turns of a dialogue that are short."""
    return turn.kind == TURN and len(turn.text) <= MAX_COMPARED_CHARS


def _statement_of(turn: TurnLike, text: str, is_asking: bool) -> _Statement:
    """Return the key by which repeats are recognized: two turns are repeats if theirs are equal.

    The key holds the speaker and the plain words. It holds the day only if a user tells something:
    "I ran today" is news on another day.

    Args:
        turn: The turn.
        text: The text of the turn, without the name of the speaker.
        is_asking: Whether the text is a question.
    """
    day = turn.time.date() if turn.time else None

    # The same question is a repeat on any day. So is the same text of an assistant, which does not
    # tell what it did on a day.
    if is_asking or is_assistant(turn.speaker):
        day = None
    return _Statement(turn.speaker, _plain_words(text), day)


def _spoken_text(turn: TurnLike) -> str:
    """Return the text of a turn without the speaker's name in front, e.g. "Ann: "."""
    return turn.text.removeprefix(f"{turn.speaker}: ")


def _plain_words(text: str) -> str:
    """Return a text without case, extra blanks and punctuation, to compare it with others.

    A text without words, e.g. "!?", is returned as it is.
    """
    words = [word.strip(PUNCTUATION) for word in normalize_text(text).split()]
    plain_text = " ".join(filter(None, words))
    return plain_text or text
