"""What an index finds by words, by vectors and by both, whatever was added and removed before.

Its scores are compared with those of rank_bm25 and numpy, worked out for one entry at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder
from mempiler.errors import ProgramError, UserError
from mempiler.memory.entry import DIALOGUE, Entry, EntryFilter, SpeakerIs
from mempiler.memory.search import rows
from mempiler.memory.search.bm25 import FLOOR
from mempiler.memory.search.index import VECTOR_STEPS, Index
from mempiler.memory.search.tokens import tokens
from mempiler.memory.search.weights import DEFAULT_WEIGHTS, SignalWeights
from mempiler.records import Hit
from rank_bm25 import BM25Okapi

from ..conftest import largest_container

WORDS = ("lisbon", "jazz", "piano", "river")
QUERIES = [*WORDS, "lisbon river river", "nothing", "jazz\npiano", ""]
QUESTIONS = ["What jazz did Ada hear?", "Which river in May 2023?", "Did Bob play piano in 2022?"]
"""Queries that prefer a speaker, a month or a year, where words and vectors count."""


def embedder_of_few_vectors(size: int = 24) -> TextEmbedder:
    """Return an embedder of twelve vectors, so that many texts have the same one."""

    def vector_of(text: str) -> np.ndarray:
        seed = sum(text.encode()) % 12
        return np.random.default_rng(seed).standard_normal(size)

    def vectors_of(texts: Sequence[str]) -> np.ndarray:
        return np.stack([vector_of(text) for text in texts])

    return TextEmbedder("few vectors", vectors_of, size)


EMBEDDER = embedder_of_few_vectors()


def index_by_words(weights: SignalWeights = DEFAULT_WEIGHTS) -> Index:
    return Index(weights=weights)


def index_by_vectors(weights: SignalWeights = DEFAULT_WEIGHTS) -> Index:
    return Index(embedder_of_few_vectors(), weights=weights)


def index_by_both(weights: SignalWeights = DEFAULT_WEIGHTS) -> Index:
    return Index(embedder_of_few_vectors(), hybrid=True, weights=weights)


NewIndex = Callable[..., Index]
NEW_INDEX: dict[str, NewIndex] = {
    "words": index_by_words,
    "vectors": index_by_vectors,
    "both": index_by_both,
}

by_all_signals = pytest.mark.parametrize("signals", NEW_INDEX)
with_vectors = pytest.mark.parametrize("signals", ["vectors", "both"])


# Scores, worked out for one entry at a time.


class ExpectedScores(NamedTuple):
    """What a search should find for one query; an element of each array belongs to an entry."""

    scores: np.ndarray
    """NaN for an entry that is no hit, whatever the lowest score."""
    compared: np.ndarray
    """What the lowest score is compared with."""


def add_neighbour_shares(
    own_scores: np.ndarray, entries: Sequence[Entry], shares: Mapping[int, float]
) -> np.ndarray:
    """Return the scores with what every turn adds to its neighbours in the same dialogue."""
    total = own_scores.copy()
    for row, entry in enumerate(entries):
        dialogue = entry.tags.get(DIALOGUE)
        if not dialogue:
            continue
        rows_of_dialogue = [
            other_row
            for other_row, other in enumerate(entries)
            if other.tags.get(DIALOGUE) == dialogue
        ]
        place = rows_of_dialogue.index(row)
        for step, share in shares.items():
            neighbour_place = place - step
            if 0 <= neighbour_place < len(rows_of_dialogue):
                total[row] += share * own_scores[rows_of_dialogue[neighbour_place]]
    return total


def word_scores(entries: Sequence[Entry], query: str, shares: Mapping[int, float]) -> np.ndarray:
    """Return the scores of rank_bm25, with Mempiler's floor for terms of every other entry."""
    documents = [tokens(entry.text) for entry in entries]
    if not any(documents):
        return np.zeros(len(entries))

    okapi = BM25Okapi(documents, k1=1.5, b=0.75)
    for term in okapi.idf.keys() & tokens(query):
        frequency = sum(term in document for document in documents)
        if 2 * frequency >= len(documents):
            okapi.idf[term] = max(okapi.epsilon * okapi.average_idf, FLOOR)
    return add_neighbour_shares(okapi.get_scores(tokens(query)), entries, shares)


def expected_by_words(
    entries: Sequence[Entry], query: str, shares: Mapping[int, float]
) -> ExpectedScores:
    scores = word_scores(entries, query, shares)
    return ExpectedScores(np.where(scores > 0, scores, np.nan), compared=scores)


def query_vector(query: str) -> np.ndarray:
    return EMBEDDER.embed([query])[0].astype(float)


def expected_by_vectors(
    entries: Sequence[Entry], query: str, shares: Mapping[int, float]
) -> ExpectedScores:
    vector = query_vector(query)
    cosines = EMBEDDER.embed([entry.text for entry in entries]) @ vector
    return ExpectedScores(np.where(vector.any(), cosines, np.nan), compared=cosines)


def rounded(vectors: np.ndarray) -> np.ndarray:
    return np.round(vectors * VECTOR_STEPS) / VECTOR_STEPS


def nearest_line(entry: Entry, vector: np.ndarray) -> float:
    """Return the cosine of the line of an entry that is nearest to a query."""
    lines = entry.text.splitlines() or [""]
    return max(rounded(EMBEDDER.embed(lines)) @ vector)


def in_deviations(scores: np.ndarray) -> np.ndarray:
    """Return by how many standard deviations each score differs from the mean."""
    deviation = scores.std()
    if deviation <= 1e-9:
        return np.zeros_like(scores)
    return (scores - scores.mean()) / deviation


def expected_by_both(
    entries: Sequence[Entry], query: str, shares: Mapping[int, float]
) -> ExpectedScores:
    by_words = word_scores(entries, query, shares)

    vector = rounded(query_vector(query))
    cosines = np.array([nearest_line(entry, vector) for entry in entries])
    cosine_shares = {
        step: DEFAULT_WEIGHTS.neighbour_cosines * share for step, share in shares.items()
    }
    by_vectors = add_neighbour_shares(cosines, entries, cosine_shares)

    scores = in_deviations(by_words) + in_deviations(by_vectors)
    is_search = vector.any() or by_words.any()
    return ExpectedScores(np.where(is_search, scores, np.nan), compared=cosines)


EXPECTED_SCORES = {
    "words": expected_by_words,
    "vectors": expected_by_vectors,
    "both": expected_by_both,
}


# Indexes that were changed again and again.


class Change(NamedTuple):
    """One change of an index: what is removed first, and what is added."""

    removed_ids: frozenset[str]
    added: list[Entry]


@dataclass(frozen=True)
class Scenario:
    """How an index came to be, and how it is searched."""

    changes: list[Change]
    spare_rows: int
    """`rows.SPARE_ROWS`: with 0, the index is made compact with every change that removes much."""
    is_searched_between: bool
    """Whether it is searched after every change."""
    where: EntryFilter | None
    min_score: float
    shares: Mapping[int, float]
    """What a turn adds to its neighbours, by their step from it."""

    @property
    def weights(self) -> SignalWeights:
        return SignalWeights(neighbour_shares=self.shares)


def make_entry(
    number: int, text: str, dialogue: str, speaker: str | None, time: datetime | None = None
) -> Entry:
    tags = {DIALOGUE: dialogue} if dialogue else {}
    return Entry(id=f"e{number}", text=text, speaker=speaker, time=time, tags=tags)


def has_even_number(entry: Entry) -> bool:
    return int(entry.id.removeprefix("e")) % 2 == 0


LINES = st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
TEXTS = st.lists(LINES, min_size=1, max_size=3).map("\n".join)
ENTRIES = st.builds(
    make_entry,
    number=st.integers(0, 14),
    text=TEXTS,
    dialogue=st.sampled_from(["", "a", "b"]),
    speaker=st.sampled_from(["Ada", "Bob", None]),
    time=st.sampled_from([datetime(2022, 8, 1), datetime(2023, 5, 1), None]),
)
IDS = st.integers(0, 15).map("e{}".format)
ADDITIONS = st.builds(
    Change, removed_ids=st.just(frozenset[str]()), added=st.lists(ENTRIES, max_size=12)
)
REMOVALS = st.builds(Change, removed_ids=st.frozensets(IDS), added=st.just(list[Entry]()))
UPDATES = st.builds(Change, removed_ids=st.frozensets(IDS), added=st.lists(ENTRIES, max_size=12))
"""An entry that is removed and added by the same update goes to the end."""
FILTERS: dict[str, EntryFilter | None] = {
    "none": None,
    "Ada": SpeakerIs("Ada"),
    "not Ada": SpeakerIs("Ada", same=False),
    "unknown speaker": SpeakerIs("Zoe"),
    "even numbers": has_even_number,
}
SCENARIOS = st.builds(
    Scenario,
    changes=st.lists(ADDITIONS | REMOVALS | UPDATES, max_size=6),
    spare_rows=st.sampled_from([0, rows.SPARE_ROWS]),
    is_searched_between=st.booleans(),
    where=st.sampled_from(list(FILTERS.values())),
    min_score=st.sampled_from([-9.0, 0.0, 0.3, 1.0]),
    shares=st.sampled_from(
        [dict(DEFAULT_WEIGHTS.neighbour_shares), {}, {1: 0.5, 2: 0.2, -1: 0.3, -2: 0.1}]
    ),
)


def apply_change(index: Index, change: Change) -> None:
    """Change an index with one call."""
    if not change.removed_ids:
        index.add(change.added)
    elif not change.added:
        index.remove(change.removed_ids)
    else:
        index.update(change.added, change.removed_ids)


def changed_index(signals: str, scenario: Scenario) -> Index:
    """Return an index after all changes of a scenario."""
    index = NEW_INDEX[signals](scenario.weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "SPARE_ROWS", scenario.spare_rows)
        for change in scenario.changes:
            apply_change(index, change)
            if scenario.is_searched_between:
                index.search(QUERIES[:1], k=1, where=scenario.where)
    return index


def remaining_entries(scenario: Scenario) -> list[Entry]:
    """Return the entries after all changes of a scenario; one that is replaced keeps its place."""
    entries_by_id: dict[str, Entry] = {}
    for change in scenario.changes:
        for removed_id in change.removed_ids:
            entries_by_id.pop(removed_id, None)
        for entry in change.added:
            entries_by_id[entry.id] = entry
    return list(entries_by_id.values())


def search_all(index: Index, scenario: Scenario, k: int = 99) -> list[list[Hit]]:
    return index.search(QUERIES, k, scenario.min_score, scenario.where)


with_scenarios = given(scenario=SCENARIOS)
many_examples = settings(max_examples=30, deadline=None)


@by_all_signals
@many_examples
@with_scenarios
def test_changed_index_finds_what_a_new_one_finds(signals: str, scenario: Scenario) -> None:
    entries = remaining_entries(scenario)
    new_index = NEW_INDEX[signals](scenario.weights)
    new_index.add(entries)

    index = changed_index(signals, scenario)

    assert len(index) == len(entries)
    # The scores are the same to the last bit.
    assert search_all(index, scenario) == search_all(new_index, scenario)


@by_all_signals
@many_examples
@with_scenarios
def test_changed_index_answers_questions_about_speakers_and_months_as_a_new_one(
    signals: str, scenario: Scenario
) -> None:
    new_index = NEW_INDEX[signals](scenario.weights)
    new_index.add(remaining_entries(scenario))
    expected_hits = new_index.search(QUESTIONS, 99, scenario.min_score, scenario.where)

    index = changed_index(signals, scenario)

    assert index.search(QUESTIONS, 99, scenario.min_score, scenario.where) == expected_hits


@by_all_signals
@many_examples
@with_scenarios
def test_fewer_hits_are_the_first_of_more(signals: str, scenario: Scenario) -> None:
    index = changed_index(signals, scenario)

    first_hits = [hits[:3] for hits in search_all(index, scenario)]
    assert search_all(index, scenario, k=3) == first_hits


@by_all_signals
@many_examples
@with_scenarios
def test_hits_are_entries_by_falling_score_and_then_as_they_were_added(
    signals: str, scenario: Scenario
) -> None:
    entries_by_id = {entry.id: entry for entry in remaining_entries(scenario)}
    ids = list(entries_by_id)

    for hits in search_all(changed_index(signals, scenario), scenario):
        assert hits == [entries_by_id[hit.id].hit(hit.score) for hit in hits]

        places = [(-hit.score, ids.index(hit.id)) for hit in hits]
        assert places == sorted(places)


def assert_has_expected_hits(
    hits: Sequence[Hit],
    entries: Sequence[Entry],
    expected: ExpectedScores,
    where: EntryFilter | None,
    min_score: float,
) -> None:
    """Compare the hits of one query with the scores that are worked out by hand."""
    scores_by_id = {hit.id: hit.score for hit in hits}
    for entry, score, compared in zip(entries, *expected, strict=True):
        if entry.id in scores_by_id:
            assert scores_by_id[entry.id] == pytest.approx(score, abs=1e-6)

        is_visible = where is None or where(entry)
        is_hit = is_visible and not np.isnan(score) and compared > min_score
        # What is so near to the lowest score may be rounded to either side.
        is_rounded = abs(compared - min_score) <= 1e-6
        if not is_rounded:
            assert (entry.id in scores_by_id) == is_hit


@by_all_signals
@many_examples
@with_scenarios
def test_hits_and_scores_are_those_that_are_worked_out_by_hand(
    signals: str, scenario: Scenario
) -> None:
    entries = remaining_entries(scenario)
    results = search_all(changed_index(signals, scenario), scenario)
    if not entries:
        assert results == [[] for _ in QUERIES]
        return

    for query, hits in zip(QUERIES, results, strict=True):
        expected = EXPECTED_SCORES[signals](entries, query, scenario.shares)
        assert_has_expected_hits(hits, entries, expected, scenario.where, scenario.min_score)


# Many entries.


def entries_by_zipf(count: int, words_per_entry: int = 8) -> list[Entry]:
    """Return entries of two speakers, in dialogues of ten, with words as frequent as in a language.

    Args:
        count: How many entries; it is the seed as well.
        words_per_entry: How many words each of them has.
    """
    frequencies = 1 / np.arange(1, 401)
    shares = frequencies / frequencies.sum()
    generator = np.random.default_rng(count)
    words = generator.choice(400, size=(count, words_per_entry), p=shares)

    entries: list[Entry] = []
    for number, words_of_entry in enumerate(words):
        text = " ".join(f"w{word}" for word in words_of_entry)
        speaker = "Ada" if number % 2 == 0 else "Bob"
        entries.append(make_entry(number, text, dialogue=str(number // 10), speaker=speaker))
    return entries


def index_of_many(signals: str) -> Index:
    index = NEW_INDEX[signals]()
    index.add(entries_by_zipf(1500))
    return index


QUERIES_OF_MANY = [
    *(entry.text for entry in entries_by_zipf(7, words_per_entry=3)),
    "w0 w1",
    "zebra",
]
some_filters = pytest.mark.parametrize("filter_name", ["none", "Ada", "even numbers"])


@by_all_signals
@some_filters
def test_first_hits_of_many_entries_are_the_first_of_all(signals: str, filter_name: str) -> None:
    index = index_of_many(signals)
    where = FILTERS[filter_name]

    all_hits = index.search(QUERIES_OF_MANY, 1500, where=where)

    for k in (1, 5, 30):
        first_hits = [hits[:k] for hits in all_hits]
        assert index.search(QUERIES_OF_MANY, k, where=where) == first_hits


@by_all_signals
@some_filters
def test_queries_together_find_what_each_finds_alone(signals: str, filter_name: str) -> None:
    index = index_of_many(signals)
    where = FILTERS[filter_name]

    together = index.search(QUERIES_OF_MANY, 1500, where=where)

    for query, hits in zip(QUERIES_OF_MANY, together, strict=True):
        assert index.search([query], 1500, where=where) == [hits]


@by_all_signals
def test_entries_that_come_and_go_leave_no_rows(signals: str) -> None:
    index = NEW_INDEX[signals]()

    for first in range(0, 9000, 90):
        # Every entry is replaced by one with another number of lines, and the last ones go.
        lines = 1 + first // 90 % 2
        ids = [f"e{number}" for number in range(first, first + 90)]
        index.add([Entry(id=entry_id, text="jazz\n" * lines) for entry_id in ids])
        index.add([Entry(id=entry_id, text="jazz\n" * (3 - lines)) for entry_id in ids])
        index.remove(f"e{number}" for number in range(first - 90, first))

    assert len(index) == 90
    assert largest_container(index) < 3000


@with_vectors
def test_entry_that_is_replaced_again_and_again_leaves_no_vectors(signals: str) -> None:
    index = NEW_INDEX[signals]()

    for number in range(3000):
        lines = 1 + number % 2
        index.add([Entry(id="one", text="jazz\n" * lines)])

    assert largest_container(index) < 3000


# Queries and vectors that are refused, and calls of the embedder.


@by_all_signals
def test_query_that_is_no_list_is_refused(signals: str) -> None:
    with pytest.raises(UserError, match="put it in a list"):
        NEW_INDEX[signals]().search("jazz", 3)


class CountingEmbedder(TextEmbedder):
    """An embedder that keeps the texts of every call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        super().__init__("counting", self._vectors_of)

    def _vectors_of(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        return np.ones((len(texts), 4))


with_and_without_words = pytest.mark.parametrize("hybrid", [False, True])


@with_and_without_words
def test_texts_are_embedded_with_one_call_and_equal_queries_once(hybrid: bool) -> None:
    embedder = CountingEmbedder()
    index = Index(embedder, hybrid=hybrid)

    index.add(Entry(id=str(number), text=f"text {number}") for number in range(3))
    index.search(["a", "b", "a"], k=2)

    assert embedder.calls == [["text 0", "text 1", "text 2"], ["a", "b"]]


@with_and_without_words
def test_search_of_an_empty_index_embeds_nothing(hybrid: bool) -> None:
    embedder = CountingEmbedder()

    assert Index(embedder, hybrid=hybrid).search(["a", "b"], k=3) == [[], []]
    assert embedder.calls == []


WRONG_LENGTH = "gives 8 numbers a text, the index holds 24; rebuild"


@pytest.fixture
def index_with_other_embedder(signals: str) -> Index:
    """An index of three entries, whose embedder was replaced by one of shorter vectors."""
    index = NEW_INDEX[signals]()
    index.add(entries_by_zipf(3))
    index.embedder = embedder_of_few_vectors(size=8)
    return index


@with_vectors
def test_query_vector_of_another_length_is_refused(index_with_other_embedder: Index) -> None:
    with pytest.raises(ProgramError, match=WRONG_LENGTH):
        index_with_other_embedder.search(["a"], k=1)


@with_vectors
def test_entry_whose_vector_has_another_length_is_refused_and_changes_nothing(
    index_with_other_embedder: Index,
) -> None:
    with pytest.raises(ProgramError, match=WRONG_LENGTH):
        index_with_other_embedder.add([Entry(id="new", text="a")])

    assert len(index_with_other_embedder) == 3
