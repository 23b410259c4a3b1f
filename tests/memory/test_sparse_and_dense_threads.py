import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from mempiler.engines.embedders import embedder
from mempiler.memory.dense import DenseIndex
from mempiler.memory.hybrid import HybridIndex
from mempiler.memory.index import Entry
from mempiler.memory.sparse import MANY, SparseIndex

WORDS = ["lisbon", "jazz", "piano", "greyhound", "marathon", "bread", "chess", "garden", "river", "novel"]
BASE = [Entry(id=f"base{n}", text=f"{word} story") for n, word in enumerate(WORDS)]
MAKERS = {
    "sparse": SparseIndex,
    "dense": lambda: DenseIndex(embedder()),
    "hybrid": lambda: HybridIndex(embedder()),
}
KINDS = pytest.mark.parametrize("kind", ["sparse", "dense"])


def index_of(kind):
    index = MAKERS[kind]()
    index.add(BASE)
    return index


@KINDS
def test_32_threads_search_at_once_and_agree(kind):
    index = index_of(kind)
    expected = index.search(WORDS, k=3)
    start = threading.Barrier(32)

    def search(_):
        start.wait()
        return [index.search(WORDS, k=3) for _ in range(5)]

    with ThreadPoolExecutor(32) as pool:
        assert all(found == [expected] * 5 for found in pool.map(search, range(32)))


@KINDS
def test_32_threads_search_while_one_adds_replaces_and_removes(kind):
    index = index_of(kind)
    done = threading.Event()

    def search(slot):
        seen = 0
        while not done.is_set() or seen == 0:
            hits = index.search([WORDS[slot % 10], "zebra"], k=50, min_score=0.01)
            # What is never touched is always found, and nothing is found twice.
            assert f"base{slot % 10}" in [hit.id for hit in hits[0]]
            assert all(len({hit.id for hit in part}) == len(part) for part in hits)
            seen += 1
            done.wait(0.005)
        return seen

    with ThreadPoolExecutor(33) as pool:
        searches = [pool.submit(search, slot) for slot in range(32)]
        try:
            for n in range(30):
                index.add([Entry(id=f"new{n}", text=f"zebra {WORDS[n % 10]}"), Entry(id="moving", text=f"zebra {n}")])
                index.remove([f"new{n - 5}"])
        finally:
            done.set()
        assert all(future.result(timeout=60) > 0 for future in searches)
    assert set(index.ids[10:]) == {"moving", *(f"new{n}" for n in range(25, 30))}
    assert {hit.id for hit in index.search(["zebra"], k=99, min_score=0.4)[0]} == set(index.ids[10:])


@KINDS
def test_threads_that_add_lose_nothing(kind):
    index = MAKERS[kind]()

    def add(slot):
        for n in range(10):
            index.add([Entry(id=f"{slot}:{n}", text=f"word{slot}x{n}")])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(add, range(16)))
    assert sorted(index.ids) == sorted(f"{slot}:{n}" for slot in range(16) for n in range(10))
    found = index.search([f"word{slot}x3" for slot in range(16)], k=1)
    assert [hits[0].id for hits in found] == [f"{slot}:3" for slot in range(16)]


@KINDS
def test_a_filter_may_ask_the_index_itself(kind):
    index = index_of(kind)
    hits = index.search(["jazz"], k=1, where=lambda entry: entry.id in index.ids and len(index) == 10)[0]
    assert [hit.id for hit in hits] == ["base1"]


@pytest.mark.parametrize("kind", ["sparse", "hybrid"])
@pytest.mark.parametrize("size", [5, MANY + 50])
def test_searches_see_whole_changes_while_others_write(kind, size):
    index = MAKERS[kind]()
    index.add([Entry(id=f"e{n}", text=f"{WORDS[n % 10]} {n}") for n in range(size)])
    done, before = threading.Event(), sys.getswitchinterval()

    def search(_):
        seen = 0
        while not done.is_set() or not seen:
            # Both of a pair come and go with one call each.
            names = {hit.id for hit in index.search(["twin"], k=400)[0]}
            assert all(f"left{name[5:]}" in names for name in names if name.startswith("right"))
            seen += 1
        return seen

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(5) as pool:
            searches = [pool.submit(search, n) for n in range(4)]
            try:
                for n in range(40):
                    index.add([Entry(id=f"left{n}", text=f"twin {n}"), Entry(id=f"right{n}", text=f"twin {n} too")])
                    index.remove([f"left{n - 5}", f"right{n - 5}"])
            finally:
                done.set()
            assert all(future.result(timeout=60) for future in searches)
    finally:
        sys.setswitchinterval(before)
    assert {hit.id for hit in index.search(["twin"], k=10)[0]} == {
        f"{side}{n}" for n in range(35, 40) for side in ("left", "right")
    }
