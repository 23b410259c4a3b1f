"""What counts beside words and vectors: the speaker, the month, passages, and a reranker."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory.entry import Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.passages import passages
from mempiler.memory.search.weights import DEFAULT_WEIGHTS, SignalWeights


def index_of(
    entries: Sequence[Entry],
    embedder: TextEmbedder | None = None,
    weights: SignalWeights = DEFAULT_WEIGHTS,
) -> Index:
    """Return an index that searches these entries by words, and by vectors if it can."""
    index = Index(embedder, hybrid=True, weights=weights)
    index.add(entries)
    return index


def search_ids(index: Index, query: str, k: int) -> list[str]:
    """Return the ids of the first `k` hits, best first."""
    (hits,) = index.search([query], k)
    return [hit.id for hit in hits]


# Passages: the parts of an entry that have a vector each.


def test_passages_are_lines_without_the_name_of_the_speaker() -> None:
    assert passages("Ann: first\nsecond", "Ann") == ["first", "second"]


def test_empty_text_is_one_passage() -> None:
    assert passages("", None) == [""]


def test_long_line_is_cut_between_words() -> None:
    words = " ".join(f"w{number}" for number in range(600))

    cut_passages = passages(f"Ann: {words}\nshort", "Ann")

    assert cut_passages[-1] == "short"
    # No word is lost or cut.
    assert " ".join(cut_passages) == f"{words} short"
    assert max(len(passage) for passage in cut_passages) <= 900


def test_long_line_without_blanks_is_cut_after_900_characters() -> None:
    assert passages("我" * 1000, None) == ["我" * 900, "我" * 100]


# The speaker and the month of a question.


def same_vectors(texts: Sequence[str]) -> np.ndarray:
    return np.ones((len(texts), 2))


SAME_VECTOR = TextEmbedder("same", same_vectors, 2)
"""An embedder to which all texts are alike."""

MARCH = datetime(2023, 3, 1)
MAY = datetime(2023, 5, 1)


@pytest.mark.parametrize("embedder", [None, SAME_VECTOR], ids=["words", "words and vectors"])
def test_turn_of_the_speaker_and_the_month_comes_first(embedder: TextEmbedder | None) -> None:
    turns = [
        Entry(id="Ann in March", text="Jazz is fine", speaker="Ann", time=MARCH),
        Entry(id="Ann in May", text="Jazz is fine", speaker="Ann", time=MAY),
        Entry(id="Bob in March", text="Jazz is fine", speaker="Bob", time=MARCH),
        Entry(id="Bob in May", text="Jazz is fine", speaker="Bob", time=MAY),
        Entry(id="rain", text="Rain", speaker="Bob", time=MAY),
    ]
    index = index_of(turns, embedder)

    ids = search_ids(index, "What did Bob say of jazz in May 2023?", k=5)

    assert ids[0] == "Bob in May"
    # Then two that fit by the speaker, by the month, or by both but without the word.
    assert set(ids[1:3]) <= {"Bob in March", "Ann in May", "rain"}


def test_turn_without_a_word_of_the_question_is_found_by_its_vector_alone() -> None:
    entries = [Entry(id="jazz", text="Jazz is fine"), Entry(id="rain", text="Rain")]
    index_by_words = index_of(entries)
    index_by_both = index_of(entries, SAME_VECTOR)

    assert search_ids(index_by_words, "What about jazz?", k=5) == ["jazz"]
    assert search_ids(index_by_both, "What about jazz?", k=5) == ["jazz", "rain"]


# Rerankers.


class LongestFirst:
    """A reranker that scores a text by its length. It records what it was asked."""

    name = "longest first"

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.word_weights: list[Mapping[str, float]] = []

    def words(self, query: str) -> Sequence[str]:
        """Return the words whose weights it asks for."""
        return ["jazz", "fine", "of"]

    def scores(
        self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
    ) -> np.ndarray:
        self.queries.append(query)
        self.word_weights.append(weights)
        lengths: list[float] = []
        for text_passages in texts:
            lengths.append(float(sum(len(passage) for passage in text_passages)))
        return np.array(lengths)


def embedder_with(reranker: LongestFirst) -> TextEmbedder:
    """Return an embedder to which all texts are alike, with a reranker."""
    embedder = TextEmbedder("with reranker", same_vectors, 2)
    embedder.reranker = reranker
    return embedder


def jazz_entries() -> list[Entry]:
    """Return four entries about jazz. A search by words finds the shortest one first."""
    return [
        Entry(id="4 words", text="jazz rock blues soul"),
        Entry(id="3 words", text="jazz rock blues"),
        Entry(id="2 words", text="jazz rock"),
        Entry(id="1 word", text="jazz"),
    ]


def test_search_without_a_reranker_finds_the_shortest_text_first() -> None:
    index = index_of(jazz_entries(), SAME_VECTOR)

    assert search_ids(index, "jazz", k=4) == ["1 word", "2 words", "3 words", "4 words"]


def test_reranker_orders_the_first_hits_and_the_rest_stay_behind_them() -> None:
    """The reranker reads the first two hits, and prefers the longer one."""
    weights = SignalWeights(reranked_hits=2)
    index = index_of(jazz_entries(), embedder_with(LongestFirst()), weights)

    assert search_ids(index, "jazz", k=4) == ["2 words", "1 word", "3 words", "4 words"]


def test_search_for_fewer_hits_finds_the_first_ones_of_a_search_for_more() -> None:
    weights = SignalWeights(reranked_hits=2)
    index = index_of(jazz_entries(), embedder_with(LongestFirst()), weights)

    (four_hits,) = index.search(["jazz"], k=4)
    (three_hits,) = index.search(["jazz"], k=3)

    assert three_hits == four_hits[:3]


def test_reranker_reads_the_question_without_names() -> None:
    reranker = LongestFirst()
    index = index_of([Entry(id="a", text="jazz", speaker="Ann")], embedder_with(reranker))

    index.search(["Ann's jazz"], k=1)

    assert reranker.queries == ["jazz"]


def test_reranker_learns_how_rare_words_are() -> None:
    reranker = LongestFirst()
    entries = [
        Entry(id="a", text="fine"),
        Entry(id="b", text="fine"),
        Entry(id="c", text="fine jazz"),
    ]
    index = index_of(entries, embedder_with(reranker))

    index.search(["jazz"], k=3)

    (weights,) = reranker.word_weights
    # One entry has "jazz", all have "fine", and none has "of".
    assert weights["jazz"] > weights["fine"] > weights["of"] == 0


def test_index_that_is_not_hybrid_asks_no_reranker() -> None:
    reranker = LongestFirst()
    index = Index(embedder_with(reranker), hybrid=False)
    index.add(jazz_entries())

    index.search(["jazz"], k=3)

    assert reranker.queries == []


# Hostile questions.


def test_only_the_beginning_of_a_question_as_long_as_a_book_is_searched_for() -> None:
    index = Index()
    index.add([Entry(id="jazz", text="Ann likes jazz"), Entry(id="Lisbon", text="I like Lisbon")])
    # What counts of the question is its beginning, where "Lisbon" stands.
    book = "Lisbon " + "我们昨天在北京的公园里打篮球" * 40_000 + " jazz"
    start = time.process_time()

    ids = search_ids(index, book, k=2)
    (embedded_query,) = index.semantic_queries([book])

    assert ids == ["Lisbon"]
    assert len(embedded_query) == 10_000
    # A search for the whole question would take far longer.
    assert time.process_time() - start < 5
