"""Whose turns a query asks for.

Example:
    >>> from mempiler.memory.search.speakers import Speakers
    >>> speakers = Speakers()
    >>> [speakers.register(name) for name in ("Ann Lee", "Bob", "user")]
    [0, 1, 2]
    >>> speakers.target_speakers("What does Ann's dog eat?")
    [0]
    >>> speakers.target_speakers("What did I say about jazz?")
    [2]
    >>> speakers.without_names("What does Ann's dog eat?")
    'What does dog eat?'
"""

from __future__ import annotations

import re

from ...records.normalize import normalize_text

MAX_SEARCHED_CHARS = 2000
"""Most characters of a query that are searched for names, which takes time in a long one."""
USER_NAMES = frozenset(("user", "human", "用户"))
"""Names, normalized, of speakers that a query means by "I"."""
ASSISTANT_NAMES = frozenset(("assistant", "ai", "bot", "助手", "助理"))
"""Names, normalized, that chats give to an assistant."""

_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine|myself)\b|我")
_CHINESE = re.compile("[\u3400-\u9fff]")


class Speakers:
    """The speakers of an index, numbered from 0. Not safe under threads without a lock."""

    def __init__(self) -> None:
        self.numbers: dict[str | None, int] = {}
        """The number of each speaker; None stands for entries without one."""
        self._numbers_by_name: dict[str, int | None] = {}
        """The speaker of each full name and first name, normalized.

        None for a first name that several speakers share: alone it means none of them.
        """

    def register(self, speaker: str | None) -> int:
        """Return the number of a speaker; a new speaker gets the next number.

        None, for entries without a speaker, has a number too.
        """
        number = self.numbers.get(speaker)
        if number is None:
            number = len(self.numbers)
            self.numbers[speaker] = number
            self._register_names(normalize_text(speaker or "").strip(), number)
        return number

    def target_speakers(self, query: str) -> list[int]:
        """Return the numbers of the speakers that a query asks about, to prefer their turns.

        If the query names one speaker, return this one. If it names nobody but says "I" or "my",
        return the users. A query with two names may be about either, so return nobody.
        """
        text = normalize_text(query[:MAX_SEARCHED_CHARS])
        named_speakers: set[int] = set()
        for name, number in self._numbers_by_name.items():
            # None marks a first name that several speakers share: it tells nothing.
            if number is not None and _contains_name(text, name):
                named_speakers.add(number)

        if len(named_speakers) == 1:
            return list(named_speakers)
        if named_speakers or not _FIRST_PERSON.search(text):
            return []
        return self._users()

    def without_names(self, query: str) -> str:
        """Return a query without the names of speakers, to be turned into a vector.

        The vector of a name is similar to all turns by or about this speaker, whatever the topic.
        A first name that several speakers share stays, and so does a query of names alone.
        """
        # Only the beginning of a very long query is searched for names.
        searched_part = query[:MAX_SEARCHED_CHARS]
        remainder = searched_part
        normalized_remainder = normalize_text(remainder)
        for name in self._names_longest_first():
            # Names are normalized (small letters), so look for them in a normalized text.
            if _contains_name(normalized_remainder, name):
                remainder = _name_pattern(name).sub(" ", remainder)
                normalized_remainder = normalize_text(remainder)

        if remainder == searched_part:
            return query

        # Removed names leave blanks behind: split and join to have one blank between words.
        words = (remainder + query[MAX_SEARCHED_CHARS:]).split()
        return " ".join(words) or query

    def _register_names(self, full_name: str, number: int) -> None:
        """Note the names by which a query can mean a speaker: the full name and the first name.

        Args:
            full_name: The name, normalized; "" for a speaker without a name.
            number: The number of the speaker.
        """
        if not full_name:
            return

        first_name = full_name.partition(" ")[0]
        if first_name in self._numbers_by_name:
            # An earlier speaker has the same first name. None marks that it means neither.
            self._numbers_by_name[first_name] = None
        else:
            self._numbers_by_name[first_name] = number

        # A full name always means its speaker, even if it is the first name of others.
        self._numbers_by_name[full_name] = number

    def _users(self) -> list[int]:
        """Return the numbers of the speakers with names such as "user" (`USER_NAMES`)."""
        return [
            number
            for speaker, number in self.numbers.items()
            if normalize_text(speaker or "") in USER_NAMES
        ]

    def _names_longest_first(self) -> list[str]:
        """Return the names that mean exactly one speaker, longer names first.

        "ann lee" must be removed from a text before "ann", or "lee" would stay.
        """
        names = [name for name, number in self._numbers_by_name.items() if number is not None]
        names.sort(key=len)
        return names[::-1]


def is_assistant(speaker: str | None) -> bool:
    """Return whether a speaker has a name that chats give to an assistant, e.g. "AI" or "bot"."""
    return normalize_text(speaker or "") in ASSISTANT_NAMES


def _contains_name(text: str, name: str) -> bool:
    """Return whether a name is in a text as whole words: "ann", but not "anna".

    Both must be normalized (small letters).
    """
    # Most names are not in a text, and this is much faster than the pattern below.
    if name not in text:
        return False

    # Chinese has no blanks between words, so the name counts wherever it stands.
    if _CHINESE.search(name):
        return True
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _name_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern that finds a name in a text, in any case and with a possessive "'s"."""
    # Chinese has no blanks between words, so a name may stand within other characters.
    word_edge = "" if _CHINESE.search(name) else r"\b"
    pattern = rf"{word_edge}{re.escape(name)}{word_edge}(?:['’]s\b)?"
    return re.compile(pattern, re.IGNORECASE)
