"""Every shipped system, through its real package, in an environment made from scratch: `make integrations`.

One that cannot be made is skipped, with the reason; one that stores or finds nothing, or loses what it stored, fails.
"""

import os
from contextlib import closing
from pathlib import Path

import dspy
import pytest
from mempiler.engines.embedders import embedder
from mempiler.engines.meter import Meter
from mempiler.engines.spending import measure_usage
from mempiler.records import Session, Turn
from mempiler.systems.catalog import SYSTEMS, factory, shipped

from .conftest import installed
from .scripted import scripted_lm

FRAMEWORKS = {"dspy", *(pins.stem for pins in (Path(__file__).parent / "pins").glob("*.txt"))} - SYSTEMS.keys()
NAMED = os.environ.get("SYSTEMS", "").split() or list(SYSTEMS)
CHOSEN = [name for name in NAMED if name not in FRAMEWORKS]
"""Names of systems to run; frameworks have a file of their own."""

TOLD = (
    ("Ann", "I moved to Lisbon in spring."),
    ("Bob", "My sister Clara became a veterinarian."),
    ("Ann", "I adopted a greyhound called Pixel."),
    ("Bob", "I sold my motorcycle yesterday."),
)
WORDS = "kitchen bicycle orchard library concert lantern holiday airport teacher doctor garden village"
LATER = (
    ("Ann", "Pixel the greyhound won a marathon."),
    ("Bob", "I began to learn the accordion."),
    *((who, f"This week I wrote about the {word}.") for word in WORDS.split() for who in ("Ann", "Bob")),
)
"""Long enough for a system that writes only when its short-term memory is full."""


def _session(name: str, time: str, told: tuple[tuple[str, str], ...]) -> Session:
    turns = tuple(Turn(id=f"{name}:{n}", speaker=who, text=what) for n, (who, what) in enumerate(told, 1))
    return Session.model_validate({"id": name, "time": time, "turns": turns})


FIRST, SECOND = _session("D1", "2024-05-01T10:00:00", TOLD), _session("D2", "2024-06-01T10:00:00", LATER)


@pytest.fixture(scope="module", params=CHOSEN)
def name(request: pytest.FixtureRequest) -> str:
    """A system whose environment was made."""
    return installed(shipped(request.param).environment).name


def test_what_is_told_is_found_by_its_own_calls_which_are_the_same_again(name: str, tmp_path: Path) -> None:
    """So that a run that was killed finds the answers to its calls and pays for none twice."""
    asked = []
    for number in range(2):
        meter = Meter()
        lm = scripted_lm(meter)
        with dspy.context(lm=lm), closing(factory(name)(tmp_path / str(number), embedder=embedder())) as system:
            with measure_usage() as writing:
                system.add(FIRST)
                system.add(SECOND)
            asked.append(sorted(lm.engine.prompts))
            assert writing.taken.calls == meter.read().calls["task"]
            assert writing.taken.calls > 0
            found = system.search("Which greyhound did Ann adopt?", k=5)
        assert 0 < len(found) <= 5
        assert any("greyhound" in entry["text"] for entry in found)
        assert {"D1:3", "D2:1"} & {source for entry in found for source in entry.get("ids", ())}
    assert asked[0] == asked[1]
