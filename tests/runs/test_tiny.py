"""The demonstrations that `local:tiny` is warmed up on."""

import re

from mempiler.engines.embedders import embedder
from mempiler.programs.memory_r2.method import MemoryR2, MemoryR2Settings
from mempiler.runs.tiny import WarmUp, demonstrations


def test_every_session_is_shown() -> None:
    method = MemoryR2(embedder(), MemoryR2Settings(**MemoryR2.preset("memory-env")))
    good, poor = demonstrations(method, WarmUp(users=4, extractions=1.0), 0)
    for shown in (good, poor):
        ids = {int(id) for messages, _ in shown for id in re.findall(r"D(\d+):", messages[-1]["content"])}
        assert ids == set(range(1, 9))
