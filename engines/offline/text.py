"""Words, sentences and dates: what the offline engine reads in a text, and how it writes a date.

Stems are crude, function words do not count, and text in scripts without spaces is compared by character; synonyms are
strangers. Dates are English, with only the commonest relative expressions; "last week" is taken as seven days ago.
"""

from __future__ import annotations

import functools
import re
from contextlib import suppress
from datetime import date, datetime, timedelta

Stems = frozenset[str]
Moment = tuple[date, str]
"""A day, and how it is written if it means its month or year: "%B %Y" or "%Y"."""
_WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W_぀-ヿ㐀-鿿가-힯]+")
_ENDING = re.compile(r"(?<=...)(?:ing|ed|ies|es|e|y|(?<!s)s)$")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')]*\s+|(?<=[。！？])|\n+|(?<!\s)\s+(?=\[)")
_FUNCTION_WORDS = """a an and are as at be been but by did do does for from had has have he her him his i in is it its
    me my of on or our she so that the their them they this to us was we were will with would you your how what when
    where which who whom whose why"""
_SILENT = frozenset(_FUNCTION_WORDS.split())
COUNTS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_YEAR = re.compile(r"\b((?:19|20)\d\d)\b")
_ISO = re.compile(rf"{_YEAR.pattern}[-/](\d\d?)[-/](\d\d?)(?!\d)")
_DAY_FIRST = re.compile(rf"\b(\d\d?)(?:st|nd|rd|th)?(?: of)? ([a-z]{{3}})[a-z]*\.?,? {_YEAR.pattern}", re.I)
_MONTH_FIRST = re.compile(rf"\b([a-z]{{3}})[a-z]*\.? (\d\d?)(?:st|nd|rd|th)?,? {_YEAR.pattern}", re.I)
_RELATIVE = re.compile(
    rf"(?i)\b(?:(yesterday|last night|tomorrow)|(\d{{1,3}}|{'|'.join(COUNTS)}|a) (day|week|month|year)s? ago"
    rf"|(last|next) (week|month|year|{'|'.join(_DAYS)}))\b"
)


def words(text: str) -> list[str]:
    """The words of `text` in order, lower case."""
    return _WORD.findall(text.lower().replace("'s", "").replace("'", ""))


@functools.lru_cache(maxsize=50_000)
def stems(text: str) -> Stems:
    """Stems of the content words of `text`; kept, since prompts repeat their lines."""
    return frozenset(_ENDING.sub("", word) for word in words(text) if word not in _SILENT)


@functools.lru_cache(maxsize=50_000)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences (and bracketed remarks) of `text`, in order."""
    return tuple(part.strip() for part in _SENTENCE.split(text) if part and part.strip())


@functools.lru_cache(maxsize=20_000)
def parse_date(text: str) -> date | None:
    """The first full date (day, month and year) in `text`."""
    for pattern, form in ((_ISO, "%Y %m %d"), (_DAY_FIRST, "%d %b %Y"), (_MONTH_FIRST, "%b %d %Y")):
        for match in pattern.finditer(text):
            with suppress(ValueError):
                return datetime.strptime(" ".join(match.groups()), form).date()
    return None


def forget_texts() -> None:
    """Drops what is kept of the texts seen so far."""
    for kept in (stems, sentences, parse_date):
        kept.cache_clear()


def is_date(text: str) -> bool:
    """Whether a short text is mainly a date: "7 May 2023", "June 2023", "2022", "the week before 9 June 2023"."""
    match = _ISO.search(text) or _DAY_FIRST.search(text) or _MONTH_FIRST.search(text) or _YEAR.search(text)
    return match is not None and len(text.split()) - len(match[0].split()) <= 4


def resolve(text: str, said: date | None) -> Moment | None:
    """When the thing told in `text` happened: its date, or its relative expression counted from the day it was said."""
    if day := parse_date(text):
        return day, ""
    match = _RELATIVE.search(text)
    if said is None or match is None:
        return None
    near, n, ago, side, unit = (part and part.lower() for part in match.groups())
    count = -int({**COUNTS, "a": 1}.get(n, n)) if ago else 1 if near == "tomorrow" or side == "next" else -1
    unit = unit or ago or "day"
    if unit in ("month", "year"):
        months = said.year * 12 + said.month - 1 + count * (12 if unit == "year" else 1)
        return date(months // 12, months % 12 + 1, 1), "%Y" if unit == "year" else "%B %Y"
    days = 7 * count if unit == "week" else count
    if unit in _DAYS:
        ahead = (_DAYS.index(unit) - said.weekday()) % 7 or 7
        days = ahead if count > 0 else ahead - 7 or -7
    return said + timedelta(days), ""


def written(moment: Moment, like: str = "") -> str:
    """A moment in words, as the date in `like` is written; the day first if there is none."""
    day, form = moment
    if form:
        return day.strftime(form)
    if _ISO.search(like):
        return day.isoformat()
    return f"{day:%B} {day.day}, {day.year}" if _MONTH_FIRST.search(like) else f"{day.day} {day:%B %Y}"
