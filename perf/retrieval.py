"""Measure how much of the evidence a search finds, with each signal added in turn, and its cost.

A benchmark names, for every question, the turns of the conversation that hold the evidence. This
script searches the conversation for the question, and counts which of these turns are among the
first 5, 10 and 20 hits. Questions without evidence are left out, and so are LoCoMo's adversarial
ones (category 5), which have no answer.

Usage:
    $ python perf/retrieval.py locomo10.json --embedder minilm --reranker tokens
    $ python perf/retrieval.py questions.jsonl --benchmark jsonl     # your own texts
    $ python perf/retrieval.py                                       # the bundled samples

Sample output:
                  offline: recall@5/@10/@20, CPU ms a turn and a question, p50 and p95 ms
    locomo: 136 questions, 8 histories
    words         0.791/0.833/0.855     0.1 0.1 0.1 0.4
    + lent        0.782/0.837/0.865     0.1 0.1 0.1 0.3
    + who, when   0.803/0.846/0.888     0.0 1.2 0.2 1.2

Every line adds a signal to the line above:
    words         BM25 over the words of a turn
    + lent        a turn also gains from the scores of its neighbours
    + who, when   a turn gains if it is by the speaker, or of the month, that the question names
    + embedder    the cosine of the embedder's vectors; not for "offline", which compares spelling
    + tokens      the embedder's reranker, by its name

Columns:
    recall@5/@10/@20    the share of a question's evidence among its first hits, mean of questions
    CPU ms              milliseconds of CPU to index a turn, and to search for a question
    p50 and p95 ms      milliseconds by the clock of a search: half, and 95 of 100, take no longer

How to read it:
    Recall has no noise: the same file and embedder give the same figures. But it is a mean over a
    sample of questions: over 124 of them a difference of .04 was not told apart from chance. Times
    depend on the machine; compare lines of one run. The bundled samples are ours and small: they
    show that nothing is broken, not how good anything is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import NO_RERANKER, OFFLINE, TextEmbedder, embedder
from mempiler.errors import MempilerError
from mempiler.memory.entry import Entry
from mempiler.memory.memory import TurnMemory
from mempiler.memory.search.index import Index
from mempiler.memory.search.weights import SignalWeights
from mempiler.records import History

CUTOFFS = (5, 10, 20)
"""Recall is measured among so many first hits."""
SAMPLES = (
    "locomo",
    "longmemeval",
    "memoryquest",
    "palbench.restate",
    "implexconv",
    "personamem-v2",
)
"""Benchmarks with a bundled sample that names evidence."""
ADVERSARIAL = "5"
"""LoCoMo's category of questions without an answer."""


@dataclass(frozen=True)
class Query:
    """A question, and the ids of the turns that hold its evidence."""

    text: str
    evidence_ids: frozenset[str]


@dataclass(frozen=True)
class SearchedHistory:
    """The turns of a history, and the questions about it that have evidence."""

    entries: Sequence[Entry]
    queries: list[Query] = field(default_factory=list)


@dataclass(frozen=True)
class SearchResult:
    """What the searches of one history found and took."""

    recall: np.ndarray
    """The share of the evidence found, shape [questions, cutoffs]."""
    search_seconds: list[float]
    """By the clock, for each question."""
    cpu_seconds_per_turn: float
    """To index it."""
    cpu_seconds_per_question: float


@dataclass(frozen=True)
class Signals:
    """A set of search signals, and how to make an index that uses them."""

    label: str
    make_index: Callable[[], Index]


def load_histories(name: str, path: str | None = None) -> list[SearchedHistory]:
    """Return the questions of a benchmark that have evidence, grouped by history.

    Args:
        name: The benchmark.
        path: Its file; the bundled sample if None.
    """
    histories: dict[str, SearchedHistory] = {}
    for example in benchmark(name, path).examples:
        digest = example.history.digest
        if digest not in histories:
            histories[digest] = SearchedHistory(_turns_of(example.history))
        history = histories[digest]

        is_adversarial = name == "locomo" and str(example.get("category")) == ADVERSARIAL
        turn_ids = {entry.id for entry in history.entries}
        evidence_ids = turn_ids.intersection(example.evidence_ids)
        if evidence_ids and not is_adversarial:
            history.queries.append(Query(example.question, frozenset(evidence_ids)))
    return [history for history in histories.values() if history.queries]


def _turns_of(history: History) -> Sequence[Entry]:
    memory = TurnMemory()
    for item in history:
        memory = memory.with_session(item)
    return memory.turns


def list_signals(chosen: TextEmbedder) -> list[Signals]:
    """Return the sets of signals that are compared; each has one more than the one before."""
    signals = [
        Signals("words", partial(Index, weights=SignalWeights(neighbour_shares={}))),
        Signals("+ lent", Index),
        Signals("+ who, when", partial(Index, hybrid=True)),
    ]
    if chosen.name != OFFLINE:
        without_reranker = embedder(chosen.name, reranker=NO_RERANKER)
        signals.append(Signals("+ embedder", partial(Index, without_reranker, hybrid=True)))
    if chosen.reranker:
        signals.append(Signals(f"+ {chosen.reranker.name}", partial(Index, chosen, hybrid=True)))
    return signals


def search_history(index: Index, history: SearchedHistory) -> SearchResult:
    """Put the turns of a history into an empty index, and search for every question about it."""
    indexing_start = time.process_time()
    index.add(history.entries)
    indexing_end = time.process_time()

    recall: list[list[float]] = []
    search_seconds: list[float] = []
    for query in history.queries:
        start = time.perf_counter()
        hits = index.search([query.text], max(CUTOFFS))[0]
        search_seconds.append(time.perf_counter() - start)

        ids = [hit.id for hit in hits]
        recall.append([_recall(query, ids[:cutoff]) for cutoff in CUTOFFS])
    searching_end = time.process_time()

    return SearchResult(
        recall=np.array(recall),
        search_seconds=search_seconds,
        cpu_seconds_per_turn=(indexing_end - indexing_start) / len(history.entries),
        cpu_seconds_per_question=(searching_end - indexing_end) / len(history.queries),
    )


def _recall(query: Query, ids: Sequence[str]) -> float:
    """Return the share of a question's evidence that is among these ids."""
    return len(query.evidence_ids.intersection(ids)) / len(query.evidence_ids)


def print_line(label: str, results: Sequence[SearchResult]) -> None:
    """Print recall and costs over all histories."""
    recall = np.concatenate([result.recall for result in results]).mean(axis=0)
    recall_text = "/".join(f"{value:.3f}" for value in recall)

    search_seconds = np.concatenate([result.search_seconds for result in results])
    seconds = [
        np.mean([result.cpu_seconds_per_turn for result in results]),
        np.mean([result.cpu_seconds_per_question for result in results]),
        np.percentile(search_seconds, 50),
        np.percentile(search_seconds, 95),
    ]
    cost_text = " ".join(f"{1000 * value:.1f}" for value in seconds)
    print(f"{label:<14}{recall_text}     {cost_text}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Evidence recall of each signal of a search.")
    parser.add_argument("data", nargs="?", help="the file; the bundled samples if left out")
    parser.add_argument(
        "--benchmark",
        default="locomo",
        help="the benchmark whose form the file has [default: %(default)s]",
    )
    parser.add_argument("--embedder", default=OFFLINE, help="its name [default: %(default)s]")
    parser.add_argument("--reranker", help="none, tokens or fastembed:NAME")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> None:
    """Print the lines of the chosen benchmark, or of all bundled samples.

    Raises:
        MempilerError: The file or the embedder's weights are not there, or damaged.
    """
    chosen = embedder(arguments.embedder, reranker=arguments.reranker)
    cutoff_text = "/@".join(str(cutoff) for cutoff in CUTOFFS)
    print(
        f"{'':<14}{chosen.name}: recall@{cutoff_text}, CPU ms a turn and a question, p50 and p95 ms"
    )

    names = [arguments.benchmark] if arguments.data else SAMPLES
    for name in names:
        histories = load_histories(name, arguments.data)
        questions = sum(len(history.queries) for history in histories)
        print(f"{name}: {questions} questions, {len(histories)} histories")
        for signals in list_signals(chosen):
            results = [search_history(signals.make_index(), history) for history in histories]
            print_line(signals.label, results)


def main() -> None:
    try:
        run(parse_arguments())
    except MempilerError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
