"""Memories are frozen values, with one index for all versions of each, which goes with them."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.memory.index import DIALOGUE, Entry, Index
from mempiler.memory.indexes import Indexes
from mempiler.memory.memory import Memory, TurnMemory
from mempiler.programs.baselines.retrieval import logged
from mempiler.programs.pramem.memory import ExperienceMemory
from mempiler.records import Action, Behavior, Logs, Profile, Record, Session, Turn


class Notes(Memory):
    notes: tuple[str, ...] = ()


@pytest.mark.parametrize("inner", [Notes, ExperienceMemory])
def test_beneath_logs_the_inner_memory_says_how_it_goes_on(inner: type[Any]) -> None:
    kind = logged(inner)
    before, settled = kind(answered=True), kind(inner=inner())
    found = before.resumed(settled)
    assert found.answered
    assert found.inner is before.inner.resumed(settled.inner)


def test_turns_are_kept_as_what_they_are_and_those_of_a_session_are_a_dialogue() -> None:
    said = [Turn(id=f"x:{n}", speaker="Ann", text="I  moved\nto Lisbon.", caption="a street") for n in range(6)]
    items: list[Any] = [
        Session(id="x", turns=tuple(said[:2])),
        Logs(id="x", turns=(said[2],)),
        Profile(id="x", turns=(said[3],)),
        Behavior.of("x", [Action(id="x:4", scene="video", situation="a clip", action="liked")]),
        Session(id="x", turns=(said[5],)),  # two sessions of one id are two dialogues
    ]
    memory = TurnMemory()
    for item in items:
        memory = memory.with_session(item)
    found = [(entry.id, entry.kind, entry.tags.get(DIALOGUE, "")) for entry in memory.entries()]
    kinds = ("turn", "turn", "log", "profile", "record", "turn")
    dialogues = ("x:0", "x:0", "", "", "", "x:5")
    assert found == [(f"x:{n}", kind, in_) for n, (kind, in_) in enumerate(zip(kinds, dialogues, strict=True))]
    assert all(entry.sources == (entry.id,) and entry.hit().kind == entry.kind for entry in memory.entries())


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
        super().__init__("counting", embedder().embed, 384)

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
def test_every_version_is_searched_as_if_its_index_were_its_own(dense: bool, hybrid: bool, steps: list[Any]) -> None:
    near = embedder() if dense else None
    indexes, versions = Indexes(near, hybrid), [words("rye bread", "a bicycle")]
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
        own = Index(near, hybrid)
        own.add(versions[-1].entries())
        queries = ["red milk", "rye"]
        assert indexes.search(versions[-1], queries, 99) == own.search(queries, 99)
        assert indexes.entries(versions[-1]) == versions[-1].entries()


def test_only_what_is_new_in_a_version_is_embedded() -> None:
    counting = Counting()
    indexes, first = Indexes(counting), words("rye", "oats", "milk")
    indexes.search(first, ["bread"], 1)
    changed = [*first.words[:1], first.words[1].model_copy(update={"text": "oat bread"}), *first.words[2:]]
    second = first.having([*changed, Word(id="new", text="piano")])
    third = second.having(second.words[1:])
    for memory in (second, third):
        indexes.search(memory, ["bread"], 1)
    assert counting.texts == ["rye", "oats", "milk", "oat bread", "piano"]


def test_an_index_goes_with_the_last_version_of_its_memory_and_with_the_indexes() -> None:
    indexes, memory = Indexes(), words("rye")
    indexes.search(memory, ["rye"], 1)
    successor = memory.having(words("oats").words)
    kept = weakref.ref(memory.line.indexes[indexes])
    del memory
    gc.collect()
    assert kept() is not None
    del successor
    gc.collect()
    assert kept() is None
    memory = words("rye")
    indexes.search(memory, ["rye"], 1)
    del indexes
    gc.collect()
    assert len(memory.line.indexes) == 0


def test_versions_are_searched_by_many_threads_at_once(hasty: None) -> None:
    indexes, base = Indexes(), words("rye")
    versions = [base.having([*base.words, Word(id=f"w{n}", text=f"number{n}")]) for n in range(8)]

    def searched(n: int) -> bool:
        hits = indexes.search(versions[n % 8], [f"number{n % 8} rye"], 3)[0]
        return {hit.id for hit in hits} == {f"w{n % 8}", "rye"}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(searched, range(400)))


def test_queries_are_embedded_and_ranked_side_by_side_and_a_filter_may_search() -> None:
    together = threading.Barrier(4, timeout=10)

    class Patient:
        name = "patient"

        def words(self, query: str) -> Sequence[str]:
            return ()

        def scores(self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]) -> np.ndarray:
            if query == "rye":
                together.wait()
            return np.zeros(len(texts))

    class Waiting(Counting):
        reranker = Patient()

        def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
            if texts == ["rye"]:
                together.wait()
            return super().embed_queries(texts)

    indexes, memory = Indexes(Waiting(), hybrid=True), words("rye bread", "oat milk")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: indexes.search(memory, ["rye"], 1), range(4)))
    assert [hits[0].id for (hits,) in found] == ["rye bread"] * 4
    where = lambda entry: indexes.search(memory, ["milk"], 1)[0][0].id == entry.id  # noqa: E731
    assert [hit.id for hit in indexes.search(memory, ["bread"], 2, where=where)[0]] == ["oat milk"]
