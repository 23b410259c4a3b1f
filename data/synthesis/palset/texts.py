"""The rules of PAL-Set's texts: their language, their length, and that they do not name the user.

A text is foreign: in Chinese data if it has more Latin words than Chinese characters, in English
data if it has more Chinese characters than words. Texts of one or two words (labels, names,
actions) are in no language.

A text is too long if it has more sentences than the prompt allows, and one more for the full stops
of abbreviations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel

from ....signatures.synthesis_palset import Language

LanguageCode = Literal["zh", "en"]
LANGUAGES: Mapping[LanguageCode, Language] = {"zh": "Chinese", "en": "English"}
"""Languages as prompts call them."""

# Each run of stops is tried once: texts are hostile input.
_STOPS = r"(?<![.!?])[.!?]++"
_SENTENCE_ENDS = re.compile(rf"{_STOPS}(?=\s|$|[\"'”’)])|[。！？；]+")
"""All that may end a sentence."""
_SURE_SENTENCE_ENDS = re.compile(rf"{_STOPS}(?=\s+[^\sa-z]|\s*$)|[。！？]+")
"""Without semicolons, and without full stops before a small letter."""
_ABBREVIATIONS = 1
"""Sentences more than allowed that are tolerated, since "Dr. Li" has the end of a sentence, too."""

_CHINESE_CHARACTER = re.compile(r"[\u4e00-\u9fff]")
_LATIN_WORD = re.compile(r"[^\W\d_\u3000-\u9fff]{2,}")
_MIN_FOREIGN_WORDS = 3
"""Fewest words of the other language in a foreign text."""


class _PlacedText(NamedTuple):
    """A text of an answer, and where it stands, e.g. "people[1].hobbies"."""

    where: str
    text: str


def foreign(answer: Mapping[str, Any], language: LanguageCode) -> list[str]:
    """Return which texts of an answer are not in a language, each with where it stands."""
    problems: list[str] = []
    for where, text in _texts_of(answer, ""):
        if _is_foreign(text, language):
            problems.append(f"{where} is not in {LANGUAGES[language]}: {text.strip():.60}")
    return problems


def length_problems(
    what: str, text: str, min_sentences: int = 1, max_sentences: int | None = None
) -> list[str]:
    """Return what is wrong with the number of sentences of a text.

    Code cannot count sentences exactly, so both limits are judged in favour of the text: everything
    that may end a sentence counts towards the fewest, and only what surely ends one towards the
    most. One sentence more is tolerated.

    Args:
        what: The name of the text in the problem, e.g. "the experience".
        text: The text.
        min_sentences: Fewest sentences.
        max_sentences: Most sentences; None if there may be any number.
    """
    num_sentences = _count_sentences(_SENTENCE_ENDS, text)
    num_sure_sentences = _count_sentences(_SURE_SENTENCE_ENDS, text)
    is_too_short = num_sentences < min_sentences
    is_too_long = max_sentences is not None and num_sure_sentences > max_sentences + _ABBREVIATIONS
    if not is_too_short and not is_too_long:
        return []

    if max_sentences is None:
        wanted = f"{min_sentences} or more"
    elif min_sentences < max_sentences:
        wanted = f"{min_sentences} to {max_sentences}"
    else:
        wanted = f"{max_sentences}"
    return [f"{what} has {num_sentences} sentences; write {wanted}"]


def text_problems(
    what: str, text: str, min_sentences: int, user_name: str, max_sentences: int | None = None
) -> list[str]:
    """Return what is wrong with a text about a user, which must not give the user's name."""
    if blank(text):
        return [f"{what} is empty"]
    problems = length_problems(what, text, min_sentences, max_sentences)
    user_name = user_name.strip()
    if user_name and user_name in text:
        problems.append(f"{what} names the user; say 'the user'")
    return problems


def phrase_problems(what: str, text: str, max_sentences: int = 1) -> list[str]:
    """Return what is wrong with a text of one sentence, or a few."""
    if blank(text):
        return [f"{what} is empty"]
    return length_problems(what, text, 1, max_sentences)


def blank(text: str) -> bool:
    """Return whether a text is empty, or the dots of a template."""
    return not text.strip(" .…\n\t")


def _count_sentences(ends: re.Pattern[str], text: str) -> int:
    """Count the parts between the ends of sentences that have a letter or a digit."""
    return sum(1 for part in ends.split(text) if re.search(r"\w", part))


def _is_foreign(text: str, language: LanguageCode) -> bool:
    """Return whether a text is in another language than the data."""
    num_chinese = len(_CHINESE_CHARACTER.findall(text))
    num_latin = len(_LATIN_WORD.findall(text))
    if language == "zh":
        return num_latin >= _MIN_FOREIGN_WORDS and num_latin > num_chinese
    return num_chinese >= _MIN_FOREIGN_WORDS and num_chinese > num_latin


def _texts_of(value: object, where: str) -> Iterator[_PlacedText]:
    """Yield all texts inside a value.

    Args:
        value: An answer or a part of it.
        where: Its place in the answer; "" for the answer itself.
    """
    if isinstance(value, str):
        yield _PlacedText(where, value)
    elif isinstance(value, BaseModel):
        yield from _texts_of(dict(value), where)
    elif isinstance(value, Mapping):
        for name, part in cast("Mapping[str, object]", value).items():
            yield from _texts_of(part, f"{where}.{name}" if where else name)
    elif isinstance(value, list):
        for number, part in enumerate(cast("list[object]", value), 1):
            yield from _texts_of(part, f"{where}[{number}]")
