"""Whether generated texts are in the language that was asked for, and no longer than it was asked for.

    a text is foreign    Chinese: more Latin words than Chinese characters; English: more characters than words
    a text is too long   more sentences than the prompt allows, and one more for the full stops of abbreviations

Example:
    >>> from mempiler.data.synthesis.palset.wording import foreign
    >>> foreign({"experience": "The user slept badly."}, "zh")
    ['experience is not in Chinese: The user slept badly.']

Limits: texts of one or two words are passed over: labels, names and actions are such. English that is mixed with
Chinese counts as the language with more of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel

# Each run of stops is tried once: texts are hostile input.
_STOPS = r"(?<![.!?])[.!?]++"
_ENDS = re.compile(rf"{_STOPS}(?=\s|$|[\"'”’)])|[。！？；]+")
_SURE_ENDS = re.compile(rf"{_STOPS}(?=\s+[^\sa-z]|\s*$)|[。！？]+")
_FEWEST = 3
_SPARE = 1
_NAMES: Mapping[str, str] = {"zh": "Chinese", "en": "English"}


def foreign(answer: Mapping[str, Any], language: Literal["zh", "en"]) -> list[str]:
    """The texts of an answer that are not in a language, each with where it stands."""
    return [
        f"{where} is not in {_NAMES[language]}: {text.strip():.60}"
        for where, text in _texts("", answer)
        if not _is(text, language)
    ]


def sentences(text: str) -> int:
    """How many sentences a text has, English or Chinese."""
    return _parts(_ENDS, text)


def length_problems(what: str, text: str, fewest: int = 1, most: int | None = None) -> list[str]:
    """What is wrong with the length of a text that has to have so many sentences."""
    found = sentences(text)
    if fewest <= found and (most is None or _surely(text) <= most + _SPARE):
        return []
    wanted = f"{fewest} or more" if most is None else f"{fewest} to {most}" if fewest < most else f"{most}"
    return [f"{what} has {found} sentences; write {wanted}"]


def _surely(text: str) -> int:
    """How many sentences a text has at least: no semicolon ends one, nor a full stop before a small letter."""
    return _parts(_SURE_ENDS, text)


def _parts(ends: re.Pattern[str], text: str) -> int:
    return len([part for part in ends.split(text) if re.search(r"\w", part)])


def _is(text: str, language: Literal["zh", "en"]) -> bool:
    chinese, latin = len(re.findall(r"[\u4e00-\u9fff]", text)), len(re.findall(r"[^\W\d_\u3000-\u9fff]{2,}", text))
    if language == "zh":
        return latin < _FEWEST or latin <= chinese
    return chinese < _FEWEST or chinese <= latin


def _texts(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, BaseModel):
        yield from _texts(where, dict(value))
    elif isinstance(value, Mapping):
        for name, part in cast("Mapping[str, Any]", value).items():
            yield from _texts(f"{where}.{name}" if where else name, part)
    elif isinstance(value, list):
        for n, part in enumerate(cast("list[Any]", value), 1):
            yield from _texts(f"{where}[{n}]", part)
