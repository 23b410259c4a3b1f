"""Tells in which languages questions are asked, and where comparing words is unfair.

The script of a text tells most languages. Those of the Latin, Cyrillic and Arabic script are told
by their most common words (`languages.json`, ours: no library that Mempiler depends on brings such
lists).

    >>> from mempiler.data.languages import language_of
    >>> [language_of(text).name for text in ("Wo wohnt Ada?", "我住在哪里？", "Lisbon")]
    ['German', 'Chinese', 'Latin script']

Limits: a text with few common words is told by its script alone, and close languages may be taken
for each other.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..records.normalize import normalize_text


@dataclass(frozen=True)
class Language:
    """A language, or a script where the language is not known."""

    name: str
    unfair_reason: str = ""
    """Why a metric that compares words is unfair to right answers in it; "" where it is fair."""


class _CommonWords(TypedDict):
    """What `languages.json` says of a language."""

    unfair: str
    """Why word metrics are unfair to it; "" where they are not."""
    words: str
    """Its common words, with spaces between them."""


_LANGUAGES: dict[str, dict[str, _CommonWords]] = json.loads(
    Path(__file__).with_name("languages.json").read_text(encoding="utf-8")
)
"""The languages of a script by their names."""

_ENDINGS = "words change their endings"
_JOINED = "particles are joined to words"
_BY_SCRIPT = {
    "ARMENIAN": Language("Armenian", _ENDINGS),
    "BENGALI": Language("Bengali", _ENDINGS),
    "CJK": Language("Chinese"),
    "DEVANAGARI": Language("Devanagari script, such as Hindi", _ENDINGS),
    "ETHIOPIC": Language("Ethiopic script, such as Amharic", _JOINED),
    "GEORGIAN": Language("Georgian", _ENDINGS),
    "GREEK": Language("Greek", _ENDINGS),
    "GUJARATI": Language("Gujarati", _ENDINGS),
    "GURMUKHI": Language("Punjabi", _ENDINGS),
    "HANGUL": Language("Korean"),
    "HEBREW": Language("Hebrew", _JOINED),
    "HIRAGANA": Language("Japanese"),
    "KANNADA": Language("Kannada", _ENDINGS),
    "KATAKANA": Language("Japanese"),
    "KHMER": Language("Khmer"),
    "LAO": Language("Lao"),
    "MALAYALAM": Language("Malayalam", _ENDINGS),
    "MYANMAR": Language("Burmese"),
    "SINHALA": Language("Sinhala", _ENDINGS),
    "TAMIL": Language("Tamil", _ENDINGS),
    "TELUGU": Language("Telugu", _ENDINGS),
    "THAI": Language("Thai"),
}
"""The language of a script, and why word metrics are unfair to it.

They are those scripts that have one language, or several that are alike here. A script is named by
the first word of its letters' Unicode names.
"""
_KANA = ("HIRAGANA", "KATAKANA")
_WORD = re.compile(r"[^\W\d_]+")


UNKNOWN = Language("no letters")


def language_of(text: str) -> Language:
    """Return the language of a text, by its script and its common words."""
    letter_counts = Counter(_script_of(character) for character in text if character.isalpha())
    if not letter_counts:
        return UNKNOWN

    script = letter_counts.most_common(1)[0][0]
    # Japanese may have more Chinese characters than kana.
    if script == "CJK" and any(letter_counts[kana] for kana in _KANA):
        script = "HIRAGANA"
    if script in _BY_SCRIPT:
        return _BY_SCRIPT[script]
    return _language_by_words(text, script) or Language(f"{script.capitalize()} script")


def count_languages(texts: Iterable[str]) -> dict[Language, int]:
    """Count the texts in each language, the most frequent first."""
    return dict(Counter(map(language_of, texts)).most_common())


@functools.lru_cache(maxsize=4096)
def _script_of(letter: str) -> str:
    """Return the first word of a letter's name in Unicode, such as LATIN or CJK."""
    return unicodedata.name(letter, "UNKNOWN").split()[0]


def _language_by_words(text: str, script: str) -> Language | None:
    """Return the language of a text, judging by words such as "the" and "und".

    It is the language whose common words make up most of the text. Only languages that are written
    in `script` are compared.

    Returns:
        The language; None if the text has no common word of any language, or as many of two.
    """
    word_counts = Counter(_WORD.findall(normalize_text(text)))
    num_hits: dict[str, int] = {}
    for name, common_words in _common_words(script).items():
        num_hits[name] = sum(count for word, count in word_counts.items() if word in common_words)

    most_hits = max(num_hits.values(), default=0)
    best_names = [name for name, hits in num_hits.items() if hits == most_hits]
    if most_hits == 0 or len(best_names) > 1:
        return None

    name = best_names[0]
    return Language(name, unfair_reason=_LANGUAGES[script][name]["unfair"])


@functools.cache
def _common_words(script: str) -> dict[str, frozenset[str]]:
    """Return the common words of each language of a script."""
    languages = _LANGUAGES.get(script, {})
    return {name: frozenset(language["words"].split()) for name, language in languages.items()}
