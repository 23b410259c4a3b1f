"""Memories as they were, on SQLite and PostgreSQL."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from mempiler import UserError, build
from mempiler.memory import store_tables as tables
from sqlalchemy import delete


@pytest.fixture
def memory(store: Any) -> Any:
    from mempiler.engines.models import language_model

    return build("turn-rag").memory(store, "ada", lm=language_model("offline"))


def tell(memory: Any, number: int) -> datetime:
    """Adds a session, and returns a moment between it and the next."""
    memory.add([{"role": "user", "content": f"note {number}"}], id=f"s{number}")
    time.sleep(0.01)
    found = datetime.now(UTC)
    time.sleep(0.01)
    return found


def ids(memory: Any, then: datetime | None = None) -> list[str]:
    return [entry.id for entry in memory.list(as_of=then).entries]


def test_every_commit_is_a_moment_whatever_was_rewritten_since(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempiler.programs.live.SHORT", 0)
    start = datetime.now(UTC)
    times = [tell(memory, n) for n in range(1, 7)]
    for n, then in enumerate(times, 1):
        assert ids(memory, then) == [f"s{m}:1" for m in range(1, n + 1)]
    assert ids(memory, start) == []
    memory.store.forget(memory.owner)
    assert ids(memory, times[-1]) == []


def test_a_past_that_is_not_kept_is_refused_with_the_moment_since_when_it_is(memory: Any) -> None:
    before = [tell(memory, n) for n in (1, 2)]
    memory.rebuild(force=True)
    for then in before:
        with pytest.raises(UserError, match=r"is not kept from that time, but from 20\S+Z; ask for that or later"):
            memory.list(as_of=then)
    assert ids(memory, tell(memory, 3)) == ["s1:1", "s2:1", "s3:1"]


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_store_from_before_there_were_moments_has_a_past_from_its_next_commit_on(
    memory: Any, open_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, rewritten: bool
) -> None:
    early = tell(memory, 1)
    with memory.store._write() as db:
        db.execute(delete(tables.moments))
    if rewritten:
        monkeypatch.setattr("mempiler.programs.live.SHORT", -1)
        memory.add([{"role": "user", "content": "a note that is longer than the first " * 9}], id="long")
    with pytest.raises(UserError, match="not kept"):
        memory.list(as_of=early)
    late = tell(memory, 2)
    with pytest.raises(UserError, match="not kept"):
        memory.list(as_of=early)
    assert ids(memory, late)[-2:] == ["s1:1", "s2:1"]
