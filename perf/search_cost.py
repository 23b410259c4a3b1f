"""What finding costs: BM25 kept up to date against rank-bm25, and thirty or forty probes of one question at once.

Documents are twelve words drawn by Zipf's law from 20,000, queries six. Both sides of a row are timed in turns within
one run, in CPU time, so that a busy machine slows them alike. Each is given terms and returns the best thirty keys;
"probes" are searches of a whole index, with cutting words and making hits, but without embedding.

    query   one query, k = 30                      build   all documents
    add     one more document, and for rank-bm25 the rebuild without which it does not find it

Usage:
    $ python perf/search_cost.py --sizes 1000 10000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from mempiler.memory.bm25 import K1, B, Bm25
from mempiler.memory.dense import DenseIndex
from mempiler.memory.hybrid import HybridIndex
from mempiler.memory.index import DIALOGUE, Entry
from mempiler.memory.neighbours import ALONE
from mempiler.memory.sparse import SparseIndex
from rank_bm25 import BM25Okapi

WORDS, LENGTH, TERMS, K = 20_000, 12, 6, 30
DIMENSION = 384


class Drawn:
    """An embedder that costs next to nothing: a text is the number of a vector that was drawn before."""

    name, dimension, unrelated = "drawn", DIMENSION, None

    def __init__(self, count: int) -> None:
        vectors = np.random.default_rng(1).standard_normal((count, DIMENSION)).astype(np.float32)
        self._vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of these numbers, shape [texts, 384]."""
        return self._vectors[[int(text) for text in texts]]


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of lexical and dense search.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="numbers of documents")
    parser.add_argument("--rounds", type=int, default=5, help="how often each side of a row is timed")
    arguments = parser.parse_args()
    print(f"ms of CPU, median of {arguments.rounds} rounds; {TERMS}-term queries, k = {K}\n")
    print(f"{'documents':>9}  {'':<6}{'rank-bm25':>12}{'incremental':>14}{'ratio':>8}  same best {K}")
    for size in arguments.sizes:
        _against_rank_bm25(size, arguments.rounds)
    print()
    for size in arguments.sizes:
        _sparse_probes(size, arguments.rounds)
    many = 10_000
    for name, kind in (("dense,", DenseIndex), ("hybrid,", HybridIndex)):
        _vector_probes(name, kind(Drawn(many + 40)), many, arguments.rounds)


def _against_rank_bm25(size: int, rounds: int) -> None:
    documents, queries = _drawn(size, LENGTH, seed=0), _drawn(10 * rounds, TERMS, seed=1)
    more, number = _drawn(20 * rounds, LENGTH, seed=2), iter(range(10**9))
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("build", "query", "add")}
    same = 0
    for n in range(rounds):
        okapi = _timed(times["build"][0], lambda: BM25Okapi(documents, k1=K1, b=B))
        scorer = _timed(times["build"][1], lambda: _built(documents))
        scorer.search(queries[:1], K)
        for query in queries[10 * n : 10 * n + 10]:
            best = _timed(times["query"][0], partial(_okapi_best, okapi, query))
            found = _timed(times["query"][1], partial(scorer.search, [query], K))
            same += best == [key for key, _ in found[0]]
        # The rebuild is what an add costs: there is no other way to let rank-bm25 know a document.
        _timed(times["add"][0], lambda n=n: BM25Okapi([*documents, more[n]], k1=K1, b=B))
        for document in more[20 * n : 20 * n + 20]:
            _timed(times["add"][1], partial(scorer.put, f"new{next(number)}", document))
    for name, sides in times.items():
        one, other = (1000 * median(side) for side in sides)
        equal = f"  {same} of {10 * rounds}" if name == "query" else ""
        print(f"{size:>9,}  {name:<6}{one:>12.3f}{other:>14.4f}{one / other:>8.0f}{equal}", flush=True)


def _sparse_probes(size: int, rounds: int) -> None:
    alone, lending = SparseIndex(ALONE), SparseIndex()
    for index in (alone, lending):
        index.add(_turns(size))
    probes = [" ".join(query) for query in _drawn(30 * rounds, TERMS, seed=3)]
    taken: dict[str, list[float]] = {"alone": [], "lending": []}
    for index in (alone, lending):
        index.search(probes[:1], K)
    for n in range(rounds):
        for name, index in (("alone", alone), ("lending", lending)):
            _timed(taken[name], partial(index.search, probes[30 * n : 30 * n + 30], K))
    one, other = (1000 * median(taken[name]) for name in taken)
    print(f"sparse, 30 probes over {size:>7,}: {one:>7.1f} ms; {other:.1f} ms where turns lend ({other / one:.2f} x)")


def _vector_probes(name: str, index: DenseIndex | HybridIndex, size: int, rounds: int) -> None:
    index.add(Entry(id=str(n), text=str(n)) for n in range(size))
    probes = [str(n) for n in range(size, size + 40)]
    index.search(probes, K)
    taken: list[float] = []
    for _ in range(rounds):
        _timed(taken, lambda: index.search(probes, K))
    print(f"{name:<7} 40 probes over {size:>7,}: {1000 * median(taken):>7.1f} ms")


def _turns(size: int) -> list[Entry]:
    """Turns of dialogues of twenty."""
    documents = enumerate(_drawn(size, LENGTH, seed=0))
    return [Entry(id=str(n), text=" ".join(words), tags={DIALOGUE: str(n // 20)}) for n, words in documents]


def _drawn(count: int, length: int, seed: int) -> list[list[str]]:
    shares = 1 / np.arange(1, WORDS + 1)
    chosen = np.random.default_rng(seed).choice(WORDS, size=(count, length), p=shares / shares.sum())
    return [[f"w{word}" for word in row] for row in chosen]


def _built(documents: list[list[str]]) -> Bm25:
    scorer = Bm25()
    for n, document in enumerate(documents):
        scorer.put(str(n), document)
    return scorer


def _okapi_best(okapi: BM25Okapi, query: list[str]) -> list[str]:
    scores = okapi.get_scores(query)
    return [str(row) for row in np.argsort(-scores, kind="stable")[:K] if scores[row] > 0]


def _timed(times: list[float], job: Callable[[], Any]) -> Any:
    start = time.process_time()
    value = job()
    times.append(time.process_time() - start)
    return value


if __name__ == "__main__":
    main()
