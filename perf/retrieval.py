"""What finding finds: evidence recall of BM25, of turns that lend one another their scores, of an embedder, of both.

For every question of a file in LoCoMo's form the share of its evidence among the first five and twenty turns of its
conversation; LoCoMo's adversarial questions, which have no answer, are left out. Shares and weights are chosen on one
half of the conversations and tried on the other, in both directions, so that what a choice gains by fitting is seen.

    raw        BM25, each turn for itself           embedder   its cosines alone
    lent       BM25, with what neighbours lend      sum        deviations of raw and of cosines, added
                                                    hybrid     deviations of lent and of cosines, added

Without a file it takes the bundled samples of three benchmarks, which are ours: they show that nothing breaks, not
how good anything is. `--vectors` takes what another program embedded: an .npz of `texts` and `vectors`.

Usage:
    $ python perf/retrieval.py --data locomo10.json --embedder openai/text-embedding-3-small
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.memory.hybrid import HybridIndex
from mempiler.memory.index import Entry, Index, query_vectors
from mempiler.memory.neighbours import ALONE, Shares
from mempiler.memory.sparse import SparseIndex
from mempiler.memory.turns import TurnMemory

FIRST = (5, 20)
SAMPLES = ("locomo", "longmemeval", "memoryquest")
GRID = [
    Shares(before=before, after=after)
    for before, after in product(((), (0.3,), (0.5,), (0.5, 0.2), (0.5, 0.3), (0.7, 0.3)), ((), (0.2,), (0.4,)))
]
WEIGHTS = (0.25, 0.5, 1.0, 1.5, 2.0)


class Asked(NamedTuple):
    """The questions about one history."""

    entries: tuple[Entry, ...]
    queries: list[str]
    evidence: list[frozenset[str]]


Score = Callable[[Asked], np.ndarray]
"""Recall of the questions of one history, shape [questions, first]."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Evidence recall of lexical, dense and hybrid search.")
    parser.add_argument("--on", default="locomo", help="the benchmark whose form the file has")
    parser.add_argument("--data", help="the file; the bundled samples of three benchmarks without")
    parser.add_argument("--embedder", default="offline", help="an embedder's name")
    parser.add_argument("--vectors", help="an .npz with `texts` and their `vectors`, instead of an embedder")
    arguments = parser.parse_args()
    used = stored(arguments.vectors) if arguments.vectors else embedder(arguments.embedder)
    for name in [arguments.on] if arguments.data else SAMPLES:
        told = histories(name, arguments.data)
        print(f"\n{name}: {sum(len(each.queries) for each in told)} questions, {len(told)} histories, {used.name}\n")
        report(told, used)
        if arguments.data and len(told) > 1:
            print("\nchosen on one half of the conversations, tried on the other\n")
            held_out(told, used)


def histories(name: str, path: str | None = None) -> list[Asked]:
    """The questions that have evidence, by history."""
    loaded, found = benchmark(name, path), dict[str, Asked]()
    for example in loaded.examples:
        history = example.history
        if history.digest not in found:
            memory = TurnMemory()
            for item in history:
                memory = memory.with_session(item)
            found[history.digest] = Asked(memory.turns, [], [])
        asked = found[history.digest]
        gold = frozenset(example.focus) & {entry.id for entry in asked.entries}
        if gold and not (name == "locomo" and str(example.get("category")) == "5"):
            asked.queries.append(example.question)
            asked.evidence.append(gold)
    return [asked for asked in found.values() if asked.queries]


def report(told: Sequence[Asked], used: Any) -> None:
    """One line for each way to search."""
    for label, score in ways(used):
        rows = [score(asked) for asked in told]
        line(label, np.concatenate(rows), rows if len(rows) < 4 else ())


def ways(used: Any) -> Iterator[tuple[str, Score]]:
    yield "raw", lambda asked: indexed(SparseIndex(ALONE), asked)
    yield "lent", lambda asked: indexed(SparseIndex(), asked)
    yield "embedder", lambda asked: ranked(cosines(asked, used), asked)
    yield "sum", lambda asked: indexed(HybridIndex(used, ALONE), asked)
    yield "hybrid", lambda asked: indexed(HybridIndex(used), asked)


def held_out(told: Sequence[Asked], used: Any) -> None:
    """Chooses shares on one half, then the weight of the embedder with these, and tries both on the other half."""
    words = {id(asked): [lent(asked, shares) for shares in GRID] for asked in told}
    meaning = {id(asked): cosines(asked, used) for asked in told}

    def tried(part: Sequence[Asked], choice: int, weight: float) -> np.ndarray:
        rows: list[np.ndarray] = []
        for asked in part:
            own = words[id(asked)][choice]
            rows.append(ranked(deviations(own) + weight * deviations(meaning[id(asked)]) if weight else own, asked))
        return np.concatenate(rows)

    usual = GRID.index(Shares())
    for here, there in ((told[::2], told[1::2]), (told[1::2], told[::2])):
        best = max(range(len(GRID)), key=lambda choice: tried(here, choice, 0.0).sum())
        weight = max(WEIGHTS, key=lambda weight: tried(here, best, weight).sum())
        print(f"chosen: before {GRID[best].before}, after {GRID[best].after}, embedder x {weight}")
        for label, by in (("lent", 0.0), ("hybrid", weight)):
            line(f"{label}, as chosen", tried(there, best, by))
            line(f"{label}, as built in", tried(there, usual, 1.0 if by else 0.0))


def indexed(index: Index, asked: Asked) -> np.ndarray:
    """Recall of an index over the turns."""
    index.add(asked.entries)
    found = index.search(asked.queries, max(FIRST))
    return np.array([recall([hit.id for hit in hits], gold) for hits, gold in zip(found, asked.evidence, strict=True)])


def lent(asked: Asked, shares: Shares) -> np.ndarray:
    """The score of every turn for each query, shape [queries, turns]."""
    index = SparseIndex(shares)
    index.add(asked.entries)
    return index.scores(asked.queries)


def cosines(asked: Asked, used: Any) -> np.ndarray:
    """The cosine of every turn with each query, shape [queries, turns]."""
    return query_vectors(used, asked.queries) @ used.embed([entry.text for entry in asked.entries]).T


def deviations(scores: np.ndarray) -> np.ndarray:
    """Scores in deviations from the mean of their query."""
    spread = scores.std(axis=1, keepdims=True)
    return (scores - scores.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)


def ranked(scores: np.ndarray, asked: Asked) -> np.ndarray:
    """Recall of the turns of highest score."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, : max(FIRST)]
    found = [[asked.entries[n].id for n in row] for row in order]
    return np.array([recall(ids, gold) for ids, gold in zip(found, asked.evidence, strict=True)])


def recall(ids: Sequence[str], gold: frozenset[str]) -> list[float]:
    return [len(gold.intersection(ids[:k])) / len(gold) for k in FIRST]


def line(label: str, rows: np.ndarray, parts: Sequence[np.ndarray] = ()) -> None:
    """Mean recall of all questions, and of those of each history."""
    shown = ["  ".join(f"{value:.3f}" for value in part.mean(axis=0)) for part in (rows, *parts)]
    print(f"{label:<22}{'     '.join(shown)}", flush=True)


def stored(path: str) -> TextEmbedder:
    """An embedder that looks its vectors up."""
    with np.load(path) as file:
        known = dict(zip(map(str, file["texts"]), file["vectors"], strict=True))
    return TextEmbedder(path, lambda texts: np.stack([known[text] for text in texts]))


if __name__ == "__main__":
    main()
