"""perf/kill.py: its writes take time, and it notices what is lost, doubled or out of order.

The script kills workers while they write sessions into memories, and inspects the memories in the
end. These tests show that it would notice a fault. tests/memory/test_store_kill.py runs it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mempiler import Store
from mempiler.memory.store.owner import Owner
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.user_memory import UserMemory


def test_writes_that_are_killed_take_time(script: Any) -> None:
    """Otherwise no kill would hit one.

    Here an update waits for 0.02 seconds, and finalizing waits for half as long.
    """
    kill = script("kill")
    writer = kill.make_program(0.02).method.writer
    (stored,) = kill.make_sessions(1, users=1)

    start = time.perf_counter()
    update = writer.update(writer.Memory(), stored.session)
    writer.finalize(update.memory)
    seconds = time.perf_counter() - start

    assert seconds >= 0.02 + 0.01


class StoreOfThreeSessions(NamedTuple):
    """A store to which four sessions were to be added, of which only the first three are there."""

    url: str
    sessions: list[Any]
    """All four sessions, S0 to S3."""


@pytest.fixture
def store_of_three_sessions(script: Any, tmp_path: Path) -> StoreOfThreeSessions:
    """The store of three of four sessions."""
    kill = script("kill")
    url = str(tmp_path / "s.sqlite")
    sessions = kill.make_sessions(4, users=2)
    program = kill.make_program(0.0)
    with Store(url) as store:
        for user, session in sessions[:3]:
            UserMemory(Memories(program, store), Owner(user)).add(session)
    return StoreOfThreeSessions(url, sessions)


def test_a_session_that_was_acknowledged_and_is_not_there_is_lost(
    script: Any, store_of_three_sessions: StoreOfThreeSessions
) -> None:
    """A session is acknowledged when `add` has returned. S3 is not in the store."""
    url, sessions = store_of_three_sessions

    findings = script("kill").inspect_memories(url, sessions, acknowledged={"S0", "S1", "S2", "S3"})

    assert findings.lost == 1
    assert not findings.is_clean()


def test_a_session_that_was_not_acknowledged_is_not_lost_but_missing(
    script: Any, store_of_three_sessions: StoreOfThreeSessions
) -> None:
    """The process may have been killed before `add` returned for S3. It has to add S3 again."""
    kill = script("kill")
    url, sessions = store_of_three_sessions

    findings = kill.inspect_memories(url, sessions, acknowledged={"S0", "S1", "S2"})

    assert findings == kill.Findings(sessions=4, remembered=3, lost=0, twice=0, wrong=0)
    assert not findings.is_clean()


def test_a_store_with_all_its_sessions_is_clean(
    script: Any, store_of_three_sessions: StoreOfThreeSessions
) -> None:
    url, sessions = store_of_three_sessions

    findings = script("kill").inspect_memories(url, sessions[:3], acknowledged=set())

    assert findings.is_clean()
