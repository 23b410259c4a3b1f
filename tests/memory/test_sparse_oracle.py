"""A sparse index of any size, however it came about, gives the hits of rank-bm25."""

import numpy as np
import pytest
from mempiler.memory.bm25 import FLOOR
from mempiler.memory.index import Entry
from mempiler.memory.sparse import MANY, SparseIndex
from mempiler.memory.tokens import tokens
from rank_bm25 import BM25Okapi


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


def by_rank_bm25(rows, k, min_score=0.0, where=None):
    """The hits of rank-bm25, with the floor of Mempiler for terms that are in half of the entries."""
    rows = list(rows)
    okapi = BM25Okapi([tokens(row.text) for row in rows], k1=1.5, b=0.75)
    least = max(okapi.epsilon * okapi.average_idf, FLOOR)
    for term in okapi.idf:
        if 2 * sum(term in words for words in okapi.doc_freqs) >= len(rows):
            okapi.idf[term] = least
    found = []
    for query in QUERIES:
        scores = okapi.get_scores(tokens(query))
        best = [n for n in np.argsort(-scores, kind="stable") if scores[n] > 0 and scores[n] >= min_score]
        found.append([rows[n].hit(float(scores[n])) for n in best if where is None or where(rows[n])][:k])
    return found


def same(one, other):
    for hits, others in zip(one, other, strict=True):
        assert [hit.id for hit in hits] == [hit.id for hit in others]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in others], abs=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, MANY - 1, MANY, 500, 1500])
def test_the_hits_are_those_of_rank_bm25(size):
    rows = entries(size)
    same(index_of(rows).search(QUERIES, k=30), by_rank_bm25(rows, k=30))


def test_options_of_a_search_mean_the_same():
    rows = entries(1000)
    odd = {"k": 25, "where": lambda entry: entry.tags["odd"] == "1", "min_score": 3.0}
    found = index_of(rows).search(QUERIES, **odd)
    assert any(found)
    same(found, by_rank_bm25(rows, **odd))


def test_an_index_that_grew_shrank_and_changed_is_the_one_that_was_always_so():
    index, rows = SparseIndex(), entries(1000)
    for start in range(0, len(rows), MANY + 7):
        index.add(rows[start : start + MANY + 7])
    index.remove([f"e{n}" for n in range(0, 500, 3)])
    index.add([Entry(id="e1", text="w1 w2 w3"), Entry(id="e0", text="w4 w5")])
    kept = {row.id: row for row in rows if not (int(row.id[1:]) < 500 and int(row.id[1:]) % 3 == 0)}
    kept |= {"e1": Entry(id="e1", text="w1 w2 w3"), "e0": Entry(id="e0", text="w4 w5")}
    assert index.ids == tuple(kept)
    found = index.search(QUERIES, k=50)
    assert found == index_of(kept.values()).search(QUERIES, k=50)
    same(found, by_rank_bm25(kept.values(), k=50))


def test_an_index_that_shrank_to_nothing_finds_nothing_and_can_begin_again():
    index = index_of(entries(55))
    index.remove(list(index.ids))
    assert (len(index), index.search(QUERIES[:2], k=3)) == (0, [[], []])
    index.add([Entry(id="a", text="jazz")])
    assert [hit.id for hit in index.search(["jazz"], k=3)[0]] == ["a"]
