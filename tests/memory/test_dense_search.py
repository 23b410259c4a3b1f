import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mempiler.engines.embedders import TextEmbedder, embedder
from mempiler.errors import ProgramError, UserError
from mempiler.memory.dense import DenseIndex
from mempiler.memory.index import Entry, Index

WORDS = ["lisbon", "jazz", "piano", "greyhound", "marathon", "bread", "chess", "garden", "river", "novel"]


def random_embedder(dimension=32, name="random"):
    """Vectors that depend on the text alone, spread over all directions; "same ..." texts share one."""

    def compute(texts):
        seeds = [int.from_bytes(text.split("|")[0].encode()[:12].ljust(12, b"."), "big") for text in texts]
        return np.array([np.random.default_rng(seed).normal(size=dimension) for seed in seeds])

    return TextEmbedder(name, compute, dimension)


def entries_of(count):
    return [Entry(id=f"e{n}", text=f"text {n}", tags={"third": str(n % 3)}) for n in range(count)]


def index_of(entries, embed=None):
    index = DenseIndex(embed or random_embedder())
    index.add(entries)
    return index


def brute_force(embed, entries, query):
    """Ids and cosines by plain numpy, best first, equal cosines in order."""
    rows = embed.embed([entry.text for entry in entries]).astype(np.float64)
    cosines = rows @ embed.embed([query])[0].astype(np.float64)
    return [(entries[n].id, cosines[n]) for n in np.argsort(-cosines, kind="stable")]


def test_it_is_an_index():
    assert isinstance(DenseIndex(embedder()), Index)


@pytest.mark.parametrize("count", [1, 7, 300])
@pytest.mark.parametrize("k", [1, 5, 40, 1000])
def test_hits_are_those_of_brute_force_cosine(count, k):
    embed, entries = random_embedder(), entries_of(count)
    queries = [f"query {n}" for n in range(25)]
    found = index_of(entries, embed).search(queries, k)
    for query, hits in zip(queries, found, strict=True):
        expected = brute_force(embed, entries, query)[:k]
        assert [hit.id for hit in hits] == [id for id, _ in expected]
        assert [hit.score for hit in hits] == pytest.approx([cosine for _, cosine in expected], abs=1e-12)


def test_hits_carry_the_provenance_of_their_entry():
    entry = Entry(id="f1", text="Ann moved", sources=("D1:3", "D2:1"), time="2023-05-08T13:56:00", speaker="Ann")
    [[hit]] = index_of([entry], embedder()).search(["Who moved?"], k=5)
    assert hit == entry.hit(hit.score)
    assert (hit.sources, hit.speaker) == (("D1:3", "D2:1"), "Ann")


@pytest.mark.parametrize("k", [1, 3, 29, 30, 31, 59, 60])
def test_equal_cosines_keep_the_order_of_addition(k):
    entries = [Entry(id=f"e{n}", text=f"{'same' if n % 2 else 'other'}|{n}") for n in range(60)]
    index = index_of(entries)
    embed = random_embedder()
    assert [hit.id for hit in index.search(["same|?"], k)[0]] == [id for id, _ in brute_force(embed, entries, "same|")][
        :k
    ]


def test_a_batch_is_exactly_the_same_as_one_query_at_a_time():
    index = index_of(entries_of(500))
    queries = [f"query {n}" for n in range(45)]
    assert index.search(queries, k=11) == [index.search([query], k=11)[0] for query in queries]


def test_a_search_embeds_all_queries_at_once():
    calls = []

    def compute(texts):
        calls.append(list(texts))
        return np.ones((len(texts), 4))

    index = index_of(entries_of(3), TextEmbedder("counting", compute))
    index.search(["a", "b", "a"], k=2)
    assert calls == [["text 0", "text 1", "text 2"], ["a", "b"]]


@pytest.mark.parametrize("k", [1, 5, 50, 400])
@pytest.mark.parametrize("third", ["0", "nobody"])
def test_filters_give_the_best_of_what_they_let_through(k, third):
    entries = entries_of(300)
    index = index_of(entries)
    everything = index.search(["query 1", "query 2"], k=300)
    kept = {entry.id for entry in entries if entry.tags["third"] == third}
    filtered = index.search(["query 1", "query 2"], k, where=lambda entry: entry.tags["third"] == third)
    assert filtered == [[hit for hit in hits if hit.id in kept][:k] for hits in everything]


def test_filters_and_ties_together_are_exact():
    entries = [Entry(id=f"e{n}", text="same", tags={"third": str(n % 3)}) for n in range(90)]
    hits = index_of(entries).search(["same"], k=4, where=lambda entry: entry.tags["third"] == "2")[0]
    assert [hit.id for hit in hits] == ["e2", "e5", "e8", "e11"]


def test_min_score_is_the_least_cosine_of_a_hit():
    index = index_of(entries_of(100))
    hits = index.search(["query"], k=100)[0]
    assert index.search(["query"], k=100, min_score=hits[9].score)[0] == hits[:10]
    assert index.search(["query"], k=100, min_score=1.1) == [[]]


@pytest.mark.parametrize("query", ["", "  ", "the of and"])
def test_a_query_without_words_finds_nothing(query):
    index = index_of([Entry(id="a", text="jazz")], embedder())
    assert [len(hits) for hits in index.search([query, "jazz"], k=3)] == [0, 1]


def test_an_empty_index_finds_nothing_and_asks_nobody():
    def compute(texts):
        raise AssertionError("nothing to compare with")

    index = DenseIndex(TextEmbedder("absent", compute))
    assert index.search(["a", "b"], k=3) == [[], []]
    assert (len(index), index.ids) == (0, ())


def test_an_index_that_was_emptied_finds_nothing():
    index = index_of(entries_of(3))
    index.remove(index.ids)
    assert index.search(["text 1"], k=3) == [[]]


def test_an_entry_without_words_is_kept():
    index = index_of([Entry(id="a", text=""), Entry(id="b", text="jazz")], embedder())
    assert [(hit.id, hit.score > 0.9) for hit in index.search(["jazz"], k=2)[0]] == [("b", True), ("a", False)]


@pytest.mark.parametrize(("queries", "k", "message"), [("jazz", 3, "put it in a list"), (["jazz"], -1, "k=-1")])
def test_slips_are_named(queries, k, message):
    with pytest.raises(UserError, match=message):
        index_of(entries_of(3)).search(queries, k)


def test_no_queries_or_no_hits_wanted():
    index = index_of(entries_of(3))
    assert index.search([], k=3) == []
    assert index.search(["a"], k=0) == [[]]


def test_an_entry_of_a_known_id_replaces_the_old_one_in_its_place():
    index = index_of([Entry(id=id, text=f"text {id}") for id in "abc"])
    index.add([Entry(id="b", text="new"), Entry(id="d", text="text d"), Entry(id="b", text="newest")])
    assert index.ids == ("a", "b", "c", "d")
    hits = index.search(["newest"], k=1)[0]
    assert [(hit.id, hit.text, round(hit.score, 5)) for hit in hits] == [("b", "newest", 1)]
    assert len(index.search(["text b"], k=9)[0]) == 4


def test_a_replaced_entry_keeps_its_place_among_equals():
    index = index_of([Entry(id=id, text="same") for id in "abc"])
    index.add([Entry(id="a", text="same|changed")])
    assert [hit.id for hit in index.search(["same"], k=3)[0]] == ["a", "b", "c"]


def test_removed_entries_are_gone_and_unknown_ids_are_passed_over():
    index = index_of(entries_of(20))
    index.remove(["e3", "nobody", "e3", "e19"])
    assert index.ids == tuple(f"e{n}" for n in range(19) if n != 3)
    assert {hit.id for hit in index.search(["text 3"], k=30)[0]} == set(index.ids)


def test_an_embedder_that_changes_its_dimension_is_found():
    index = DenseIndex(random_embedder(8))
    index.add(entries_of(3))
    index.embedder = random_embedder(9)
    with pytest.raises(ProgramError, match="rebuild"):
        index.search(["a"], k=1)
    with pytest.raises(ProgramError, match="rebuild"):
        index.add([Entry(id="new", text="a")])
    assert len(index) == 3


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
)
def test_removing_what_was_added_restores_every_result(first, second):
    index = index_of([Entry(id=f"a{n}", text=word) for n, word in enumerate(first)], embedder())
    before = index.search(WORDS, k=20)
    index.add([Entry(id=f"b{n}", text=f"{word} river") for n, word in enumerate(second)])
    during = index.search(["river"], k=20)[0]
    index.remove([f"b{n}" for n in range(len(second))])
    assert {hit.id for hit in during} >= {f"b{n}" for n in range(len(second))}
    assert index.search(WORDS, k=20) == before
    assert index.ids == tuple(f"a{n}" for n in range(len(first)))


def test_the_thread_count_of_the_caller_is_put_back():
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(before + 3)
    try:
        index_of(entries_of(10)).search(["a"], k=2)
        assert faiss.omp_get_max_threads() == before + 3
    finally:
        faiss.omp_set_num_threads(before)


def test_chinese_is_found_offline():
    index = index_of([Entry(id="a", text="我喜欢在周末打篮球"), Entry(id="b", text="她在北京的大学教书")], embedder())
    found = index.search(["周末做什么运动?篮球吗", "北京大学"], k=1)
    assert [[hit.id for hit in hits] for hits in found] == [["a"], ["b"]]
