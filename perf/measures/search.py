"""Part "search": an index alone, by words, by vectors and by both.

All values are milliseconds of CPU, medians. Documents are twelve words, queries six; both are drawn
by Zipf's law from 20,000 words. Vectors have 384 numbers, and embedding costs next to nothing here.

Our searches are those of a whole index: the query is cut into words, and thirty hits are made. The
peers do less: rank-bm25 and faiss get words or vectors, and return numbers of rows. Both sides are
timed in turns, so that a busy machine slows them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from statistics import median
from typing import Literal

import numpy as np
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.bm25 import K1, B
from mempiler.memory.search.index import Index

from measures.clock import cpu_ms
from measures.table import Aim, Peer, Result, Row

VOCABULARY_SIZE = 20_000
DOCUMENT_WORDS = 12
QUERY_WORDS = 6
DIMENSION = 384
HITS = 30
ROUNDS = 15

FAISS_ONE_THREAD = "faiss on one thread"
FAISS_ALL_THREADS = "faiss on all threads"
DENSE_BOTTLENECK = "after faiss, hits are made and put in order"

IndexKind = Literal["sparse", "dense", "hybrid"]
ChangeKind = Literal["add", "replace", "remove"]
CHANGES: tuple[ChangeKind, ...] = ("add", "replace", "remove")


@dataclass(frozen=True)
class ChangeCosts:
    """Milliseconds of CPU of a change of an index, and of the next search."""

    change: float
    next_search: float


def rows() -> list[Row]:
    """Declare the rows of this part."""
    part: list[Row] = []
    for size, limit in ((1_000, 0.2), (10_000, 0.5), (100_000, 1.0)):
        measure = partial(sparse_query, size)
        part.append(Row("sparse query", f"{size:,}", measure, Aim(limit)))
        part += _change_rows("sparse", size)
    for size in (9_500, 100_000):
        aim = Aim(1.3, times_peer=FAISS_ONE_THREAD)
        one_query = partial(dense_queries, size, 1)
        many_queries = partial(dense_queries, size, 40)
        part.append(Row("dense query", f"{size:,}", one_query, aim))
        part.append(Row("dense, 40 probes", f"{size:,}", many_queries, aim))
    part += _change_rows("dense", 100_000)
    part += _change_rows("hybrid", 100_000)
    return part


def _change_rows(kind: IndexKind, size: int) -> list[Row]:
    return [
        Row(
            f"{kind} index, {change}",
            f"{size:,}",
            partial(change_index, kind, size, change),
            Aim(0.5),
        )
        for change in CHANGES
    ]


def sparse_query(size: int) -> Result:
    """Search `size` documents by words, beside rank-bm25."""
    index = _sparse_index(size)
    rank_bm25 = _rank_bm25_search(_documents(size))

    our_costs: list[float] = []
    their_costs: list[float] = []
    for words in _random_texts(ROUNDS, QUERY_WORDS, seed=1):
        our_costs.append(_second_run_cpu_ms(partial(index.search, [" ".join(words)], HITS)))
        their_costs.append(_second_run_cpu_ms(partial(rank_bm25, words)))
    return Result(median(our_costs), [Peer("rank-bm25", median(their_costs))])


def dense_queries(size: int, queries: int) -> Result:
    """Search `size` vectors for so many queries at once, beside faiss on one thread and on all."""
    import faiss

    embedder = NumberEmbedder(size + queries)
    index = Index(embedder)
    index.add(_entry(n, str(n)) for n in range(size))
    flat_index = faiss.IndexFlatIP(DIMENSION)
    flat_index.add(embedder.vectors[:size])  # pyright: ignore[reportCallIssue]

    query_texts = [str(n) for n in range(size, size + queries)]
    query_vectors = embedder.vectors[size : size + queries]
    our_search = partial(index.search, query_texts, HITS)
    faiss_search = partial(flat_index.search, query_vectors, HITS)

    our_costs: list[float] = []
    all_threads_costs: list[float] = []
    one_thread_costs: list[float] = []
    for _ in range(ROUNDS):
        our_costs.append(_second_run_cpu_ms(our_search))
        all_threads_costs.append(_second_run_cpu_ms(faiss_search))
        with _faiss_on_one_thread():
            one_thread_costs.append(_second_run_cpu_ms(faiss_search))

    peers = [
        Peer(FAISS_ONE_THREAD, median(one_thread_costs)),
        Peer(FAISS_ALL_THREADS, median(all_threads_costs)),
    ]
    return Result(median(our_costs), peers, bottleneck=DENSE_BOTTLENECK)


def change_index(kind: IndexKind, size: int, change: ChangeKind) -> Result:
    """Change an index of `size` entries once."""
    costs = _change_costs(kind, size)[change]
    return Result(costs.change, remark=f"next search {costs.next_search:.3g}")


@cache
def _change_costs(kind: IndexKind, size: int) -> dict[ChangeKind, ChangeCosts]:
    """Add, replace and remove entries of one index, and search it after every change."""
    changing_index = _SparseChanges(size) if kind == "sparse" else _VectorChanges(kind, size)
    index = changing_index.index
    query = changing_index.text(size + 1)
    index.search([query], HITS)

    works: dict[ChangeKind, Callable[[], None]] = {
        "add": changing_index.add,
        "replace": changing_index.replace,
        "remove": changing_index.remove,
    }
    costs: dict[ChangeKind, ChangeCosts] = {}
    for name, work in works.items():
        change_costs: list[float] = []
        search_costs: list[float] = []
        for _ in range(ROUNDS):
            change_costs.append(cpu_ms(work))
            search_costs.append(cpu_ms(partial(index.search, [query], HITS)))
        costs[name] = ChangeCosts(median(change_costs), median(search_costs))
    return costs


class _IndexChanges:
    """An index that is full, and changes of it, each of another entry."""

    def __init__(self, index: Index, size: int) -> None:
        self.index = index
        self.size = size
        self._numbers = count(size)

    def text(self, number: int) -> str:
        """Return the text of the entry with this number."""
        raise NotImplementedError

    def add(self) -> None:
        number = next(self._numbers)
        self.index.add([_entry(number, self.text(next(self._numbers)))])

    def replace(self) -> None:
        number = 7 * next(self._numbers) % self.size
        self.index.add([_entry(number, self.text(next(self._numbers)))])

    def remove(self) -> None:
        self.index.remove([str(11 * next(self._numbers) % self.size)])


class _SparseChanges(_IndexChanges):
    """Changes of an index by words."""

    def __init__(self, size: int) -> None:
        super().__init__(_sparse_index(size), size)
        self._documents = _documents(size)

    def text(self, number: int) -> str:
        return " ".join(self._documents[number % self.size])


class _VectorChanges(_IndexChanges):
    """Changes of an index by vectors, or by both, of entries in dialogues of twenty."""

    def __init__(self, kind: IndexKind, size: int) -> None:
        # Enough vectors for the entries that are added later.
        embedder = NumberEmbedder(size + 10_000)
        index = Index(embedder, hybrid=kind == "hybrid")
        index.add(Entry(id=str(n), text=str(n), tags={DIALOGUE: str(n // 20)}) for n in range(size))
        super().__init__(index, size)

    def text(self, number: int) -> str:
        return str(number)


class NumberEmbedder:
    """An embedder of numbers: the text "7" gets the seventh of its random vectors."""

    name = "random"
    dimension = DIMENSION

    def __init__(self, count: int) -> None:
        vectors = np.random.default_rng(1).standard_normal((count, DIMENSION)).astype(np.float32)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of these numbers, shape [texts, 384]."""
        return self.vectors[[int(text) for text in texts]]


def _entry(number: int, text: str) -> Entry:
    return Entry(id=str(number), text=text)


@cache
def _documents(size: int) -> list[list[str]]:
    return _random_texts(size, DOCUMENT_WORDS, seed=0)


def _sparse_index(size: int) -> Index:
    index = Index()
    index.add(_entry(n, " ".join(words)) for n, words in enumerate(_documents(size)))
    return index


def _random_texts(number: int, length: int, seed: int) -> list[list[str]]:
    """Return so many texts of `length` words, drawn by Zipf's law."""
    weights = 1 / np.arange(1, VOCABULARY_SIZE + 1)
    generator = np.random.default_rng(seed)
    word_numbers = generator.choice(
        VOCABULARY_SIZE, size=(number, length), p=weights / weights.sum()
    )
    return [_words(row) for row in word_numbers]


def _words(numbers: Iterable[int]) -> list[str]:
    return [f"w{number}" for number in numbers]


def _second_run_cpu_ms(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of the second of two runs.

    The other side of the row ran just before and filled the processor's caches with its own data;
    the first run fills them with ours.
    """
    work()
    return cpu_ms(work)


@contextmanager
def _faiss_on_one_thread() -> Iterator[None]:
    """Let faiss use a single thread inside the block."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


def _rank_bm25_search(documents: list[list[str]]) -> Callable[[list[str]], np.ndarray]:
    """Return the search of rank-bm25 over these documents, with our parameters of BM25."""
    from rank_bm25 import BM25Okapi

    okapi = BM25Okapi(documents, k1=K1, b=B)

    def search(words: list[str]) -> np.ndarray:
        return np.argsort(-okapi.get_scores(words), kind="stable")[:HITS]

    return search
