"""The demonstrations that `local:tiny` is warmed up on, by world."""

import re

import pytest
from mempiler.data.synthesis.worlds import WORLDS
from mempiler.engines.embedders import embedder
from mempiler.programs.memory_r2.method import MemoryR2
from mempiler.runs.tiny import WARM_UPS, WarmUp, demonstrations


@pytest.mark.parametrize(("world", "sessions"), [("independent", 8), ("dependent", 32)])
def test_every_session_of_a_world_is_shown(world: str, sessions: int) -> None:
    method = MemoryR2(embedder(), **MemoryR2.preset("memory-env"))
    good, poor = demonstrations(method, WarmUp(users=4, extractions=1.0), 0, world)
    for shown in (good, poor):
        ids = {int(id) for messages, _ in shown for id in re.findall(r"D(\d+):", messages[-1]["content"])}
        assert ids == set(range(1, sessions + 1))


def test_every_world_has_a_warm_up() -> None:
    assert set(WARM_UPS) == set(WORLDS)
    assert WARM_UPS["independent"] == WarmUp()
