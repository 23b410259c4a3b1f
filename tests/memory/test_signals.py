"""What counts beside words and vectors: the speaker, the month, passages, and a reranker."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.memory.entry import DIALOGUE, Entry
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


def test_removed_entries_do_not_change_what_a_speaker_counts() -> None:
    """The bonus of a speaker is in deviations of the scores; empty rows would lower these."""
    ann = Entry(id="ann", text="Ann: jazz", speaker="Ann")
    bob = Entry(id="bob", text="Bob: jazz and blues", speaker="Bob")
    removed_entries = [Entry(id=str(n), text="nothing of it", speaker="Bob") for n in range(9)]
    index = index_of([ann, bob, *removed_entries])
    index.remove([entry.id for entry in removed_entries])

    query = ["What does Ann say of jazz?"]
    assert index.search(query, 2) == index_of([ann, bob]).search(query, 2)


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
JAZZ_TURNS = [
    Entry(id="Ann in March", text="Jazz is fine", speaker="Ann", time=MARCH),
    Entry(id="Ann in May", text="Jazz is fine", speaker="Ann", time=MAY),
    Entry(id="Bob in March", text="Jazz is fine", speaker="Bob", time=MARCH),
    Entry(id="Bob in May", text="Jazz is fine", speaker="Bob", time=MAY),
]
RAIN_TURN = Entry(id="rain", text="Rain", speaker="Bob", time=MAY)
QUESTION = "What did Bob say of jazz in May 2023?"


@pytest.mark.parametrize("embedder", [None, SAME_VECTOR], ids=["words", "words and vectors"])
def test_turn_of_the_speaker_and_the_month_comes_first(embedder: TextEmbedder | None) -> None:
    """Four turns say the same. The question names Bob and May 2023, so it asks for one of them."""
    index = index_of([*JAZZ_TURNS, RAIN_TURN], embedder)

    ids = search_ids(index, QUESTION, 5)

    assert ids[0] == "Bob in May"
    # Then two that fit by the speaker, by the month, or by both but without the word.
    assert set(ids[1:3]) <= {"Bob in March", "Ann in May", "rain"}


def test_turn_without_a_word_of_the_question_is_found_by_its_vector_alone() -> None:
    index_by_words = index_of([*JAZZ_TURNS, RAIN_TURN])
    index_by_both = index_of([*JAZZ_TURNS, RAIN_TURN], SAME_VECTOR)

    assert "rain" not in search_ids(index_by_words, QUESTION, 5)
    assert "rain" in search_ids(index_by_both, QUESTION, 5)


# Rerankers.


class LongestFirst:
    """A reranker that scores a text by its length. It records what it was asked."""

    name = "longest first"

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.word_weights: list[Mapping[str, float]] = []

    def words(self, query: str) -> Sequence[str]:
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


def length_vectors(texts: Sequence[str]) -> np.ndarray:
    return np.array([[1.0, len(text) % 7] for text in texts])


def fine_entry(number: int) -> Entry:
    """Return a turn that is the shorter, the higher its number; the first three speak of jazz."""
    text = "fine " * (12 - number)
    if number < 3:
        text += "jazz"
    return Entry(id=str(number), text=text, tags={DIALOGUE: "a"})


FINE_ENTRIES = [fine_entry(number) for number in range(9)]
RERANKED_ENTRIES = [*FINE_ENTRIES, Entry(id="speaker", text="fine", speaker="Ann")]
RERANK_FOUR = SignalWeights(reranked_hits=4)
"""Weights with which a reranker reads the first four hits."""


@pytest.fixture
def reranker() -> LongestFirst:
    return LongestFirst()


@pytest.fixture
def embedder_with_reranker(reranker: LongestFirst) -> TextEmbedder:
    embedder = TextEmbedder("with reranker", length_vectors, 2)
    embedder.reranker = reranker
    return embedder


def test_reranker_orders_the_first_hits_and_the_rest_stay_behind_them(
    embedder_with_reranker: TextEmbedder,
) -> None:
    plain_index = index_of(RERANKED_ENTRIES, TextEmbedder("plain", length_vectors, 2))
    index = index_of(RERANKED_ENTRIES, embedder_with_reranker, RERANK_FOUR)

    ids_before = search_ids(plain_index, "Ann's jazz", 9)
    ids_after = search_ids(index, "Ann's jazz", 9)

    assert set(ids_after[:4]) == set(ids_before[:4])
    assert ids_after[:4] != ids_before[:4]
    assert ids_after[4:] == ids_before[4:]


def test_reranked_hits_have_falling_scores(embedder_with_reranker: TextEmbedder) -> None:
    index = index_of(RERANKED_ENTRIES, embedder_with_reranker, RERANK_FOUR)

    (hits,) = index.search(["Ann's jazz"], 9)

    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_search_for_fewer_hits_finds_the_first_ones_of_a_search_for_more(
    embedder_with_reranker: TextEmbedder,
) -> None:
    index = index_of(RERANKED_ENTRIES, embedder_with_reranker, RERANK_FOUR)

    (nine_hits,) = index.search(["Ann's jazz"], 9)
    (three_hits,) = index.search(["Ann's jazz"], 3)

    assert three_hits == nine_hits[:3]


def test_reranker_reads_the_question_without_names_and_how_rare_its_words_are(
    embedder_with_reranker: TextEmbedder, reranker: LongestFirst
) -> None:
    index = index_of(RERANKED_ENTRIES, embedder_with_reranker, RERANK_FOUR)

    index.search(["Ann's jazz"], 9)

    assert reranker.queries == ["jazz"]
    (weights,) = reranker.word_weights
    # Three of the ten entries have "jazz", all have "fine", and none has "of".
    assert weights["jazz"] > weights["fine"] > weights["of"] == 0


def test_index_without_entries_asks_no_reranker(
    embedder_with_reranker: TextEmbedder, reranker: LongestFirst
) -> None:
    index = Index(embedder_with_reranker, hybrid=True)

    assert index.search(["jazz"], 3) == [[]]
    assert reranker.queries == []


def test_index_that_is_not_hybrid_asks_no_reranker(
    embedder_with_reranker: TextEmbedder, reranker: LongestFirst
) -> None:
    index = Index(embedder_with_reranker)
    assert index.search(["jazz"], 3) == [[]]

    index.add(RERANKED_ENTRIES)
    index.search(["jazz"], 3)

    assert reranker.queries == []


# Hostile questions.


def test_only_the_beginning_of_a_question_as_long_as_a_book_is_searched_for() -> None:
    index = Index()
    index.add([Entry(id="f1", text="Ann likes jazz"), Entry(id="f2", text="I moved to Lisbon")])
    book = "Lisbon " + "我们昨天在北京的公园里打篮球" * 40_000 + " jazz"
    start = time.process_time()

    ids = search_ids(index, book, 2)
    (embedded_query,) = index.semantic_queries([book])

    # "jazz" stands behind what counts.
    assert ids == ["f2"]
    assert len(embedded_query) == 10_000
    # A search for the whole question would take far longer.
    assert time.process_time() - start < 5
