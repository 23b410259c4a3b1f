"""What an index finds by words, by vectors and by both, whatever was added and removed before.

An index holds entries, such as the turns of a conversation. It ranks them for a query: by words
(BM25), by the cosine of an embedder's vectors, or by both. A turn also gives a share of its
score to its neighbours in the same dialogue. The expected scores are those of rank_bm25 and
numpy, worked out for one entry at a time.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder
from mempiler.errors import ProgramError, UserError
from mempiler.memory.entry import DIALOGUE, Entry, EntryFilter, SpeakerIs
from mempiler.memory.search.bm25 import FLOOR
from mempiler.memory.search.index import VECTOR_STEPS, Index
from mempiler.memory.search.rows import SPARE_ROWS
from mempiler.memory.search.tokens import tokens
from mempiler.memory.search.weights import DEFAULT_WEIGHTS, SignalWeights
from mempiler.records import Hit
from rank_bm25 import BM25Okapi

from ..conftest import largest_container

WORDS = ["lisbon", "jazz", "piano", "river"]
QUERIES = [
    "lisbon",
    "jazz",
    "piano",
    "river",
    "lisbon river river",
    "nothing",
    "jazz\npiano",
    "",
]
QUESTIONS = [
    "What jazz did Ada hear?",
    "Which river in May 2023?",
    "Did Bob play piano in 2022?",
]
"""Queries that name a speaker, a month or a year, whose entries are then preferred."""


def embedder_of_few_vectors(size: int = 24) -> TextEmbedder:
    """Return an embedder of twelve vectors, so that many texts have the same one."""
    vectors = np.random.default_rng(0).standard_normal((12, size))

    def vectors_of(texts: Sequence[str]) -> np.ndarray:
        numbers = [sum(text.encode()) % len(vectors) for text in texts]
        return vectors[numbers]

    return TextEmbedder("few vectors", vectors_of, size)


EMBEDDER = embedder_of_few_vectors()
"""The embedder with which the expected scores are worked out."""

ALL_SIGNALS = ["words", "vectors", "both"]


def new_index(signals: str, weights: SignalWeights = DEFAULT_WEIGHTS) -> Index:
    """Return an empty index that searches by words, by vectors or by both."""
    if signals == "words":
        return Index(weights=weights)
    return Index(embedder_of_few_vectors(), hybrid=signals == "both", weights=weights)


# Scores, worked out for one entry at a time.


class ExpectedScores(NamedTuple):
    """What a search should find for one query; an element of each array belongs to an entry."""

    scores: np.ndarray
    compared_scores: np.ndarray
    """What the lowest score of the search is compared with."""
    can_be_hits: np.ndarray
    """False for an entry that is no hit, whatever the lowest score."""


def add_neighbour_shares(
    scores: np.ndarray, entries: Sequence[Entry], shares: Mapping[int, float]
) -> np.ndarray:
    """Return the scores with what every turn adds to its neighbours in the same dialogue."""
    rows_by_dialogue: defaultdict[str, list[int]] = defaultdict(list)
    for row, entry in enumerate(entries):
        dialogue = entry.tags.get(DIALOGUE)
        if dialogue:
            rows_by_dialogue[dialogue].append(row)

    total_scores = scores.copy()
    for dialogue_rows in rows_by_dialogue.values():
        for position, row in enumerate(dialogue_rows):
            for step, share in shares.items():
                neighbour_position = position - step
                if 0 <= neighbour_position < len(dialogue_rows):
                    neighbour_row = dialogue_rows[neighbour_position]
                    total_scores[row] += share * scores[neighbour_row]
    return total_scores


def word_scores(entries: Sequence[Entry], query: str, shares: Mapping[int, float]) -> np.ndarray:
    """Return the scores of rank_bm25, with Mempiler's floor for terms of every other entry."""
    documents = [tokens(entry.text) for entry in entries]
    if not any(documents):
        return np.zeros(len(entries))

    okapi = BM25Okapi(documents, k1=1.5, b=0.75)
    for term in set(tokens(query)):
        frequency = sum(term in document for document in documents)
        if frequency > 0 and 2 * frequency >= len(documents):
            okapi.idf[term] = max(okapi.epsilon * okapi.average_idf, FLOOR)
    return add_neighbour_shares(okapi.get_scores(tokens(query)), entries, shares)


def query_vector(query: str) -> np.ndarray:
    return EMBEDDER.embed([query])[0].astype(float)


def rounded(vectors: np.ndarray) -> np.ndarray:
    """Return vectors in the steps in which an index stores them beside words."""
    return np.round(vectors * VECTOR_STEPS) / VECTOR_STEPS


def cosine_of_nearest_line(entry: Entry, vector: np.ndarray) -> float:
    """Return the cosine of the line of an entry that is nearest to a query."""
    lines = entry.text.splitlines() or [""]
    return max(rounded(EMBEDDER.embed(lines)) @ vector)


def in_deviations(scores: np.ndarray) -> np.ndarray:
    """Return by how many standard deviations each score differs from the mean."""
    deviation = scores.std()
    if deviation <= 1e-9:
        return np.zeros_like(scores)
    return (scores - scores.mean()) / deviation


def expected_by_words(
    entries: Sequence[Entry], query: str, shares: Mapping[int, float]
) -> ExpectedScores:
    scores = word_scores(entries, query, shares)
    return ExpectedScores(scores, compared_scores=scores, can_be_hits=scores > 0)


def expected_by_vectors(entries: Sequence[Entry], query: str) -> ExpectedScores:
    vector = query_vector(query)
    cosines = EMBEDDER.embed([entry.text for entry in entries]) @ vector
    can_be_hits = np.full(len(entries), vector.any())
    return ExpectedScores(cosines, compared_scores=cosines, can_be_hits=can_be_hits)


def expected_by_both(
    entries: Sequence[Entry], query: str, shares: Mapping[int, float]
) -> ExpectedScores:
    scores_by_words = word_scores(entries, query, shares)

    vector = rounded(query_vector(query))
    cosines = np.array([cosine_of_nearest_line(entry, vector) for entry in entries])
    # Neighbours share less of their cosines than of their scores by words.
    cosine_shares = {
        step: DEFAULT_WEIGHTS.neighbour_cosines * share for step, share in shares.items()
    }
    scores_by_vectors = add_neighbour_shares(cosines, entries, cosine_shares)

    scores = in_deviations(scores_by_words) + in_deviations(scores_by_vectors)
    can_be_hits = np.full(len(entries), vector.any() or scores_by_words.any())
    return ExpectedScores(scores, compared_scores=cosines, can_be_hits=can_be_hits)


def expected_scores(
    signals: str, entries: Sequence[Entry], query: str, shares: Mapping[int, float]
) -> ExpectedScores:
    if signals == "words":
        return expected_by_words(entries, query, shares)
    if signals == "vectors":
        return expected_by_vectors(entries, query)
    return expected_by_both(entries, query, shares)


# Indexes that were changed again and again.


class Change(NamedTuple):
    """One change of an index: what is removed first, and what is added."""

    removed_ids: frozenset[str]
    added: list[Entry]
    is_compacted_after: bool = False
    """Whether the index then numbers its rows anew."""


@dataclass(frozen=True)
class Scenario:
    """How an index is changed, and how it is searched."""

    changes: list[Change]
    is_searched_between: bool
    """Whether it is searched after every change."""
    where: EntryFilter | None
    min_score: float
    shares: Mapping[int, float]
    """What a turn adds to its neighbours, by their step from it."""

    @property
    def weights(self) -> SignalWeights:
        return SignalWeights(neighbour_shares=self.shares)

    @property
    def remaining_entries(self) -> list[Entry]:
        """The entries after all changes; one that replaces another takes its place."""
        entries_by_id: dict[str, Entry] = {}
        for change in self.changes:
            for removed_id in change.removed_ids:
                entries_by_id.pop(removed_id, None)
            for entry in change.added:
                entries_by_id[entry.id] = entry
        return list(entries_by_id.values())


def numbered_entry(
    number: int, text: str, dialogue: str, speaker: str | None, time: datetime | None = None
) -> Entry:
    """Return an entry with the id "e" and its number; no turn if `dialogue` is empty."""
    tags = {DIALOGUE: dialogue} if dialogue else {}
    return Entry(id=f"e{number}", text=text, speaker=speaker, time=time, tags=tags)


def has_even_number(entry: Entry) -> bool:
    return int(entry.id.removeprefix("e")) % 2 == 0


LINES = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
TEXTS = st.lists(LINES, min_size=1, max_size=3).map("\n".join)
ENTRIES = st.builds(
    numbered_entry,
    number=st.integers(0, 14),
    text=TEXTS,
    dialogue=st.sampled_from(["", "a", "b"]),
    speaker=st.sampled_from(["Ada", "Bob", None]),
    time=st.sampled_from([datetime(2022, 8, 1), datetime(2023, 5, 1), None]),
)
# Number 15 is never added, so some changes remove an id that is unknown.
IDS = st.integers(0, 15).map("e{}".format)
ADDITIONS = st.builds(
    Change,
    removed_ids=st.just(frozenset[str]()),
    added=st.lists(ENTRIES, max_size=12),
    is_compacted_after=st.booleans(),
)
REMOVALS = st.builds(
    Change,
    removed_ids=st.frozensets(IDS),
    added=st.just(list[Entry]()),
    is_compacted_after=st.booleans(),
)
# An entry that is removed and added by the same update goes to the end.
UPDATES = st.builds(
    Change,
    removed_ids=st.frozensets(IDS),
    added=st.lists(ENTRIES, max_size=12),
    is_compacted_after=st.booleans(),
)

FILTERS: dict[str, EntryFilter | None] = {
    "none": None,
    "Ada": SpeakerIs("Ada"),
    "not Ada": SpeakerIs("Ada", same=False),
    "unknown speaker": SpeakerIs("Zoe"),
    "even numbers": has_even_number,
}
NEIGHBOUR_SHARES: list[Mapping[int, float]] = [
    DEFAULT_WEIGHTS.neighbour_shares,
    {},
    {1: 0.5, 2: 0.2, -1: 0.3, -2: 0.1},
]
SCENARIOS = st.builds(
    Scenario,
    changes=st.lists(ADDITIONS | REMOVALS | UPDATES, max_size=6),
    is_searched_between=st.booleans(),
    where=st.sampled_from(list(FILTERS.values())),
    min_score=st.sampled_from([-9.0, 0.0, 0.3, 1.0]),
    shares=st.sampled_from(NEIGHBOUR_SHARES),
)

FILLERS = [Entry(id=f"filler {number}", text="") for number in range(SPARE_ROWS + 100)]
"""More entries than an index keeps empty rows for, beside those of a scenario."""


def compact(index: Index) -> None:
    """Let an index number its rows anew, as it does when most of them are empty."""
    index.add(FILLERS)
    index.remove(filler.id for filler in FILLERS)


def apply_change(index: Index, change: Change) -> None:
    """Change an index with one call."""
    if not change.removed_ids:
        index.add(change.added)
    elif not change.added:
        index.remove(change.removed_ids)
    else:
        index.update(change.added, change.removed_ids)


def index_after_changes(signals: str, scenario: Scenario) -> Index:
    """Return an index after all changes of a scenario."""
    index = new_index(signals, scenario.weights)
    for change in scenario.changes:
        apply_change(index, change)
        if change.is_compacted_after:
            compact(index)
        if scenario.is_searched_between:
            index.search(QUERIES[:1], k=1, where=scenario.where)
    return index


def index_of_remaining_entries(signals: str, scenario: Scenario) -> Index:
    """Return an index to which only the remaining entries of a scenario were added."""
    index = new_index(signals, scenario.weights)
    index.add(scenario.remaining_entries)
    return index


def search_all(
    index: Index, scenario: Scenario, queries: Sequence[str] = QUERIES, k: int = 99
) -> list[list[Hit]]:
    """Search with the filter and the lowest score of a scenario."""
    return index.search(queries, k, scenario.min_score, scenario.where)


@pytest.mark.parametrize("signals", ALL_SIGNALS)
@settings(max_examples=30, deadline=None)
@given(scenario=SCENARIOS)
def test_changed_index_finds_what_a_fresh_one_finds(signals: str, scenario: Scenario) -> None:
    """A scenario adds, replaces and removes entries in random order.

    The scores are the same to the last bit as those of an index that holds what remains.
    """
    queries = [*QUERIES, *QUESTIONS]
    changed_index = index_after_changes(signals, scenario)
    fresh_index = index_of_remaining_entries(signals, scenario)

    hits = search_all(changed_index, scenario, queries)

    assert len(changed_index) == len(scenario.remaining_entries)
    assert hits == search_all(fresh_index, scenario, queries)


@pytest.mark.parametrize("signals", ALL_SIGNALS)
@settings(max_examples=30, deadline=None)
@given(scenario=SCENARIOS)
def test_search_for_fewer_hits_finds_the_first_ones_of_a_search_for_more(
    signals: str, scenario: Scenario
) -> None:
    """A scenario adds, replaces and removes entries in random order."""
    index = index_after_changes(signals, scenario)

    all_hits = search_all(index, scenario)
    three_hits = search_all(index, scenario, k=3)

    assert three_hits == [hits[:3] for hits in all_hits]


@pytest.mark.parametrize("signals", ALL_SIGNALS)
@settings(max_examples=15, deadline=None)
@given(scenario=SCENARIOS)
def test_hits_come_by_falling_score_and_equal_ones_in_the_order_of_adding(
    signals: str, scenario: Scenario
) -> None:
    """A scenario adds, replaces and removes entries in random order."""
    ids_as_added = [entry.id for entry in scenario.remaining_entries]

    for hits in search_all(index_after_changes(signals, scenario), scenario):
        expected_order = sorted(hits, key=lambda hit: (-hit.score, ids_as_added.index(hit.id)))
        assert hits == expected_order


@pytest.mark.parametrize("signals", ALL_SIGNALS)
@settings(max_examples=15, deadline=None)
@given(scenario=SCENARIOS)
def test_hit_has_the_text_the_speaker_and_the_time_of_its_entry(
    signals: str, scenario: Scenario
) -> None:
    """A scenario adds, replaces and removes entries in random order."""
    entries_by_id = {entry.id: entry for entry in scenario.remaining_entries}

    for hits in search_all(index_after_changes(signals, scenario), scenario):
        for hit in hits:
            assert hit == entries_by_id[hit.id].hit(hit.score)


def assert_has_expected_hits(
    hits: Sequence[Hit],
    entries: Sequence[Entry],
    expected: ExpectedScores,
    scenario: Scenario,
) -> None:
    """Compare the hits of one query with the expected scores."""
    scores_by_id = {hit.id: hit.score for hit in hits}
    for row, entry in enumerate(entries):
        if entry.id in scores_by_id:
            expected_score = expected.scores[row]
            assert scores_by_id[entry.id] == pytest.approx(expected_score, abs=1e-6)

        # A score that is so near to the lowest one may be rounded to either side of it.
        compared_score = expected.compared_scores[row]
        if abs(compared_score - scenario.min_score) <= 1e-6:
            continue

        passes_filter = scenario.where is None or scenario.where(entry)
        is_high_enough = compared_score > scenario.min_score
        is_expected = expected.can_be_hits[row] and passes_filter and is_high_enough
        assert (entry.id in scores_by_id) == is_expected


@pytest.mark.parametrize("signals", ALL_SIGNALS)
@settings(max_examples=30, deadline=None)
@given(scenario=SCENARIOS)
def test_hits_have_the_scores_that_rank_bm25_and_numpy_give(
    signals: str, scenario: Scenario
) -> None:
    """The expected scores are worked out from the entries that remain, one entry at a time."""
    entries = scenario.remaining_entries
    assume(entries)

    hits_of_queries = search_all(index_after_changes(signals, scenario), scenario)

    for query, hits in zip(QUERIES, hits_of_queries, strict=True):
        expected = expected_scores(signals, entries, query, scenario.shares)
        assert_has_expected_hits(hits, entries, expected, scenario)


@pytest.mark.parametrize("signals", ALL_SIGNALS)
def test_index_whose_entries_were_all_removed_finds_nothing(signals: str) -> None:
    index = new_index(signals)
    index.add([Entry(id="a", text="jazz"), Entry(id="b", text="river")])

    index.remove(["a", "b"])

    assert index.search(["jazz", ""], 3) == [[], []]


# Many entries.


def entries_by_zipf(count: int, words_per_entry: int = 8) -> list[Entry]:
    """Return entries of two speakers, in dialogues of ten, with words as frequent as in a language.

    Args:
        count: How many entries; it is the seed as well.
        words_per_entry: How many words each of them has.
    """
    frequencies = 1 / np.arange(1, 401)
    probabilities = frequencies / frequencies.sum()
    generator = np.random.default_rng(count)
    words_by_entry = generator.choice(400, size=(count, words_per_entry), p=probabilities)

    entries: list[Entry] = []
    for number, word_numbers in enumerate(words_by_entry):
        text = " ".join(f"w{word_number}" for word_number in word_numbers)
        speaker = "Ada" if number % 2 == 0 else "Bob"
        entries.append(numbered_entry(number, text, dialogue=str(number // 10), speaker=speaker))
    return entries


QUERIES_AMONG_MANY_ENTRIES = [
    *(entry.text for entry in entries_by_zipf(7, words_per_entry=3)),
    "w0 w1",
    "zebra",
]


@pytest.mark.parametrize("signals", ALL_SIGNALS)
@pytest.mark.parametrize("filter_name", ["none", "Ada", "even numbers"])
def test_search_for_fewer_hits_among_many_entries_finds_the_first_ones_of_all(
    signals: str, filter_name: str
) -> None:
    """With so many entries, a search for few hits does not sort all scores."""
    index = new_index(signals)
    index.add(entries_by_zipf(1500))
    where = FILTERS[filter_name]

    all_hits = index.search(QUERIES_AMONG_MANY_ENTRIES, 1500, where=where)

    for k in (1, 5, 30):
        first_hits = [hits[:k] for hits in all_hits]
        assert index.search(QUERIES_AMONG_MANY_ENTRIES, k, where=where) == first_hits


@pytest.mark.parametrize("signals", ALL_SIGNALS)
@pytest.mark.parametrize("filter_name", ["none", "Ada", "even numbers"])
def test_queries_of_one_search_find_what_each_finds_alone(signals: str, filter_name: str) -> None:
    """A search takes several queries, and works out their scores together."""
    index = new_index(signals)
    index.add(entries_by_zipf(1500))
    where = FILTERS[filter_name]

    hits_together = index.search(QUERIES_AMONG_MANY_ENTRIES, 1500, where=where)

    for query, hits in zip(QUERIES_AMONG_MANY_ENTRIES, hits_together, strict=True):
        assert index.search([query], 1500, where=where) == [hits]


def jazz_entries(ids: Sequence[str], line_count: int) -> list[Entry]:
    """Return entries of so many lines, which are all "jazz"."""
    return [Entry(id=entry_id, text="jazz\n" * line_count) for entry_id in ids]


@pytest.mark.parametrize("signals", ALL_SIGNALS)
def test_entries_that_come_and_go_leave_no_rows(signals: str) -> None:
    """100 times, 90 entries are added, replaced and removed: 9,000 entries in all.

    The index may keep a few empty rows, but no list or array of 9,000, nor of a third of that.
    """
    index = new_index(signals)

    for batch in range(100):
        ids = [f"batch {batch}, entry {number}" for number in range(90)]
        index.add(jazz_entries(ids, line_count=1))
        # Beside words, an entry of two lines has two vectors instead of one.
        index.add(jazz_entries(ids, line_count=2))
        index.remove(ids)

    assert len(index) == 0
    assert largest_container(index) < 3000


# Queries and vectors that are refused, and calls of the embedder.


@pytest.mark.parametrize("signals", ALL_SIGNALS)
def test_query_that_is_no_list_is_refused(signals: str) -> None:
    with pytest.raises(UserError, match="put it in a list"):
        new_index(signals).search("jazz", 3)


class RecordingEmbedder(TextEmbedder):
    """An embedder that records the texts of every call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        super().__init__("recording", self._record_texts)

    def _record_texts(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        return np.ones((len(texts), 4))


@pytest.mark.parametrize("hybrid", [False, True])
def test_texts_are_embedded_in_one_call_and_two_equal_queries_as_one_text(hybrid: bool) -> None:
    embedder = RecordingEmbedder()
    index = Index(embedder, hybrid=hybrid)

    index.add([Entry(id="0", text="rye"), Entry(id="1", text="oats"), Entry(id="2", text="milk")])
    index.search(["bread", "porridge", "bread"], k=2)

    assert embedder.calls == [["rye", "oats", "milk"], ["bread", "porridge"]]


@pytest.mark.parametrize("hybrid", [False, True])
def test_search_of_an_empty_index_embeds_nothing(hybrid: bool) -> None:
    embedder = RecordingEmbedder()

    hits = Index(embedder, hybrid=hybrid).search(["bread", "porridge"], k=3)

    assert hits == [[], []]
    assert embedder.calls == []


@pytest.mark.parametrize("hybrid", [False, True])
def test_query_vector_of_another_length_is_refused(hybrid: bool) -> None:
    index = Index(embedder_of_few_vectors(size=24), hybrid=hybrid)
    index.add([Entry(id="a", text="jazz")])

    index.embedder = embedder_of_few_vectors(size=8)

    with pytest.raises(ProgramError, match="gives 8 numbers a text, the index holds 24; rebuild"):
        index.search(["jazz"], k=1)


@pytest.mark.parametrize("hybrid", [False, True])
def test_entry_whose_vector_has_another_length_is_refused_and_changes_nothing(hybrid: bool) -> None:
    index = Index(embedder_of_few_vectors(size=24), hybrid=hybrid)
    index.add([Entry(id="a", text="jazz")])

    index.embedder = embedder_of_few_vectors(size=8)

    with pytest.raises(ProgramError, match="gives 8 numbers a text, the index holds 24; rebuild"):
        index.add([Entry(id="new", text="jazz")])
    assert len(index) == 1


def test_index_forgets_the_name_of_a_speaker_whose_entries_are_removed() -> None:
    """The name of a speaker who has entries is left out of a query before it is embedded.

    Here Bob has an entry, and Ada has none any more, so only "Bob" is left out.
    """
    index = Index(embedder_of_few_vectors(), hybrid=True)
    index.add([Entry(id="a", text="I like jazz", speaker="Ada")])
    index.add([Entry(id="b", text="I like opera", speaker="Bob")])

    index.remove(["a"])

    queries = index.semantic_queries(["What does Ada like?", "What does Bob like?"])
    assert queries == ["What does Ada like?", "What does like?"]


def test_index_forgets_the_name_of_a_speaker_whose_entry_gets_another_one() -> None:
    """The name of a speaker who has entries is left out of a query before it is embedded.

    Ada's only entry is replaced by one of Bob, so only "Bob" is left out.
    """
    index = Index(embedder_of_few_vectors(), hybrid=True)
    index.add([Entry(id="a", text="I like jazz", speaker="Ada")])

    index.add([Entry(id="a", text="I like jazz", speaker="Bob")])

    queries = index.semantic_queries(["What does Ada like?", "What does Bob like?"])
    assert queries == ["What does Ada like?", "What does like?"]
