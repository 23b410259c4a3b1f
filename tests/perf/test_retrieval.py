"""perf/retrieval.py, and what searches find and take.

The script measures recall: the share of a question's evidence, the turns that hold its answer, that
a search finds among its first 5, 10 and 20 hits. It searches with more and more signals.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.engines.encoder import TOKEN_WIDTH, Encoder, TextEncoding
from mempiler.engines.rerankers import TokenMatch
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.weights import SignalWeights

DIMENSION = 384
VOCABULARY_SIZE = 5000


def mean_recall(retrieval: Any, benchmark: str, weights: SignalWeights) -> np.ndarray:
    """Return the recall among the first 5, 10 and 20 hits, as a mean of all questions."""
    results = []
    for history in retrieval.load_histories(benchmark):
        results.append(retrieval.search_history(Index(weights=weights), history).recall)
    return np.concatenate(results).mean(axis=0)


@pytest.mark.parametrize("benchmark", ["longmemeval", "memoryquest"])
def test_a_search_finds_more_if_turns_share_their_scores_with_their_neighbours(
    script: Any, benchmark: str
) -> None:
    """An answer often stands next to a turn that has the words of the question."""
    retrieval = script("retrieval")

    words_alone = mean_recall(retrieval, benchmark, SignalWeights(neighbour_shares={}))
    with_neighbours = mean_recall(retrieval, benchmark, SignalWeights())

    # Among the first 5 hits is more of the evidence, and among 10 and 20 not less.
    assert with_neighbours[0] > words_alone[0]
    assert (with_neighbours >= words_alone).all()


def test_the_script_prints_the_recall_of_each_signal_on_a_line(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an embedder there are three signals.

    They are words, the scores that neighbours lend to a turn, and the speaker and the month that a
    question names (who, when).
    """
    retrieval = script("retrieval")
    monkeypatch.setattr(retrieval, "SAMPLES", ("longmemeval",))
    monkeypatch.setattr(sys, "argv", ["retrieval"])

    retrieval.main()

    head, sample, *lines = capsys.readouterr().out.splitlines()
    assert "offline: recall@5/@10/@20" in head
    assert sample == "longmemeval: 22 questions, 22 histories"
    assert [line[:14].strip() for line in lines] == ["words", "+ lent", "+ who, when"]


class RandomEncoder(Encoder):
    """Stands for an encoder: a query takes as many multiplications as with MiniLM.

    These are ten million for each word.
    """

    layers = np.ones((DIMENSION, 27_648), np.float32)

    def __init__(self) -> None: ...

    def __call__(self, texts: Sequence[str]) -> list[TextEncoding]:
        generator = np.random.default_rng(len(texts))
        encodings: list[TextEncoding] = []
        for text in texts:
            words = len(text.split())
            tokens = generator.integers(-40, 40, (words, TOKEN_WIDTH), np.int8)
            encodings.append(TextEncoding(generator.standard_normal(DIMENSION, np.float32), tokens))
            if len(texts) == 1:
                np.ones((words, DIMENSION), np.float32) @ self.layers
        return encodings

    def words(self, text: str, start: int = 0) -> list[str]:
        return text.split()


def random_entries(size: int, generator: np.random.Generator) -> list[Entry]:
    """Return turns of 25 words, drawn by Zipf's law, of two speakers in eleven months."""
    weights = 1 / np.arange(1, VOCABULARY_SIZE + 1)
    rows = generator.choice(VOCABULARY_SIZE, (size, 25), p=weights / weights.sum())
    entries: list[Entry] = []
    for n, row in enumerate(rows):
        entries.append(
            Entry(
                id=str(n),
                text=" ".join(f"w{word}" for word in row),
                speaker="AB"[n % 2],
                time=datetime(2023, 1 + n * 11 // size, 1),
                tags={DIALOGUE: str(n // 20)},
            )
        )
    return entries


def random_query(generator: np.random.Generator) -> str:
    """Return a question with six random words, which names a speaker and a month."""
    words = " ".join(f"w{n}" for n in generator.choice(VOCABULARY_SIZE, 6))
    return f"What did Ann say of {words} in May 2023?"


def make_index(size: int, generator: np.random.Generator) -> Index:
    """Return an index of so many turns, with an embedder and a reranker."""
    encoder: Any = RandomEncoder()
    embedder = TextEmbedder("random", encoder, DIMENSION)
    embedder.reranker = TokenMatch(embedder)
    index = Index(embedder, hybrid=True)
    index.add(random_entries(size, generator))
    return index


def seconds_of_search(index: Index, query: str) -> float:
    """Search for a query; return how many seconds of the processor it took."""
    start = time.process_time()
    index.search([query], 10)
    return time.process_time() - start


@pytest.mark.slow
def test_a_search_of_twenty_times_as_many_turns_costs_twice_as_much_at_most() -> None:
    """12,000 turns are twenty times 600. To encode the query takes the same time for both.

    Both are searched by turns, so that a slow while of the machine is slow for both.
    """
    generator = np.random.default_rng(1)
    queries = [random_query(generator) for _ in range(60)]
    small_index = make_index(600, generator)
    large_index = make_index(12_000, generator)
    # The first searches prepare what later ones use.
    small_index.search(queries[:20], 10)
    large_index.search(queries[:20], 10)

    small_costs: list[float] = []
    large_costs: list[float] = []
    for query in queries[20:]:
        small_costs.append(seconds_of_search(small_index, query))
        large_costs.append(seconds_of_search(large_index, query))

    assert np.quantile(large_costs, 0.25) <= 2 * np.quantile(small_costs, 0.25)
