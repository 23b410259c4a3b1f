"""Methods scored in a world under the oracle, and compared question by question."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.programs.catalog import build
from mempiler.programs.remember import MemoryCache
from mempiler.runs.evaluate import evaluate
from mempiler.runs.results import Evaluation
from mempiler.runs.statistics import Difference, paired

PERF = Path(__file__).parents[2] / "perf"
Arm = tuple[str, Mapping[str, Any]]
"""A method and its settings."""


class Trial:
    """One world; memories are written once for all settings that write the same."""

    def __init__(self, name: str, users: int) -> None:
        self.world = benchmark(name, users=users)
        self._cache, self._embedder = MemoryCache(), embedder()
        self._known: dict[str, Evaluation] = {}

    def evaluated(self, arm: Arm, category: str, lm: str = "oracle") -> Evaluation:
        """The questions of a category."""
        method, settings = arm
        key = f"{lm} {category} {method} {sorted(settings.items())}"
        if key not in self._known:
            asked = [example for example in self.world.examples if example.category == category]
            meter = Meter()
            with dspy.context(lm=language_model(lm, meter)):
                program = build(method, self.world.task, self._embedder, self._cache, **settings)
                self._known[key] = evaluate(program, self.world, asked, meter, threads=1)
        return self._known[key]

    def score(self, arm: Arm, category: str, lm: str = "oracle") -> float:
        return self.evaluated(arm, category, lm).score

    def fall(self, category: str, whole: Arm, without: Arm) -> Difference:
        """By how much a category falls."""
        before, after = (self.evaluated(arm, category).rows for arm in (whole, without))
        pairs = list(zip(before, after, strict=True))
        assert all(first.id == second.id for first, second in pairs)
        return paired([a.score for a, _ in pairs], [b.score for _, b in pairs], [a.group for a, _ in pairs])


@pytest.fixture(scope="session")
def trial() -> Callable[[str, int], Trial]:
    """Makes a trial, one per world and size."""
    made: dict[tuple[str, int], Trial] = {}
    return lambda name, users: made.setdefault((name, users), Trial(name, users))


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The table of claims of the paper that a module's `PAPER` names, as `perf/worlds.py` has it."""
    name = f"worlds_{request.module.PAPER}"
    sys.path.insert(0, str(PERF))
    yield importlib.import_module(name)
    sys.path.remove(str(PERF))
    for each in (name, "world_claims"):
        sys.modules.pop(each, None)
