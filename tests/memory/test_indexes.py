"""Indexes of memories: one for all versions of a memory, gone with them, never mistaken for one another."""

import gc
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.memory.following import shared
from mempiler.memory.index import Entry
from mempiler.memory.indexes import Indexes, empty_index, entry_indexes, filled
from mempiler.memory.memory import Memory
from mempiler.memory.sparse import SparseIndex
from mempiler.records import Record


class Word(Record):
    id: str
    text: str


class Words(Memory):
    words: tuple[Word, ...] = ()

    def entries(self) -> list[Entry]:
        return list(map(self.entry, self.words))

    def parts(self) -> tuple[Word, ...]:
        return self.words

    def entry(self, part: Word) -> Entry:
        return Entry(id=part.id, text=part.text)

    def having(self, words: Sequence[Word]) -> "Words":
        return self.model_copy(update={"words": tuple(words)})


def words(*texts: str) -> Words:
    return Words(words=tuple(Word(id=text, text=text) for text in texts))


class Counting(TextEmbedder):
    """The offline embedder, which counts the texts that it is given, queries apart."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        super().__init__("counting", self.count, 384)

    def count(self, texts: Sequence[str]) -> np.ndarray:
        return embedder().embed(texts)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return super().embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        return super().embed(texts)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "insert", "replace", "remove", "swap", "back"]),
        st.integers(0, 99),
        st.integers(0, 9),
    ),
    max_size=12,
)
TEXTS = ("rye bread", "oat milk", "bread with milk", "a bicycle", "the red bicycle", "piano", "rye", "milk", "red", "a")


@pytest.mark.parametrize(("dense", "hybrid"), [(False, False), (True, False), (True, True)])
@given(steps=STEPS)
def test_every_version_is_searched_as_if_its_index_were_its_own(dense: bool, hybrid: bool, steps: list) -> None:
    near = embedder() if dense else None
    indexes, versions = entry_indexes(near, hybrid), [words("rye bread", "a bicycle")]
    for number, (kind, place, text) in enumerate(steps):
        last = versions[-1]
        held, new = list(last.words), Word(id=f"w{number}", text=TEXTS[text])
        if kind == "append" or not held:
            held.append(new)
        elif kind == "insert":
            held.insert(place % len(held), new)
        elif kind == "replace":
            held[place % len(held)] = new.model_copy(update={"id": held[place % len(held)].id})
        elif kind == "remove":
            del held[place % len(held)]
        elif kind == "swap":
            held.insert(0, held.pop())
        versions.append(versions[place % len(versions)] if kind == "back" else last.having(held))
        own = filled(empty_index(near, hybrid), versions[-1].entries())
        index = indexes.of(versions[-1])
        assert index.ids == own.ids
        # Scores of BM25 are equal to 1e-9, as those of its two scorers are.
        for found, wanted in zip(index.search(["red milk", "rye"], 5), own.search(["red milk", "rye"], 5), strict=True):
            assert [hit.id for hit in found] == [hit.id for hit in wanted]
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in wanted], abs=1e-6)
    assert len(indexes) <= 1


def test_only_what_is_new_in_a_version_is_embedded() -> None:
    counting = Counting()
    indexes, first = entry_indexes(counting), words("rye", "oats", "milk")
    indexes.of(first).search(["bread"], 1)
    changed = [*first.words[:1], first.words[1].model_copy(update={"text": "oat bread"}), *first.words[2:]]
    second = first.having([*changed, Word(id="new", text="piano")])
    third = second.having(second.words[1:])
    for memory in (second, third):
        indexes.of(memory).search(["bread"], 1)
    assert counting.texts == ["rye", "oats", "milk", "oat bread", "piano"]


def test_what_comes_in_the_middle_moves_only_what_stands_behind_it() -> None:
    counting = Counting()
    indexes, first = entry_indexes(counting), words("rye", "oats", "milk", "wheat", "a theory")
    indexes.of(first).search(["bread"], 1)
    second = first.having([*first.words[:4], Word(id="new", text="piano"), *first.words[4:]])
    assert indexes.of(second).ids == ("rye", "oats", "milk", "wheat", "new", "a theory")
    assert counting.texts[5:] == ["piano", "a theory"]


def test_memories_of_different_users_have_indexes_of_their_own() -> None:
    indexes = entry_indexes()
    first, equal = words("rye"), words("rye")
    assert first == equal
    for memory in (first, equal, first.having(())):
        indexes.of(memory).search(["rye"], 1)
    assert len(indexes) == 2


def test_an_index_goes_with_the_last_version_of_its_memory() -> None:
    indexes, memory = entry_indexes(), words("rye")
    indexes.of(memory).search(["rye"], 1)
    successor = memory.having(words("oats").words)
    del memory
    gc.collect()
    assert len(indexes) == 1
    del successor
    gc.collect()
    assert len(indexes) == 0


def test_versions_are_searched_by_many_threads_at_once(hasty: None) -> None:
    indexes, base = entry_indexes(), words("rye")
    versions = [base.having([*base.words, Word(id=f"w{n}", text=f"number{n}")]) for n in range(8)]

    def searched(n: int) -> bool:
        index = indexes.of(versions[n % 8])
        return {hit.id for hit in index.search([f"number{n % 8} rye"], 3)[0]} == {f"w{n % 8}", "rye"}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(searched, range(400)))


def test_those_used_last_are_kept_as_far_as_their_entries_go() -> None:
    made: list[SparseIndex] = []

    def empty() -> SparseIndex:
        made.append(SparseIndex())
        return made[-1]

    indexes = Indexes(empty, keep=4)
    a, b, c = words("a1", "a2"), words("b1", "b2"), words("c1", "c2")
    for memory in (a, b, a, c, a):
        indexes.of(memory).search(["a1"], 1)
    assert (len(made), len(indexes)) == (3, 2)
    indexes.of(b).search(["b1"], 1)
    assert len(made) == 4


def test_who_waits_for_an_index_that_cannot_be_made_shares_the_failure_and_the_next_tries_again() -> None:
    tried, waiting = [], threading.Event()

    def empty() -> SparseIndex:
        tried.append(1)
        waiting.wait(1)
        if len(tried) == 1:
            raise ValueError("no")
        return SparseIndex()

    indexes, memory = Indexes(empty), words("rye")

    def search(_: int) -> str:
        try:
            return indexes.of(memory).search(["rye"], 1)[0][0].id
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(search, n) for n in range(4)]
        threading.Timer(0.2, waiting.set).start()
        assert [job.result() for job in jobs] == ["no"] * 4
    assert search(0) == "rye"
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("dense", "hybrid", "kind"), [(True, False, "dense"), (True, True, "hybrid"), (False, True, "sparse")]
)
def test_entries_are_searched_by_meaning_with_an_embedder_and_by_words_without(
    dense: bool, hybrid: bool, kind: str
) -> None:
    index = entry_indexes(embedder() if dense else None, hybrid).of(words("rye bread", "oat milk"))
    assert (index.kind, len(index)) == (kind, 2)
    assert [hit.id for hit in index.search(["bread"], 1)[0]] == ["rye bread"]


def test_a_filled_index_is_the_index_itself() -> None:
    index = SparseIndex()
    assert filled(index, words("rye").entries()) is index
    assert index.ids == ("rye",)


@pytest.mark.parametrize(
    ("first", "second", "alike"), [("", "", 0), ("ab", "ab", 2), ("abc", "abd", 2), ("ab", "abc", 2), ("xab", "ab", 0)]
)
def test_sequences_share_what_they_begin_with(first: str, second: str, alike: int) -> None:
    assert shared(first, second) == alike
