"""A foreign system of a test: registered as a shipped one is, in an environment that is this interpreter."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
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
        return Environment(self.name, self.place / "pins.txt")


def register(
    name: str, place: Path, patch: pytest.MonkeyPatch, hostile: str = "pass", installed: bool = True, lm: bool = False
) -> Scripted:
    """Makes `system:NAME` one that finds turns by their words, and does a hostile thing with each session.

    Args:
        name: Of the system; a shipped one's place is taken.
        place: An empty folder for it and its environment.
        patch: Undoes it.
        hostile: A statement.
        installed: Whether its environment is there.
        lm: Whether it says that it writes with a language model.
    """
    found = Scripted(name, "a test's", writes_with_lm=lm, place=place)
    patch.setitem(catalog.SYSTEMS, name, found)
    patch.setenv("MEMPILER_SYSTEMS", str(place / "systems"))
    (place / "pins.txt").touch()
    found.file.write_text(SYSTEM.format(hostile=hostile), encoding="utf-8")
    python = found.environment.path / "bin" / "python"
    if installed and not python.exists():
        python.parent.mkdir(parents=True)
        python.symlink_to(Path(sys.executable).resolve())
        (found.environment.path / STAMP).touch()
    return found
