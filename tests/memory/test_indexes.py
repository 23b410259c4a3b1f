"""Indexes of memories: built once per memory, gone with it, never mistaken for one another."""

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from mempiler.engines.embedders import embedder
from mempiler.memory.dense import DenseIndex
from mempiler.memory.index import Entry
from mempiler.memory.indexes import Indexes, entry_indexes, filled
from mempiler.memory.memory import Memory
from mempiler.memory.sparse import SparseIndex


class Words(Memory):
    words: tuple[str, ...] = ()

    def entries(self) -> list[Entry]:
        return [Entry(id=word, text=word) for word in self.words]


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_an_index_is_built_once_per_memory() -> None:
    built: list[Words] = []
    indexes = Indexes(lambda memory: built.append(memory) or object())
    first, equal = Words(words=("rye",)), Words(words=("rye",))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: indexes.of(first), range(32)))
    assert all(index is found[0] for index in found)
    assert indexes.of(equal) is not found[0]
    assert len(built) == len(indexes) == 2


def test_an_index_goes_with_its_memory() -> None:
    indexes = entry_indexes()
    memory = Words(words=("rye",))
    indexes.of(memory)
    indexes.purge()
    assert len(indexes) == 1
    del memory
    gc.collect()
    indexes.purge()
    assert len(indexes) == 0


def test_a_search_lets_go_of_what_is_gone() -> None:
    indexes = entry_indexes()
    for n in range(5):
        memory = Words(words=(f"rye {n}",))
        indexes.of(memory)
        del memory
    gc.collect()
    kept = Words(words=("oats",))
    indexes.of(kept)
    assert len(indexes) == 1


def test_no_memory_is_searched_by_the_index_of_another(hasty: None) -> None:
    indexes = Indexes(lambda memory: memory.words)

    def searched(thread: int) -> bool:
        # Memories of other threads come and go meanwhile: ids are given again all the time.
        return all(indexes.of(memory := Words(words=(f"{thread}:{n}",))) == memory.words for n in range(2000))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(searched, range(8)))


def test_those_used_last_are_kept() -> None:
    built: list[str] = []
    indexes = Indexes(lambda memory: built.append(memory.words[0]) or object(), keep=2)
    a, b, c = (Words(words=(word,)) for word in "abc")
    for memory in (a, b, a, c, a, b):
        indexes.of(memory)
    assert built == ["a", "b", "c", "b"]
    assert len(indexes) == 2


def test_a_build_that_fails_is_tried_again() -> None:
    failures = [ValueError("no")]

    def build(memory: Words) -> str:
        if failures:
            raise failures.pop()
        return "index"

    indexes, memory = Indexes(build), Words()
    with pytest.raises(ValueError, match="no"):
        indexes.of(memory)
    assert indexes.of(memory) == "index"


@pytest.mark.parametrize(("dense", "kind"), [(True, DenseIndex), (False, SparseIndex)])
def test_entries_are_searched_by_cosine_with_an_embedder_and_by_words_without(dense: bool, kind: type) -> None:
    index = entry_indexes(embedder() if dense else None).of(Words(words=("rye bread", "oat milk")))
    assert isinstance(index, kind)
    assert [hit.id for hit in index.search(["bread"], 1)[0]] == ["rye bread"]


def test_a_filled_index_is_the_index_itself() -> None:
    index = SparseIndex()
    assert filled(index, Words(words=("rye",)).entries()) is index
    assert index.ids == ("rye",)
