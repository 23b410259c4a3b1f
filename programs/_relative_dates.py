"""Writes dates beside relative dates: in a line of 8 May 2023, `yesterday [7 May 2023]`.

The words stay, and the date stands beside them: a small model that reads "last Friday" answers
"last Friday". The languages are English and Chinese. What may mean several days ("on Friday", "a
few days ago") stays as it is.

Regular expressions find the relative dates, because dateparser would find them slowly and wrongly:
it takes "we" for Wednesday. What they find is read by dateparser where it is right, else by rules
of our own (`_english_dates`, `_chinese_dates`). `docs/relative_dates.md` compares the two.

Example:
    >>> from datetime import date
    >>> from mempiler.programs._relative_dates import resolve_text_dates
    >>> resolve_text_dates("We met last Friday and leave next month.", date(2023, 1, 30))
    'We met last Friday [27 January 2023] and leave next month [February 2023].'
"""

from __future__ import annotations

import functools
from datetime import date
from re import Match
from typing import TypeVar

from ..memory.text_slots import text_slot
from ..records import Hit, Item, Turn
from ._chinese_dates import CHINESE
from ._date_rules import DateLanguage, DateRule
from ._english_dates import ENGLISH

MAX_SEARCHED_CHARS = 20_000
"""Most characters of a text in which to look for relative dates: a megabyte takes seconds."""
MAX_DATES_OF_A_RULE = 100
"""Most dates that are written beside what one rule finds in a text, since a date that dateparser
reads takes about half a millisecond. No message of a conversation comes near it."""

LANGUAGES = (ENGLISH, CHINESE)

AnyItem = TypeVar("AnyItem", bound=Item)
Line = TypeVar("Line", Hit, Turn)


def resolve_item_dates(item: AnyItem) -> AnyItem:
    """Return an item with the date beside each relative date of its turns.

    A turn without a time of its own is read as said at the time of the item, but is not given that
    time: prompts may show it once for all turns. If nothing changes, the item itself is returned.
    """
    turns: list[Turn] = []
    is_changed = False
    for turn in item.turns:
        text = resolve_line_dates(turn.at(item.time)).text
        if text == turn.text:
            turns.append(turn)
        else:
            turns.append(turn.model_copy(update={"text": text}))
            is_changed = True

    if not is_changed:
        return item
    return item.model_copy(update={"turns": tuple(turns)})


def resolve_line_dates(line: Line) -> Line:
    """Return a hit or turn with the date beside each relative date, counted from its own time.

    A line without a time stays as it is.
    """
    if line.time is None:
        return line
    return line.model_copy(update={"text": resolve_text_dates(line.text, line.time.date())})


def resolve_text_dates(text: str, day: date) -> str:
    """Return a text with the date beside each relative date in it.

    Args:
        text: What was said. Words that have square brackets after them stay as they are, and so
            does all after the first `MAX_SEARCHED_CHARS` characters.
        day: The day on which it was said.
    """
    beginning = text[:MAX_SEARCHED_CHARS]
    languages = [language for language in LANGUAGES if language.sign.search(beginning)]
    if not languages:
        return text

    with text_slot(len(beginning)):
        for language in languages:
            beginning = _resolve_dates_of_language(beginning, language, day)
    return beginning + text[MAX_SEARCHED_CHARS:]


def _resolve_dates_of_language(text: str, language: DateLanguage, day: date) -> str:
    """Return a text with the date beside each relative date that the rules of a language find."""
    for rule in language.rules:
        add_date = functools.partial(_add_date, rule, language, day)
        text = rule.pattern.sub(add_date, text, count=MAX_DATES_OF_A_RULE)
    return text


def _add_date(rule: DateRule, language: DateLanguage, day: date, match: Match[str]) -> str:
    """Return the words of a match with the date that they mean in brackets after them."""
    words = match.group()
    try:
        span = rule.read(match, day)
        written_date = language.write(span) if span else None
    except (OverflowError, ValueError):
        # The date lies before the year 1 or after 9999, or is none, such as 30 February.
        return words

    return f"{words} [{written_date}]" if written_date else words
