"""Vectors of texts by spelling, without a model: what the embedder `offline` computes.

Words and their parts are hashed into the numbers of a vector ("feature hashing"). It compares
spelling, not meaning: on the turns of two LoCoMo conversations it finds .34 of the evidence among
the first five hits, and BM25 finds .55. It is there to run and test everything without a model.

Saved indexes rely on these vectors: change them only together with the name of the embedder.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...records.normalize import normalize_text
from ..endpoint.loop import check_deadline
from ..fair_semaphore import compute_slot

DIMENSION = 384
TEXTS_PER_SLOT = 256
"""After so many texts the slot is given back, so that others have their turn."""
TEXTS_WITHOUT_SLOT = 16
"""So few texts take a millisecond, and no slot: waiting for one would take longer."""

_MAX_WORD_LENGTH = 64
"""Characters of a word that count; longer ones are keys and links, not words."""
_NGRAM_LENGTHS = (3, 4, 5)

# A list of its own, not that of `memory.search.tokens`: an improvement of one kind of search must
# not change the vectors that are stored for the other.
_FUNCTION_WORD_LIST = """
a about also am an and are as at be been being but by can could d did do does for from had has
have he her hers him his how i if in into is it its just ll m may me my no not of on or our re s
she should so t than that the their them then there these they this those to too us ve very was we
were what when where which who whom whose why will with would you your
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORD_LIST.split())

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
"""Ranges of Chinese characters."""
_RUN = re.compile(rf"(?P<han>[{_HAN}]+)|[^\W_{_HAN}]+")
"""A run of Chinese characters, or a word in another script."""


class Features(NamedTuple):
    """The features of a word: the word itself, and parts of it."""

    hashes: np.ndarray
    """int64 [features], from 0 to 2**32 - 1."""
    weights: np.ndarray
    """float64 [features]."""


def hashed_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of texts.

    Returns:
        float32 [texts, DIMENSION]; rows have any length, 0 where a text has no words.

    Raises:
        AbandonedCallError: The deadline of the call context has passed.
    """
    check_deadline()
    if len(texts) <= TEXTS_WITHOUT_SLOT:
        return np.stack([_vector(text) for text in texts])

    rows: list[np.ndarray] = []
    for start in range(0, len(texts), TEXTS_PER_SLOT):
        with compute_slot():
            rows.extend(_vector(text) for text in texts[start : start + TEXTS_PER_SLOT])
    return np.stack(rows)


def clear_feature_cache() -> None:
    """Drop the words that this process keeps."""
    _features.cache_clear()


def _vector(text: str) -> np.ndarray:
    """Return the vector of one text, float32 [DIMENSION].

    Each feature adds `weight * (1 + log(count))` to one of the numbers, or subtracts it. Its hash
    says which number, and whether to add or subtract.
    """
    features_of_words = [_features(word) for word in _words(text)]
    if not features_of_words:
        return np.zeros(DIMENSION, dtype=np.float32)

    hash_arrays, weight_arrays = zip(*features_of_words, strict=True)
    hashes = np.concatenate(hash_arrays)
    weights = np.concatenate(weight_arrays)

    features, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    signs = np.where(features >> 31, 1.0, -1.0)
    values = weights[first] * (1 + np.log(counts)) * signs
    vector = np.bincount(features % DIMENSION, weights=values, minlength=DIMENSION)
    return vector.astype(np.float32)


def _words(text: str) -> list[str]:
    """Return the words of a text that count.

    Chinese words are short and not set apart: all characters and all pairs of neighbouring ones
    stand for them.
    """
    words: list[str] = []
    for match in _RUN.finditer(normalize_text(text)):
        run = match[0]
        if match["han"]:
            words.extend(run)
            words.extend(first + second for first, second in pairwise(run))
        elif run not in _FUNCTION_WORDS:
            words.append(run[:_MAX_WORD_LENGTH])
    return words


@functools.lru_cache(maxsize=50_000)
def _features(word: str) -> Features:
    """Return the features of a word: its stem, and its character n-grams.

    The stem weighs 1. The n-grams weigh 1 together, as a vector: each has 1 / sqrt(their number).
    """
    from snowballstemmer import stemmer

    marked_word = f"<{word}>"
    ngrams: list[str] = []
    for length in _NGRAM_LENGTHS:
        for start in range(len(marked_word) - length + 1):
            ngrams.append(marked_word[start : start + length])

    # Threads must not share a stemmer. A new one for each distinct word is cheap.
    stem = stemmer("porter").stemWord(word)
    names = [f"={stem}", *ngrams]
    weights = [1.0] + [len(ngrams) ** -0.5] * len(ngrams)
    hashes = [zlib.crc32(name.encode()) for name in names]
    return Features(np.array(hashes, dtype=np.int64), np.array(weights))
