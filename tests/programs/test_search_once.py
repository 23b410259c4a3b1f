"""One search per question: recall and evidence recall read one ranking, and see what they saw before."""

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mempiler import build
from mempiler.data.locomo.benchmark import Locomo
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.memory.dense import DenseIndex
from mempiler.memory.hybrid import HybridIndex
from mempiler.memory.index import Entry
from mempiler.memory.sparse import SparseIndex
from mempiler.programs.search_once import searched, searching_once
from mempiler.runs.evaluate import evaluate

WORDS = some.lists(some.sampled_from(["ann", "bob", "tea", "jazz", "lisbon"]), min_size=1, max_size=3).map(" ".join)


@pytest.mark.parametrize("kind", ["sparse", "dense", "hybrid"])
@settings(max_examples=25, deadline=None)
@given(texts=some.lists(WORDS, max_size=12), query=WORDS, ks=some.lists(some.integers(1, 9), min_size=1, max_size=4))
def test_hits_are_those_of_searches_of_their_own(kind: str, texts: list[str], query: str, ks: list[int]) -> None:
    words = embedder("offline")
    index: Any = {"sparse": SparseIndex, "dense": lambda: DenseIndex(words), "hybrid": lambda: HybridIndex(words)}[
        kind
    ]()
    index.add([Entry(id=str(n), text=text) for n, text in enumerate(texts)])
    indexes: Any = SimpleNamespace(of=lambda memory: index)
    with searching_once(6):
        found = [searched(indexes, index, [query], k, -1.0) for k in ks]
    assert found == [index.search([query], k, -1.0) for k in ks]


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_a_question_of_an_evaluation_is_one_search(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    kinds = (SparseIndex, DenseIndex, HybridIndex)
    for kind in kinds:
        plain = kind.search

        def counted(self: Any, asked: Any, *more: Any, plain: Any = plain, **named: Any) -> Any:
            queries.extend(asked)
            return plain(self, asked, *more, **named)

        monkeypatch.setattr(kind, "search", counted)
    lm, benchmark = language_model("offline"), Locomo.load()
    program = build(method, embedder=embedder("offline"))
    asked = [example for example in benchmark.examples if example.get("focus")][:6]
    with dspy.context(lm=lm):
        for example in asked:
            program.remember(example.history)
        queries.clear()
        found = evaluate(program, benchmark, asked, lm.meter, threads=1)
    assert all(row.recall for row in found.rows)
    assert len(queries) == len(asked)
