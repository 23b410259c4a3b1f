"""Search by words: BM25 over stems, kept up to date instead of rebuilt, and turns that lend one another their scores.

Scores are those of rank_bm25's Okapi to the last bit; but a term that is in half of the entries or more, to which
Okapi gives a weight of nothing or less, keeps a small one, so that the first facts of a memory can be found. What
depends on all entries (their number, mean length, the mean weight of all terms) is kept as counters, and turned into
numbers by the next search for the terms that it asks for. So an add costs .05 ms at any size, where libraries rebuild
or commit (bm25s 2 s, tantivy 8 ms at 100,000 entries).

    "Did you get the job?"  <── asked words ── query        an answer is found by the question before it:
    "Yes, I start Monday!"  <── half of that score          it gets .5 of its score, the turn after that .2

A turn gets shares of the scores of the two turns before it and of the one after it in its dialogue, in the order of
the index, whatever was added between them. What it was lent it does not lend on. `python perf/retrieval.py` measures
what that finds.

A text is lower-case stems without function words, and Chinese as jieba's words. Dropping function words and cutting the
rest to Porter stems is the largest cheap win of search by words: on LoCoMo raw words find 43 % of the evidence in the
first five turns, without function words 50 %, with stems too 53 %.

Example:
    >>> from mempiler.memory.words import tokens
    >>> tokens("She was running in the parks!"), tokens("我喜欢在周末打篮球")
    (['run', 'park'], ['喜欢', '周末', '篮球', '打篮球'])

Limits: function words and stems are English; words of other alphabets are matched whole, and a run of kana or Thai
letters is one term. The first Chinese text costs about a second, in which jieba reads its dictionary. Texts are hostile
input, and jieba and the stemmer take the square of a length: runs of Chinese signs are cut at 500, and words of more
than 64 letters, which are keys and links, are terms as they are.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from ..records import Record
from ..records.chinese import LONGEST_RUN, chinese_cutter
from ..records.folding import folded

K1, B = 1.5, 0.75
EPSILON = 0.25
"""Weight of a term that is in half of the entries or more, as a share of the mean weight of all terms."""
FLOOR = 0.01
"""Least weight of such a term, where that share is smaller or negative."""

_FUNCTION_WORDS = """
a an the and or but if so of to in on at for from with by as about into than then that this these those there
i me my we us our you your he him his she her hers it its they them their
am is are was were be been being do does did have has had can could will would should may
what when where which who whom whose why how not no just too very also
的 了 吗 呢 吧 啊 着 过 地 得 和 与 在 是 有 我 你 他 她 它 我们 你们 他们 她们 这 那 也 都 就 很 什么
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
"""About eighty English function words and thirty Chinese ones."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_CHINESE = re.compile(f"[{_HAN}]")
_WORD = re.compile(r"[^\W_]+")
_RUN = re.compile(rf"(?P<han>[{_HAN}]{{1,{LONGEST_RUN}}})|[^\W_{_HAN}]+")
_LONGEST = 64
"""Letters of a word that is stemmed; with them the words that are kept take at most 30 MB."""


class Shares(Record):
    """Which part of their scores the neighbours of a turn lend it, the nearest first."""

    before: tuple[float, ...] = (0.5, 0.2)
    """Of the turn before it, the one before that, ..."""
    after: tuple[float, ...] = (0.2,)
    """Of the turn after it, ..."""


ALONE = Shares(before=(), after=())
"""Every turn stands for itself."""


class Words:
    """BM25 of the texts in the rows of an index; not locked.

    Args:
        shares: What the turns of one dialogue lend one another.
    """

    def __init__(self, shares: Shares) -> None:
        self._steps = [(n, share) for n, share in enumerate(shares.before, 1)]
        self._steps += [(-n, share) for n, share in enumerate(shares.after, 1)]
        self._postings: dict[str, tuple[array[int], array[int]]] = {}
        """Of each term the rows that hold it, ascending, and how often each does."""
        self._terms_in: array[int] = array("q", [0])
        """How many terms are in 1, 2, ... texts, by that number; what stands at 0 is not read."""
        self._lengths: array[float] = array("d")
        self._texts = self._total = 0
        self._numbers: dict[str, int] = {"": 0}
        self._dialogues: array[int] = array("q")
        """The number of the dialogue of each row."""
        self._changed()

    def put(self, row: int, old: str | None, new: str | None, dialogue: str = "") -> None:
        """Gives a row another text.

        Args:
            row: One that is there, or the next one.
            old: The text that it has; None for none.
            new: The text from now on; None for none.
            dialogue: What the text is a turn of; "" for nothing.
        """
        before, after = (Counter(tokens(text) if text else ()) for text in (old, new))
        self._post(row, [(term, times) for term, times in after.items() if before.get(term) != times])
        self._post(row, [(term, 0) for term in before.keys() - after.keys()])
        if row == len(self._lengths):
            self._lengths.append(0)
            self._dialogues.append(0)
        self._lengths[row] = after.total()
        self._dialogues[row] = self._numbers.setdefault(dialogue, len(self._numbers))
        self._total += after.total() - before.total()
        self._texts += (new is not None) - (old is not None)
        self._changed()

    def scores(self, query: str) -> np.ndarray:
        """BM25 of every row with what neighbours lend, shape [rows]; 0 for no hit."""
        scores = np.zeros(len(self._lengths))
        # Terms are added in their order, and one that is there twice counts twice.
        for term in tokens(query):
            if term in self._postings:
                scores[np.frombuffer(self._postings[term][0], np.int64)] += self._impacts(term)
        if self._steps and len(self._numbers) > 1:
            self._lend(scores)
        return scores

    def _post(self, row: int, said: Sequence[tuple[str, int]]) -> None:
        """Says how often a row holds some terms; 0 for not at all."""
        for term, times in said:
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = array("q"), array("I")
            rows, counts = posting
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

    def _changed(self) -> None:
        """Forgets what was worked out for the texts as they were."""
        self._known: dict[str, np.ndarray] = {}
        self._least: float | None = None
        self._order: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def _impacts(self, term: str) -> np.ndarray:
        """What a term adds to the score of each row of its posting; operations are in the order of rank_bm25."""
        if term not in self._known:
            rows, counts = self._postings[term]
            times, lengths = np.frombuffer(counts, np.uint32), np.frombuffer(self._lengths)
            norms = K1 * (1 - B + B * lengths[np.frombuffer(rows, np.int64)] / (self._total / self._texts))
            self._known[term] = self._weight(len(rows)) * (times * (K1 + 1) / (times + norms))
        return self._known[term]

    def _weight(self, holders: int) -> float:
        """The inverse document frequency of a term that so many texts hold."""
        if 2 * holders < self._texts:
            return math.log(self._texts - holders + 0.5) - math.log(holders + 0.5)
        if self._least is None:
            terms = np.frombuffer(self._terms_in, np.int64)
            held = np.flatnonzero(terms[1:] != 0) + 1
            weights = np.log(self._texts - held + 0.5) - np.log(held + 0.5)
            self._least = max(EPSILON * math.fsum(terms[held] * weights) / int(terms[held].sum()), FLOOR)
        return self._least

    def _lend(self, scores: np.ndarray) -> None:
        """Adds to the scores of rows, in place, what neighbours lend them."""
        dialogues, order, places = self._order = self._order or self._ordered()
        rows = np.flatnonzero(scores != 0)
        own, of, at = scores[rows], dialogues[rows], places[rows]
        for step, share in self._steps:
            near = order[at + step]
            same = dialogues[near] == of
            # No two rows have the same neighbour on one side, so that nothing is added to a place twice at once.
            scores[near[same]] += share * own[same]

    def _ordered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The dialogue of each row, rows by dialogue, and where each row is in that; a row of none ends the first two.

        It stands there as often as there are steps: what is before the first place is counted from the end. A row of no
        dialogue is one by itself.
        """
        dialogues = np.append(np.frombuffer(self._dialogues, np.int64), -1)
        dialogues[dialogues == 0] = -2 - np.flatnonzero(dialogues == 0)
        order = np.argsort(dialogues[:-1], kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return dialogues, np.append(order, [len(order)] * len(self._steps)), places


def tokens(text: str) -> list[str]:
    """Cuts a text into terms.

    Args:
        text: Any text; full-width and upper-case letters are folded.

    Returns:
        The terms in order, repeated as often as they occur; [] for a text of function words only.
    """
    text = folded(text)
    if text.isascii() or not _CHINESE.search(text):
        words = (word for word in _WORD.findall(text) if word not in STOP_WORDS)
        return [word if len(word) > _LONGEST else _stem(word) for word in words]
    return list(_terms(text))


def forget_words() -> None:
    """Drops the words seen so far: a password is a word too."""
    _stem.cache_clear()


def _terms(text: str) -> Iterator[str]:
    for run in _RUN.finditer(text):
        if run["han"]:
            yield from (word for word in chinese_cutter().cut_for_search(run["han"]) if word not in STOP_WORDS)
        elif run[0] not in STOP_WORDS:
            yield run[0] if len(run[0]) > _LONGEST else _stem(run[0])


@lru_cache(maxsize=32_768)
def _stem(word: str) -> str:
    import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

    # A stemmer keeps its word in itself, so threads must not share one; the cache makes a new one affordable.
    # The stemmer reduces a single s to "".
    return cast("Any", snowballstemmer).stemmer("porter").stemWord(word) or word
