"""A search that has read its index is finished as if the index had not changed since.

`search_deferred` reads all that a search needs, while nobody changes the index. `hits()` finishes
the search later, which may take long: a reranker may be asked to order the best hits again.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index


class RareWordsFirst:
    """A reranker that likes texts with many rare words."""

    name = "rare words first"

    def words(self, query: str) -> Sequence[str]:
        return query.split()

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        scores: list[float] = []
        for passages in texts:
            words = " ".join(passages).split()
            scores.append(sum(weights.get(word, 0.0) for word in words))
        return np.array(scores)


def length_vectors(texts: Sequence[str]) -> np.ndarray:
    return np.array([[1.0, len(text) % 5] for text in texts])


def index_with_reranker() -> Index:
    embedder = TextEmbedder("lengths", length_vectors, 2)
    embedder.reranker = RareWordsFirst()
    return Index(embedder, hybrid=True)


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(Index(), id="words"),
        pytest.param(Index(hybrid=True), id="hybrid"),
        pytest.param(index_with_reranker(), id="reranker"),
    ],
)
def test_later_changes_of_the_index_do_not_affect_a_deferred_search(index: Index) -> None:
    texts = ["jazz at the river", "jazz jazz", "the river", "a piano", "jazz and a piano"]
    for position, text in enumerate(texts):
        index.add([Entry(id=str(position), text=text, tags={DIALOGUE: "d"})])
    queries = ["jazz piano", "river", "zebra", ""]
    hits_before = index.search(queries, k=4)

    deferred_searches = index.search_deferred(queries, k=4)
    index.remove(["0", "3"])
    index.add([Entry(id="1", text="rain"), Entry(id="new", text="jazz piano river")])
    deferred_hits = [search.hits() for search in deferred_searches]
    hits_of_second_call = [search.hits() for search in deferred_searches]

    assert index.search(queries, k=4) != hits_before
    assert deferred_hits == hits_before
    # Finishing a search changes nothing, so it may be finished twice.
    assert hits_of_second_call == hits_before
