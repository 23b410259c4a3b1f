"""Words, stems, sentences and dates of a text, in English and, roughly, in Chinese and Japanese."""

from __future__ import annotations

import functools
import re
from datetime import date, datetime

Stems = frozenset[str]
"""The stems of the content words of a text."""

MAX_WORDS_OF_DATE = 6
"""Most words of a text that is a date: "the week before 9 June 2023" has six."""

# Each character of these scripts counts as a word: hiragana to katakana, Han, and Hangul.
_SINGLE_CHARACTERS = "぀-ヿ㐀-鿿가-힯"
_WORD = re.compile(rf"[{_SINGLE_CHARACTERS}]|[^\W_{_SINGLE_CHARACTERS}]+")

# What is left of a word without its ending has three letters at least.
_ENDING = re.compile(r"(?<=...)(?:ing|ed|ies|es|e|y|(?<!s)s)$")

_FUNCTION_WORD_LIST = """
a an and are as at be been but by did do does for from had has have he her him his i in is it its
me my of on or our she so that the their them they this to us was we were will with would you your
how what when where which who whom whose why
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORD_LIST.split())

# What `programs._relative_dates` writes beside a relative date, e.g. "[7 May 2023]".
_RESOLVED_DATE = r"\[[^\[\]]*(?:\b(?:19|20)\d\d|(?:19|20)\d\d年[^\[\]]*)\]"
_SENTENCE_BREAKS = (
    r"(?<=[.!?])[\"')]*\s+",
    r"(?<=[。！？])",
    r"\n+",
    # A bracket, such as that of an id, begins a sentence. The sentence goes on where words follow
    # a resolved date.
    rf"(?<!\s)\s+(?=\[)(?!{_RESOLVED_DATE},? ?\w)",
)
_SENTENCE_BREAK = re.compile("|".join(_SENTENCE_BREAKS))

_ISO_DATE = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_DAY_FIRST_DATE = re.compile(r"\b(\d\d?) ([a-z]{3})[a-z]*,? (\d{4})\b", re.IGNORECASE)


def words(text: str) -> list[str]:
    """Return the words of a text in order, in lower case."""
    return _WORD.findall(text.lower().replace("'s", "").replace("'", ""))


# The functions below keep their results, since the prompts about one memory repeat its lines.


@functools.lru_cache(maxsize=50_000)
def stems(text: str) -> Stems:
    """Return the stems of the content words of a text."""
    return frozenset(_ENDING.sub("", word) for word in words(text) if word not in _FUNCTION_WORDS)


@functools.lru_cache(maxsize=50_000)
def sentences(text: str) -> tuple[str, ...]:
    """Return the sentences and the bracketed remarks of a text, in order."""
    parts = _SENTENCE_BREAK.split(text)
    return tuple(part.strip() for part in parts if part and part.strip())


@functools.lru_cache(maxsize=20_000)
def parse_date(text: str) -> date | None:
    """Return the first date in a text that has a day, a month and a year.

    A date like "2023-05-07" is preferred to one like "7 May 2023".
    """
    for pattern, date_format in ((_ISO_DATE, "%Y %m %d"), (_DAY_FIRST_DATE, "%d %b %Y")):
        for match in pattern.finditer(text):
            try:
                return datetime.strptime(" ".join(match.groups()), date_format).date()
            except ValueError:  # there is no such day or month
                continue
    return None


def is_date(text: str) -> bool:
    """Return whether a text is little more than a date, like "the week before 9 June 2023"."""
    return len(text.split()) <= MAX_WORDS_OF_DATE and parse_date(text) is not None


def clear_word_caches() -> None:
    """Drop the texts that this process keeps."""
    for function in (stems, sentences, parse_date):
        function.cache_clear()
