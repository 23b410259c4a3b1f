"""Methods scored in a world under the oracle, as `perf/worlds.py` does it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mempiler.runs.recipes.claims.catalog import CLAIMS

PERF = Path(__file__).parents[2] / "perf"


@pytest.fixture(scope="session")
def benches() -> Iterator[Callable[..., Any]]:
    """Makes the bench of a paper; what one wrote and scored, all its tests share."""
    sys.path.insert(0, str(PERF))
    from world_bench import Bench

    made: dict[str, Any] = {}

    def bench(paper: str, users: int, **options: Any) -> Any:
        return made.setdefault(f"{paper} {users} {options}", Bench(CLAIMS[paper], users, **options))

    yield bench
    sys.path.remove(str(PERF))
    sys.modules.pop("world_bench", None)


@pytest.fixture
def unborne(bench: Any) -> Callable[..., list[str]]:
    """What is found of a claim that does not bear it out."""

    def told(name: str) -> list[str]:
        rows = list(bench.found([bench.claims.named(name)]))
        assert rows
        return [f"{row.questions}: {row.predicted}, {row.difference}" for row in rows if row.verdict != "as predicted"]

    return told
