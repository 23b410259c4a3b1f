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
from collections import Counter

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
        """The number of each speaker who has entries; None stands for entries without a speaker."""
        self._entry_counts: Counter[str | None] = Counter()
        """The number of entries of each speaker."""
        self._next_number = 0
        self._known_names: dict[str, int | None] | None = None
        """See `_numbers_by_name`; None if speakers have come or gone since it was computed."""

    def register(self, speaker: str | None) -> int:
        """Count an entry of a speaker; return the number of the speaker.

        A new speaker gets the next number. None, for entries without a speaker, has a number too.
        """
        self._entry_counts[speaker] += 1
        if speaker not in self.numbers:
            self.numbers[speaker] = self._next_number
            self._next_number += 1
            self._known_names = None
        return self.numbers[speaker]

    def unregister(self, speaker: str | None) -> None:
        """Stop counting an entry of a speaker. With the last entry the name is forgotten."""
        self._entry_counts[speaker] -= 1
        if self._entry_counts[speaker] == 0:
            del self._entry_counts[speaker]
            del self.numbers[speaker]
            self._known_names = None

    def target_speakers(self, query: str) -> list[int]:
        """Return the numbers of the speakers that a query asks about, to prefer their turns.

        If the query names one speaker, return this one. If it names nobody but says "I" or "my",
        return the users. A query with two names may be about either, so return nobody.
        """
        text = normalize_text(query[:MAX_SEARCHED_CHARS])
        named_speakers: set[int] = set()
        for name, number in self._numbers_by_name().items():
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

    def _numbers_by_name(self) -> dict[str, int | None]:
        """Return the speaker that each full name and first name means, by the normalized name.

        None for a first name that several speakers share: alone it means none of them.
        """
        if self._known_names is not None:
            return self._known_names

        names: dict[str, int | None] = {}
        numbers_by_full_name: dict[str, int] = {}
        for speaker, number in self.numbers.items():
            full_name = normalize_text(speaker or "").strip()
            if full_name:
                numbers_by_full_name[full_name] = number
                first_name = full_name.partition(" ")[0]
                names[first_name] = None if first_name in names else number

        # A full name always means its speaker, even if it is the first name of others.
        names.update(numbers_by_full_name)
        self._known_names = names
        return names

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
        names = [name for name, number in self._numbers_by_name().items() if number is not None]
        names.sort(key=lambda name: (len(name), name), reverse=True)
        return names


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
