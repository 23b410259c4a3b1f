"""BM25 over stems, updated in place instead of rebuilt; neighbouring turns share their scores.

Scores are those of rank_bm25's Okapi to the last bit; but a term in half of the entries or more has a small weight, so
that the first facts of a memory can be found. Function words and stems are English, Chinese is cut by jieba. Texts are
hostile, and jieba and the stemmer take the square of a length: long runs are cut, long words are terms as they are.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np

from ...records.chinese import MAX_RUN_LENGTH, chinese_cutter
from ...records.normalize import normalize_text
from ..text_slots import text_slot

K1, B = 1.5, 0.75
EPSILON, FLOOR = 0.25, 0.01
"""Weight of a term that is in half of the entries or more: this share of the mean weight of all terms, but no less."""

_FUNCTION_WORDS = """
a an the and or but if so of to in on at for from with by as about into than then that this these those there
i me my we us our you your he him his she her hers it its they them their
am is are was were be been being do does did have has had can could will would should may
what when where which who whom whose why how not no just too very also
的 了 吗 呢 吧 啊 着 过 地 得 和 与 在 是 有 我 你 他 她 它 我们 你们 他们 她们 这 那 也 都 就 很 什么
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_WORD = re.compile(r"[^\W_]+")
_RUN = re.compile(rf"(?P<han>[{_HAN}]{{1,{MAX_RUN_LENGTH}}})|[^\W_{_HAN}]+")
MAX_QUERY_CHARS = 10_000
"""Characters of a query of which words are looked for, and which are embedded."""
MAX_STEMS = 5_000
"""Distinct words of a text that are stemmed, at 20 microseconds each; further ones are terms as they are."""
MAX_CUT = 10_000
"""Chinese signs of a text that are cut into words, at up to 30 ms a thousand; behind them every pair is a term."""
_LONGEST = 64
"""Letters of a word that is stemmed; with them the words that are kept take at most 30 MB."""
NEIGHBOUR_WEIGHT = {1: 0.5, 2: 0.2, -1: 0.2}
"""The part of its score that a turn lends its neighbours, by how many turns these come after it."""


@dataclass(eq=False)
class BM25Index:
    """BM25 of the texts in the rows of an index; not locked."""

    neighbor_weights: Mapping[int, float] = field(default_factory=lambda: NEIGHBOUR_WEIGHT)
    """What the turns of one dialogue lend one another."""
    _postings: dict[str, tuple[array[int], array[int]]] = field(default_factory=dict[str, Any])
    """Of each term the rows that hold it, ascending, and how often each does."""
    _terms_in: array[int] = field(default_factory=lambda: array("q", [0]))
    """How many terms are in 1, 2, ... texts, by that number; what stands at 0 is not read."""
    _lengths: array[float] = field(default_factory=lambda: array("d"))
    _texts: int = 0
    _total: int = 0
    _numbers: dict[str, int] = field(default_factory=lambda: {"": 0})
    _dialogues: array[int] = field(default_factory=lambda: array("q"))
    """The number of the dialogue of each row."""
    _known: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    _least: float | None = None
    _order: tuple[np.ndarray, list[tuple[slice, slice, np.ndarray]]] | None = None

    def put(self, row: int, old: str | None, new: str | None, dialogue: str = "") -> None:
        """Gives a row, or the next one, another text; `dialogue` is what it is a turn of, "" for nothing."""
        before, after = (Counter(tokens(text) if text else ()) for text in (old, new))
        for term, times in after.items():
            if before.get(term) != times:
                self._post(row, term, times)
        for term in before.keys() - after.keys():
            self._post(row, term, 0)
        if row == len(self._lengths):
            self._lengths.append(0)
            self._dialogues.append(0)
        self._lengths[row] = after.total()
        self._dialogues[row] = self._numbers.setdefault(dialogue, len(self._numbers))
        self._total += after.total() - before.total()
        self._texts += (new is not None) - (old is not None)
        self._known, self._least, self._order = {}, None, None

    def scores(self, query: str) -> np.ndarray:
        """BM25 of every row with what neighbours lend, shape [rows]; 0 for no hit."""
        scores = np.zeros(len(self._lengths))
        # Terms are added in their order, and one that is there twice counts twice.
        for term in query_terms(query[:MAX_QUERY_CHARS]):
            if term in self._postings:
                scores[np.frombuffer(self._postings[term][0], np.int64)] += self._impacts(term)
        self.neighbour_smoothing()(scores)
        return scores

    def weight(self, text: str) -> float:
        """What the rarest word of a text weighs: the log of one over the share of texts that hold it; 0 for none."""
        held = [len(self._postings[term][0]) if term in self._postings else 0 for term in tokens(text)]
        return max((math.log(1 + (self._texts - n + 0.5) / (n + 0.5)) for n in held), default=0.0)

    def neighbour_smoothing(self, rows: Any = slice(None)) -> Callable[..., None]:
        """What adds to the scores of some rows, in place, what neighbours among them lend: so much of `lent`.

        It holds for these rows as they are now, whatever changes.
        """
        if len(self._numbers) == 1:
            return lambda *_: None  # no row is of a dialogue
        if self._order is None:
            # Where each row is among rows by dialogue; a row of none is one by itself. For each step: which of these
            # are lent to, by which, and how much.
            dialogues = np.array(self._dialogues, np.int64)
            alone = np.flatnonzero(dialogues == 0)
            dialogues[alone] = -1 - alone
            order = np.argsort(dialogues, kind="stable")
            dialogues = dialogues[order]
            loans = list[tuple[slice, slice, np.ndarray]]()
            for step, share in self.neighbor_weights.items():
                to, by = (slice(max(n, 0), min(n, 0) or None) for n in (step, -step))
                loans.append((to, by, share * (dialogues[to] == dialogues[by])))
            self._order = np.argsort(order), loans
        places, loans = self._order
        at = places[rows]

        def lend(scores: np.ndarray, part: float = 1.0) -> None:
            before = np.zeros(len(places))
            before[at] = scores
            after = before.copy()
            for to, by, share in loans:
                after[to] += part * share * before[by]
            scores[:] = after[at]

        return lend

    def _post(self, row: int, term: str, times: int) -> None:
        if term not in self._postings:
            self._postings[term] = array("q"), array("I")
        rows, counts = self._postings[term]
        before = len(rows)
        at = bisect_left(rows, row) if before and row <= rows[-1] else before
        if at == before or rows[at] != row:
            rows.insert(at, row)
            counts.insert(at, times)
        elif times:
            counts[at] = times
        else:
            del rows[at], counts[at]
        if not rows:
            del self._postings[term]
        if len(rows) == len(self._terms_in):
            self._terms_in.append(0)
        self._terms_in[before] -= 1
        self._terms_in[len(rows)] += 1

    def _impacts(self, term: str) -> np.ndarray:
        """What a term adds to the score of each row of its posting; operations are in the order of rank_bm25."""
        if term in self._known:
            return self._known[term]
        rows, counts = self._postings[term]
        holders, weight = len(rows), self._least
        if 2 * holders < self._texts:
            weight = math.log(self._texts - holders + 0.5) - math.log(holders + 0.5)
        elif weight is None:
            terms = np.frombuffer(self._terms_in, np.int64)
            held = np.flatnonzero(terms[1:] != 0) + 1
            weights = np.log(self._texts - held + 0.5) - np.log(held + 0.5)
            weight = max(EPSILON * math.fsum(terms[held] * weights) / int(terms[held].sum()), FLOOR)
            self._least = weight
        times, lengths = np.frombuffer(counts, np.uint32), np.frombuffer(self._lengths)
        norms = K1 * (1 - B + B * lengths[np.frombuffer(rows, np.int64)] / (self._total / self._texts))
        self._known[term] = weight * (times * (K1 + 1) / (times + norms))
        return self._known[term]


def tokens(text: str) -> list[str]:
    """The terms of a text in order: stems and Chinese words, without function words, folded to lower case.

    Example:
        >>> from mempiler.memory.search.bm25 import tokens
        >>> tokens("She was running in the parks!"), tokens("我喜欢在周末打篮球")
        (['run', 'park'], ['喜欢', '周末', '篮球', '打篮球'])
    """
    with text_slot(len(text)):
        return _stems(_words(normalize_text(text)))


def _words(text: str) -> list[str]:
    """Cut a folded text into words."""
    if text.isascii():
        return _WORD.findall(text)

    words: list[str] = []
    signs = 0
    for run in _RUN.finditer(text):
        if not run["han"]:
            words.append(run[0])
            continue
        signs += len(run[0])
        if signs <= MAX_CUT:
            words.extend(chinese_cutter().cut_for_search(run[0]))
        else:
            words.extend(_pairs(run[0]))
    return words


def _pairs(run: str) -> list[str]:
    """Return every two neighbours of a run: most Chinese words have two signs."""
    return [run[start : start + 2] for start in range(len(run) - 1)] or [run]


def _stems(words: Iterable[str]) -> list[str]:
    """Return the stems of words in order, without function words."""
    stems: dict[str, str] = {}
    terms: list[str] = []
    for word in words:
        if word in STOP_WORDS:
            continue
        if word not in stems:
            is_stemmed = len(word) <= _LONGEST and len(stems) < MAX_STEMS
            stems[word] = _stem(word) if is_stemmed else word
        terms.append(stems[word])
    return terms


query_terms = lru_cache(maxsize=64)(tokens)
"""`tokens` of a query, which several searches and signals ask for."""


def clear_word_cache() -> None:
    """Drops the words seen so far: a password is a word too."""
    _stem.cache_clear()
    query_terms.cache_clear()


@lru_cache(maxsize=32_768)
def _stem(word: str) -> str:
    import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

    # A stemmer keeps its word in itself, so threads must not share one; the cache makes a new one affordable.
    # The stemmer reduces a single s to "".
    return cast("Any", snowballstemmer).stemmer("porter").stemWord(word) or word
