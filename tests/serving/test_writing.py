"""The background: writers of queued sessions, worker and breaker; the command; logs without what was said."""

import contextvars
import json
import logging
import sqlite3
import threading
from typing import Any

import pytest
from dspy.utils.exceptions import LMInvalidRequestError, LMServerError
from mempiler import (
    EndpointError,
    EntryReader,
    Item,
    MemoryProgram,
    Method,
    Store,
    Update,
    UserMemory,
    Writer,
    build,
)
from mempiler.engines.limits import DEAD_AFTER
from mempiler.memory.memory import TurnMemory
from mempiler.memory.store.owner import Owner
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.serving.http.log_lines import JsonLines
from mempiler.serving.memories.memories import Memories
from mempiler.serving.worker.breaker import CALLER, MAX_CALLERS, Breaker
from mempiler.serving.worker.failure_counts import FailureCounts
from mempiler.serving.worker.worker import Worker
from mempiler.serving.worker.writers import write_all_queued

from ..conftest import largest_container, values_below
from .conftest import failing, within

DOWN, WELL = LMServerError("down", model="x"), failing(lambda text, n: False)


def note(store: Store, text: str, user: str = "ada", tenant: str = "acme") -> None:
    build("turn-rag").memory(store, user, tenant).add(
        [{"role": "user", "content": text}], remember=False
    )


def queued(store: Store) -> int:
    return sum(user.queued for user in store.users.list_all())


def worker_of(store: Store, lm: Any, interval: float = 1.0) -> Worker:
    memories = Memories(build("recursive-summary"), store, lm)
    return Worker(memories, session_gap=30, writers=1, interval=interval)


def test_stop_finishes_the_session_at_hand_within_its_grace_and_leaves_the_rest_queued(
    store: Store, scripted: Any
) -> None:
    writing, go = threading.Event(), threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        writing.set()
        go.wait(15)
        return {kind: "summary"}

    for n in range(3):
        note(store, f"note {n}")
    worker = worker_of(store, scripted(reply))
    later = worker_of(store, scripted(failing(lambda text, n: n == 1)), interval=0.01)
    worker.start()
    assert writing.wait(15)
    assert worker.stop(0.05) is False
    assert worker.alive is False
    assert queued(store) == 3
    go.set()
    assert worker.stop(15) is True
    assert queued(store) == 2
    later.start()
    assert within(20, lambda: queued(store) == 0)
    assert later.alive is True
    assert later.stop(15) is True


def test_breaker_opens_after_failures_in_a_row_and_tries_again() -> None:
    time_now = [0.0]
    breaker = Breaker(pause=10, clock=lambda: time_now[0])
    for _ in range(4):
        breaker.record_failure(DOWN)
        breaker.record_failure(LMInvalidRequestError("a bad request", model="x"))
    assert not breaker.open
    breaker.record_failure(DOWN)
    with pytest.raises(EndpointError):
        breaker.admit()
    time_now[0] = 10.1
    breaker.admit()
    breaker.record_failure(DOWN)
    assert breaker.open
    time_now[0] = 21.0
    breaker.record_success(1, None)
    breaker.record_failure(DOWN)
    assert not breaker.open


BAD, MANY = Owner("bad", "acme"), [Owner(f"bad {n}", "other") for n in range(9)]


@pytest.mark.parametrize(
    ("down", "refused"),
    [
        ([BAD] * 9, {"bad"}),
        (MANY, {"fine", *(one.user for one in MANY)}),
        ([BAD, Owner("bad", "other")] * 3, {"fine", "bad"}),
        (MANY[:4], set()),
        ([*[BAD] * 4, Owner("late", "third")], set()),
    ],
)
def test_breaker_refuses_whose_calls_fail(down: list[Owner], refused: set[str]) -> None:
    tenants = {owner.tenant for owner in down}
    breaker = Breaker(pause=10)
    breaker.several = lambda: tenants != {"acme"}

    def admitted(owner: Owner) -> bool:
        CALLER.set(owner)
        try:
            breaker.admit()
        except EndpointError:
            return False
        return True

    def run() -> None:
        for owner in down:
            if admitted(owner):
                breaker.record_failure(DOWN)
        everybody = {*down, *(Owner("fine", tenant) for tenant in tenants)}
        assert {owner.user for owner in everybody if not admitted(owner)} == refused
        assert admitted(Owner("fine", "acme")) is (tenants != {"acme", "other"})

    contextvars.copy_context().run(run)


def fail_for(breaker: Breaker, owner: Owner, times: int) -> None:
    """Lets calls for a user fail."""

    def run() -> None:
        CALLER.set(owner)
        for _ in range(times):
            breaker.record_failure(DOWN)

    contextvars.copy_context().run(run)


def test_failures_keep_no_name_and_go_with_the_user(store: Store, scripted: Any) -> None:
    note(store, "bad", "zoe-4711")
    owner, breaker = Owner("zoe-4711", "acme"), Breaker()
    lm = scripted(failing(lambda text, n: True), guard=breaker)
    program = build("recursive-summary")
    worker = Worker(Memories(program, store, lm), session_gap=30, writers=1, interval=0.05)
    worker.start()
    assert within(20, lambda: len(worker.writers.failures) == 1)
    assert worker.stop(15)
    fail_for(breaker, owner, DEAD_AFTER)
    texts = [
        one
        for root in (worker.writers.failures, breaker)
        for one in values_below(root)
        if isinstance(one, str)
    ]
    assert not [text for text in texts if "zoe" in text]

    UserMemory(Memories(program, store, lm), owner).forget()
    assert len(worker.writers.failures) == 0
    # What failed for the forgotten user is nothing that failed for all.
    fail_for(breaker, owner, 1)
    fail_for(breaker, Owner("bob", "acme"), 1)
    assert not breaker.open


def test_failures_of_so_many_users_are_counted(store: Store) -> None:
    counts = FailureCounts(limit=3)
    users = [Owner(f"user {n}", "acme") for n in range(5)]
    assert [
        counts.add(user) for user in (users[0], users[0], *users[1:3], users[0], *users[3:])
    ] == [
        1,
        2,
        1,
        1,
        3,
        1,
        1,
    ]
    assert len(counts) == 3
    assert counts.add(users[4]) == 2
    assert counts.add(users[0]) == 4
    assert counts.add(Owner("user 0", "other")) == 1
    counts.reset(users[0])
    assert counts.add(users[0]) == 1


def test_a_long_outage_of_many_users_does_not_fill_the_breaker() -> None:
    breaker = Breaker()
    for n in range(3 * MAX_CALLERS):
        fail_for(breaker, Owner(f"user {n}", "acme"), 1)
    assert breaker.open
    assert MAX_CALLERS / 2 < largest_container(breaker) <= MAX_CALLERS


def test_users_who_cannot_be_written_delay_nobody_else(store: Store, scripted: Any) -> None:
    for n in range(12):
        note(store, "bad", f"user {n}")
    breaker = Breaker()
    breaker.several = lambda: True
    lm = scripted(failing(lambda text, n: "bad" in text), guard=breaker)
    worker = worker_of(store, lm, interval=0.05)
    worker.start()
    assert within(20, lambda: len(worker.writers.failures) == 12)
    note(store, "fine", "bob", "other")
    assert within(20, lambda: [user.queued for user in store.users.list_all("other")] == [0])
    assert queued(store) == 12
    assert worker.alive is True
    assert worker.stop(15) is True


def test_tenants_take_turns_in_the_backlog_and_hold_their_share_of_the_writers(
    store: Store, scripted: Any
) -> None:
    go = threading.Event()
    for n in range(12):
        note(store, "slow", f"user {n}")
    for n in range(3):
        note(store, "fine", f"late {n}", "other")
    lm = scripted(lambda kind, text, n: {kind: str("slow" in text and go.wait(20))})
    memories = Memories(build("recursive-summary"), store, lm)
    worker = Worker(memories, session_gap=30, writers=4, interval=0.05, share=lambda: 0.5)
    worker.start()
    try:
        assert within(10, lambda: not any(user.queued for user in store.users.list_all("other")))
        assert within(5, lambda: len(worker.writers.running) == 2)
        assert sum(user.queued for user in store.users.list_all("acme")) == 12
    finally:
        go.set()
    assert worker.stop(15)


def test_a_tenant_with_many_users_evicts_only_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mempiler.serving.memories.user_caches.USERS", 4)
    note(store, "fine")
    memories = Memories(build("turn-rag"), store)
    write_all_queued(memories)
    kept = memories.view(Owner("ada", "acme")).finalized
    for n in range(9):
        memories.view(Owner(f"user {n}", "other"))
    assert memories.view(Owner("ada", "acme")).finalized is kept


class FailingWriter(Writer):
    """A writer with a fault of its own: it cannot write sessions that hold the word "odd"."""

    Memory = TurnMemory

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    def update(self, memory: TurnMemory, item: Item, extraction: None = None) -> Update[TurnMemory]:
        if any("odd" in line for line in item.lines()):
            self.failures += 1
            raise ValueError("cannot write this")
        return Update(memory.with_session(item))


def test_a_session_that_cannot_be_written_is_tried_three_times_and_then_set_aside(
    store: Store,
) -> None:
    program = MemoryProgram(Method(FailingWriter(), EntryReader()), QuestionAnswering())
    note(store, "an odd note")
    note(store, "a note")
    memories = Memories(program, store)
    written = write_all_queued(memories)
    assert memories.program.method.writer.failures == 3
    assert written.items == 1
    (user,) = store.users.list_all()
    assert user.queued == 0
    assert user.failed == 1


@pytest.mark.parametrize("damage", ["json = '{'", "state = 'lost'", "attempts = 'x'"])
def test_a_damaged_row_is_set_aside_and_reported_and_the_rest_of_its_user_is_written(
    store: Store, scripted: Any, connect: Any, damage: str
) -> None:
    for n in range(3):
        note(store, f"note {n}")
    with sqlite3.connect(store.url.removeprefix("sqlite:///")) as db:
        db.execute(f"UPDATE mempiler_items SET {damage} WHERE position = 2")
    db.close()
    well = scripted(WELL)
    assert write_all_queued(Memories(build("recursive-summary"), store, well)).items == 2
    (found,) = store.users.list_all()
    assert found.queued == 0
    assert found.failed == 1
    assert build("recursive-summary").memory(store, "ada", "acme", well).search("note")
    assert connect().get("/ready").json()["failed"] == 1


def test_dead_model_does_not_keep_sessions_from_being_stored(connect: Any, scripted: Any) -> None:
    client = connect(
        scripted(failing(lambda text, n: True), guard=Breaker()), tokens=False
    ).as_tenant(None)
    assert client.add("I moved to Lisbon.").status_code == 201
    assert [client.ask("Where?").status_code for _ in range(6)] == [502] * 6
    found = client.get("/ready")
    assert found.status_code == 200
    assert found.json()["parts"]["model"] is False


def test_logs_hold_no_contents(
    connect: Any, scripted: Any, store: Store, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*arguments: object) -> None:
        raise RuntimeError("SECRET-bug")

    monkeypatch.setattr(caplog.handler, "formatter", JsonLines())
    caplog.set_level(logging.INFO, "mempiler")
    client = connect(scripted(failing(lambda text, n: n == 2, "SECRET-answer")))
    statuses = [client.chat("SECRET-question", user="SECRET-user").status_code for _ in range(2)]
    monkeypatch.setattr(store.users, "list_all", bug)
    statuses.append(client.get("/v1/users/SECRET-user").status_code)
    logging.getLogger("elsewhere").warning("SECRET-of-a-library")
    logging.getLogger("elsewhere").warning("template %s", "SECRET-argument")
    assert statuses == [200, 502, 500]
    assert within(20, lambda: caplog.text.count('"event": "request"') == 3)
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    routes = ["/v1/chat/completions", "/v1/chat/completions", "/v1/users/{user}"]
    assert [(line["route"], line["status"]) for line in requests] == list(
        zip(routes, statuses, strict=True)
    )
    assert {line["tenant"] for line in requests} == {"acme"}
    assert "SECRET" not in caplog.text
    assert next(line for line in lines if "error" in line)["error"]["type"] == "RuntimeError"


@pytest.fixture
def full(store: Store) -> Store:
    for user in range(12):
        for n in range(2):
            note(store, f"note {n} of {user}", f"user {user}")
    return store


def test_all_users_are_written_at_the_same_time_and_a_slow_one_holds_up_nobody_who_comes_later(
    full: Store, scripted: Any
) -> None:
    together, slow = threading.Barrier(12, timeout=10), threading.Event()

    def reply(kind: str, text: str, n: int) -> dict[str, str]:
        if "of late" in text:
            slow.set()
        else:
            together.wait()  # passes when there is a call of every user
        if "note 1 of 3" in text:
            note(full, "note of late", "late")
            assert slow.wait(20)
        return {kind: "summary"}

    assert write_all_queued(Memories(build("recursive-summary"), full, scripted(reply))).items == 25


def test_a_failure_leaves_the_rest_queued_and_no_user_claimed(full: Store, scripted: Any) -> None:
    program = build("recursive-summary")
    with pytest.raises(LMServerError):
        write_all_queued(
            Memories(program, full, scripted(failing(lambda text, n: " of 3" in text)))
        )
    left = queued(full)
    assert left >= 2
    assert write_all_queued(Memories(program, full, scripted(WELL))).items == left
