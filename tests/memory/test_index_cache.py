"""One search index for all versions of a memory (`memory.search.index_cache`).

A memory is frozen: each change makes a new version. An index for each version would take long to
make, so all versions share one. A search of a version first brings the index up to it.
"""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.memory.entry import Entry
from mempiler.memory.memory import Memory
from mempiler.memory.search.index import Index
from mempiler.memory.search.index_cache import IndexCache
from mempiler.memory.search.weights import SignalWeights
from mempiler.records import Record


class Note(Record):
    id: str
    text: str


class Notebook(Memory[Note]):
    """A memory of notes. Its entries are new objects every time, unlike its notes."""

    notes: tuple[Note, ...] = ()

    def parts(self) -> tuple[Note, ...]:
        return self.notes

    def entry(self, part: Note) -> Entry:
        return Entry(id=part.id, text=part.text)

    def with_notes(self, notes: Sequence[Note]) -> "Notebook":
        """Return a version with these notes in place of all others."""
        return self.replace(notes=tuple(notes))

    def with_note(self, note_id: str, text: str) -> "Notebook":
        """Return a version with one more note."""
        return self.with_notes([*self.notes, Note(id=note_id, text=text)])


def notebook_of(*texts: str) -> Notebook:
    """Return a memory with a note of each text, which is its id as well."""
    return Notebook(notes=tuple(Note(id=text, text=text) for text in texts))


class RecordingEmbedder(TextEmbedder):
    """The offline embedder. It records the texts that it embeds, but no queries."""

    def __init__(self) -> None:
        self.embedded_texts: list[str] = []
        super().__init__("recording", embedder().embed, 384)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.embedded_texts.extend(texts)
        return super().embed(texts)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        return super().embed(texts)


class Edit(NamedTuple):
    """One step from a version of a memory to the next one."""

    kind: str
    position: int
    """Which note is edited, or to which version the memory goes back.

    If there are fewer, the count starts again at the first one.
    """
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
    """Return the notes after one edit that is not "back"; if there are none, one is added."""
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


def next_version(versions: Sequence[Notebook], edit: Edit) -> Notebook:
    """Return the last version after an edit, or an earlier version if the edit goes back."""
    if edit.kind == "back":
        return versions[edit.position % len(versions)]

    last_version = versions[-1]
    new_id = f"new in version {len(versions)}"
    return last_version.with_notes(edited_notes(last_version.notes, edit, new_id))


@pytest.mark.parametrize(
    ("text_embedder", "hybrid"),
    [
        pytest.param(None, False, id="words"),
        pytest.param(embedder(), False, id="vectors"),
        pytest.param(embedder(), True, id="both"),
    ],
)
@given(edits=st.lists(EDITS, max_size=12))
def test_search_of_every_version_finds_what_a_new_index_of_that_version_finds(
    text_embedder: TextEmbedder | None, hybrid: bool, edits: list[Edit]
) -> None:
    cache = IndexCache(text_embedder, hybrid)
    queries = ["red milk", "rye"]
    versions = [notebook_of("rye bread", "a bicycle")]

    for edit in edits:
        version = next_version(versions, edit)
        versions.append(version)

        separate_index = Index(text_embedder, hybrid)
        separate_index.add(version.entries())
        assert cache.search(version, queries, 99) == separate_index.search(queries, 99)
        assert cache.entries(version) == list(version.entries())


def test_only_new_and_changed_texts_of_the_next_version_are_embedded() -> None:
    recording_embedder = RecordingEmbedder()
    cache = IndexCache(recording_embedder)
    first_version = notebook_of("rye", "oats", "milk")
    cache.search(first_version, ["bread"], 1)
    assert recording_embedder.embedded_texts == ["rye", "oats", "milk"]
    recording_embedder.embedded_texts.clear()

    rye, _, milk = first_version.notes
    changed_oats = Note(id="oats", text="oat bread")
    piano = Note(id="piano", text="piano")
    next_version = first_version.with_notes([rye, changed_oats, milk, piano])
    cache.search(next_version, ["bread"], 1)

    assert recording_embedder.embedded_texts == ["oat bread", "piano"]


def test_nothing_is_embedded_for_a_version_that_lacks_a_note() -> None:
    recording_embedder = RecordingEmbedder()
    cache = IndexCache(recording_embedder)
    first_version = notebook_of("rye", "oats", "milk")
    cache.search(first_version, ["bread"], 1)
    recording_embedder.embedded_texts.clear()

    _, oats, milk = first_version.notes
    cache.search(first_version.with_notes([oats, milk]), ["bread"], 1)

    assert recording_embedder.embedded_texts == []


def test_caches_that_differ_in_weights_alone_can_share_their_indexes() -> None:
    recording_embedder = RecordingEmbedder()
    cache = IndexCache(recording_embedder, hybrid=True)
    other_cache = IndexCache(recording_embedder, hybrid=True, weights=SignalWeights(cosines=0))
    other_cache.share_indexes_with(cache)
    memory = notebook_of("rye", "oats", "milk")

    cache.search(memory, ["rye"], 1)
    other_cache.search(memory, ["rye"], 1)

    assert recording_embedder.embedded_texts == ["rye", "oats", "milk"]


def test_caches_with_shared_indexes_search_with_their_own_weights() -> None:
    memory = notebook_of("rye", "oats", "milk")
    cache = IndexCache(embedder(), hybrid=True)
    words_alone = IndexCache(embedder(), hybrid=True, weights=SignalWeights(cosines=0))
    expected_hits = words_alone.search(memory, ["rye"], 3)
    assert cache.search(memory, ["rye"], 3) != expected_hits

    sharing_cache = IndexCache(cache.embedder, hybrid=True, weights=SignalWeights(cosines=0))
    sharing_cache.share_indexes_with(cache)

    assert sharing_cache.search(memory, ["rye"], 3) == expected_hits


@pytest.mark.parametrize(
    "other_cache",
    [
        pytest.param(IndexCache(hybrid=True), id="other signals"),
        pytest.param(IndexCache(embedder()), id="other embedder"),
        pytest.param(IndexCache(weights=SignalWeights(neighbour_shares={})), id="other neighbours"),
        pytest.param(
            IndexCache(part_entries=lambda memory, part: (Entry(id=part.id, text="oats"),)),
            id="other entries",
        ),
    ],
)
def test_caches_whose_indexes_would_differ_keep_them_apart(other_cache: IndexCache) -> None:
    """`share_indexes_with` has an effect only if both caches would make the same index."""
    cache = IndexCache()
    memory = notebook_of("rye", "milk")
    cache.search(memory, ["rye"], 1)

    other_cache.share_indexes_with(cache)
    other_cache.search(memory, ["rye"], 1)

    # The memory has an index of each cache.
    assert len(memory.lineage.indexes) == 2


def test_index_is_dropped_with_the_last_version_of_its_memory() -> None:
    cache = IndexCache()
    memory = notebook_of("rye")
    cache.search(memory, ["rye"], 1)
    next_version = memory.with_note("new", "oats")
    (index,) = memory.lineage.indexes.values()
    # A weak reference does not keep the index; it gives None when the index is gone.
    index_reference = weakref.ref(index)
    del index

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
    """All threads use the one index, which holds a single version at a time.

    A search must not find notes of a version that another thread searches.
    """
    cache = IndexCache()
    first_version = notebook_of("rye")
    # Each of these versions has one note that the others lack.
    versions = [first_version.with_note(f"new {number}", f"word{number}") for number in range(8)]

    def find_ids(version_number: int) -> set[str]:
        (hits,) = cache.search(versions[version_number], [f"word{version_number} rye"], 3)
        return {hit.id for hit in hits}

    version_numbers = list(range(8)) * 50
    with ThreadPoolExecutor(8) as pool:
        ids_of_searches = list(pool.map(find_ids, version_numbers))

    for version_number, ids in zip(version_numbers, ids_of_searches, strict=True):
        assert ids == {f"new {version_number}", "rye"}


class WaitingReranker:
    """A reranker in which threads wait until all of them are there."""

    name = "waiting"

    def __init__(self, barrier: threading.Barrier) -> None:
        self.barrier = barrier

    def words(self, query: str) -> Sequence[str]:
        return ()

    def scores(self, query: str, texts: Sequence[Sequence[str]], weights: object) -> np.ndarray:
        self.barrier.wait()
        return np.zeros(len(texts))


class WaitingEmbedder(RecordingEmbedder):
    """An embedder in which threads wait until all of them embed a query."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier
        self.reranker = WaitingReranker(barrier)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        self.barrier.wait()
        return super().embed_queries(texts)


def test_queries_of_several_threads_are_embedded_and_reranked_at_once() -> None:
    # If a lock let in one thread at a time, the first one would wait here until the timeout.
    barrier = threading.Barrier(4, timeout=10)
    cache = IndexCache(WaitingEmbedder(barrier), hybrid=True)
    memory = notebook_of("rye bread", "oat milk")

    with ThreadPoolExecutor(4) as pool:
        searches = [pool.submit(cache.search, memory, ["rye"], 1) for _ in range(4)]

    for search in searches:
        (hits,) = search.result()
        assert hits[0].id == "rye bread"


def test_filter_may_search_the_same_memory() -> None:
    """A search inside of a filter must not wait for the lock of the search that calls it."""
    cache = IndexCache(RecordingEmbedder(), hybrid=True)
    memory = notebook_of("rye bread", "oat milk")

    def is_best_for_milk(entry: Entry) -> bool:
        (hits,) = cache.search(memory, ["milk"], 1)
        return hits[0].id == entry.id

    (hits,) = cache.search(memory, ["bread"], 2, where=is_best_for_milk)

    assert [hit.id for hit in hits] == ["oat milk"]
