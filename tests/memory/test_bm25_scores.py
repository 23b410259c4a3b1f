"""The incremental scorer says what rank_bm25 says, after any sequence of changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.memory import rows
from mempiler.memory.bm25 import FLOOR, Bm25
from mempiler.memory.neighbours import Shares
from rank_bm25 import BM25Okapi

TERMS = ["ann", "bob", "jazz", "lisbon", "piano", "river", "chess"]
KEYS = ["a", "b", "c", "d", "e", "f"]
DOCUMENT = st.lists(st.sampled_from(TERMS), max_size=6)
CHANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.none() | DOCUMENT), max_size=25)
"""A key with the terms to put under it, or with None to take it out."""


def oracle(documents, query):
    """Score by key, highest first, equal ones in the order of the dict: rank_bm25 with the floor of Mempiler."""
    if not any(documents.values()):
        return []
    okapi = BM25Okapi(list(documents.values()), k1=1.5, b=0.75)
    least = max(okapi.epsilon * okapi.average_idf, FLOOR)
    for term in okapi.idf:
        if sum(term in words for words in documents.values()) * 2 >= len(documents):
            okapi.idf[term] = least
    scores = okapi.get_scores(query)
    return [(list(documents)[n], scores[n]) for n in np.argsort(-scores, kind="stable") if scores[n] > 0]


def change(scorer, documents, changes):
    for key, terms in changes:
        if key in documents and terms is None:
            scorer.remove(key, documents.pop(key))
        elif key in documents:
            scorer.replace(key, documents[key], terms)
            documents[key] = terms
        elif terms is not None:
            scorer.put(key, terms)
            documents[key] = terms


def agree(found, expected):
    assert dict(found) == pytest.approx(dict(expected), abs=1e-9, rel=1e-9)
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)


@settings(max_examples=300)
@given(CHANGES, st.lists(st.sampled_from([*TERMS, "nowhere"]), max_size=5))
def test_scores_are_those_of_rank_bm25_after_any_changes(changes, query):
    scorer, documents = Bm25(), {}
    change(scorer, documents, changes)
    assert len(scorer) == len(documents)
    agree(scorer.search([query], k=9)[0], oracle(documents, query))


@settings(max_examples=100)
@given(CHANGES, CHANGES)
def test_searching_between_changes_changes_nothing(first, second):
    asked, silent, documents = Bm25(), Bm25(), {}
    change(asked, documents, first)
    asked.search([TERMS], k=3)
    change(asked, documents, second)
    change(silent, {}, [*first, *second])
    assert asked.search([TERMS, ["jazz"]], k=9) == silent.search([TERMS, ["jazz"]], k=9)


@settings(max_examples=100)
@given(CHANGES)
def test_rows_numbered_anew_give_the_same(changes):
    scorer, documents = Bm25(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "SPARE", 0)
        change(scorer, documents, changes)
    fresh = Bm25()
    change(fresh, {}, documents.items())
    assert scorer.search([TERMS], k=9) == fresh.search([TERMS], k=9)


def test_many_removals_do_not_keep_their_rows():
    scorer = Bm25()
    for n in range(5000):
        scorer.put(f"d{n}", ["jazz", f"w{n}"])
        if n >= 3:
            scorer.remove(f"d{n - 3}", ["jazz", f"w{n - 3}"])
    assert [key for key, _ in scorer.search([["jazz"]], k=9)[0]] == ["d4997", "d4998", "d4999"]
    assert len(scorer._rows.keys) < 2000


@settings(max_examples=100)
@given(CHANGES, st.lists(DOCUMENT, max_size=9), st.sampled_from(["", "d"]))
def test_documents_put_together_are_those_put_one_by_one(changes, more, dialogue):
    one, many = Bm25(Shares()), Bm25(Shares())
    change(one, {}, changes)
    change(many, {}, changes)
    keys = [f"new{n}" for n in range(len(more))]
    for key, terms in zip(keys, more, strict=True):
        one.put(key, terms, dialogue)
    many.put_all(keys, more, [dialogue] * len(more))
    queries = [TERMS, ["jazz"], ["ann", "ann", "chess"]]
    assert one.search(queries, k=9) == many.search(queries, k=9)
    for scorer in (one, many):
        scorer.put("last", ["jazz", "chess"], dialogue)
    assert one.search(queries, k=3) == many.search(queries, k=3)


def test_taking_out_terms_that_a_document_has_not_is_an_error():
    scorer = Bm25()
    change(scorer, {}, [("a", ["jazz"]), ("b", ["river"])])
    with pytest.raises(KeyError):
        scorer.remove("a", ["river"])


def zipf(count, seed):
    shares = 1 / np.arange(1, 301)
    chosen = np.random.default_rng(seed).choice(300, size=(count, 9), p=shares / shares.sum())
    return [[f"w{word}" for word in row] for row in chosen]


@pytest.mark.parametrize("size", [50, 600, 2000])
def test_the_ranking_is_that_of_rank_bm25_on_zipf_documents(size):
    documents = {f"d{n}": terms for n, terms in enumerate(zipf(size, seed=size))}
    scorer = Bm25()
    change(scorer, {}, documents.items())
    queries = [query[:6] for query in zipf(10, seed=1)]
    for query, found in zip(queries, scorer.search(queries, k=30), strict=True):
        expected = oracle(documents, query)
        assert [key for key, _ in found] == [key for key, _ in expected[:30]]
        agree(found, expected[:30])


@pytest.mark.parametrize("k", [0, 1, 2, 3, 9])
def test_equal_scores_keep_the_order_in_which_they_were_put_at_any_k(k):
    scorer = Bm25()
    change(scorer, {}, [("z", ["jazz"]), ("a", ["jazz"]), ("x", ["river"]), ("m", ["jazz"]), ("a", ["jazz"])])
    scorer.remove("z", ["jazz"])
    scorer.put("z", ["jazz"])
    assert [key for key, _ in scorer.search([["jazz"]], k)[0]] == ["a", "m", "z"][:k]


def test_a_filter_is_asked_once_per_key_and_gets_the_best_of_what_passes():
    scorer, asked = Bm25(), []
    change(scorer, {}, [(f"d{n:03}", ["jazz"] * (n % 7 + 1)) for n in range(100)])
    everything = scorer.search([["jazz"]], k=100)[0]

    def odd(key):
        asked.append(key)
        return int(key[1:]) % 2 == 1

    found = scorer.search([["jazz"], ["jazz", "piano"]], k=20, where=odd)
    assert found[0] == [pair for pair in everything if int(pair[0][1:]) % 2][:20]
    assert found[0] == found[1]
    assert len(asked) == len(set(asked))


def test_min_score_leaves_lower_ones_out():
    scorer = Bm25()
    change(scorer, {}, [("a", ["jazz", "jazz"]), ("b", ["jazz", "river", "chess"]), ("c", ["piano"])])
    best, other = scorer.search([["jazz"]], k=9)[0]
    assert scorer.search([["jazz"]], k=9, min_score=best[1])[0] == [best]
    assert scorer.search([["jazz"]], k=9, min_score=other[1])[0] == [best, other]


def test_a_term_counts_as_often_as_the_query_says_it():
    scorer = Bm25()
    change(scorer, {}, [("a", ["jazz"]), ("b", ["river"]), ("c", ["piano"])])
    [(_, once)], [(_, twice)] = scorer.search([["jazz"], ["jazz", "jazz"]], k=1)
    assert twice == pytest.approx(2 * once)
