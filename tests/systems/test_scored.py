"""`system:NAME` is scored as any method is; a hostile one is failed rows with a reason, and nothing else is harmed."""

import sys
from functools import partial
from pathlib import Path

import pytest
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.results import Evaluation
from mempiler.runs.setup import Setup
from mempiler.systems import catalog
from mempiler.systems.process import System

from .conftest import script


def scored(place: Path, patch: pytest.MonkeyPatch, add: str = "", **config: object) -> Evaluation:
    """What a system scores on the sample, whose `add` does this."""
    file = script(place / "theirs", add and f"def add(self, session): {add}")
    patch.setattr(catalog, "factory", lambda name: partial(System, name, Path(sys.executable), file, {}))
    return run_evaluate("system:scripted", Setup("locomo", test=6, config=config), part="test")


def test_it_is_scored_with_what_it_recalled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scored(tmp_path, monkeypatch)
    assert found.program == "system:scripted"
    assert not found.failures
    assert all(row.hits > 0 for row in found.rows)


@pytest.mark.parametrize(
    ("hostile", "config", "reason"),
    [
        ("raise ImportError('no such thing')", {}, "ImportError: no such thing (scripted.py:"),
        ("os._exit(9)", {}, 'status 9; last said: {"result": "garbage"}'),
        ("time.sleep(600)", {"timeout": 1.0}, "no answer within 1 s"),
    ],
)
def test_a_hostile_one_is_failed_rows_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: str, config: dict[str, object], reason: str
) -> None:
    found = scored(tmp_path, monkeypatch, hostile, **config)
    assert all(row.failure is not None and reason in row.failure.message for row in found.rows)
    assert found.score == 0
