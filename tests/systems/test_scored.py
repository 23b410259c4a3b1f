"""`system:NAME` is scored as any method is; a hostile one is failed rows with a reason, and nothing else is harmed."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.results import Evaluation
from mempiler.runs.setup import Setup
from mempiler.systems import catalog
from mempiler.systems.catalog import Shipped
from mempiler.systems.environment import STAMP, Environment

SYSTEM = """
import json, os, pathlib, time

class System:
    def __init__(self, folder, settings):
        self.folder, self.kept = pathlib.Path(folder), pathlib.Path(folder, "turns.json")
        self.turns = json.loads(self.kept.read_text()) if self.kept.exists() else []
    def add(self, session):
        print("garbage" * 100)
        self.turns += session["turns"]
        {hostile}
    def search(self, query, k):
        words = set(query.lower().split())
        near = sorted(self.turns, key=lambda turn: -len(words & set(turn["text"].lower().split())))
        return [{{"text": turn["text"], "ids": [turn["id"]]}} for turn in near[:k]]
    def __len__(self):
        return len(self.turns)
    def close(self):
        self.kept.write_text(json.dumps(self.turns))
"""


@dataclass(frozen=True)
class Scripted(Shipped):
    """A system of a test, in the interpreter of the tests."""

    place: Path = Path()

    @property
    def file(self) -> Path:
        return self.place / "system.py"

    @property
    def environment(self) -> Environment:
        return Environment("scripted", self.place / "pins.txt")


def scored(place: Path, patch: pytest.MonkeyPatch, hostile: str, **config: object) -> Evaluation:
    """What a system scores on the sample, that does a hostile thing with each session."""
    found = Scripted("scripted", "a test's", (), "MIT", writes_with_lm=False, place=place)
    patch.setitem(catalog.SYSTEMS, "scripted", found)
    patch.setenv("MEMPILER_SYSTEMS", str(place / "systems"))
    (place / "pins.txt").touch()
    found.file.write_text(SYSTEM.format(hostile=hostile), encoding="utf-8")
    python = found.environment.path / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    (found.environment.path / STAMP).touch()
    return run_evaluate("system:scripted", Setup("locomo", test=6), part="test", config=config)


def test_it_is_scored_with_evidence_and_junk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = scored(tmp_path, monkeypatch, "pass")
    assert found.program == "system:scripted"
    assert not found.failures
    assert all(row.stored and row.hits == len(row.recalled) > 0 for row in found.rows)


@pytest.mark.parametrize(
    ("hostile", "config", "reason"),
    [
        ("os._exit(9)", {}, "status 9; last said: garbage"),
        ("os.abort()", {}, "ended by SIGABRT"),
        ("time.sleep(600)", {"timeout": 1.0}, "no answer within 1 s"),
        (
            "[(self.folder / str(n)).write_bytes(bytes(1 << 20)) for n in range(8)]; time.sleep(600)",
            {"max_mb": 2},
            "MB",
        ),
    ],
)
def test_a_hostile_one_is_failed_rows_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: str, config: dict[str, object], reason: str
) -> None:
    found = scored(tmp_path, monkeypatch, hostile, **config)
    assert all(row.failure is not None and reason in row.failure.message for row in found.rows)
    assert found.score == 0
