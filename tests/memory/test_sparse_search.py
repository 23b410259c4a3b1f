import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.errors import UserError
from mempiler.memory.index import Entry, Index
from mempiler.memory.sparse import SparseIndex
from mempiler.memory.tokens import tokens
from rank_bm25 import BM25Okapi

WORDS = ["lisbon", "jazz", "piano", "greyhound", "marathon", "bread", "chess", "garden", "river", "novel"]


def corpus(count=120, seed=0):
    """Texts of six words, the first words of the list more often than the last; no word is in half of them."""
    rng = np.random.default_rng(seed)
    words = [f"{word}{n}" for n in range(12) for word in WORDS]
    weights = 1 / np.arange(8, len(words) + 8)
    chosen = rng.choice(words, size=(count, 6), p=weights / weights.sum())
    return [Entry(id=f"e{n}", text=" ".join(row), sources=(f"D1:{n}",)) for n, row in enumerate(chosen)]


def index_of(entries):
    index = SparseIndex()
    index.add(entries)
    return index


def pairs(hits):
    return [(hit.id, hit.score) for hit in hits]


def test_it_is_an_index():
    assert isinstance(SparseIndex(), Index)


@pytest.mark.parametrize("seed", range(3))
def test_ranking_and_scores_are_those_of_rank_bm25(seed):
    entries = corpus(seed=seed)
    oracle = BM25Okapi([tokens(entry.text) for entry in entries], k1=1.5, b=0.75)
    queries = [entry.text for entry in corpus(20, seed=seed + 100)]
    found = index_of(entries).search(queries, k=len(entries))
    for query, hits in zip(queries, found, strict=True):
        scores = oracle.get_scores(tokens(query))
        order = [n for n in np.argsort(-scores, kind="stable") if scores[n] > 0]
        assert pairs(hits) == [(f"e{n}", pytest.approx(scores[n])) for n in order]


def test_hits_carry_the_provenance_of_their_entry():
    entry = Entry(id="f1", text="Ann moved", sources=("D1:3", "D2:1"), time="2023-05-08T13:56:00", speaker="Ann")
    [[hit]] = index_of([entry]).search(["Who moved?"], k=5)
    assert hit == entry.hit(hit.score)
    assert (hit.sources, hit.speaker) == (("D1:3", "D2:1"), "Ann")


@pytest.mark.parametrize("texts", [["Ann moved"], ["Ann moved", "Bob sang"], ["Ann moved", "Ann sang", "Ann ran"]])
def test_a_memory_of_few_entries_finds_them(texts):
    entries = [Entry(id=str(n), text=text) for n, text in enumerate(texts)]
    found = index_of(entries).search(["Ann", "moved", "Zoe"], k=9)
    assert [[hit.id for hit in hits] for hits in found] == [
        [str(n) for n, text in enumerate(texts) if "Ann" in text],
        ["0"],
        [],
    ]
    assert all(hit.score > 0 for hits in found for hit in hits)


def test_a_word_in_exactly_half_of_the_entries_still_finds_them():
    index = index_of([Entry(id=str(n), text=text) for n, text in enumerate(["jazz a1", "jazz b1", "c1 d1", "e1 f1"])])
    assert [hit.id for hit in index.search(["jazz"], k=9)[0]] == ["0", "1"]


def test_entries_that_share_no_term_are_no_hits():
    assert index_of(corpus()).search(["zebra"], k=5) == [[]]


@pytest.mark.parametrize("query", ["", "  ", "the of and", "?!"])
def test_a_query_without_words_finds_nothing(query):
    assert index_of(corpus()).search([query, "jazz0"], k=1)[0] == []


@pytest.mark.parametrize("entries", [[], [Entry(id="a", text="")], [Entry(id="a", text="the of")]])
def test_an_index_without_terms_finds_nothing(entries):
    index = index_of(entries)
    assert index.search(["jazz", ""], k=3) == [[], []]
    assert len(index) == len(entries)


def test_equal_scores_keep_the_order_of_addition():
    texts = ["jazz piano", "river", "jazz piano", "novel", "jazz piano"]
    index = index_of([Entry(id=id, text=text) for id, text in zip("zmaqb", texts, strict=True)])
    assert [hit.id for hit in index.search(["jazz"], k=5)[0]] == ["z", "a", "b"]
    assert [hit.id for hit in index.search(["jazz"], k=2)[0]] == ["z", "a"]


def test_a_batch_is_the_same_as_one_query_at_a_time():
    index = index_of(corpus())
    queries = ["jazz0 piano1", "", "chess2", "jazz0 piano1"]
    assert index.search(queries, k=7) == [index.search([query], k=7)[0] for query in queries]


def test_no_queries_give_no_lists():
    assert index_of(corpus()).search([], k=3) == []


def test_filters_give_the_best_of_what_they_let_through():
    entries = [entry.model_copy(update={"tags": {"odd": str(n % 2)}}) for n, entry in enumerate(corpus())]
    index = index_of(entries)
    everything = index.search(["jazz0 piano0 river0"], k=len(entries))[0]
    odd = {entry.id for entry in entries if entry.tags["odd"] == "1"}
    filtered = index.search(["jazz0 piano0 river0"], k=5, where=lambda entry: entry.tags["odd"] == "1")[0]
    assert filtered == [hit for hit in everything if hit.id in odd][:5]
    assert index.search(["jazz0"], k=5, where=lambda entry: False) == [[]]


def test_min_score_is_the_least_score_of_a_hit():
    index = index_of(corpus())
    hits = index.search(["jazz0 piano0 river0"], k=50)[0]
    least = hits[3].score
    assert index.search(["jazz0 piano0 river0"], k=50, min_score=least)[0] == [h for h in hits if h.score >= least]


def test_k_of_zero_finds_nothing():
    assert index_of(corpus()).search(["jazz0"], k=0) == [[]]


@pytest.mark.parametrize(("queries", "k", "message"), [("jazz", 3, "put it in a list"), (["jazz"], -1, "k=-1")])
def test_slips_are_named(queries, k, message):
    with pytest.raises(UserError, match=message):
        index_of(corpus()).search(queries, k)


def test_an_entry_of_a_known_id_replaces_the_old_one_in_its_place():
    index = index_of([Entry(id="a", text="jazz"), Entry(id="b", text="river"), Entry(id="c", text="chess")])
    index.add([Entry(id="a", text="piano")])
    assert index.search(["jazz"], k=3) == [[]]
    assert [hit.text for hit in index.search(["piano"], k=3)[0]] == ["piano"]
    assert index.ids == ("a", "b", "c")


def test_of_two_entries_with_one_id_the_later_one_counts():
    index = index_of([Entry(id="a", text="jazz"), Entry(id="a", text="river")])
    assert [hit.text for hit in index.search(["jazz river"], k=3)[0]] == ["river"]


def test_removed_entries_are_gone_and_unknown_ids_are_passed_over():
    index = index_of(corpus())
    index.remove(["e0", "nobody", "e0"])
    assert "e0" not in index.ids
    assert len(index) == 119


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
)
def test_removing_what_was_added_restores_every_result(first, second):
    index = index_of([Entry(id=f"a{n}", text=word) for n, word in enumerate(first)])
    before = index.search(WORDS, k=20)
    index.add([Entry(id=f"b{n}", text=f"{word} river") for n, word in enumerate(second)])
    during = index.search(["river"], k=20)[0]
    index.remove([f"b{n}" for n in range(len(second))])
    assert {hit.id for hit in during} >= {f"b{n}" for n in range(len(second))}
    assert index.search(WORDS, k=20) == before
    assert index.ids == tuple(f"a{n}" for n in range(len(first)))


def test_chinese_is_found_by_its_words():
    index = index_of([Entry(id="a", text="我喜欢在周末打篮球"), Entry(id="b", text="她在北京的大学教书")])
    found = index.search(["周末做什么运动?篮球吗", "哪个大学"], k=1)
    assert [[hit.id for hit in hits] for hits in found] == [["a"], ["b"]]
