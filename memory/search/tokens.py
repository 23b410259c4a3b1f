"""The terms of a text, by which a search compares it with a query: English stems and Chinese words.

    >>> from mempiler.memory.search.tokens import tokens
    >>> tokens("She was running in the parks!")
    ['run', 'park']
    >>> tokens("我喜欢在周末打篮球")
    ['喜欢', '周末', '篮球', '打篮球']

Case does not count, and function words such as "the" are left out. Words of other languages are
terms as they are.

Texts may be hostile: jieba takes quadratic time for long runs of Chinese, and the stemmer for long
words. So only so much of a text is split and stemmed; the limits stand below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

from ...records.chinese import MAX_RUN_LENGTH, chinese_cutter
from ...records.normalize import normalize_text
from ..text_slots import text_slot

MAX_QUERY_CHARS = 10_000
"""Most characters of a query that count, for words and for vectors; the rest is ignored."""
MAX_STEMMED_WORDS = 5_000
"""Most distinct words of a text to stem, which takes 20 microseconds each."""
MAX_STEMMED_LENGTH = 64
"""Most letters of a word to stem. It also bounds the cache of stems to 30 MB."""
MAX_SPLIT_CHARS = 10_000
"""Most Chinese characters of a text to split with jieba, which takes up to 30 ms per thousand."""

_FUNCTION_WORDS = """
a an the and or but if so of to in on at for from with by as about into than then
that this these those there
i me my we us our you your he him his she her hers it its they them their
am is are was were be been being do does did has have had can could will would should may
what when where which who whom whose why how not no just too very also
的 了 吗 呢 吧 啊 着 过 地 得 和 与 在 是 有 我 你 他 她 它 我们 你们
他们 她们 这 那 也 都 就 很 什么
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that say nothing about what a text is about, in English and Chinese."""

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_WORD = re.compile(r"[^\W_]+")
_WORD_OR_CHINESE = re.compile(
    rf"(?P<chinese>[{_CHINESE}]{{1,{MAX_RUN_LENGTH}}})|(?P<word>[^\W_{_CHINESE}]+)"
)


def tokens(text: str) -> list[str]:
    """Return the terms of a text in their order, by which a search compares it with a query.

    Terms are English stems ("run" for "running") and Chinese words, without words such as "the". A
    word that the text has twice is returned twice.
    """
    # Long texts take long, so in a service they wait for their turn.
    with text_slot(len(text)):
        return _stems(_words(normalize_text(text)))


def query_terms(query: str) -> tuple[str, ...]:
    """Return the terms of a query as `tokens` does; only the first `MAX_QUERY_CHARS` count.

    Several parts of one search ask for the same terms, so those of recent queries are remembered.
    """
    return _query_terms(query[:MAX_QUERY_CHARS])


def clear_word_cache() -> None:
    """Empty the caches of words and queries, for a word may be somebody's password."""
    _stem.cache_clear()
    _query_terms.cache_clear()


@lru_cache(maxsize=64)
def _query_terms(query: str) -> tuple[str, ...]:
    """Return the terms of a query that is not too long; the part of `query_terms` with a cache."""
    return tuple(tokens(query))


def _words(text: str) -> list[str]:
    """Split a normalized text into words, Chinese with jieba and all else at signs and blanks."""
    # A shortcut with the same result: a text of ASCII has no Chinese.
    if text.isascii():
        return _WORD.findall(text)

    words: list[str] = []
    chinese_chars = 0
    for run in _WORD_OR_CHINESE.finditer(text):
        chinese = run["chinese"]
        if not chinese:
            words.append(run["word"])
            continue

        chinese_chars += len(chinese)
        if chinese_chars <= MAX_SPLIT_CHARS:
            # This method of jieba returns a long word and the words within it, e.g. the word for
            # "play basketball" and that for "basketball".
            words.extend(chinese_cutter().cut_for_search(chinese))
        else:
            # jieba would take too long for so much text.
            words.extend(_pairs(chinese))
    return words


def _pairs(chinese: str) -> list[str]:
    """Cut Chinese into overlapping pairs, ABC into AB and BC, since most words have two letters."""
    if len(chinese) == 1:
        return [chinese]
    return [chinese[start : start + 2] for start in range(len(chinese) - 1)]


def _stems(words: Iterable[str]) -> list[str]:
    """Return the stems of words ("run" for "running") in their order, without words such as "the".

    Stemming is slow. So words that are too long, or come after too many other words, stay as they
    are.
    """
    # The stem of each distinct word of this text.
    stems: dict[str, str] = {}
    terms: list[str] = []
    for word in words:
        if word in FUNCTION_WORDS:
            continue

        if word not in stems:
            is_stemmed = len(word) <= MAX_STEMMED_LENGTH and len(stems) < MAX_STEMMED_WORDS
            stems[word] = _stem(word) if is_stemmed else word
        terms.append(stems[word])
    return terms


@lru_cache(maxsize=32_768)
def _stem(word: str) -> str:
    """Return the stem of an English word by Porter's algorithm, e.g. "run" for "running"."""
    import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

    # A stemmer keeps the word it works on in itself, so threads must not share one. The cache makes
    # it affordable to create a new one each time.
    stemmer = cast("Any", snowballstemmer).stemmer("porter")

    # Porter's algorithm removes the whole of "s". Keep it, so that no term is empty.
    return stemmer.stemWord(word) or word
