"""Tells in which languages questions are asked, and where comparing words is unfair to right answers.

The script of a text tells most languages; those of the Latin, Cyrillic and Arabic script are told by their most common
words (`languages.json`, ours: no library that Mempiler depends on brings such lists).

    >>> from mempiler.data.languages import language_of
    >>> [language_of(text).name for text in ("Wo wohnt Ada?", "我住在哪里？", "Lisbon")]
    ['German', 'Chinese', 'Latin script']

Limits: a text with few common words is told by its script alone, and close languages may be taken for each other.
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

from ..records.normalize import normalize_text

_LANGUAGES = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
"""By script: the languages, why word metrics are unfair to them ("" where they are not), and their common words."""

_ENDINGS = "words change their endings"
_JOINED = "particles are joined to words"
_BY_SCRIPT = {
    "ARMENIAN": ("Armenian", _ENDINGS),
    "BENGALI": ("Bengali", _ENDINGS),
    "CJK": ("Chinese", ""),
    "DEVANAGARI": ("Devanagari script, such as Hindi", _ENDINGS),
    "ETHIOPIC": ("Ethiopic script, such as Amharic", _JOINED),
    "GEORGIAN": ("Georgian", _ENDINGS),
    "GREEK": ("Greek", _ENDINGS),
    "GUJARATI": ("Gujarati", _ENDINGS),
    "GURMUKHI": ("Punjabi", _ENDINGS),
    "HANGUL": ("Korean", ""),
    "HEBREW": ("Hebrew", _JOINED),
    "HIRAGANA": ("Japanese", ""),
    "KANNADA": ("Kannada", _ENDINGS),
    "KATAKANA": ("Japanese", ""),
    "KHMER": ("Khmer", ""),
    "LAO": ("Lao", ""),
    "MALAYALAM": ("Malayalam", _ENDINGS),
    "MYANMAR": ("Burmese", ""),
    "SINHALA": ("Sinhala", _ENDINGS),
    "TAMIL": ("Tamil", _ENDINGS),
    "TELUGU": ("Telugu", _ENDINGS),
    "THAI": ("Thai", ""),
}
"""Scripts of one language, or of languages that are alike here, by the first word of their letters' Unicode names: the
language, and why word metrics are unfair to it."""
_KANA = ("HIRAGANA", "KATAKANA")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Language:
    """A language, or a script where the language is not known."""

    name: str
    unfair_reason: str = ""
    """Why a metric that compares words is unfair to right answers in it; "" where it is fair."""


UNKNOWN = Language("no letters")


def language_of(text: str) -> Language:
    """Return the language of a text, by its script and its common words."""
    letters = Counter(_script_of(character) for character in text if character.isalpha())
    if not letters:
        return UNKNOWN

    script = letters.most_common(1)[0][0]
    if script == "CJK" and any(letters[kana] for kana in _KANA):
        script = "HIRAGANA"
    if script in _BY_SCRIPT:
        return Language(*_BY_SCRIPT[script])
    return _by_common_words(script, text) or Language(f"{script.capitalize()} script")


def count_languages(texts: Iterable[str]) -> dict[Language, int]:
    """Count the texts in each language, the most frequent first."""
    return dict(Counter(map(language_of, texts)).most_common())


@functools.lru_cache(maxsize=4096)
def _script_of(letter: str) -> str:
    """Return the first word of a letter's name in Unicode, such as LATIN or CJK."""
    return unicodedata.name(letter, "UNKNOWN").split()[0]


def _by_common_words(script: str, text: str) -> Language | None:
    """Return the language of a script that has most common words in the text; None where none leads."""
    words = Counter(_WORD.findall(normalize_text(text)))
    hits: Counter[str] = Counter()
    for name, common in _common_words(script).items():
        hits[name] = sum(count for word, count in words.items() if word in common)

    most = max(hits.values(), default=0)
    leaders = [name for name, count in hits.items() if count == most]
    if most == 0 or len(leaders) > 1:
        return None
    return Language(leaders[0], _LANGUAGES[script][leaders[0]]["unfair"])


@functools.cache
def _common_words(script: str) -> dict[str, frozenset[str]]:
    languages = _LANGUAGES.get(script, {})
    return {name: frozenset(language["words"].split()) for name, language in languages.items()}
