"""Measures search by words, vectors and both, beside rank-bm25 and faiss in the same run.

Documents are twelve words drawn by Zipf's law from 20,000, queries six; vectors have 384 numbers. Both sides are timed
in turns, so that a busy machine slows them alike. Ours are searches of a whole index: texts are cut into words, thirty
hits are made; embedding costs nothing here. The peers get words that are cut, or vectors, and return numbers of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from statistics import median
from typing import Any

import numpy as np
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.bm25 import K1, B
from mempiler.memory.search.index import Index

from measures.scripted import cpu_ms

Found = dict[str, float]
WORDS, LENGTH, TERMS, K, DIMENSION = 20_000, 12, 6, 30, 384
ROUNDS = 15


@cache
def words(size: int) -> Found:
    """A query of so many documents."""
    documents, queries = _documents(size), _drawn(ROUNDS, TERMS, seed=1)
    index = _sparse(size)
    searches: dict[str, Callable[[list[str]], Any]] = {
        "query": lambda query: index.search([" ".join(query)], K),
        "rank-bm25": _rank_bm25(documents),
    }
    taken = {name: list[float]() for name in searches}
    for query in queries:
        for name, search in searches.items():
            taken[name].append(_warm(partial(search, query)))
    return {name: median(each) for name, each in taken.items()}


@cache
def changes(kind: str, size: int) -> Found:
    """An add, a replacement and a removal, and the next search after each (`next ask, add`)."""
    text: Callable[[int], str] = str
    if kind == "sparse":
        documents, index = _documents(size), _sparse(size)
        text = lambda n: " ".join(documents[n % size])  # noqa: E731
    else:
        index = Index(Drawn(size + 10_000), hybrid=kind == "hybrid")
        index.add(Entry(id=str(n), text=str(n), tags={DIALOGUE: str(n // 20)}) for n in range(size))
    new, query, found = count(size), text(size + 1), Found()
    index.search([query], K)
    works: dict[str, Callable[[], None]] = {
        "add": lambda: index.add([_entry(next(new), text(next(new)))]),
        "replace": lambda: index.add([_entry(7 * next(new) % size, text(next(new)))]),
        "remove": lambda: index.remove([str(11 * next(new) % size)]),
    }
    for name, work in works.items():
        taken = [(cpu_ms(work), cpu_ms(lambda: index.search([query], K))) for _ in range(ROUNDS)]
        found[name], found[f"next ask, {name}"] = (median(each) for each in zip(*taken, strict=True))
    return found


@cache
def vectors(size: int, probes: int) -> Found:
    """So many probes of so many vectors at once, beside faiss on one thread and on all."""
    import faiss

    embedder = Drawn(size + probes)
    index, flat = Index(embedder), faiss.IndexFlatIP(DIMENSION)
    index.add(_entry(n, str(n)) for n in range(size))
    flat.add(embedder.vectors[:size])  # pyright: ignore[reportCallIssue]
    search = partial(index.search, [str(size + n) for n in range(probes)], K)
    raw = partial(flat.search, embedder.vectors[size : size + probes], K)
    taken: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        ours, several = _warm(search), _warm(raw)
        with _one_thread():
            taken.append((ours, several, _warm(raw)))
    names = ("query", "faiss on all threads", "faiss on one thread")
    return {name: median(each) for name, each in zip(names, zip(*taken, strict=True), strict=True)}


class Drawn:
    """An embedder that costs next to nothing: a text is the number of a vector that was drawn before."""

    name, dimension = "drawn", DIMENSION

    def __init__(self, number: int) -> None:
        drawn = np.random.default_rng(1).standard_normal((number, DIMENSION)).astype(np.float32)
        self.vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of these numbers, shape [texts, 384]."""
        return self.vectors[[int(text) for text in texts]]


def _entry(n: int, text: str) -> Entry:
    return Entry(id=str(n), text=text)


@cache
def _documents(size: int) -> list[list[str]]:
    return _drawn(size, LENGTH, seed=0)


def _sparse(size: int) -> Index:
    index = Index()
    index.add(_entry(n, " ".join(words)) for n, words in enumerate(_documents(size)))
    return index


def _drawn(number: int, length: int, seed: int) -> list[list[str]]:
    shares = 1 / np.arange(1, WORDS + 1)
    chosen = np.random.default_rng(seed).choice(WORDS, size=(number, length), p=shares / shares.sum())
    return [[f"w{word}" for word in row] for row in chosen]


def _warm(work: Callable[[], Any]) -> float:
    """CPU of the second of two runs: the other side of a row has filled the caches with what is its own."""
    work()
    return cpu_ms(work)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for faiss meanwhile."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


def _rank_bm25(documents: list[list[str]]) -> Callable[[list[str]], Any]:
    from rank_bm25 import BM25Okapi

    okapi = BM25Okapi(documents, k1=K1, b=B)
    return lambda query: np.argsort(-okapi.get_scores(query), kind="stable")[:K]
