"""A search that has read its index is finished as if the index had not changed since."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index


class CountsWords:
    """A reranker that likes texts with many rare words."""

    name = "counts words"

    def words(self, query: str) -> Sequence[str]:
        return query.split()

    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
        return np.array([sum(weights.get(word, 0) for word in " ".join(text).split()) for text in texts])


def reranked() -> Index:
    embedder = TextEmbedder("lengths", lambda texts: np.array([[1.0, len(text) % 5] for text in texts]), 2)
    embedder.reranker = CountsWords()
    return Index(embedder, hybrid=True)


TEXTS = ["jazz at the river", "jazz jazz", "the river", "a piano", "jazz and a piano", "nothing"]
QUERIES = ["jazz piano", "river", "zebra", ""]


@pytest.mark.parametrize("new_index", [Index, lambda: Index(hybrid=True), reranked])
def test_the_rest_of_a_search_does_not_look_at_the_index(new_index: Callable[[], Index]) -> None:
    entries = [Entry(id=str(place), text=text, tags={DIALOGUE: "d"}) for place, text in enumerate(TEXTS)]
    index = new_index()
    index.add(entries)
    expected = index.search(QUERIES, k=4)

    searches = index.search_deferred(QUERIES, k=4)
    index.remove(["0", "3"])
    index.add([Entry(id="1", text="rain"), Entry(id="new", text="jazz piano river")])
    assert index.search(QUERIES, k=4) != expected
    assert [search.hits() for search in searches] == expected
    # And a second time: finishing a search changes nothing.
    assert [search.hits() for search in searches] == expected
