"""Measures evidence recall of each search signal, alone and together, and the cost of a question.

For every question of a file in LoCoMo's form the share of its evidence among the first five, ten and twenty turns of
its conversation; LoCoMo's adversarial questions, which have no answer, are left out. Without a file it takes
the bundled samples, which are ours: they show that nothing breaks, not how good anything is. Each line adds a signal to
the one before: BM25, what neighbours lend, the speaker and the month asked for, the cosines of an embedder, its
reranker.

Usage:
    $ python perf/retrieval.py locomo10.json --embedder minilm --reranker tokens
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import OFFLINE, embedder
from mempiler.memory.entry import Entry
from mempiler.memory.memory import TurnMemory
from mempiler.memory.search.index import Index
from mempiler.memory.search.weights import SignalWeights

FIRST = 5, 10, 20
SAMPLES = ("locomo", "longmemeval", "memoryquest", "palbench.restate", "implexconv", "personamem-v2")


class Asked(NamedTuple):
    """The questions about one history."""

    entries: tuple[Entry, ...]
    queries: list[str]
    evidence: list[frozenset[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Evidence recall of each signal of a search.")
    parser.add_argument("data", nargs="?", help="the file; the bundled samples without")
    parser.add_argument("--benchmark", default="locomo", help="the benchmark whose form the file has")
    parser.add_argument("--embedder", default=OFFLINE)
    parser.add_argument("--reranker", help="none, tokens or fastembed:NAME")
    arguments = parser.parse_args()
    used = embedder(arguments.embedder, reranker=arguments.reranker)
    print(f"{'':<14}{used.name}: recall@{'/@'.join(map(str, FIRST))}, CPU ms a turn and a question, p50 and p95 ms")
    for name in [arguments.benchmark] if arguments.data else SAMPLES:
        told = histories(name, arguments.data)
        print(f"{name}: {sum(len(each.queries) for each in told)} questions, {len(told)} histories")
        for label, index in ways(used):
            line(label, [indexed(index(), asked) for asked in told])


def histories(name: str, path: str | None = None) -> list[Asked]:
    """The questions that have evidence, by history."""
    found = dict[str, Asked]()
    for example in benchmark(name, path).examples:
        history = example.history
        if history.digest not in found:
            memory = TurnMemory()
            for item in history:
                memory = memory.with_session(item)
            found[history.digest] = Asked(memory.turns, [], [])
        asked = found[history.digest]
        gold = frozenset(example.evidence_ids) & {entry.id for entry in asked.entries}
        if gold and not (name == "locomo" and str(example.get("category")) == "5"):
            asked.queries.append(example.question)
            asked.evidence.append(gold)
    return [asked for asked in found.values() if asked.queries]


def ways(used: Any) -> Iterator[tuple[str, Callable[[], Index]]]:
    yield "words", lambda: Index(weights=SignalWeights(neighbour_shares={}))
    yield "+ lent", Index
    yield "+ who, when", lambda: Index(hybrid=True)
    if used.name != OFFLINE:
        yield "+ embedder", lambda: Index(embedder(used.name, reranker="none"), hybrid=True)
    if used.reranker:
        yield f"+ {used.reranker.name}", lambda: Index(used, hybrid=True)


def indexed(index: Index, asked: Asked) -> tuple[np.ndarray, Sequence[float], float, float]:
    """Recall of an index over the turns [questions, first], seconds of each, and CPU seconds of a turn, a question."""
    start = time.process_time()
    index.add(asked.entries)
    middle, rows, taken = time.process_time(), list[list[float]](), list[float]()
    for query, gold in zip(asked.queries, asked.evidence, strict=True):
        taken.append(time.perf_counter())
        ids = [hit.id for hit in index.search([query], max(FIRST))[0]]
        taken[-1] = time.perf_counter() - taken[-1]
        rows.append([len(gold.intersection(ids[:k])) / len(gold) for k in FIRST])
    return np.array(rows), taken, (middle - start) / len(asked.entries), (time.process_time() - middle) / len(rows)


def line(label: str, found: Sequence[tuple[np.ndarray, Sequence[float], float, float]]) -> None:
    recall, seconds = np.concatenate([each[0] for each in found]).mean(axis=0), np.concatenate([f[1] for f in found])
    costs = *(np.mean([each[n] for each in found]) for n in (2, 3)), *np.percentile(seconds, (50, 95))
    shown = "/".join(f"{value:.3f}" for value in recall)
    print(f"{label:<14}{shown}     {' '.join(f'{1000 * cost:.1f}' for cost in costs)}", flush=True)


if __name__ == "__main__":
    main()
