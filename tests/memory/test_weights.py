"""The weights of a search: a weight of 0 turns its signal off, and one out of its range is refused."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.errors import UserError
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.memory import Memory
from mempiler.memory.search.index import Index
from mempiler.memory.search.index_cache import IndexCache
from mempiler.memory.search.weights import SignalWeights

SAME_TEXT = "We heard jazz at the river"


def scores(
    entries: Sequence[Entry], query: str, weights: SignalWeights, embedder: TextEmbedder | None = None
) -> dict[str, float]:
    """The score of each entry."""
    index = Index(embedder, hybrid=True, weights=weights)
    index.add([*entries, Entry(id="other", text="Rain again")])
    [hits] = index.search([query], k=10)
    return {hit.id: hit.score for hit in hits if hit.id != "other"}


def turns_of(*speakers: str) -> list[Entry]:
    return [Entry(id=speaker, text=SAME_TEXT, speaker=speaker) for speaker in speakers]


def entries_of(*months: datetime) -> list[Entry]:
    return [Entry(id=f"{month:%Y-%m}", text=SAME_TEXT, time=month) for month in months]


def test_defaults_are_the_weights_that_recalled_most_of_locomo() -> None:
    # `perf/retrieval.py` measures the recall; whoever changes a default measures it again.
    assert SignalWeights().model_dump() == {
        "speaker": 2.0,
        "month": 2.0,
        "next_month": 0.4,
        "year": 0.3,
        "neighbour_shares": {1: 0.5, 2: 0.2, -1: 0.2},
        "neighbour_cosines": 0.6,
        "similarity_beside_reranker": 0.3,
        "reranked_hits": 100,
        "reranked_passages": 150,
    }


def test_index_has_the_default_weights_unless_others_are_given() -> None:
    assert Index().weights == SignalWeights()
    assert IndexCache().weights == SignalWeights()


def test_a_speaker_counts_by_its_weight() -> None:
    entries = turns_of("Ann", "Bob")
    found = scores(entries, "What jazz did Ann hear?", SignalWeights())
    assert found["Ann"] > found["Bob"]
    found = scores(entries, "What jazz did Ann hear?", SignalWeights(speaker=0))
    assert found["Ann"] == found["Bob"]


@pytest.mark.parametrize(
    ("question", "weight"),
    [("What jazz in May 2023?", "month"), ("What jazz in April 2023?", "next_month"), ("What jazz in 2023?", "year")],
)
def test_months_and_years_count_by_their_weights(question: str, weight: str) -> None:
    entries = entries_of(datetime(2023, 5, 1), datetime(2021, 1, 1))
    found = scores(entries, question, SignalWeights())
    assert found["2023-05"] > found["2021-01"]
    found = scores(entries, question, SignalWeights(**{weight: 0}))
    assert found["2023-05"] == found["2021-01"]


def dialogue(*texts: str) -> list[Entry]:
    return [Entry(id=str(place), text=text, tags={DIALOGUE: "d"}) for place, text in enumerate(texts)]


def test_neighbours_share_their_scores_by_words_by_their_weight() -> None:
    entries = dialogue("Did you hear jazz?", "Yes.", "And then?", "Nothing.")
    assert scores(entries, "jazz", SignalWeights()).keys() == {"0", "1", "2"}
    assert scores(entries, "jazz", SignalWeights(neighbour_shares={1: 0.5})).keys() == {"0", "1"}
    assert scores(entries, "jazz", SignalWeights(neighbour_shares={1: 0})).keys() == {"0"}
    assert scores(entries, "jazz", SignalWeights(neighbour_shares={})).keys() == {"0"}


def near_to_jazz() -> TextEmbedder:
    return TextEmbedder("jazz", lambda texts: np.array([["jazz" in text, 1.0] for text in texts]), 2)


def test_neighbours_share_their_cosines_by_their_weight() -> None:
    # No word of the query is in the entries, so only cosines differ.
    entries = dialogue("jazzy", "Yes.", "Then?", "Nothing.")
    found = scores(entries, "jazz", SignalWeights(), near_to_jazz())
    assert found["1"] > found["3"]
    found = scores(entries, "jazz", SignalWeights(neighbour_cosines=0), near_to_jazz())
    assert found["1"] == found["3"]


class LikesLongTexts:
    """A reranker that counts letters, and notes how many texts it reads."""

    name = "long texts"

    def __init__(self) -> None:
        self.text_counts: list[int] = []

    def words(self, query: str) -> Sequence[str]:
        return ()

    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
        self.text_counts.append(len(texts))
        return np.array([float(sum(map(len, passages))) for passages in texts])


def reranked(weights: SignalWeights) -> tuple[list[str], list[int]]:
    """The ids found, best first, and how many texts the reranker read."""
    embedder = near_to_jazz()
    reranker = embedder.reranker = LikesLongTexts()
    texts = ("jazz", "jazz and more", "jazz and more of it", "jazz\nand\nmore\nof\nit\nagain\nand\nagain")
    return list(scores(dialogue(*texts), "jazz", weights, embedder)), reranker.text_counts


def test_a_reranker_reads_so_many_hits_and_passages() -> None:
    plain_order, text_counts = reranked(SignalWeights(reranked_hits=0))
    assert text_counts == []
    new_order, text_counts = reranked(SignalWeights())
    assert text_counts == [5]
    assert new_order != plain_order
    _, text_counts = reranked(SignalWeights(reranked_hits=3))
    assert text_counts == [3]
    _, text_counts = reranked(SignalWeights(reranked_passages=2))
    assert text_counts == [2]


def test_beside_a_reranker_words_and_cosines_count_by_their_weight() -> None:
    embedder = near_to_jazz()
    embedder.reranker = LikesLongTexts()
    # To the reranker the first two are the same.
    entries = [Entry(id=text, text=text) for text in ("rock", "jazz", "blues")]
    found = scores(entries, "jazz", SignalWeights(), embedder)
    assert found["jazz"] > found["rock"]
    found = scores(entries, "jazz", SignalWeights(similarity_beside_reranker=0), embedder)
    assert found["jazz"] == found["rock"]


class Notes(Memory[Entry]):
    notes: tuple[Entry, ...] = ()

    def entries(self) -> Sequence[Entry]:
        return self.notes


def test_a_cache_searches_with_its_weights() -> None:
    memory = Notes(notes=(*turns_of("Ann", "Bob"), Entry(id="other", text="Rain again")))
    question = ["What jazz did Bob hear?"]
    [hits] = IndexCache(hybrid=True).search(memory, question, 1)
    assert hits[0].id == "Bob"
    [hits] = IndexCache(hybrid=True, weights=SignalWeights(speaker=0)).search(memory, question, 1)
    assert hits[0].id == "Ann"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"speaker": -1}, "search weight speaker = -1: input should be greater than or equal to 0"),
        ({"month": float("nan")}, "search weight month = nan: input should be a finite number"),
        ({"year": 1.5}, "search weight year = 1.5: input should be less than or equal to 1"),
        ({"reranked_hits": 2.5}, "search weight reranked_hits = 2.5: input should be a valid integer"),
        ({"neighbour_shares": {1: 2.0}}, "search weight neighbour_shares.1 = 2.0: input should be less than"),
        ({"neighbour_shares": {0: 0.5}}, "search weight neighbour_shares.0 = 0: a turn is no neighbour of itself"),
        ({"mont": 1}, "unknown search weight 'mont'; did you mean 'month'?"),
    ],
)
def test_a_weight_out_of_its_range_is_one_clear_error(weights: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", r"\?")) as caught:
        SignalWeights(**weights)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
