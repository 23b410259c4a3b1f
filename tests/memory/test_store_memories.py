"""Memories in a store: one writer at a time, and of two writers of a version one wins.

Sessions of a user are queued. A worker claims the user, which keeps other workers away for some
seconds (the lease), writes the memory of the sessions, and commits it. The position of a memory is
that of the last session in it. A stamp names what wrote a memory; a program with another stamp does
not go on with it. A tenant is a customer of a service, who has users.

Also: metadata of sessions, and amendments of entries (changes that a user makes to them).
"""

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
from mempiler.memory.store import database as database_module
from mempiler.memory.store import tables
from mempiler.memory.store.database import Database
from mempiler.memory.store.documents import Document, Stamp
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.queue_scan import PART_SIZE
from mempiler.memory.store.records import MAX_LEASE, Claim
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.transfer import export_users, import_users
from sqlalchemy import update

from .conftest import ADA, WRITER, session

BOB = Owner("bob", "acme")
DAY = 86_400.0
MINUTE = 60.0


def add_sessions(store: Store, owner: Owner = ADA, count: int = 2) -> None:
    """Add the sessions "s0", "s1" ... of a user."""
    for number in range(count):
        store.items.add(owner, session(f"text {number}", id=f"s{number}"))


def memory_of_items_up_to(position: int, finalized_position: int | None = None) -> Document:
    """Return a memory of the items from 1 to a position.

    Its finalized form, from which questions are answered, may be behind: `finalized_position`.
    """
    if finalized_position is None:
        finalized_position = position
    return Document(
        memory=f'{{"upto": {position}}}',
        position=position,
        finalized=None,
        finalized_position=finalized_position,
        speakers=("Ada",),
        stamp=WRITER,
    )


def claim_user(store: Store, owner: Owner | None = None, worker: str = "me") -> Claim:
    """Claim a user for a minute: the given one, or the only one who can be claimed."""
    (claim,) = store.queue.claim(worker, lease=MINUTE, stamp=WRITER, owner=owner)
    return claim


def commit(store: Store, claim: Claim, memory: Document, lease: float = MINUTE) -> Claim | None:
    """Commit a memory, which marks all items up to its position as remembered.

    The claim goes on for `lease` seconds. Returns None if the claim is void.
    """
    item_positions = range(1, memory.position + 1)
    return store.queue.commit(claim, memory, lease, item_positions=item_positions)


def commit_and_release(store: Store, claim: Claim, memory: Document) -> None:
    """Commit a memory, after which other workers may claim its user."""
    assert commit(store, claim, memory, lease=0) is not None


def can_be_claimed(store: Store, worker: str = "another worker", stamp: Stamp = WRITER) -> bool:
    """Let a worker claim a user, whoever it is; return whether there was one to be claimed."""
    return store.queue.claim(worker, lease=MINUTE, stamp=stamp) != []


def states(store: Store, owner: Owner = ADA) -> list[str]:
    """Return the states of a user's sessions, in their order."""
    return [stored.state for stored in store.items.list_all(owner)]


# Writers.


def test_committed_items_are_remembered_and_later_ones_stay_queued(store: Store) -> None:
    """Sessions "s0" and "s1" have the positions 1 and 2. The committed memory holds the first."""
    add_sessions(store, count=2)
    memory = memory_of_items_up_to(position=1)

    claim = commit(store, claim_user(store), memory)

    assert claim is not None
    assert states(store) == ["remembered", "queued"]
    snapshot = store.read(ADA)
    assert snapshot.document == memory
    assert snapshot.version == claim.version
    assert [stored.item.id for stored in snapshot.pending_items] == ["s1"]


def test_a_user_has_one_writer_at_a_time(open_store: Callable[..., Store]) -> None:
    first_process = open_store()
    second_process = open_store()
    add_sessions(first_process)

    claim_user(first_process)

    assert not can_be_claimed(second_process)


def test_a_user_who_is_released_can_be_claimed_by_another_worker(
    open_store: Callable[..., Store],
) -> None:
    first_process = open_store()
    second_process = open_store()
    add_sessions(first_process)
    claim = claim_user(first_process)

    first_process.queue.release(claim)

    assert can_be_claimed(second_process)


def test_a_user_can_be_claimed_by_another_worker_when_the_lease_has_ended(
    open_store: Callable[..., Store],
) -> None:
    first_process = open_store()
    second_process = open_store()
    add_sessions(first_process)

    # This lease has ended before it begins.
    assert first_process.queue.claim("me", lease=-1, stamp=WRITER)

    assert can_be_claimed(second_process)


def test_the_users_who_have_waited_longest_are_claimed_first(
    open_store: Callable[..., Store],
) -> None:
    first_process = open_store()
    second_process = open_store()
    ann, bob, cy = (Owner("ann"), Owner("bob"), Owner("cy"))
    for owner in (ann, bob, cy):
        add_sessions(first_process, owner, count=1)
    # Once he is released, Bob has waited for the shortest time.
    claim_of_bob = claim_user(first_process, bob)
    first_process.queue.release(claim_of_bob)

    early_claims = second_process.queue.claim("early", lease=MINUTE, stamp=WRITER, limit=2)
    late_claims = first_process.queue.claim("late", lease=MINUTE, stamp=WRITER, limit=2)

    assert {claim.owner for claim in early_claims} == {ann, cy}
    assert [claim.owner for claim in late_claims] == [bob]


def test_a_worker_that_claims_several_users_can_commit_a_memory_for_each(store: Store) -> None:
    add_sessions(store, Owner("ann"), count=1)
    add_sessions(store, Owner("bob"), count=1)
    first_claim, second_claim = store.queue.claim("me", lease=MINUTE, stamp=WRITER, limit=2)

    commit_and_release(store, first_claim, memory_of_items_up_to(position=1))
    commit_and_release(store, second_claim, memory_of_items_up_to(position=1))

    # Both memories are up to date, so nobody waits any more.
    assert not can_be_claimed(store)


def test_one_of_two_writers_of_the_same_version_wins(open_store: Callable[..., Store]) -> None:
    """The slow one has lost its claim meanwhile, and must not overwrite what the fast one wrote."""
    slow_process = open_store()
    fast_process = open_store()
    add_sessions(slow_process, count=2)
    slow_claim = claim_user(slow_process, worker="slow")
    slow_process.queue.release(slow_claim)
    fast_claim = claim_user(fast_process, worker="fast")

    fast_result = commit(fast_process, fast_claim, memory_of_items_up_to(position=2))
    slow_result = commit(slow_process, slow_claim, memory_of_items_up_to(position=1))

    assert fast_result is not None
    assert slow_result is None
    assert slow_process.read(ADA).document == memory_of_items_up_to(position=2)
    assert states(slow_process) == ["remembered", "remembered"]


# Each of these changes what was said while a worker holds a claim; then Ada has sessions again.


def forget_user(store: Store) -> None:
    store.forgetting.forget_user(ADA)
    add_sessions(store)


def reset_memory(store: Store) -> None:
    store.memories.reset(ADA)
    add_sessions(store)


def forget_session(store: Store) -> None:
    store.forgetting.forget_session(ADA, "s0")
    add_sessions(store)


def replace_session(store: Store) -> None:
    store.items.replace(ADA, session("another", id="s0"))


@pytest.mark.parametrize("change", [forget_user, reset_memory, forget_session, replace_session])
def test_a_memory_of_what_was_forgotten_meanwhile_is_not_stored(
    store: Store, change: Callable[[Store], None]
) -> None:
    """A worker began before the change, so its memory holds what was forgotten or replaced."""
    add_sessions(store)
    claim = claim_user(store)

    change(store)

    assert commit(store, claim, memory_of_items_up_to(position=2)) is None
    assert store.read(ADA).document is None
    assert set(states(store)) == {"queued"}


@pytest.mark.parametrize("change", [forget_user, reset_memory, forget_session, replace_session])
def test_a_failure_to_write_what_was_forgotten_meanwhile_is_not_recorded(
    store: Store, change: Callable[[Store], None]
) -> None:
    """The session that now has the position 1 is another one than that which failed."""
    add_sessions(store)
    claim = claim_user(store)

    change(store)
    store.queue.fail(claim, position=1, error="too late", is_given_up=True)

    assert set(states(store)) == {"queued"}


def test_a_user_whose_memory_is_not_finalized_is_claimed_until_it_is(store: Store) -> None:
    """Questions are answered from the finalized form, so a worker has to bring it up to date."""
    add_sessions(store, count=2)

    # The second session is in the memory, and not yet in its finalized form.
    commit_and_release(
        store, claim_user(store), memory_of_items_up_to(position=2, finalized_position=1)
    )
    assert [stored.item.id for stored in store.read(ADA).pending_items] == ["s1"]

    commit_and_release(store, claim_user(store), memory_of_items_up_to(position=2))
    assert not can_be_claimed(store)


@pytest.mark.parametrize(
    "other_writer",
    [
        pytest.param(replace(WRITER, writer="other"), id="other writer"),
        pytest.param(replace(WRITER, embedder="other"), id="other embedder"),
        pytest.param(replace(WRITER, schema=99), id="other version"),
    ],
)
def test_a_program_does_not_claim_a_user_whose_memory_another_program_wrote(
    store: Store, other_writer: Stamp
) -> None:
    add_sessions(store)
    commit_and_release(store, claim_user(store), memory_of_items_up_to(position=1))

    assert not can_be_claimed(store, stamp=other_writer)


def test_a_program_that_only_reads_in_another_way_goes_on_with_a_memory(store: Store) -> None:
    add_sessions(store)
    commit_and_release(store, claim_user(store), memory_of_items_up_to(position=1))

    other_reader = replace(WRITER, program="with another reading prompt")
    assert can_be_claimed(store, stamp=other_reader)


def test_forgetting_a_remembered_session_queues_the_others(store: Store) -> None:
    """The memory holds the forgotten session, so it is deleted and written anew."""
    add_sessions(store, count=3)
    assert commit(store, claim_user(store), memory_of_items_up_to(position=2)) is not None

    assert store.forgetting.forget_session(ADA, "s0")
    assert not store.forgetting.forget_session(ADA, "s0")

    assert store.read(ADA).document is None
    assert states(store) == ["queued", "queued"]


def test_an_item_that_failed_stays_pending_while_later_ones_are_remembered(store: Store) -> None:
    add_sessions(store, count=2)
    claim = claim_user(store)
    store.queue.fail(claim, position=1, error="LM refused", is_given_up=True)

    # The memory of item 2 is committed without item 1.
    memory = memory_of_items_up_to(position=2)
    assert store.queue.commit(claim, memory, lease=MINUTE, item_positions=[2]) is not None

    assert states(store) == ["failed", "remembered"]
    (pending_item,) = store.read(ADA).pending_items
    assert pending_item.item.id == "s0"
    assert pending_item.error == "LM refused"


def test_the_list_of_users_counts_failed_sessions(store: Store) -> None:
    add_sessions(store, ADA, count=3)
    claim = claim_user(store)
    store.queue.fail(claim, position=1, error="LM refused", is_given_up=True)

    (user,) = store.users.list_all()

    assert user.sessions == 3
    assert user.queued == 2
    assert user.failed == 1


# Whom a worker claims.


def test_users_of_all_tenants_are_claimed_though_one_tenant_has_more(store: Store) -> None:
    """Six users of one tenant wait, and two of the other. Of four claims each tenant gets two."""
    for number in range(6):
        add_sessions(store, Owner(f"user {number}", "large"), count=1)
    for number in range(2):
        add_sessions(store, Owner(f"user {number}", "small"), count=1)

    claims = store.queue.claim("me", lease=MINUTE, stamp=WRITER, limit=4)

    tenants = [claim.owner.tenant for claim in claims]
    assert sorted(tenants) == ["large", "large", "small", "small"]


def test_a_tenant_has_no_more_writers_than_its_limit(store: Store) -> None:
    for number in range(6):
        add_sessions(store, Owner(f"user {number}", "acme"), count=1)
    # Two of the six users are claimed, and four wait.
    assert len(store.queue.claim("me", lease=MINUTE, stamp=WRITER, limit=2)) == 2

    claims_with_limit_2 = store.queue.claim(
        "you", lease=MINUTE, stamp=WRITER, limit=8, limit_per_tenant=2
    )
    claims_with_limit_3 = store.queue.claim(
        "you", lease=MINUTE, stamp=WRITER, limit=8, limit_per_tenant=3
    )

    assert len(claims_with_limit_2) == 0
    assert len(claims_with_limit_3) == 1


def test_a_tenant_at_its_limit_holds_up_no_other_tenant(store: Store) -> None:
    add_sessions(store, Owner("ann", "large"), count=1)
    add_sessions(store, Owner("bob", "large"), count=1)
    add_sessions(store, Owner("zoe", "small"), count=1)

    (first,) = store.queue.claim("me", lease=MINUTE, stamp=WRITER, limit_per_tenant=1)
    (second,) = store.queue.claim("me", lease=MINUTE, stamp=WRITER, limit_per_tenant=1)

    assert {first.owner.tenant, second.owner.tenant} == {"large", "small"}


def test_a_user_behind_many_who_cannot_be_claimed_is_found(store: Store) -> None:
    """Workers look at the queue of a tenant in parts of `PART_SIZE` users, ordered by name.

    All users of the first two parts are paused. Behind them waits Zoe.
    """
    zoe = Owner("zoe", "large")
    ada = Owner("ada", "small")
    for number in range(2 * PART_SIZE):
        paused_user = Owner(f"paused user {number:03}", "large")
        add_sessions(store, paused_user, count=1)
        store.queue.pause(paused_user, seconds=60)
    add_sessions(store, zoe, count=1)
    add_sessions(store, ada, count=1)

    first_claim = claim_user(store, worker="first")
    second_claim = claim_user(store, worker="second")

    assert {first_claim.owner, second_claim.owner} == {zoe, ada}
    assert not can_be_claimed(store)


def test_a_user_with_a_queued_session_and_a_memory_to_finalize_is_claimed_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ada waits twice: for her second session, and for the finalized form of her memory.

    With one user in a batch, the store finds her in two batches.
    """
    monkeypatch.setattr(database_module, "BATCH_SIZE", 1)
    add_sessions(store, ADA, count=2)
    claim = claim_user(store)
    memory = memory_of_items_up_to(position=1, finalized_position=0)
    store.queue.commit(claim, memory, lease=0, item_positions=[1])

    claims = store.queue.claim("worker", lease=MINUTE, stamp=WRITER, limit=8)

    assert [claim.owner for claim in claims] == [ADA]


def test_a_paused_user_is_claimed_only_by_name(store: Store) -> None:
    """After a failure workers leave a user alone for a while, but a direct call does not wait."""
    add_sessions(store, ADA)
    add_sessions(store, BOB)
    store.queue.pause(ADA, seconds=60)

    claims = store.queue.claim("me", lease=MINUTE, stamp=WRITER, limit=2)

    assert [claim.owner for claim in claims] == [BOB]
    assert claim_user(store, ADA, "you").owner == ADA


# Clocks.


def shift_claims(database: Database, seconds: float) -> None:
    """Date all claims later, as a clock that is wrong by some seconds would have done."""
    later = tables.users.c.claimed_until + seconds
    with database.write_transaction() as transaction:
        transaction.connection.execute(update(tables.users).values(claimed_until=later))


@pytest.mark.parametrize("error_of_clock", [DAY, -DAY])
def test_a_claim_that_a_wrong_clock_dated_counts_for_nothing(
    store: Store, database: Database, error_of_clock: float
) -> None:
    """The claim ends a day from now, or ended a day ago. No lease can be that long."""
    add_sessions(store)
    claim_user(store)
    shift_claims(database, error_of_clock)

    assert can_be_claimed(store)


def test_a_lease_that_is_too_long_is_cut_to_the_longest_one(store: Store) -> None:
    """A longer claim would count for nothing, as if a wrong clock had dated it."""
    add_sessions(store)
    assert store.queue.claim("me", lease=10 * MAX_LEASE, stamp=WRITER)

    assert not can_be_claimed(store)


def is_idle_with_turns_dated(store: Store, database: Database, seconds_from_now: float) -> bool:
    """Date the turns of an open session; return whether it is idle, so that it should be ended."""
    store.open_sessions.append(ADA, "chat", session("hello").turns)
    time_of_turns = tables.open_turns.c.added + seconds_from_now
    with database.write_transaction() as transaction:
        transaction.connection.execute(update(tables.open_turns).values(added=time_of_turns))

    half_an_hour = 1800
    return bool(store.open_sessions.idle(half_an_hour))


def test_an_open_session_whose_last_turn_was_yesterday_is_idle(
    store: Store, database: Database
) -> None:
    assert is_idle_with_turns_dated(store, database, seconds_from_now=-DAY)


def test_an_open_session_whose_turns_a_wrong_clock_dated_tomorrow_is_idle(
    store: Store, database: Database
) -> None:
    """A session is ended when it is idle. By the age of its turns this one never would be."""
    assert is_idle_with_turns_dated(store, database, seconds_from_now=DAY)


def test_an_open_session_of_a_clock_that_is_half_a_minute_ahead_is_not_idle(
    store: Store, database: Database
) -> None:
    assert not is_idle_with_turns_dated(store, database, seconds_from_now=30)


def test_adding_waits_for_another_worker_no_longer_than_the_lease(store: Store) -> None:
    """Another worker is busy with the user. The new session stays queued for the next one."""
    memories = Memories(build("turn-rag"), store, language_model("offline"))
    add_sessions(store, count=1)
    assert store.queue.claim("busy", lease=500, stamp=memories.writer_fingerprint)
    memory = UserMemory(memories, ADA, lease=0.2)

    started = time.monotonic()
    memory.add([{"role": "user", "content": "I like tea."}])

    assert 0.2 <= time.monotonic() - started < 20
    assert states(store) == ["queued", "queued"]


@pytest.mark.slow
def test_clocks_of_workers_do_not_matter_to_postgresql(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims are dated by the clock of the server, so a worker whose clock is ahead takes none."""
    true_time = time.time

    def set_clock_ahead(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: true_time() + seconds)

    url = postgres.emptied()
    with Store(url) as first_process, Store(url) as second_process:
        add_sessions(first_process)
        set_clock_ahead(300)
        assert first_process.queue.claim("first", lease=MINUTE, stamp=WRITER)

        # By this clock the first claim has ended.
        set_clock_ahead(500)
        assert not second_process.queue.claim("second", lease=MINUTE, stamp=WRITER)


# Export and import.


def exported_lines(store: Store) -> list[str]:
    """Return the lines of a file with all users of a store."""
    file = io.StringIO()
    export_users(store, file)
    return file.getvalue().splitlines()


@pytest.fixture
def store_of_ada_and_bob(store: Store) -> Store:
    """A store with sessions of Ada, and with sessions, a memory and an open session of Bob."""
    add_sessions(store, ADA)
    add_sessions(store, BOB, count=3)
    assert commit(store, claim_user(store, BOB), memory_of_items_up_to(position=2)) is not None
    hello = Turn(id="", speaker="Bob", text="hello")
    store.open_sessions.append(BOB, "chat", [hello])
    return store


def test_an_imported_session_is_not_new(store_of_ada_and_bob: Store, tmp_path: Path) -> None:
    stored = store_of_ada_and_bob.items.list_all(ADA)[0]
    with Store(tmp_path / "other.sqlite") as other_store:
        import_users(other_store, exported_lines(store_of_ada_and_bob), "file")

        assert not other_store.items.add(ADA, stored.item, stored.digest).new


def test_a_file_of_memories_comes_out_as_it_went_in(store: Store) -> None:
    """The file has two users, with all that a store can hold of a user."""
    path = Path(__file__).with_name("exported.jsonl")
    exported = path.read_text(encoding="utf-8")
    assert import_users(store, exported.splitlines(), "file") == 2

    file = io.StringIO()
    export_users(store, file)

    assert file.getvalue() == exported


# Metadata.

NAMESAKE = Owner("ada", "other")
"""A user of another tenant with the same name."""


def session_of_two_turns(session_id: str) -> Session:
    """Return a session whose turns have the ids `<session_id>:1` and `<session_id>:2`."""
    turns = [Turn(id=f"{session_id}:{number}", speaker="Ada", text="tea") for number in (1, 2)]
    return Session(id=session_id, turns=tuple(turns))


def turns_where(store: Store, owner: Owner, **conditions: Any) -> set[str]:
    """Return the ids of a user's turns in sessions whose metadata meet all conditions."""
    return set(store.metadata.turns_where(owner, validate_filter(conditions)))


def test_metadata_find_the_turns_of_their_sessions_and_of_no_other_user(store: Store) -> None:
    store.items.add(ADA, session_of_two_turns("a"), metadata={"year": 2024})
    store.items.add(ADA, session_of_two_turns("b"), metadata={"year": 2025})
    store.items.add(ADA, session_of_two_turns("c"))
    store.items.add(NAMESAKE, session_of_two_turns("d"), metadata={"year": 2024})

    assert turns_where(store, ADA, year=2024) == {"a:1", "a:2"}
    assert turns_where(store, ADA, year={"gt": 2000}) == {"a:1", "a:2", "b:1", "b:2"}
    assert turns_where(store, NAMESAKE, year=2024) == {"d:1", "d:2"}


def test_metadata_may_have_characters_that_mean_something_in_sql_and_json(store: Store) -> None:
    name = "Zoë ' \" \\ %"
    store.items.add(ADA, session_of_two_turns("a"), metadata={"name": name})
    store.items.add(ADA, session_of_two_turns("b"), metadata={"name": "Zoe"})

    assert turns_where(store, ADA, name=name) == {"a:1", "a:2"}


def test_the_sessions_of_turns_come_with_their_metadata(store: Store) -> None:
    store.items.add(ADA, session_of_two_turns("a"), metadata={"year": 2024})
    store.items.add(ADA, session_of_two_turns("b"))

    sessions = store.metadata.sessions_of_turns(ADA, ["a:1", "b:2"])

    assert sessions == {"a:1": ("a", {"year": 2024}), "b:2": ("b", {})}


def test_the_sessions_of_turns_of_another_user_are_not_found(store: Store) -> None:
    store.items.add(ADA, session_of_two_turns("a"))
    store.items.add(NAMESAKE, session_of_two_turns("d"))

    assert store.metadata.sessions_of_turns(ADA, ["d:1"]) == {}


def test_a_session_is_the_same_only_if_its_metadata_are_the_same(store: Store) -> None:
    """A session that is added once more is stored once. With other metadata it is refused."""
    assert store.items.add(ADA, session_of_two_turns("a"), metadata={"n": 1}).new
    assert not store.items.add(ADA, session_of_two_turns("a"), metadata={"n": 1}).new

    with pytest.raises(ConflictError):
        store.items.add(ADA, session_of_two_turns("a"), metadata={"n": 2})
    with pytest.raises(ConflictError):
        store.items.add(ADA, session_of_two_turns("a"), metadata=None)


def test_a_session_whose_metadata_cannot_be_stored_is_not_stored(store: Store) -> None:
    with pytest.raises(UserError):
        store.items.add(ADA, session_of_two_turns("b"), metadata={"n": [1]})
    assert store.items.list_all(ADA) == []


def test_the_metadata_of_a_session_are_forgotten_with_it(store: Store) -> None:
    store.items.add(ADA, session_of_two_turns("a"), metadata={"n": 1})
    store.forgetting.forget_session(ADA, "a")

    store.items.add(ADA, session_of_two_turns("a"))

    assert turns_where(store, ADA, n=1) == set()


def test_an_open_session_has_the_latest_metadata_and_takes_them_along_when_it_ends(
    store: Store,
) -> None:
    """Metadata of a further turn are added to those of the session, and replace equal names."""
    turns = session("tea").turns
    store.open_sessions.append(ADA, "a", turns, metadata={"n": 1, "channel": "phone"})
    store.open_sessions.append(ADA, "a", turns, metadata={"n": 2})
    store.open_sessions.append(ADA, "a", turns, metadata={})

    metadata_before = store.metadata.sessions_of_turns(ADA, ["a:3"])
    store.open_sessions.end(ADA, "a")
    metadata_afterwards = store.metadata.sessions_of_turns(ADA, ["a:3"])

    assert metadata_before["a:3"] == ("a", {"n": 2, "channel": "phone"})
    assert metadata_afterwards["a:3"] == metadata_before["a:3"]


def test_metadata_find_the_turns_of_open_sessions_and_of_ended_ones(store: Store) -> None:
    turns = session("tea").turns
    store.open_sessions.append(ADA, "open", turns, metadata={"n": 1})
    store.open_sessions.append(ADA, "ended", turns, metadata={"n": 1})
    store.open_sessions.end(ADA, "ended")

    assert turns_where(store, ADA, n=1) == {"open:1", "ended:1"}


# Amendments.

AMENDMENT = Amendment(
    number=1,
    action="update",
    entry="D1:1",
    kind="turn",
    old_text="Ada: tea",
    sources=("D1:1",),
    new_text="Ada: rum",
    at=datetime(2025, 1, 2, 3, 4, 5),
    by="Ada",
)


def test_amendments_are_numbered_one_after_the_other(store: Store) -> None:
    """A process that gives a number which is not the next one has to look again."""
    store.items.add(ADA, session_of_two_turns("D1"))
    first = replace(AMENDMENT, number=1)
    third = replace(AMENDMENT, number=3)

    assert store.amendments.append(ADA, first) is True
    assert store.amendments.append(ADA, first) is False
    assert store.amendments.append(ADA, third) is False

    assert store.amendments.list_all(ADA) == [first]


def test_amendments_are_numbered_for_each_user(store: Store) -> None:
    store.items.add(ADA, session_of_two_turns("D1"))
    store.items.add(NAMESAKE, session_of_two_turns("D1"))
    assert store.amendments.append(ADA, replace(AMENDMENT, number=1)) is True
    assert store.read(ADA).last_amendment == 1
    assert store.read(NAMESAKE).last_amendment == 0

    assert store.amendments.append(NAMESAKE, replace(AMENDMENT, number=1)) is True


def test_an_amendment_of_a_user_of_whom_nothing_is_stored_is_not_stored(store: Store) -> None:
    assert store.amendments.append(Owner("nobody"), AMENDMENT) is False


def test_amendments_are_forgotten_with_the_session_of_their_entry(store: Store) -> None:
    store.items.add(ADA, session_of_two_turns("D1"))
    store.items.add(ADA, session_of_two_turns("D2"))
    amendment_of_d1 = replace(AMENDMENT, number=1, entry="D1:1", sources=("D1:1",))
    amendment_of_d2 = replace(AMENDMENT, number=2, entry="D2:1", sources=("D2:1",))
    assert store.amendments.append(ADA, amendment_of_d1)
    assert store.amendments.append(ADA, amendment_of_d2)

    store.forgetting.forget_session(ADA, "D1")

    assert store.amendments.list_all(ADA) == [amendment_of_d2]


def test_amendments_of_a_forgotten_user_do_not_come_back(store: Store) -> None:
    """The user is stored again since, but the amendment began before the forgetting."""
    store.items.add(ADA, session_of_two_turns("D1"))
    forget_count = store.forgetting.count()
    assert store.amendments.append(ADA, AMENDMENT)
    store.forgetting.forget_user(ADA)
    store.items.add(ADA, session_of_two_turns("D1"))

    with pytest.raises(ConflictError, match="forgotten"):
        store.amendments.append(ADA, AMENDMENT, forget_count)
    assert store.amendments.list_all(ADA) == []
