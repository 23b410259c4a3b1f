"""One search index for all versions of a memory (`memory.search.index_cache`)."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.errors import UserError
from mempiler.memory.entry import Entry
from mempiler.memory.memory import Memory
from mempiler.memory.search.index import Index
from mempiler.memory.search.index_cache import IndexCache
from mempiler.records import Record


class Note(Record):
    id: str
    text: str


class Notebook(Memory[Note]):
    """A memory whose parts are no entries, so that its entries are new objects every time."""

    notes: tuple[Note, ...] = ()

    def parts(self) -> tuple[Note, ...]:
        return self.notes

    def entry(self, part: Note) -> Entry:
        return Entry(id=part.id, text=part.text)

    def with_notes(self, notes: Sequence[Note]) -> "Notebook":
        return self.replace(notes=tuple(notes))

    def with_note(self, note_id: str, text: str) -> "Notebook":
        return self.with_notes([*self.notes, Note(id=note_id, text=text)])


def notebook_of(*texts: str) -> Notebook:
    """Return a memory with a note of each text, which is its id as well."""
    return Notebook(notes=tuple(Note(id=text, text=text) for text in texts))


class CountingEmbedder(TextEmbedder):
    """The offline embedder. It keeps the texts that it was given, but for queries."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        super().__init__("counting", embedder().embed, 384)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts.extend(texts)
        return super().embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        return super().embed(texts)


class Edit(NamedTuple):
    """One step from a version of a memory to the next one."""

    kind: str
    position: int
    """Which note is edited, or which version is gone back to; counted around the end."""
    text: str


NOTE_TEXTS = (
    "rye bread",
    "oat milk",
    "bread with milk",
    "a bicycle",
    "the red bicycle",
    "piano",
    "rye",
    "milk",
    "red",
    "a",
)
EDITS = st.builds(
    Edit,
    kind=st.sampled_from(["append", "insert", "replace", "remove", "swap", "back"]),
    position=st.integers(0, 99),
    text=st.sampled_from(NOTE_TEXTS),
)


def edited_notes(notes: Sequence[Note], edit: Edit, new_id: str) -> list[Note]:
    """Return the notes after one edit that is not "back"; where there is none, one is added."""
    new_note = Note(id=new_id, text=edit.text)
    if not notes:
        return [new_note]

    edited = list(notes)
    position = edit.position % len(notes)
    if edit.kind == "append":
        edited.append(new_note)
    elif edit.kind == "insert":
        edited.insert(position, new_note)
    elif edit.kind == "replace":
        edited[position] = Note(id=notes[position].id, text=edit.text)
    elif edit.kind == "remove":
        del edited[position]
    elif edit.kind == "swap":
        edited.insert(0, edited.pop())
    return edited


@pytest.mark.parametrize(
    ("with_vectors", "hybrid"),
    [(False, False), (True, False), (True, True)],
    ids=["words", "vectors", "both"],
)
@given(edits=st.lists(EDITS, max_size=12))
def test_search_of_every_version_finds_what_an_index_of_its_own_finds(
    with_vectors: bool, hybrid: bool, edits: list[Edit]
) -> None:
    text_embedder = embedder() if with_vectors else None
    cache = IndexCache(text_embedder, hybrid)
    queries = ["red milk", "rye"]
    versions = [notebook_of("rye bread", "a bicycle")]

    for number, edit in enumerate(edits):
        if edit.kind == "back":
            version = versions[edit.position % len(versions)]
        else:
            last_version = versions[-1]
            notes = edited_notes(last_version.notes, edit, new_id=f"new {number}")
            version = last_version.with_notes(notes)
        versions.append(version)

        own_index = Index(text_embedder, hybrid)
        own_index.add(version.entries())
        assert cache.search(version, queries, 99) == own_index.search(queries, 99)
        assert cache.entries(version) == list(version.entries())


def test_only_new_texts_of_a_version_are_embedded() -> None:
    counting_embedder = CountingEmbedder()
    cache = IndexCache(counting_embedder)
    first_version = notebook_of("rye", "oats", "milk")
    rye, _, milk = first_version.notes

    cache.search(first_version, ["bread"], 1)
    assert counting_embedder.texts == ["rye", "oats", "milk"]

    with_other_oats = first_version.with_notes([rye, Note(id="oats", text="oat bread"), milk])
    second_version = with_other_oats.with_note("new", "piano")
    cache.search(second_version, ["bread"], 1)
    assert counting_embedder.texts[3:] == ["oat bread", "piano"]

    without_rye = second_version.with_notes(second_version.notes[1:])
    cache.search(without_rye, ["bread"], 1)
    assert counting_embedder.texts[5:] == []


def test_index_is_dropped_with_the_last_version_of_its_memory() -> None:
    cache = IndexCache()
    memory = notebook_of("rye")
    cache.search(memory, ["rye"], 1)
    next_version = memory.with_note("new", "oats")
    index_reference = weakref.ref(memory.lineage.indexes[cache])

    del memory
    gc.collect()
    assert index_reference() is not None

    del next_version
    gc.collect()
    assert index_reference() is None


def test_index_is_dropped_with_its_cache() -> None:
    cache = IndexCache()
    memory = notebook_of("rye")
    cache.search(memory, ["rye"], 1)
    assert len(memory.lineage.indexes) == 1

    del cache
    gc.collect()

    assert len(memory.lineage.indexes) == 0


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    """Let Python switch between threads all the time, so that races show."""
    usual_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_interval)


@pytest.mark.usefixtures("frequent_thread_switches")
def test_threads_search_different_versions_at_once() -> None:
    cache = IndexCache()
    base = notebook_of("rye")
    versions = [base.with_note(f"new {number}", f"number{number}") for number in range(8)]

    def found_ids(search_number: int) -> set[str]:
        number = search_number % len(versions)
        (hits,) = cache.search(versions[number], [f"number{number} rye"], 3)
        return {hit.id for hit in hits}

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(found_ids, range(400)))

    for search_number, ids in enumerate(results):
        assert ids == {f"new {search_number % len(versions)}", "rye"}


def test_queries_of_several_threads_are_embedded_and_reranked_at_once() -> None:
    # Every thread waits, in the embedder and again in the reranker, until all four are there.
    all_threads = threading.Barrier(4, timeout=10)

    class WaitingReranker:
        name = "waiting"

        def words(self, query: str) -> Sequence[str]:
            return ()

        def scores(
            self, query: str, texts: Sequence[Sequence[str]], weights: Mapping[str, float]
        ) -> np.ndarray:
            all_threads.wait()
            return np.zeros(len(texts))

    class WaitingEmbedder(CountingEmbedder):
        reranker = WaitingReranker()

        def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
            all_threads.wait()
            return super().embed_queries(texts)

    cache = IndexCache(WaitingEmbedder(), hybrid=True)
    memory = notebook_of("rye bread", "oat milk")

    def best_id(_: int) -> str:
        (hits,) = cache.search(memory, ["rye"], 1)
        return hits[0].id

    with ThreadPoolExecutor(4) as pool:
        best_ids = list(pool.map(best_id, range(4)))

    assert best_ids == ["rye bread"] * 4


def test_filter_may_search_the_same_memory() -> None:
    cache = IndexCache(CountingEmbedder(), hybrid=True)
    memory = notebook_of("rye bread", "oat milk")

    def is_best_for_milk(entry: Entry) -> bool:
        (hits,) = cache.search(memory, ["milk"], 1)
        return hits[0].id == entry.id

    (hits,) = cache.search(memory, ["bread"], 2, where=is_best_for_milk)

    assert [hit.id for hit in hits] == ["oat milk"]


def test_string_in_place_of_queries_is_refused_before_it_is_embedded() -> None:
    class UnaskedEmbedder(CountingEmbedder):
        def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
            pytest.fail("the string was embedded")

    with pytest.raises(UserError, match="put it in a list"):
        IndexCache(UnaskedEmbedder()).search(notebook_of("rye"), "rye", 1)
