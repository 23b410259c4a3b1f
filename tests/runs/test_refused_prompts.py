"""Endpoints that refuse single prompts, for their content or length: counted, skipped, and no end of the run."""

from typing import Any

import dspy
import pytest
from dspy.lm15 import ContextLengthError, InvalidRequestError
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter, MeteredLM
from mempiler.engines.offline.engine import OfflineEngine
from mempiler.programs.catalog import build
from mempiler.programs.names import METHODS
from mempiler.runs.evaluate import evaluate

WHERE = {"pramem": "movielens", "h2memory": "palbench.restate"}
SMALLER = {"pramem": {"rounds": 2}}


class Strict(OfflineEngine):
    """The offline engine, which refuses one prompt in thirty-three: by turns for its content and for its length."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.refused = 0

    def complete(self, request: Any) -> Any:
        self.asked += 1
        if self.asked % 33 == 7:
            self.refused += 1
            raise InvalidRequestError("content filter") if self.refused % 2 else ContextLengthError("too long")
        return super().complete(request)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "no-memory"])
def test_every_method_finishes_and_loses_at_most_the_refused_calls(name: str) -> None:
    questions = benchmark(WHERE.get(name, "locomo"))
    examples = questions.examples[:20]
    engine = Strict()
    lm = MeteredLM("strict/test", Meter(), engine=engine, cache=False, temperature=0.0)
    with dspy.context(lm=lm):
        program = build(name, questions.task, embedder(), **SMALLER.get(name, {}))
        found = evaluate(program, questions, examples, lm.meter, threads=1)
    assert len(found.rows) == len(examples)
    assert engine.refused > 0
    assert found.outcomes["lost"] == engine.refused
    assert {row.failure.kind for row in found.rows if row.failure} <= {"refused", "too-long"}
