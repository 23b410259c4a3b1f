"""What finding costs: words, vectors and both, beside rank-bm25, bm25s and faiss in the same run.

Documents are twelve words drawn by Zipf's law from 20,000, queries six; vectors have 384 numbers. Both sides of a row
are timed in turns, so that a busy machine slows them alike. Ours are searches of a whole index: texts are cut into
words, thirty hits are made; embedding costs nothing here. The peers get words that are cut, or vectors, and return
numbers of rows.

    query     one query          probes   forty at once
    next ask  a query after an add, replacement or removal

bm25s is imported from a folder of its own, if there is one: `pip install --target /tmp/peers --no-deps bm25s`.

Usage:
    $ python perf/cost_search.py --peers /tmp/peers
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from cost_row import Row, cpu_ms, main, middle
from mempiler.memory.bm25 import K1, B
from mempiler.memory.dense import DenseIndex
from mempiler.memory.hybrid import HybridIndex
from mempiler.memory.index import DIALOGUE, Entry, Index
from mempiler.memory.sparse import SparseIndex
from mempiler.programs.h2memory.clusters import clusters

WORDS, LENGTH, TERMS, K, DIMENSION, PROBES = 20_000, 12, 6, 30, 384, 40
ROUNDS = 15
HITS = (
    "at 9,500, of 15.4 ms for 40 probes: faiss 8.8, 1,200 validated hits 4.5, ordering 1.3, exact scores .6; "
    "of .43 for one: faiss .22, hits .11"
)


class Drawn:
    """An embedder that costs next to nothing: a text is the number of a vector that was drawn before."""

    name, dimension, unrelated = "drawn", DIMENSION, None

    def __init__(self, number: int) -> None:
        vectors = np.random.default_rng(1).standard_normal((number, DIMENSION)).astype(np.float32)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of these numbers, shape [texts, 384]."""
        return self.vectors[[int(text) for text in texts]]


def rows() -> Iterator[Row]:
    """Every row of this part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="/tmp/peers", help="folder with bm25s, if it is installed nowhere else")
    sys.path.append(parser.parse_known_args()[0].peers)
    yield _k_means()
    for size, aim in ((1_000, 0.2), (10_000, 0.5), (100_000, 1.0)):
        yield from _words(size, aim)
    for size in (9_500, 10_500, 100_000):
        yield from _vectors(size)
    for name, index in (("dense", DenseIndex), ("hybrid", HybridIndex)):
        yield from _changes(name, index(Drawn(110_000)), 100_000, str)


def _k_means() -> Row:
    vectors = Drawn(300).vectors
    clusters(vectors, 8, seed=0)
    taken = middle([cpu_ms(lambda: clusters(vectors, 8, seed=0)) for _ in range(ROUNDS)])
    return Row("H2Memory k-means, 8 groups", "300 x 384", taken, 30, bound="ten starts of scikit-learn's KMeans")


def _words(size: int, aim: float) -> Iterator[Row]:
    documents, queries = _drawn(size, LENGTH, seed=0), _drawn(ROUNDS, TERMS, seed=1)
    texts, index = [" ".join(query) for query in queries], SparseIndex()
    index.add(Entry(id=str(n), text=" ".join(words)) for n, words in enumerate(documents))
    peers = {"bm25s": _bm25s(documents), "rank-bm25": _rank_bm25(documents)}
    found = {name: list[float]() for name in ("ours", *peers)}
    for query, text in zip(queries, texts, strict=True):
        found["ours"].append(_warm(partial(index.search, [text], K)))
        for name, search in peers.items():
            found[name].append(_warm(partial(search, query)) if search else float("nan"))
    ours, *others = map(middle, found.values())
    peer = ", ".join(
        f"{name} {taken:.3g}" if taken == taken else f"{name} not here"
        for name, taken in zip(peers, others, strict=True)
    )
    yield Row("sparse query", f"{size:,}", ours, aim, peer=peer)
    yield from _changes("sparse", index, size, lambda n: " ".join(documents[n % size]))
    if size == 100_000:
        with tempfile.TemporaryDirectory() as folder:
            index.save(folder)
            # Nor does the collector go through what this script holds.
            gc.freeze()
            bound = "making 100,000 entries: .2 s of reading JSON, .2 s of Python's collector going through them twice"
            yield Row("sparse index, loading", f"{size:,}", cpu_ms(lambda: SparseIndex.load(folder)), 500, bound=bound)


def _changes(name: str, index: Index, size: int, text: Callable[[int], str]) -> Iterator[Row]:
    """An add, a replacement and a removal, and the next search after each."""
    index.add(Entry(id=str(n), text=text(n), tags={DIALOGUE: str(n // 20)}) for n in range(len(index), size))
    new, query = count(size), text(size + 1)
    index.search([query], K)
    works: dict[str, Callable[[], None]] = {
        "add": lambda: index.add([Entry(id=f"new{next(new)}", text=text(next(new)))]),
        "replace": lambda: index.add([Entry(id=str(7 * next(new) % size), text=text(next(new)))]),
        "remove": lambda: index.remove([str(11 * next(new) % size)]),
    }
    for what, work in works.items():
        taken, asked = list[float](), list[float]()
        for _ in range(ROUNDS):
            taken.append(cpu_ms(work))
            asked.append(cpu_ms(lambda: index.search([query], K)))
        yield Row(f"{name} index, {what}", f"{size:,}", middle(taken), 0.5, peer=f"next ask {middle(asked):.3g}")


def _vectors(size: int) -> Iterator[Row]:
    import faiss

    embedder = Drawn(size + PROBES)
    index, flat = DenseIndex(embedder), faiss.IndexFlatIP(DIMENSION)
    index.add(Entry(id=str(n), text=str(n)) for n in range(size))
    flat.add(embedder.vectors[:size])  # pyright: ignore[reportCallIssue]
    for name, number in (("dense query", 1), ("dense, 40 probes", PROBES)):
        probes, vectors = [str(size + n) for n in range(number)], embedder.vectors[size : size + number]
        search, raw_search = partial(index.search, probes, K), partial(flat.search, vectors, K)
        ours, one, several = list[float](), list[float](), list[float]()
        for _ in range(ROUNDS):
            ours.append(_warm(search))
            several.append(_warm(raw_search))
            with _one_thread():
                one.append(_warm(raw_search))
        raw = middle(one)
        peer = f"faiss {raw:.3g} on one thread, {middle(several):.3g} on all"
        yield Row(name, f"{size:,}", middle(ours), round(1.3 * raw, 2), peer=peer, bound=HITS)


def _warm(work: Callable[[], Any]) -> float:
    """CPU of the second of two runs: the other side of a row has filled the caches with what is its own."""
    work()
    return cpu_ms(work)


class _one_thread:  # noqa: N801
    """faiss on one thread meanwhile."""

    def __enter__(self) -> None:
        import faiss

        self._before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        import faiss

        faiss.omp_set_num_threads(self._before)


def _bm25s(documents: list[list[str]]) -> Callable[[list[str]], Any] | None:
    try:
        import bm25s  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    retriever: Any = bm25s.BM25(k1=K1, b=B)
    retriever.index(documents, show_progress=False)
    return lambda query: retriever.retrieve([query], k=K, show_progress=False)


def _rank_bm25(documents: list[list[str]]) -> Callable[[list[str]], Any]:
    from rank_bm25 import BM25Okapi

    okapi = BM25Okapi(documents, k1=K1, b=B)
    return lambda query: np.argsort(-okapi.get_scores(query), kind="stable")[:K]


def _drawn(number: int, length: int, seed: int) -> list[list[str]]:
    shares = 1 / np.arange(1, WORDS + 1)
    chosen = np.random.default_rng(seed).choice(WORDS, size=(number, length), p=shares / shares.sum())
    return [[f"w{word}" for word in row] for row in chosen]


if __name__ == "__main__":
    main(rows)
