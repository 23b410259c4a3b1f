"""The sum of BM25 and cosine, each in its own deviations: worked by hand, and the contract of every index."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from mempiler.engines.embedders import TextEmbedder
from mempiler.errors import ProgramError, UserError
from mempiler.memory.hybrid import HybridIndex
from mempiler.memory.index import DIALOGUE, Entry, Index

TEXTS = ("Ann moved to Lisbon", "Bob likes jazz", "Cleo sails a boat", "Ann bakes rye bread", "Dan plays the piano")


def placed(vectors: Mapping[str, Sequence[float]], name: str = "placed") -> TextEmbedder:
    """An embedder of texts that were given their vectors; others are far from all of them."""
    size = len(next(iter(vectors.values())))
    return TextEmbedder(name, lambda texts: np.array([vectors.get(text, [1.0] + [0.0] * (size - 1)) for text in texts]))


def drawn(name: str = "drawn", size: int = 24) -> TextEmbedder:
    """An embedder of random vectors, the same for the same text."""

    def compute(texts: Sequence[str]) -> np.ndarray:
        return np.stack([np.random.default_rng(list(text.encode())).standard_normal(size) for text in texts])

    return TextEmbedder(name, compute, size)


def entries(texts: Sequence[str] = TEXTS) -> list[Entry]:
    return [Entry(id=f"e{n}", text=text) for n, text in enumerate(texts)]


def index_of(rows: Sequence[Entry], embed: Any = None) -> HybridIndex:
    index = HybridIndex(embed or drawn())
    index.add(rows)
    return index


def ids(hits: Sequence[Any]) -> list[str]:
    return [hit.id for hit in hits]


def test_it_is_an_index() -> None:
    assert isinstance(HybridIndex(drawn()), Index)


def test_scores_are_the_sum_of_both_in_deviations_from_their_means() -> None:
    # "jazz" is in the first of three; the query's cosines with them are 0, 1 and 0.
    embed = placed({"jazz": [0, 1, 0], "rye jazz": [1, 0, 0], "oat milk": [0, 1, 0], "boat": [0, 0, 1]})
    found = index_of(entries(["rye jazz", "oat milk", "boat"]), embed).search(["jazz"], k=3)[0]
    # Of three numbers of which one is 1 and two are 0, the mean is 1/3 and the deviation the root of 2/9.
    high, low = (2 / 3) / math.sqrt(2 / 9), (-1 / 3) / math.sqrt(2 / 9)
    assert [(hit.id, hit.score) for hit in found] == [
        ("e0", pytest.approx(high + low)),
        ("e1", pytest.approx(low + high)),
        ("e2", pytest.approx(low + low)),
    ]


def test_a_query_that_shares_no_word_is_ranked_by_cosine_and_one_that_is_near_to_nothing_by_words() -> None:
    embed = placed({"where": [0, 1], "a": [0, 1], "b": [1, 1], "c": [1, 0], "d": [1, 0], "c query": [-1, 0]})
    index = index_of(entries(["d", "b", "a"]), embed)
    assert ids(index.search(["where"], k=2)[0]) == ["e2", "e1"]
    alike = index_of(entries(["rye", "oat", "boat"]), placed({"x": [1, 0]}))
    assert ids(alike.search(["a boat"], k=1)[0]) == ["e2"]


def test_turns_of_a_dialogue_lend_one_another_the_words_part() -> None:
    rows = [
        Entry(id=id, text=text, tags={DIALOGUE: "D1"}) for id, text in (("q", "the job"), ("a", "yes"), ("x", "no"))
    ]
    far = placed({"z": [1, 0]})
    assert ids(index_of([rows[2].model_copy(update={"tags": {}}), *rows[:2]], far).search(["job"], k=3)[0]) == [
        "q",
        "a",
        "x",
    ]


def test_of_an_entry_of_several_lines_the_nearest_counts() -> None:
    embed = placed({"asked": [0, 1, 0], "far": [1, 0, 0], "near": [0, 1, 0], "half": [1, 1, 0]})
    rows = [Entry(id="one", text="half"), Entry(id="many", text="far\nnear\nfar"), Entry(id="last", text="far\nfar")]
    assert ids(index_of(rows, embed).search(["asked"], k=3)[0]) == ["many", "one", "last"]


def test_min_score_is_the_lowest_cosine_and_changes_no_score() -> None:
    embed = placed({"asked": [0, 1], "rye": [0, 1], "oat": [1, 1], "boat asked": [1, 0]})
    index = index_of(entries(["rye", "oat", "boat asked"]), embed)
    everything = index.search(["asked"], k=3)[0]
    assert {hit.id for hit in everything} == {"e0", "e1", "e2"}
    assert index.search(["asked"], k=3, min_score=0.5)[0] == [hit for hit in everything if hit.id != "e2"]
    assert index.search(["asked"], k=3, min_score=0.9)[0] == [hit for hit in everything if hit.id == "e0"]


def test_a_filter_gives_the_best_of_what_it_lets_through_with_the_same_scores() -> None:
    index = index_of(entries())
    everything = index.search(["Ann and jazz"], k=9)[0]
    some = index.search(["Ann and jazz"], k=2, where=lambda entry: entry.id in ("e1", "e3", "e4"))[0]
    assert some == [hit for hit in everything if hit.id in ("e1", "e3", "e4")][:2]


def test_a_query_gives_the_same_hits_alone_and_in_a_batch_and_a_small_k_the_head() -> None:
    rng = np.random.default_rng(0)
    index = index_of(entries([" ".join(rng.choice(TEXTS, 2)) + f" {n}" for n in range(300)]))
    queries = ["jazz", "", "Where is Lisbon?", "zebra", "jazz"]
    together = index.search(queries, k=30)
    assert together == [index.search([query], k=30)[0] for query in queries]
    assert [hits[:4] for hits in together] == index.search(queries, k=4)
    assert together[1] == []
    assert len(together[3]) == 30


def test_equal_entries_tie_exactly_and_keep_their_order() -> None:
    rng = np.random.default_rng(1)
    texts = [f"{rng.choice(TEXTS)} {rng.integers(40)}" for _ in range(400)]
    index = index_of(entries(texts), drawn(size=383))
    found = index.search(["jazz 7"], k=400)[0]
    scores: dict[str, set[float]] = {}
    for hit in found:
        scores.setdefault(hit.text, set()).add(hit.score)
    assert all(len(values) == 1 for values in scores.values())
    assert all(int(one.id[1:]) < int(two.id[1:]) for one, two in itertools.pairwise(found) if one.text == two.text)


def test_an_index_that_grew_shrank_and_changed_is_the_one_that_was_always_so() -> None:
    embed, index = drawn(), HybridIndex(drawn())
    rows = entries([f"{text} {n}" for n in range(4) for text in TEXTS])
    for start in range(0, len(rows), 3):
        index.add(rows[start : start + 3])
    index.remove(["e4", "e7", "nobody", "e4"])
    changed = [Entry(id="e1", text="a rye\nof two lines"), Entry(id="e7", text="back again")]
    index.add(changed)
    kept = {row.id: row for row in rows if row.id not in ("e4", "e7")} | {row.id: row for row in changed}
    assert index.ids == tuple(kept)
    queries = ["rye", "Lisbon 2", "two lines"]
    assert index.search(queries, k=30) == index_of(list(kept.values()), embed).search(queries, k=30)
    index.remove(list(kept))
    assert (len(index), index.search(queries, k=3)) == (0, [[], [], []])
    index.add(changed)
    assert ids(index.search(["rye"], k=1)[0]) == ["e1"]


@pytest.mark.parametrize("texts", [[], [""], ["the of"]])
def test_little_to_search_is_no_error(texts: list[str]) -> None:
    index = index_of(entries(texts))
    assert [len(hits) for hits in index.search(["jazz", ""], k=3)] == [len(texts), 0]
    assert index.search([], k=3) == []
    assert index.search(["jazz"], k=0) == [[]]


@pytest.mark.parametrize(("queries", "k", "message"), [("jazz", 3, "put it in a list"), (["jazz"], -1, "k=-1")])
def test_slips_are_named(queries: Any, k: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        index_of(entries()).search(queries, k)


def test_vectors_of_another_length_are_refused_and_change_nothing() -> None:
    index = index_of(entries())
    index.embedder = drawn(size=8)
    with pytest.raises(ProgramError, match="gives 8 numbers a text, the index holds 24"):
        index.add([Entry(id="new", text="jazz")])
    assert len(index) == len(TEXTS)
    assert "new" not in index.ids
