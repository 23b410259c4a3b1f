"""perf/kill.py: its writes take time, and it notices what is lost, doubled or out of order.

The script kills workers while they write sessions into memories, and inspects the memories in the
end. These tests show that it would notice a fault. tests/memory/test_store_kill.py runs it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from mempiler import Store
from mempiler.memory.store.owner import Owner
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.user_memory import UserMemory


def test_writes_that_are_killed_take_time(script: Any) -> None:
    """An update waits for 0.02 seconds, and finalizing for half as long.

    Otherwise no kill would hit one.
    """
    kill = script("kill")
    writer = kill.make_program(0.02).method.writer
    (stored,) = kill.make_sessions(1, users=1)

    start = time.perf_counter()
    update = writer.update(writer.Memory(), stored.session)
    writer.finalize(update.memory)
    seconds = time.perf_counter() - start

    assert seconds >= 0.02 + 0.01


def test_a_lost_session_is_noticed(script: Any, tmp_path: Path) -> None:
    """Three of four sessions are stored.

    The fourth one is lost only if the store has acknowledged it, that is, if `add` had returned.
    """
    kill = script("kill")
    url = str(tmp_path / "s.sqlite")
    load = kill.make_sessions(4, users=2)
    program = kill.make_program(0.0)
    with Store(url) as store:
        for user, session in load[:3]:
            UserMemory(Memories(program, store), Owner(user)).add(session)

    three_acknowledged = kill.inspect_memories(url, load, acknowledged={"S0", "S1", "S2"})
    four_acknowledged = kill.inspect_memories(url, load, acknowledged={"S0", "S1", "S2", "S3"})
    only_stored_sessions = kill.inspect_memories(url, load[:3], acknowledged=set())

    assert three_acknowledged == kill.Findings(sessions=4, remembered=3, lost=0, twice=0, wrong=0)
    assert not three_acknowledged.is_clean()
    assert four_acknowledged.lost == 1
    assert only_stored_sessions.is_clean()
