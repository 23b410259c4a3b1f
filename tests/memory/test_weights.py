"""The weights of a search: 0 turns a signal off, and a weight out of its range is refused.

Besides words and vectors, a search may prefer turns of the speaker or the month that the question
names, and turns whose neighbours score high. A reranker orders the best hits again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.errors import UserError
from mempiler.memory.entry import DIALOGUE, Entry
from mempiler.memory.search.index import Index
from mempiler.memory.search.index_cache import IndexCache
from mempiler.memory.search.weights import SignalWeights

OTHER_ENTRY = Entry(id="other", text="Rain again")
"""An entry that no query of these tests asks for.

Scores are deviations from a mean, so entries that are all alike would all score 0.
"""


def search_scores(
    entries: Sequence[Entry],
    query: str,
    weights: SignalWeights,
    embedder: TextEmbedder | None = None,
) -> dict[str, float]:
    """Search the entries and `OTHER_ENTRY`; return the scores of the entries by id, best first."""
    index = Index(embedder, hybrid=True, weights=weights)
    index.add([*entries, OTHER_ENTRY])
    (hits,) = index.search([query], k=10)
    return {hit.id: hit.score for hit in hits if hit.id != OTHER_ENTRY.id}


def test_defaults_stay_since_saved_programs_leave_them_out() -> None:
    """A saved program names its weights only if they differ from these defaults.

    So another default would change what programs recall that are saved already. Such a change needs
    a way to tell older programs apart, and a new measurement with `perf/retrieval.py`.
    """
    assert SignalWeights().model_dump() == {
        "speaker": 2.0,
        "month": 2.0,
        "next_month": 0.4,
        "year": 0.3,
        "neighbour_shares": {1: 0.5, 2: 0.2, -1: 0.2},
        "neighbour_words": 1.0,
        "neighbour_cosines": 0.6,
        "cosines": 1.0,
        "similarity_beside_reranker": 0.3,
        "reranked_hits": 100,
        "reranked_passages": 150,
    }


def test_index_has_the_default_weights_unless_others_are_given() -> None:
    assert Index().weights == SignalWeights()
    assert IndexCache().weights == SignalWeights()


# Speakers and months.


def test_turn_of_the_speaker_in_the_question_scores_higher() -> None:
    ann = Entry(id="Ann", text="We heard jazz", speaker="Ann")
    bob = Entry(id="Bob", text="We heard jazz", speaker="Bob")

    scores = search_scores([ann, bob], "What jazz did Ann hear?", SignalWeights())

    assert scores["Ann"] > scores["Bob"]


def test_speakers_score_the_same_if_their_weight_is_0() -> None:
    ann = Entry(id="Ann", text="We heard jazz", speaker="Ann")
    bob = Entry(id="Bob", text="We heard jazz", speaker="Bob")

    scores = search_scores([ann, bob], "What jazz did Ann hear?", SignalWeights(speaker=0))

    assert scores["Ann"] == scores["Bob"]


@pytest.mark.parametrize(
    "question",
    [
        pytest.param("What jazz in May 2023?", id="the same month"),
        pytest.param("What jazz in April 2023?", id="the month before"),
        pytest.param("What jazz in 2023?", id="the same year"),
    ],
)
def test_entry_of_the_time_in_the_question_scores_higher(question: str) -> None:
    may_2023 = Entry(id="May 2023", text="We heard jazz", time=datetime(2023, 5, 1))
    january_2021 = Entry(id="January 2021", text="We heard jazz", time=datetime(2021, 1, 1))

    scores = search_scores([may_2023, january_2021], question, SignalWeights())

    assert scores["May 2023"] > scores["January 2021"]


@pytest.mark.parametrize(
    ("question", "weights"),
    [
        ("What jazz in May 2023?", SignalWeights(month=0)),
        ("What jazz in April 2023?", SignalWeights(next_month=0)),
        ("What jazz in 2023?", SignalWeights(year=0)),
    ],
    ids=["the same month", "the month before", "the same year"],
)
def test_entries_of_all_times_score_the_same_if_the_weight_is_0(
    question: str, weights: SignalWeights
) -> None:
    may_2023 = Entry(id="May 2023", text="We heard jazz", time=datetime(2023, 5, 1))
    january_2021 = Entry(id="January 2021", text="We heard jazz", time=datetime(2021, 1, 1))

    scores = search_scores([may_2023, january_2021], question, weights)

    assert scores["May 2023"] == scores["January 2021"]


# Neighbours in a dialogue.


def dialogue(*texts: str) -> list[Entry]:
    """Return the turns of one dialogue, with the ids "0", "1", ..."""
    turns: list[Entry] = []
    for position, text in enumerate(texts):
        turns.append(Entry(id=str(position), text=text, tags={DIALOGUE: "d"}))
    return turns


@pytest.mark.parametrize(
    ("weights", "expected_ids"),
    [
        # By default a turn also gives a share to the second one after it.
        pytest.param(SignalWeights(), {"0", "1", "2"}, id="default"),
        pytest.param(SignalWeights(neighbour_shares={1: 0.5}), {"0", "1"}, id="next turn"),
        pytest.param(SignalWeights(neighbour_shares={1: 0}), {"0"}, id="zero"),
        pytest.param(SignalWeights(neighbour_shares={}), {"0"}, id="none"),
    ],
)
def test_neighbours_of_a_turn_with_the_word_are_found_by_their_shares(
    weights: SignalWeights, expected_ids: set[str]
) -> None:
    turns = dialogue("Did you hear jazz?", "Yes.", "And then?", "Nothing.")

    scores = search_scores(turns, "jazz", weights)

    assert set(scores) == expected_ids


def jazz_vectors(texts: Sequence[str]) -> np.ndarray:
    """Return one vector for all texts with "jazz", and another one for all other texts."""
    vectors = [[float("jazz" in text), 1.0] for text in texts]
    return np.array(vectors)


def jazz_embedder() -> TextEmbedder:
    return TextEmbedder("jazz", jazz_vectors, 2)


def test_turn_after_one_with_a_similar_vector_scores_higher_unless_its_weight_is_0() -> None:
    """The embedder finds "jazz" in "jazzy", the turn 0. The turn 1 comes right after it."""
    turns = dialogue("jazzy", "Yes.", "Then?", "Nothing.")
    without_shares = SignalWeights(neighbour_cosines=0)

    scores = search_scores(turns, "jazz", SignalWeights(), jazz_embedder())
    scores_without_shares = search_scores(turns, "jazz", without_shares, jazz_embedder())

    assert scores["1"] > scores["3"]
    assert scores_without_shares["1"] == scores_without_shares["3"]


# Rerankers.


class LongTextsFirst:
    """A reranker that scores a text by its length. It records how many texts it reads."""

    name = "long texts first"

    def __init__(self) -> None:
        self.text_counts: list[int] = []
        """How many texts it read in each search; every hit has one text, in passages."""

    def words(self, query: str) -> Sequence[str]:
        return ()

    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: object) -> np.ndarray:
        self.text_counts.append(len(texts))
        lengths: list[float] = []
        for passages in texts:
            lengths.append(float(sum(len(passage) for passage in passages)))
        return np.array(lengths)


def embedder_with(reranker: LongTextsFirst) -> TextEmbedder:
    embedder = jazz_embedder()
    embedder.reranker = reranker
    return embedder


@pytest.mark.parametrize(
    ("weights", "expected_counts"),
    [
        pytest.param(SignalWeights(), [5], id="default"),
        pytest.param(SignalWeights(reranked_hits=0), [], id="no hits"),
        pytest.param(SignalWeights(reranked_hits=3), [3], id="three hits"),
        pytest.param(SignalWeights(reranked_passages=2), [2], id="two passages"),
    ],
)
def test_reranker_reads_as_many_hits_and_passages_as_the_weights_say(
    weights: SignalWeights, expected_counts: list[int]
) -> None:
    """A passage is a line of a text. The reranker notes how many texts it read in each search.

    There are five texts: these four, and `OTHER_ENTRY`, which `search_scores` adds.
    """
    entries = [
        Entry(id="1", text="jazz"),
        Entry(id="2", text="jazz again"),
        Entry(id="3", text="jazz once more"),
        Entry(id="4", text="jazz\nin\nseveral\nlines"),
    ]
    reranker = LongTextsFirst()

    search_scores(entries, "jazz", weights, embedder_with(reranker))

    assert reranker.text_counts == expected_counts


def test_words_and_cosines_count_beside_a_reranker() -> None:
    """The reranker scores by length alone, so it likes "jazz" and "rock" equally."""
    entries = [Entry(id="rock", text="rock"), Entry(id="jazz", text="jazz")]

    scores = search_scores(entries, "jazz", SignalWeights(), embedder_with(LongTextsFirst()))

    assert scores["jazz"] > scores["rock"]


def test_only_the_reranker_counts_if_the_weight_of_similarity_is_0() -> None:
    """The reranker scores by length alone, so it likes "jazz" and "rock" equally."""
    entries = [Entry(id="rock", text="rock"), Entry(id="jazz", text="jazz")]
    weights = SignalWeights(similarity_beside_reranker=0)

    scores = search_scores(entries, "jazz", weights, embedder_with(LongTextsFirst()))

    assert scores["jazz"] == scores["rock"]


# Weights that are refused.


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"speaker": -1}, "speaker = -1: input should be greater than or equal to 0"),
        ({"month": float("nan")}, "month = nan: input should be a finite number"),
        ({"year": 1.5}, "year = 1.5: input should be less than or equal to 1"),
        ({"reranked_hits": 2.5}, "reranked_hits = 2.5: input should be a valid integer"),
        ({"neighbour_shares": {1: 2.0}}, "neighbour_shares.1 = 2.0: input should be less than"),
        ({"neighbour_shares": {0: 0.5}}, "neighbour_shares.0 = 0: a turn is no neighbour"),
        ({"mont": 1}, "'mont'; did you mean 'month'"),
    ],
)
def test_weight_out_of_its_range_is_refused(weights: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        SignalWeights(**weights)

    assert str(refusal.value).startswith(("search weight ", "unknown search weight "))
    assert message in str(refusal.value)
    # The user sees one error, not that of pydantic behind it.
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None
