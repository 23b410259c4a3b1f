"""Memories in a store: one writer at a time, versions that one of two advances; metadata and amendments beside them."""

import io
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mempiler import ConflictError, Session, Store, Turn, UserError, UserMemory, build
from mempiler.engines.lm import language_model
from mempiler.memory.edits import Amendment
from mempiler.memory.metadata import validate_filter
from mempiler.memory.store import database, queue_scan
from mempiler.memory.store import tables as t
from mempiler.memory.store.database import Database
from mempiler.memory.store.documents import Document, Stamp
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.records import MAX_LEASE, Claim
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.transfer import export_users, import_users
from sqlalchemy import update

from .conftest import ADA, WRITER, session

BOB = Owner("bob", "acme")
DAY = 86_400.0


def fill(store: Store, owner: Owner = ADA, count: int = 2) -> None:
    for n in range(count):
        store.items.add(owner, session(f"text {n}", id=f"s{n}"))


def document(position: int, finalized: int | None = None, stamp: Stamp = WRITER) -> Document:
    done = position if finalized is None else finalized
    return Document('{"upto": %d}' % position, position, None, done, ("Ada",), stamp)  # noqa: UP031


def claim_of(
    store: Store, owner: Owner | None = None, worker: str = "me", stamp: Stamp = WRITER
) -> Claim:
    (claim,) = store.queue.claim(worker, 60, stamp, owner)
    return claim


def commit(store: Store, claim: Claim, memory: Document, lease: float) -> Claim | None:
    """Commit a memory of all items up to its position."""
    item_positions = range(1, memory.position + 1)
    return store.queue.commit(claim, memory, lease, item_positions=item_positions)


def states(store: Store, owner: Owner = ADA) -> list[str]:
    return [stored.state for stored in store.items.list_all(owner)]


def test_committed_items_are_remembered_and_the_document_comes_back(store: Store) -> None:
    fill(store)
    claim = commit(store, claim_of(store), document(1), 60)
    assert claim is not None
    found = store.read(ADA)
    assert states(store) == ["remembered", "queued"]
    assert found.document == document(1)
    assert found.version == claim.version
    assert [stored.item.id for stored in found.pending_items] == ["s1"]


def test_one_user_has_one_writer_until_the_lease_ends(open_store: Callable[..., Store]) -> None:
    one, two = open_store(), open_store()
    fill(one)
    assert claim_of(one).owner == ADA
    assert not two.queue.claim("you", 60, WRITER)
    one.queue.release(Claim(ADA, "me", ""))
    assert two.queue.claim("you", -1, WRITER)
    assert one.queue.claim("me", 60, WRITER)


def test_several_users_are_claimed_at_once_those_that_wait_longest(
    open_store: Callable[..., Store],
) -> None:
    one, two = open_store(), open_store()
    owners = [Owner(f"user {n}") for n in range(5)]
    for owner in owners:
        fill(one, owner, 1)
    first = claim_of(one)
    one.queue.release(first)  # the last in the row again
    early, rest = (
        two.queue.claim("early", 60, WRITER, limit=4),
        one.queue.claim("rest", 60, WRITER, limit=4),
    )
    assert {claim.owner for claim in early} == {*owners} - {first.owner}
    assert [claim.owner for claim in rest] == [first.owner]
    for claim in (*early, *rest):
        assert commit(one, claim, document(1), 60) is not None
    assert not one.queue.claim("late", -1, WRITER, limit=4)


def test_one_of_two_writers_of_the_same_version_wins(open_store: Callable[..., Store]) -> None:
    one, two = open_store(), open_store()
    fill(one)
    slow = claim_of(one, worker="slow")
    one.queue.release(slow)
    fast = claim_of(two, worker="fast")
    assert commit(two, fast, document(2), 60) is not None
    assert commit(one, slow, document(1), 60) is None
    assert one.read(ADA).document == document(2)
    assert states(one) == ["remembered", "remembered"]


@pytest.mark.parametrize("change", ["forget user", "reset", "forget session", "replace"])
def test_writing_what_was_forgotten_meanwhile_stores_nothing(store: Store, change: str) -> None:
    fill(store)
    claim = claim_of(store)
    changes: dict[str, Callable[[], object]] = {
        "forget user": lambda: store.forgetting.forget_user(ADA),
        "reset": lambda: store.memories.reset(ADA),
        "forget session": lambda: store.forgetting.forget_session(ADA, "s0"),
        "replace": lambda: store.items.replace(ADA, session("another", id="s0")),
    }
    changes[change]()
    if change != "replace":
        fill(store)
    assert commit(store, claim, document(2), 60) is None
    store.queue.fail(claim, 1, "too late", is_given_up=True)
    assert store.read(ADA).document is None
    assert set(states(store)) == {"queued"}


def test_unsettled_memory_is_still_to_be_done(store: Store) -> None:
    fill(store)
    assert commit(store, claim_of(store), document(2, finalized=1), 0)
    assert [stored.item.id for stored in store.read(ADA).pending_items] == ["s1"]
    assert commit(store, claim_of(store), document(2), 0)
    assert not store.queue.claim("me", 60, WRITER)


def test_memory_of_another_program_is_passed_over(store: Store) -> None:
    fill(store)
    assert commit(store, claim_of(store), document(1), 0)
    for other in (Stamp("x", "p", "e"), Stamp("w", "p", "other"), Stamp("w", "p", "e", 99)):
        assert not store.queue.claim("you", 60, other)
    assert store.queue.claim("you", 60, Stamp("w", "another reading prompt", "e"))


def test_forgetting_a_remembered_session_queues_the_others(store: Store) -> None:
    fill(store, count=3)
    assert commit(store, claim_of(store), document(2), 60) is not None
    assert store.forgetting.forget_session(ADA, "s0")
    assert not store.forgetting.forget_session(ADA, "s0")
    assert store.read(ADA).document is None
    assert states(store) == ["queued", "queued"]


def test_failed_item_stays_beside_the_memory(store: Store) -> None:
    fill(store)
    claim = claim_of(store)
    store.queue.fail(claim, 1, "LM refused", is_given_up=True)
    assert store.queue.commit(claim, document(2), 60, item_positions=[2]) is not None
    assert states(store) == ["failed", "remembered"]
    assert [(stored.item.id, stored.error) for stored in store.read(ADA).pending_items] == [
        ("s0", "LM refused")
    ]
    assert [(found.sessions, found.queued, found.failed) for found in store.users.list_all()] == [
        (2, 0, 1)
    ]


def test_export_and_import_give_the_same_store(store: Store, tmp_path: Path) -> None:
    fill(store)
    fill(store, BOB, 3)
    assert commit(store, claim_of(store, BOB), document(2), 60) is not None
    store.open_sessions.append(BOB, "chat", [Turn(id="", speaker="Bob", text="hello")])
    file = io.StringIO()
    assert export_users(store, file) == 2
    with Store(tmp_path / "other.sqlite") as other:
        assert import_users(other, file.getvalue().splitlines(), "file") == 2
        assert [other.transfer.dump(owner) for owner in (ADA, BOB)] == [
            store.transfer.dump(owner) for owner in (ADA, BOB)
        ]
        assert not other.items.add(
            ADA, store.items.list_all(ADA)[0].item, store.items.list_all(ADA)[0].digest
        ).new
        with pytest.raises(ConflictError, match="--replace"):
            import_users(other, file.getvalue().splitlines(), "file")
        assert import_users(other, file.getvalue().splitlines(), "file", replace_existing=True) == 2


EXPORTED = Path(__file__).with_name("exported.jsonl")
"""Two users as this version writes them, with all that a store holds of a user."""


def test_a_file_of_memories_comes_out_as_it_went_in(store: Store) -> None:
    exported = EXPORTED.read_text(encoding="utf-8")
    assert import_users(store, exported.splitlines(), "file") == 2

    file = io.StringIO()
    export_users(store, file)
    assert file.getvalue() == exported


def test_tenants_take_turns_however_much_one_has_queued(store: Store) -> None:
    for n in range(6):
        fill(store, Owner(f"user {n}", "large"), 1)
    for n in range(2):
        fill(store, Owner(f"user {n}", "small"), 1)
    found = store.queue.claim("me", 60, WRITER, limit=4)
    assert sorted(claim.owner.tenant for claim in found) == ["large", "large", "small", "small"]
    assert not store.queue.claim("you", 60, WRITER, limit=8, limit_per_tenant=2)
    fill(store, Owner("another", "small"), 1)
    assert [
        claim.owner.tenant for claim in store.queue.claim("you", 60, WRITER, limit_per_tenant=3)
    ] == ["large"]
    assert [
        claim.owner.tenant for claim in store.queue.claim("you", 60, WRITER, limit_per_tenant=3)
    ] == ["small"]


def test_a_long_queue_is_looked_at_in_parts_until_somebody_of_each_tenant_is_found(
    store: Store, monkeypatch
) -> None:
    monkeypatch.setattr("mempiler.memory.store.queue_scan.PART_SIZE", 4)
    for n in range(10):
        fill(store, Owner(f"user {n}", "large"), 1)
        store.queue.pause(Owner(f"user {n}", "large"), 60 if n < 7 else 0)
    fill(store, Owner("user 3", "small"), 1)
    claimed = [
        one.owner
        for n in range(4)
        for one in store.queue.claim(f"{n}", 60, WRITER, limit_per_tenant=8)
    ]
    assert sorted(claimed) == [
        Owner("user 3", "small"),
        *(Owner(f"user {n}", "large") for n in (7, 8, 9)),
    ]
    assert not store.queue.claim("me too", 60, WRITER, limit=8)


def test_a_user_with_two_things_to_do_is_claimed_once(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is in the list of memories to finalize and in the queue, which are two statements."""
    monkeypatch.setattr(database, "BATCH_SIZE", 1)
    monkeypatch.setattr(queue_scan, "PART_SIZE", 4)
    for position in (1, 2):
        store.items.add(ADA, session("text", id=f"s{position}"))
    (claim,) = store.queue.claim("worker", 60, WRITER)
    store.queue.commit(claim, document(1, finalized=0), lease=0, item_positions=[1])

    claims = store.queue.claim("worker", 60, WRITER, limit=8)
    assert [claim.owner for claim in claims] == [ADA]


def test_a_paused_user_is_claimed_by_name_alone(store: Store) -> None:
    fill(store)
    fill(store, BOB)
    store.queue.pause(ADA, 60)
    assert [claim.owner for claim in store.queue.claim("me", 60, WRITER, limit=2)] == [BOB]
    assert claim_of(store, ADA, "you").owner == ADA


@pytest.mark.parametrize(
    ("wrong", "free"), [(DAY, True), (-DAY, True), (MAX_LEASE / 2, False), (0.0, False)]
)
def test_a_claim_that_a_jumping_clock_dated_counts_for_nothing(
    store: Store, database: Database, wrong: float, free: bool
) -> None:
    fill(store)
    assert store.queue.claim("me", 10 * MAX_LEASE if wrong == 0 else 60, WRITER)
    with database.write_transaction() as transaction:
        transaction.connection.execute(
            update(t.users).values(claimed_until=t.users.c.claimed_until + wrong)
        )
    assert bool(store.queue.claim("you", 60, WRITER)) == free


@pytest.mark.parametrize(("wrong", "idle"), [(DAY, True), (-DAY, True), (30.0, False)])
def test_an_open_session_whose_turns_are_dated_wrongly_ends(
    store: Store, database: Database, wrong: float, idle: bool
) -> None:
    store.open_sessions.append(ADA, "chat", [Turn(id="", speaker="Ada", text="hello")])
    with database.write_transaction() as transaction:
        transaction.connection.execute(
            update(t.open_turns).values(added=t.open_turns.c.added + wrong)
        )
    assert bool(store.open_sessions.idle(1800)) == idle


def test_adding_waits_for_another_worker_no_longer_than_the_lease(store: Store) -> None:
    memories = Memories(build("turn-rag"), store, language_model("offline"))
    fill(store, count=1)
    assert store.queue.claim("busy", 500, memories.writer_fingerprint)
    begun = time.monotonic()
    memory = UserMemory(memories, ADA, lease=0.2)
    memory.add([{"role": "user", "content": "I like tea."}])
    assert 0.2 <= time.monotonic() - begun < 20
    assert states(store) == ["queued", "queued"]


@pytest.mark.slow
def test_clocks_of_workers_do_not_matter_to_postgresql(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, url = time.time, postgres.emptied()
    with Store(url) as one, Store(url) as two:
        fill(one)
        for ahead, owner, free in ((300, one, True), (500, two, False)):
            monkeypatch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
            assert bool(owner.queue.claim(f"{ahead}", 60, WRITER)) == free


OTHER = Owner("ada", "other")
ROW = Amendment(
    1,
    "update",
    "D1:1",
    "turn",
    "Ada: tea",
    ("D1:1",),
    "Ada: rum",
    datetime(2025, 1, 2, 3, 4, 5),
    "Ada",
)


def of_two(id: str) -> Session:
    return Session(
        id=id, turns=tuple(Turn(id=f"{id}:{n}", speaker="Ada", text="tea") for n in (1, 2))
    )


def chosen(store: Any, owner: Owner, **where: Any) -> set[str]:
    return set(store.metadata.turns_where(owner, validate_filter(where)))


def test_sessions_are_found_by_their_metadata_and_no_other_users(store: Any) -> None:
    for id, n in (("a", 1), ("b", 2)):
        store.items.add(ADA, of_two(id), metadata={"n": n, "name": "Zoë ' \" \\ %"})
    store.items.add(ADA, of_two("c"))
    store.items.add(OTHER, of_two("d"), metadata={"n": 1})
    assert chosen(store, ADA, n=1) == {"a:1", "a:2"}
    assert chosen(store, ADA, n={"gt": 0}, name="Zoë ' \" \\ %") == {"a:1", "a:2", "b:1", "b:2"}
    assert chosen(store, OTHER, n=1) == {"d:1", "d:2"}
    assert store.metadata.sessions_of_turns(ADA, ["a:1", "c:2", "d:1"]) == {
        "a:1": ("a", {"n": 1, "name": "Zoë ' \" \\ %"}),
        "c:2": ("c", {}),
    }


def test_metadata_are_stored_with_their_session_or_not_at_all(store: Any) -> None:
    assert [store.items.add(ADA, of_two("a"), metadata={"n": 1}).new for _ in range(2)] == [
        True,
        False,
    ]
    for other in ({"n": 2}, None):
        with pytest.raises(ConflictError):
            store.items.add(ADA, of_two("a"), metadata=other)
    with pytest.raises(UserError):
        store.items.add(ADA, of_two("b"), metadata={"n": [1]})
    assert [stored.item.id for stored in store.items.list_all(ADA)] == ["a"]
    store.forgetting.forget_session(ADA, "a")
    store.items.add(ADA, of_two("a"))
    assert chosen(store, ADA, n=1) == set()


def test_an_open_session_has_what_was_said_of_it_last_and_takes_it_along_when_it_ends(
    store: Any,
) -> None:
    for id, said in (
        ("a", {"n": 1, "channel": "phone"}),
        ("a", {"n": 2}),
        ("a", {}),
        ("b", {"n": 1}),
    ):
        store.open_sessions.append(ADA, id, [Turn(id="", speaker="Ada", text="tea")], metadata=said)
    for _ in range(2):
        assert chosen(store, ADA, n=2, channel="phone") == {"a:1", "a:2", "a:3"}
        assert chosen(store, ADA, n=1) == {"b:1"}
        assert store.metadata.sessions_of_turns(ADA, ["a:3"])["a:3"] == (
            "a",
            {"n": 2, "channel": "phone"},
        )
        store.open_sessions.end(ADA, "a")
    assert store.transfer.dump(ADA).metadata == {1: {"n": 2, "channel": "phone"}}
    assert store.transfer.dump(ADA).open_metadata == {"b": {"n": 1}}


def test_amendments_are_numbered_one_after_the_other_for_each_user(store: Any) -> None:
    for owner in (ADA, OTHER):
        store.items.add(owner, of_two("D1"))
    assert [store.amendments.append(ADA, row) for row in (ROW, ROW, replace(ROW, number=3))] == [
        True,
        False,
        False,
    ]
    assert store.read(ADA).last_amendment == 1
    assert store.read(OTHER).last_amendment == 0
    assert store.amendments.list_all(ADA) == [ROW]
    assert [store.amendments.append(owner, ROW) for owner in (OTHER, Owner("nobody"))] == [
        True,
        False,
    ]


def test_amendments_go_with_what_they_rest_on_and_do_not_come_back(store: Any) -> None:
    for id in ("D1", "D2"):
        store.items.add(ADA, of_two(id))
    since = store.forgetting.count()
    assert store.amendments.append(ADA, ROW)
    assert store.amendments.append(ADA, replace(ROW, number=2, entry="D2:1", sources=("D2:1",)))
    store.forgetting.forget_session(ADA, "D1")
    assert [row.number for row in store.amendments.list_all(ADA)] == [2]
    store.forgetting.forget_user(ADA)
    store.items.add(ADA, of_two("D1"))
    with pytest.raises(ConflictError, match="forgotten"):
        store.amendments.append(ADA, ROW, since)
    assert store.amendments.list_all(ADA) == []
