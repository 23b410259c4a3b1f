"""One search per question: recall and evidence recall read one ranking, and see what they saw before."""

from typing import Any

import dspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mempiler import build
from mempiler.data.locomo.benchmark import Locomo
from mempiler.engines.embedders import embedder
from mempiler.engines.models import language_model
from mempiler.memory.index import Entry
from mempiler.memory.indexes import Indexes
from mempiler.memory.turns import TurnMemory
from mempiler.programs.search_once import searched, searching_once
from mempiler.runs.evaluate import evaluate

WORDS = some.lists(some.sampled_from(["ann", "bob", "tea", "jazz", "lisbon"]), min_size=1, max_size=3).map(" ".join)


@pytest.mark.parametrize("indexes", [Indexes(), Indexes(embedder()), Indexes(embedder(), hybrid=True)])
@settings(max_examples=25, deadline=None)
@given(texts=some.lists(WORDS, max_size=12), query=WORDS, ks=some.lists(some.integers(1, 9), min_size=1, max_size=4))
def test_hits_are_those_of_searches_of_their_own(indexes: Indexes, texts: list[str], query: str, ks: list[int]) -> None:
    memory = TurnMemory(turns=tuple(Entry(id=str(n), text=text) for n, text in enumerate(texts)))
    with searching_once(6):
        found = [searched(indexes, memory, [query], k, -1.0) for k in ks]
    assert found == [indexes.search(memory, [query], k, -1.0) for k in ks]


@pytest.mark.parametrize("method", ["turn-rag", "session-rag"])
def test_a_question_of_an_evaluation_is_one_search(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    plain = Indexes.search

    def counted(self: Any, memory: Any, asked: Any, *more: Any, **named: Any) -> Any:
        queries.extend(asked)
        return plain(self, memory, asked, *more, **named)

    monkeypatch.setattr(Indexes, "search", counted)
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
