"""How metrics cut answers into words: by script, so that a right answer counts in any language.

SQuAD's rule (`text_metrics.squad_words`) was made for English: it cuts at spaces and removes ASCII
punctuation. In Chinese "里斯本。" and "里斯本" are then two different words. `words_by_script`
gives the same words as SQuAD for ASCII text. For other texts:

- punctuation and signs of all scripts are left out; an emoji is a word;
- Chinese characters are cut into the words of jieba's dictionary, and what is not in it into single
  characters. jieba's guessed words are not used: they depend on the neighbours, so that a gold
  answer would be missed inside a sentence;
- kana, Hangul, Thai, Lao, Burmese and Khmer are cut into single characters, as MKQA and KorQuAD do;
- all other scripts are cut at spaces.

Limits: words are compared as they are written. Inflected forms differ; `languages` says where that
matters.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from ..records.chinese import MAX_RUN_LENGTH, chinese_cutter
from ..records.normalize import normalize_text
from .text_metrics import squad_words, words

_JOINING_MARKS = frozenset("‘’‛′″＇ʼ‐‑‒–－׳״")
"""Relatives of ' and -, which SQuAD removes without parting a word: "don’t" is "dont"."""
_NO_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f]")
"""They choose between the plain and the coloured form of an emoji."""

_HAN = "\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_KANA = "\u3041-\u30ff\u31f0-\u31ff"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7ff"
_THAI_AND_LAO = "\u0e00-\u0eff"
_BURMESE = "\u1000-\u109f\uaa60-\uaa7f"
_KHMER = "\u1780-\u17ff"
_SINGLE = f"{_KANA}{_HANGUL}{_THAI_AND_LAO}{_BURMESE}{_KHMER}"
"""Characters of scripts that are cut into single characters."""
_HAN_RUN = rf"[{_HAN}]{{1,{MAX_RUN_LENGTH}}}"
_RUN = re.compile(rf"(?P<han>{_HAN_RUN})|(?P<single>[{_SINGLE}]+)|[^{_HAN}{_SINGLE}]+")
"""Characters of one script, as long as jieba cuts them in good time."""


@dataclass(frozen=True)
class WordSplitter:
    """A way to cut texts into the words that a metric compares."""

    split: Callable[[str], list[str]]
    description: str
    """In a few words, for `mempiler evaluate --check`."""


def words_by_script(text: str) -> list[str]:
    """Cut a text of any language into words; for ASCII text the words are SQuAD's.

    Example:
        >>> from mempiler.data.word_splitting import words_by_script
        >>> words_by_script("The “Café”, Lisbon!"), words_by_script("她去年搬到了里斯本。")
        (['café', 'lisbon'], ['她', '去年', '搬', '到', '了', '里斯本'])
    """
    if text.isascii():
        return squad_words(text)

    # Punctuation is removed twice. Before folding, which would turn "…" into three full stops; and
    # after folding, which turns "℃" into a degree sign and a letter.
    without_punctuation = _without_foreign_signs(text)
    folded = normalize_text(without_punctuation).casefold()

    pieces: list[str] = []
    for word in _without_foreign_signs(folded).split():
        if word.isascii():
            pieces.extend(squad_words(word))
        else:
            pieces.extend(_split_word(word.translate(_NO_ASCII_PUNCTUATION)))
    return pieces


def _without_foreign_signs(text: str) -> str:
    """Return a text with letters, marks on letters, ASCII, emoji and the digits 0 to 9 only.

    Other digits become those of the same value. Emoji are words, so spaces are put around them.
    Other characters that are not ASCII become spaces if they are signs, and are removed if they are
    invisible.
    """
    characters: list[str] = []
    for character in _VARIATION_SELECTORS.sub("", text):
        category = unicodedata.category(character)
        if character.isascii():
            characters.append(character)
        elif character in _JOINING_MARKS or category == "Cf":  # Invisible.
            continue
        elif category == "Nd":  # A decimal digit.
            characters.append(str(unicodedata.decimal(character)))
        elif category == "So":  # Mostly emoji.
            characters.append(f" {character} ")
        elif category[0] in "PS":  # Punctuation, or any other symbol.
            characters.append(" ")
        else:
            characters.append(character)
    return "".join(characters)


def _split_word(word: str) -> list[str]:
    """Split a text without spaces into words.

    It is cut where the script changes. Of the parts, Chinese is split into the words of jieba's
    dictionary, scripts such as Thai into single characters, and others are a word each.
    """
    pieces: list[str] = []
    for run in _RUN.finditer(word):
        if run["han"]:
            # Without HMM jieba does not guess words that its dictionary lacks.
            pieces.extend(chinese_cutter().cut(run["han"], HMM=False))
        elif run["single"]:
            pieces.extend(_characters(run["single"]))
        else:
            pieces.append(run[0])
    return pieces


def _characters(text: str) -> list[str]:
    """Cut a text into characters, each with the vowels and tones above and below it."""
    characters: list[str] = []
    for character in text:
        if characters and unicodedata.category(character) == "Mn":
            characters[-1] += character
        else:
            characters.append(character)
    return characters


BY_SCRIPT = WordSplitter(
    words_by_script,
    "words between spaces; Chinese in words of jieba's dictionary; kana, Hangul, Thai, Lao, "
    "Burmese and Khmer in single characters; no punctuation, no a, an, the",
)
SQUAD = WordSplitter(
    squad_words,
    "SQuAD's words: between spaces; no ASCII punctuation, no a, an, the",
)
LOCOMO = WordSplitter(
    words,
    "LoCoMo's words: English stems between spaces; no ASCII punctuation, no a, an, the, and",
)
