"""Speakers and months that a question names, in English and Chinese, as signals of a search.

What they and a reranker weigh was chosen on LoCoMo's conv-26 and conv-30 (`perf/retrieval.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

import numpy as np

from ...records.normalize import normalize_text

READ, MOST_DATES = 2000, 20
"""Characters of a question in which names and dates are looked for, and dates that count: each takes milliseconds."""
WHO, WHEN = 2.0, 2.0
"""Deviations that a turn of the speaker, and one of the month, gains."""
COSINES = 0.6
"""The part of what turns lend one another by their words that they lend by their cosines."""
FIRST, PASSAGES, BESIDE = 100, 150, 0.3
"""Hits that are ranked again, how many passages of them at most, and what words and cosines weigh beside a reranker."""
USERS = frozenset(("user", "human", "用户"))
"""Speakers that speak for themselves in the first person, folded."""
_NEXT_MONTH, _YEAR = 0.4, 0.3
"""What the month after the one named gains, as a part of it, and any of a year that is named alone."""
_BLOCK = 16
"""Scores of which only the highest is looked at."""
_PASSAGE, _SHORTEST = 900, 300
"""Characters of a passage, at most, and at least where a blank is looked for."""

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_DATE = re.compile(
    rf"(?:\d{{4}}年)?\d{{1,2}}月(?:\d{{1,2}}[日号])?|\d{{4}}年|\b(?:19|20)\d\d-\d\d?(?:-\d\d?)?\b"
    rf"|(?:\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? )?\b(?:{_MONTHS})\b"
    rf"(?: \d{{1,2}}(?:st|nd|rd|th)?\b)?(?:(?: of)?,? (?:19|20)\d\d\b)?|\b(?:19|20)\d\d\b",
    re.IGNORECASE,
)
_NO_MONTH = re.compile("may|march|^March|^May")
"""Words that are no months without a number."""
_FIRST_PERSON = re.compile(r"\b(?:i|me|my|mine|myself)\b|我")
_HAN = re.compile("[\u3400-\u9fff]")


class Reranker(Protocol):
    """Compares a question with each of a few texts by more than their vectors; `engines.rerankers` has some."""

    name: str

    def words(self, query: str) -> Sequence[str]:
        """The words of a question that count as much as they are rare."""
        ...

    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
        """One score a text, shape [texts]; higher is nearer.

        Args:
            query: The question, without the names of speakers.
            texts: Texts, each as its passages.
            weights: How rare each of `words` is in the memory.
        """
        ...


@dataclass(eq=False)
class Speakers:
    """The speakers of an index, by number."""

    numbers: dict[str | None, int] = field(default_factory=dict[str | None, int])
    _aliases: dict[str, int | None] = field(default_factory=dict[str, int | None])

    def number(self, speaker: str | None) -> int:
        """The number of a speaker, a new one if there is none yet."""
        if speaker not in self.numbers:
            self.numbers[speaker] = number = len(self.numbers)
            whole = normalize_text(speaker or "").strip()
            # Two speakers of one first name are not told apart by it.
            for alias in {whole, whole.partition(" ")[0]} - {""}:
                self._aliases[alias] = None if alias in self._aliases and alias != whole else number
        return self.numbers[speaker]

    def speakers_in_query(self, query: str) -> list[int]:
        """The numbers of those whose words a question asks for: nobody's where it names two speakers."""
        text = normalize_text(query[:READ])
        named = {number for alias, number in self._aliases.items() if number is not None and _names(text, alias)}
        if named:
            return list(named) if len(named) == 1 else []
        users = [self.numbers[each] for each in self.numbers if normalize_text(each or "") in USERS]
        return users if users and _FIRST_PERSON.search(text) else []

    def left_out(self, query: str) -> str:
        """The question without names of speakers, which turns of all kinds are near to; as it is if nothing is left."""
        left = asked = query[:READ]
        for alias in sorted((each for each, number in self._aliases.items() if number is not None), key=len)[::-1]:
            if _names(normalize_text(left), alias):
                edge = "" if _HAN.search(alias) else r"\b"
                left = re.sub(rf"{edge}{re.escape(alias)}{edge}(?:['’]s\b)?", " ", left, flags=re.IGNORECASE)
        return query if left == asked else " ".join((left + query[READ:]).split()) or query


def _names(text: str, alias: str) -> bool:
    if alias not in text:
        return False
    return bool(_HAN.search(alias) or re.search(rf"(?<!\w){re.escape(alias)}(?!\w)", text))


def month_of(time: datetime | None) -> int:
    """A month as a number, 0 for none."""
    return 12 * time.year + time.month if time else 0


def months_asked(query: str, months: np.ndarray) -> np.ndarray | None:
    """How near each month of rows is to those that a question names, from 0 to 1; None where it names none."""
    dates = (found for found in _DATE.finditer(query[:READ]) if not _NO_MONTH.fullmatch(query, *found.span()))
    nearness = [_nearness(found[0], months) for found in islice(dates, MOST_DATES)]
    found = [near for near in nearness if near is not None]
    return np.where(months > 0, np.maximum.reduce(found), 0.0) if found else None


def _nearness(span: str, months: np.ndarray) -> np.ndarray | None:
    read = _read(span)
    if read is None:
        return None
    period, month = read
    if period == "year":
        return _YEAR * ((months - 1) // 12 == (month - 1) // 12)
    after = months - month if re.search(r"\d{4}", span) else (months - month) % 12
    return (after == 0) + _NEXT_MONTH * (after == 1)


@functools.lru_cache(maxsize=4096)
def _read(span: str) -> tuple[str, int] | None:
    found = _reader().get_date_data(re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b|,", " ", span))
    return (str(found.period), month_of(found.date_obj)) if found.date_obj else None


@functools.cache
def _reader() -> Any:
    from dateparser.date import DateDataParser

    return DateDataParser(languages=["en", "zh"], settings={"PREFER_DAY_OF_MONTH": "first"})


def passages(text: str, speaker: str | None) -> list[str]:
    """The lines of a text, long ones cut at blanks, without the speaker's name at the beginning."""
    found: list[str] = []
    for line in text.removeprefix(f"{speaker}: ").splitlines():
        while len(line) > _PASSAGE:
            cut = line.rfind(" ", _SHORTEST, _PASSAGE)
            cut = cut if cut > 0 else _PASSAGE
            found.append(line[:cut])
            line = line[cut:].lstrip()
        found.append(line)
    return found or [""]


def standard_scores(scores: np.ndarray) -> np.ndarray:
    """How many deviations each score is from the mean; 0 where all are the same."""
    wide = scores.astype(np.float64)
    wide -= wide.mean() if len(wide) else 0
    spread = wide.std() if len(wide) else 0
    return wide / spread if spread > 1e-9 else np.zeros_like(wide)


def best_rows(scores: np.ndarray, low: float, most: int) -> Iterator[tuple[int, float]]:
    """The rows that score so much at least, best first, equal ones in their order."""
    columns = len(scores) // _BLOCK
    if columns > most:
        # The highest of a column is a score as well, so that `most` of them are so many rows.
        tops = scores[: _BLOCK * columns].reshape(_BLOCK, columns).max(axis=0)
        low = max(low, float(np.partition(tops, columns - most)[columns - most]))
    rows = np.flatnonzero(scores >= low)
    rows = rows[np.argsort(-scores[rows], kind="stable")[:most]]
    return zip(rows.tolist(), scores[rows].tolist(), strict=True)
