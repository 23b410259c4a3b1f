"""What an index finds by words, by vectors, by both: worked out with rank_bm25 and numpy, after any changes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder
from mempiler.errors import ProgramError, UserError
from mempiler.memory.search import rows as module
from mempiler.memory.search.bm25 import FLOOR
from mempiler.memory.entry import DIALOGUE, Entry, SpeakerIs
from mempiler.memory.search.index import VECTOR_STEPS, Index
from mempiler.memory.search.tokens import tokens
from mempiler.memory.search.weights import DEFAULT_WEIGHTS, SignalWeights
from rank_bm25 import BM25Okapi

WORDS = ("lisbon", "jazz", "piano", "river")
QUERIES = [*WORDS, "lisbon river river", "nothing", "jazz\npiano", ""]


def drawn(kinds: int = 12, size: int = 24) -> TextEmbedder:
    """Vectors that a text decides, so many different ones: equal ones are common."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        return np.stack([np.random.default_rng(sum(text.encode()) % kinds).standard_normal(size) for text in texts])

    return TextEmbedder(f"drawn {kinds}", compute, size)


KINDS: dict[str, Callable[..., Index]] = {
    "words": lambda **settings: Index(**settings),
    "vectors": lambda **settings: Index(drawn(), **settings),
    "both": lambda **settings: Index(drawn(), hybrid=True, **settings),
}
of_each_kind = pytest.mark.parametrize("kind", KINDS)
of_vectors = pytest.mark.parametrize("kind", ["vectors", "both"])


def filled(index: Index, entries: Sequence[Entry]) -> Index:
    index.add(entries)
    return index


def texts_of(count: int, words: int = 8) -> list[Entry]:
    """Entries of words by Zipf's law, in dialogues of ten, of two speakers."""
    shares = 1 / np.arange(1, 401)
    chosen = np.random.default_rng(count).choice(400, size=(count, words), p=shares / shares.sum())
    return [
        Entry(
            id=f"e{n}", text=" ".join(f"w{word}" for word in row), speaker=["Ada", "Bob"][n % 2], tags=_in(str(n // 10))
        )
        for n, row in enumerate(chosen)
    ]


def _in(dialogue: str) -> dict[str, str]:
    return {DIALOGUE: dialogue} if dialogue else {}


def by_words(entries: Sequence[Entry], query: str, lent: dict[int, float]) -> np.ndarray:
    """rank_bm25 with the floor of Mempiler, and what neighbours lend, one entry at a time."""
    documents = [tokens(entry.text) for entry in entries]
    if not any(documents):
        return np.zeros(len(entries))
    okapi = BM25Okapi(documents, k1=1.5, b=0.75)
    for term in okapi.idf.keys() & tokens(query):
        if 2 * sum(term in words for words in documents) >= len(documents):
            okapi.idf[term] = max(okapi.epsilon * okapi.average_idf, FLOOR)
    return with_lent(okapi.get_scores(tokens(query)), entries, lent)


def with_lent(own: np.ndarray, entries: Sequence[Entry], lent: dict[int, float]) -> np.ndarray:
    """Scores with what neighbours lend, one entry at a time."""
    total = own.copy()
    dialogues = [entry.tags.get(DIALOGUE) for entry in entries]
    for n, dialogue in enumerate(dialogues):
        same = [m for m, other in enumerate(dialogues) if dialogue and other == dialogue]
        for step, share in lent.items() if same else ():
            if 0 <= (at := same.index(n) - step) < len(same):
                total[n] += share * own[same[at]]
    return total


def by_hand(kind: str, entries: Sequence[Entry], query: str, lent: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
    """The score of every entry, and what `min_score` is compared with; NaN for what is no hit."""
    words, asked = by_words(entries, query, lent), drawn().embed([query])[0].astype(float)
    if kind == "words":
        return np.where(words > 0, words, np.nan), words
    if kind == "vectors":
        cosines = drawn().embed([entry.text for entry in entries]) @ asked
        return np.where(asked.any(), cosines, np.nan), cosines
    steps, asked = [], np.round(asked * VECTOR_STEPS) / VECTOR_STEPS
    for entry in entries:
        steps.append(max(np.round(drawn().embed(entry.text.splitlines() or [""]) * VECTOR_STEPS) / VECTOR_STEPS @ asked))
    cosines = np.array(steps)
    means = with_lent(cosines, entries, {step: DEFAULT_WEIGHTS.neighbour_cosines * share for step, share in lent.items()})
    both = [(each - each.mean()) / (each.std() if each.std() > 1e-9 else np.inf) for each in (words, means)]
    return np.where(asked.any() or words.any(), sum(both), np.nan), cosines


texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join), min_size=1, max_size=3).map("\n".join)
entries = st.builds(
    lambda number, text, dialogue, who: Entry(id=f"e{number}", text=text, speaker=who, tags=_in(dialogue)),
    *(st.integers(0, 14), texts, st.sampled_from(["", "a", "b"]), st.sampled_from(["Ada", "Bob", None])),
)
changes = st.lists(st.lists(entries, max_size=12) | st.sets(st.integers(0, 15).map("e{}".format)), max_size=6)
WHERE = (
    None,
    SpeakerIs("Ada"),
    SpeakerIs("Ada", same=False),
    SpeakerIs("Zoe"),
    lambda entry: int(entry.id[1:]) % 2 == 0,
)


@of_each_kind
@settings(max_examples=80, deadline=None)
@given(
    *(changes, st.sampled_from([0, module.SPARE_ROWS]), st.booleans(), st.sampled_from(WHERE)),
    *(
        st.sampled_from([-9.0, 0.0, 0.3, 1.0]),
        st.sampled_from([dict(DEFAULT_WEIGHTS.neighbour_shares), {}, {1: 0.5, 2: 0.2, -1: 0.3, -2: 0.1}]),
    ),
)
def test_hits_are_those_worked_out_by_hand_whatever_was_changed_before(kind, changes, spare, asked, where, low, lent):
    weights = SignalWeights(neighbour_shares=lent)
    index, kept = KINDS[kind](weights=weights), dict[str, Entry]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SPARE_ROWS", spare)
        for change in changes:
            if isinstance(change, set):
                index.remove(change)
                kept = {id: entry for id, entry in kept.items() if id not in change}
            else:
                index.add(change)
                kept |= {entry.id: entry for entry in change}
            if asked:
                index.search(QUERIES[:1], k=1, where=where)
    assert len(index) == len(kept)
    everything = index.search(QUERIES, 99, low, where)
    # To the last bit those of an index that was always so, and the head of a longer list.
    assert everything == filled(KINDS[kind](weights=weights), list(kept.values())).search(QUERIES, 99, low, where)
    assert [hits[:3] for hits in everything] == index.search(QUERIES, 3, low, where)
    for query, hits in zip(QUERIES, everything, strict=True):
        places = [list(kept).index(hit.id) for hit in hits]
        assert places == sorted(places, key=lambda n: (-hits[places.index(n)].score, n))
        assert hits == [kept[hit.id].hit(hit.score) for hit in hits]
        if kept:
            scores, measure = by_hand(kind, list(kept.values()), query, lent)
            assert [hit.score for hit in hits] == pytest.approx(scores[places], abs=1e-6)
            passing = [n for n, entry in enumerate(kept.values()) if where is None or where(entry)]
            sure = {n for n in passing if scores[n] == scores[n] and abs(measure[n] - low) > 1e-6}
            assert sure & set(places) == {n for n in sure if measure[n] > low}


@of_each_kind
@pytest.mark.parametrize("where", [None, WHERE[1], WHERE[4]])
def test_the_first_of_many_are_the_head_of_all_and_a_batch_is_one_query_at_a_time(kind: str, where: Any) -> None:
    index = filled(KINDS[kind](), texts_of(1500))
    queries = [*(entry.text for entry in texts_of(7, words=3)), "w0 w1", "zebra"]
    everything = index.search(queries, 1500, where=where)
    for k in (1, 5, 30):
        assert index.search(queries, k, where=where) == [hits[:k] for hits in everything]
    assert everything == [index.search([query], 1500, where=where)[0] for query in queries]


@of_each_kind
def test_queries_are_a_list(kind: str) -> None:
    with pytest.raises(UserError, match="put it in a list"):
        KINDS[kind]().search("jazz", 3)


@of_vectors
def test_texts_are_embedded_with_one_call_and_nobody_is_asked_for_an_empty_index(kind: str) -> None:
    calls: list[list[str]] = []

    def compute(texts: Sequence[str]) -> np.ndarray:
        calls.append(list(texts))
        return np.ones((len(texts), 4))

    index = Index(TextEmbedder("counting", compute), hybrid=kind == "both")
    assert index.search(["a", "b"], k=3) == [[], []]
    index.add(Entry(id=str(n), text=f"text {n}") for n in range(3))
    index.search(["a", "b", "a"], k=2)
    assert calls == [["text 0", "text 1", "text 2"], ["a", "b"]]


@of_vectors
def test_vectors_of_another_length_are_refused_and_change_nothing(kind: str) -> None:
    index = filled(KINDS[kind](), texts_of(3))
    index.embedder = drawn(size=8)
    for refused in (lambda: index.search(["a"], k=1), lambda: index.add([Entry(id="new", text="a")])):
        with pytest.raises(ProgramError, match="gives 8 numbers a text, the index holds 24; rebuild"):
            refused()
    assert len(index) == 3


@of_each_kind
def test_entries_that_come_and_go_leave_no_rows(kind: str) -> None:
    index = KINDS[kind]()
    for n in range(0, 9000, 90):
        index.add([Entry(id=f"e{n + m}", text="jazz\n" * (1 + n // 90 % 2)) for m in range(90)])
        index.add([Entry(id=f"e{n + m}", text="jazz\n" * (2 - n // 90 % 2)) for m in range(90)])
        index.remove(f"e{n - 90 + m}" for m in range(90))
    assert len(index) == 90
    assert len(index._rows.entries) < 3000
    for n in range(3000):
        index.add([Entry(id="one", text="jazz\n" * (1 + n % 2))])
    assert len(index._rows.vectors.vectors) < 3000
