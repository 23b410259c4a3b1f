"""Clocks that jump: a claim or a turn that is dated wrongly costs double work, and holds up nobody."""

import time
from collections.abc import Callable

import pytest
from mempiler import Store, Turn, build
from mempiler.engines.models import language_model
from mempiler.memory import store_tables as t
from mempiler.memory.stored import LONGEST_LEASE
from mempiler.serving.memories import Memories, stamp_of
from mempiler.serving.user_memory import UserMemory
from sqlalchemy import Update, update

from .conftest import ADA, WRITER, session

DAY = 86_400.0


def fill(store: Store) -> None:
    store.add(ADA, session("I moved to Lisbon."))


def change(store: Store, statement: Update) -> None:
    with store._write() as db:
        db.execute(statement)


@pytest.mark.parametrize(("wrong", "free"), [(DAY, True), (-DAY, True), (LONGEST_LEASE / 2, False), (0.0, False)])
def test_claim_that_ends_too_far_away_counts_for_nothing(store: Store, wrong: float, free: bool) -> None:
    fill(store)
    assert store.claim("me", 10 * LONGEST_LEASE if wrong == 0 else 60, WRITER)
    change(store, update(t.users).values(claimed_until=t.users.c.claimed_until + wrong))
    assert bool(store.claim("you", 60, WRITER)) == free


def test_add_waits_for_another_worker_no_longer_than_the_lease(store: Store) -> None:
    program = build("turn-rag")
    memory = UserMemory(Memories(program, store, language_model("offline")), ADA, lease=0.2)
    fill(store)
    assert store.claim("busy", 500, stamp_of(program))
    begun = time.monotonic()
    memory.add([{"role": "user", "content": "I like tea."}])
    assert 0.2 <= time.monotonic() - begun < 5
    assert [stored.state for stored in store.items(ADA)] == ["queued", "queued"]


@pytest.mark.parametrize(("wrong", "idle"), [(DAY, True), (-DAY, True), (30.0, False)])
def test_session_whose_turns_are_dated_wrongly_ends(store: Store, wrong: float, idle: bool) -> None:
    store.append(ADA, "chat", [Turn(id="", speaker="Ada", text="hello")])
    change(store, update(t.open_turns).values(added=t.open_turns.c.added + wrong))
    assert bool(store.idle(1800)) == idle


def test_clocks_of_workers_do_not_matter_to_postgresql(
    open_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = open_store(), open_store()
    if one.url.startswith("sqlite"):
        pytest.skip("an SQLite file has the clock of its machine")
    fill(one)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 300)
    assert one.claim("me", 60, WRITER)
    monkeypatch.setattr(time, "time", lambda: real() + 300 + 200)
    assert not two.claim("you", 60, WRITER)
