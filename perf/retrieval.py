"""What finding finds: evidence recall of BM25, of turns that lend one another their scores, of an embedder, of both.

For every question of a file in LoCoMo's form the share of its evidence among the first five and twenty turns of its
conversation; LoCoMo's adversarial questions, which have no answer, are left out. How the shares and the weight of the
embedder were chosen is `perf/retrieval.py` of commit b9d2176.

    raw        BM25, each turn for itself           embedder   its cosines alone
    lent       BM25, with what neighbours lend      sum        deviations of raw and of cosines, added
                                                    hybrid     deviations of lent and of cosines, added

Without a file it takes the bundled samples of three benchmarks, which are ours: they show that nothing breaks, not
how good anything is.

Usage:
    $ python perf/retrieval.py --data locomo10.json --embedder openai/text-embedding-3-small
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.memory.index import Entry, Index, query_vectors
from mempiler.memory.memory import TurnMemory

FIRST = (5, 20)
SAMPLES = ("locomo", "longmemeval", "memoryquest")


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
    arguments = parser.parse_args()
    used = embedder(arguments.embedder)
    for name in [arguments.on] if arguments.data else SAMPLES:
        told = histories(name, arguments.data)
        print(f"\n{name}: {sum(len(each.queries) for each in told)} questions, {len(told)} histories, {used.name}\n")
        report(told, used)


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
    yield "raw", lambda asked: indexed(Index(lent={}), asked)
    yield "lent", lambda asked: indexed(Index(), asked)
    yield "embedder", lambda asked: ranked(cosines(asked, used), asked)
    yield "sum", lambda asked: indexed(Index(used, hybrid=True, lent={}), asked)
    yield "hybrid", lambda asked: indexed(Index(used, hybrid=True), asked)


def indexed(index: Index, asked: Asked) -> np.ndarray:
    """Recall of an index over the turns."""
    index.add(asked.entries)
    found = index.search(asked.queries, max(FIRST))
    return np.array([recall([hit.id for hit in hits], gold) for hits, gold in zip(found, asked.evidence, strict=True)])


def cosines(asked: Asked, used: Any) -> np.ndarray:
    """The cosine of every turn with each query, shape [queries, turns]."""
    return query_vectors(used, asked.queries) @ used.embed([entry.text for entry in asked.entries]).T


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


if __name__ == "__main__":
    main()
