"""A sparse index changes its scorer when it has grown, and nobody sees it in the results."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rank_bm25
from mempiler.memory import sparse
from mempiler.memory.index import Entry
from mempiler.memory.sparse import SMALL, SparseIndex


def entries(count, seed=0):
    shares = 1 / np.arange(1, 401)
    chosen = np.random.default_rng(seed).choice(400, size=(count, 8), p=shares / shares.sum())
    return [
        Entry(id=f"e{n}", text=" ".join(f"w{word}" for word in row), tags={"odd": str(n % 2)})
        for n, row in enumerate(chosen)
    ]


QUERIES = [entry.text for entry in entries(12, seed=7)]


def index_of(rows):
    index = SparseIndex()
    index.add(rows)
    return index


@pytest.fixture
def by_rank_bm25(monkeypatch):
    """Makes indexes that rank-bm25 ranks whatever their size."""

    def make(rows):
        monkeypatch.setattr(sparse, "SMALL", 10**9)
        index = index_of(rows)
        monkeypatch.setattr(sparse, "SMALL", SMALL)
        return index

    return make


def same(one, other):
    for hits, others in zip(one, other, strict=True):
        assert [hit.id for hit in hits] == [hit.id for hit in others]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in others], abs=1e-9)


@pytest.mark.parametrize("size", [SMALL - 1, SMALL, SMALL + 1, 3 * SMALL])
def test_both_sides_of_the_border_give_the_hits_of_rank_bm25(by_rank_bm25, size):
    rows = entries(size)
    same(index_of(rows).search(QUERIES, k=30), by_rank_bm25(rows).search(QUERIES, k=30))


def test_options_of_a_search_mean_the_same_on_both_sides(by_rank_bm25):
    rows = entries(2 * SMALL)
    odd = {"k": 25, "where": lambda entry: entry.tags["odd"] == "1", "min_score": 3.0}
    one, other = index_of(rows).search(QUERIES, **odd), by_rank_bm25(rows).search(QUERIES, **odd)
    assert any(one)
    same(one, other)


def test_an_index_that_grew_shrank_and_changed_is_the_one_that_was_always_so(by_rank_bm25):
    index, rows = SparseIndex(), entries(2 * SMALL)
    for start in range(0, len(rows), 50):
        index.add(rows[start : start + 50])
    index.remove([f"e{n}" for n in range(0, SMALL, 3)])
    index.add([Entry(id="e1", text="w1 w2 w3"), Entry(id="e0", text="w4 w5")])
    kept = {row.id: row for row in rows if not (int(row.id[1:]) < SMALL and int(row.id[1:]) % 3 == 0)}
    kept |= {"e1": Entry(id="e1", text="w1 w2 w3"), "e0": Entry(id="e0", text="w4 w5")}
    assert index.ids == tuple(kept)
    same(index.search(QUERIES, k=50), by_rank_bm25(kept.values()).search(QUERIES, k=50))


def test_an_index_that_shrank_to_nothing_finds_nothing_and_can_begin_again():
    index = index_of(entries(SMALL + 5))
    index.remove(list(index.ids))
    assert (len(index), index.search(QUERIES[:2], k=3)) == (0, [[], []])
    index.add([Entry(id="a", text="jazz")])
    assert [hit.id for hit in index.search(["jazz"], k=3)[0]] == ["a"]


@pytest.mark.parametrize(("size", "used"), [(SMALL, True), (SMALL + 1, False)])
def test_rank_bm25_ranks_small_indexes_only(monkeypatch, size, used):
    made = []
    original = rank_bm25.BM25Okapi
    monkeypatch.setattr(rank_bm25, "BM25Okapi", lambda *args, **more: made.append(1) or original(*args, **more))
    index_of(entries(size)).search(QUERIES, k=3)
    assert bool(made) is used


def test_a_large_index_is_saved_and_loaded(tmp_path):
    index = index_of(entries(SMALL + 100))
    index.remove(["e3", "e4"])
    index.save(tmp_path)
    loaded = SparseIndex.load(tmp_path)
    assert loaded.ids == index.ids
    same(loaded.search(QUERIES, k=20), index.search(QUERIES, k=20))


def test_searches_of_a_large_index_see_whole_changes_while_others_write():
    index = index_of(entries(SMALL + 50))
    done, before = threading.Event(), sys.getswitchinterval()

    def search(_):
        seen = 0
        while not done.is_set() or not seen:
            hits = index.search(["twin", "w1 w2"], k=400)
            # Both of a pair come and go with one call each.
            names = {hit.id for hit in hits[0]}
            assert all((f"left{name[5:]}" in names) for name in names if name.startswith("right"))
            assert len(hits[1]) > 10
            seen += 1
        return seen

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(9) as pool:
            searches = [pool.submit(search, n) for n in range(8)]
            try:
                for n in range(60):
                    index.add([Entry(id=f"left{n}", text=f"twin {n}"), Entry(id=f"right{n}", text=f"twin {n} too")])
                    index.remove([f"left{n - 5}", f"right{n - 5}"])
            finally:
                done.set()
            assert all(future.result(timeout=60) for future in searches)
    finally:
        sys.setswitchinterval(before)
    assert {hit.id for hit in index.search(["twin"], k=99)[0]} == {
        f"{side}{n}" for n in range(55, 60) for side in ("left", "right")
    }
