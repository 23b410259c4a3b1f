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
    """Return an item with a date written beside each relative date in its turns.

    If no turn has a relative date, the same object is returned.
    """
    turns: list[Turn] = []
    is_changed = False
    for turn in item.turns:
        # A turn without a time was said at the time of its item. Only the text is taken over: a
        # turn that gets the time itself would be shown with it in prompts.
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
    """Return a hit or a turn with a date written beside each relative date in its text.

    Relative dates are counted from the time of the hit or turn. Without a time, or without a
    relative date, the same object is returned.
    """
    if line.time is None:
        return line
    text = resolve_text_dates(line.text, line.time.date())
    if text == line.text:
        return line
    return line.model_copy(update={"text": text})


def resolve_text_dates(text: str, day: date) -> str:
    """Return a text with a date written beside each relative date: "yesterday [7 May 2023]".

    Args:
        text: What was said. Words that have square brackets after them stay as they are, and so
            does all after the first `MAX_SEARCHED_CHARS` characters.
        day: The day on which it was said.
    """
    beginning = text[:MAX_SEARCHED_CHARS]

    # Most texts have no relative date, which one quick look per language tells.
    languages = [language for language in LANGUAGES if language.sign.search(beginning)]
    if not languages:
        return text

    # In a service, one thread at a time works on a long text, and the others wait here.
    with text_slot(len(beginning)):
        for language in languages:
            beginning = _resolve_dates_of_language(beginning, language, day)
    return beginning + text[MAX_SEARCHED_CHARS:]


def _resolve_dates_of_language(text: str, language: DateLanguage, day: date) -> str:
    """Return a text with a date beside each relative date that the rules of one language find."""
    for rule in language.rules:
        add_date = functools.partial(_add_date, rule, language, day)
        text = rule.pattern.sub(add_date, text, count=MAX_DATES_OF_A_RULE)
    return text


def _add_date(rule: DateRule, language: DateLanguage, day: date, match: Match[str]) -> str:
    """Return matched words with their date in brackets; only the words if they mean no date.

    Args:
        rule: The rule that found the words.
        language: Writes the date.
        day: The day on which the words were said.
        match: The match of the rule's pattern.
    """
    words = match.group()
    try:
        span = rule.read(match, day)
        if span is None:
            return words
        return f"{words} [{language.write(span)}]"
    except (OverflowError, ValueError):
        # The date lies before the year 1 or after 9999, or does not exist, such as 30 February.
        return words
    except KeyError:
        # Without regard to case, the patterns also match letters such as the long s in "laſt".
        return words
