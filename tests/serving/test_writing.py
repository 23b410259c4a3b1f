"""Background writing: writers of queued sessions, the worker, the breaker, and the log.

A worker writes queued sessions into memories, in the threads of its writers. A breaker stands
between all callers and the model: it opens, i.e. refuses calls, after failures in a row.
"""

import contextvars
import io
import json
import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
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
from mempiler.memory.store.database import Database
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.users import Users
from mempiler.programs.tasks.answering import QuestionAnswering
from mempiler.serving.http.log_lines import JsonLines
from mempiler.serving.memories.memories import Memories
from mempiler.serving.memories.user_caches import USERS
from mempiler.serving.worker.breaker import CALLER, MAX_CALLERS, Breaker
from mempiler.serving.worker.failure_counts import FailureCounts
from mempiler.serving.worker.worker import Worker
from mempiler.serving.worker.writers import write_all_queued

from ..conftest import largest_container, values_below
from .conftest import Api, fail_when, within

MODEL_IS_DOWN = LMServerError("down", model="x")


def answer_all(field: str, prompt: str, call_number: int) -> dict[str, str]:
    """Reply to every prompt of a scripted model."""
    return {field: "summary"}


def queue_note(store: Store, text: str, user: str = "ada", tenant: str = "acme") -> None:
    """Queue a session of one message; a worker writes it into the memory."""
    memory = build("turn-rag").memory(store, user, tenant)
    memory.add([{"role": "user", "content": text}], remember=False)


def queued_sessions(store: Store, tenant: str | None = None) -> int:
    """Return how many sessions wait to be written, of one tenant or of all."""
    return sum(user.queued for user in store.users.list_all(tenant))


def worker_of(store: Store, lm: Any, interval: float = 1.0) -> Worker:
    """Return a worker with one writer, whose memories are summaries.

    Args:
        store: Holds the queue.
        lm: Writes the summaries.
        interval: Seconds between two looks at the queue.
    """
    memories = Memories(build("recursive-summary"), store, lm)
    return Worker(memories, session_gap=30, writers=1, interval=interval)


# The worker.


def test_a_stop_finishes_the_session_that_is_being_written_and_leaves_the_rest_queued(
    store: Store, scripted: Any
) -> None:
    """`grace` is the time that a worker has to finish a session when it is stopped, in seconds."""
    is_writing = threading.Event()
    may_answer = threading.Event()

    def wait(field: str, prompt: str, call_number: int) -> dict[str, str]:
        is_writing.set()
        may_answer.wait(15)
        return {field: "summary"}

    for number in range(3):
        queue_note(store, f"note {number}")
    # Its only writer writes one session after the other.
    worker = worker_of(store, scripted(wait))
    worker.start()
    assert is_writing.wait(15)

    # The session cannot be finished within this grace.
    assert worker.stop(grace=0.05) is False
    assert worker.alive is False
    assert queued_sessions(store) == 3

    # Within this grace it can.
    may_answer.set()
    assert worker.stop(grace=15) is True
    assert queued_sessions(store) == 2


def test_a_worker_goes_on_after_a_failed_call(store: Store, scripted: Any) -> None:
    """The model fails at its first call only."""
    queue_note(store, "note 1")
    queue_note(store, "note 2")
    first_call_fails = fail_when(lambda prompt, call_number: call_number == 1)
    worker = worker_of(store, scripted(first_call_fails), interval=0.01)

    worker.start()

    assert within(20, lambda: queued_sessions(store) == 0)
    assert worker.alive is True
    assert worker.stop(grace=15) is True


def test_users_who_cannot_be_written_delay_nobody_else(store: Store, scripted: Any) -> None:
    """The model fails at prompts with the word "bad": for twelve users of the tenant `acme`.

    Bob of another tenant comes later.
    """
    for number in range(12):
        queue_note(store, "bad", user=f"user {number}")
    breaker = Breaker()
    breaker.several = lambda: True  # there are several tenants
    lm = scripted(fail_when(lambda prompt, call_number: "bad" in prompt), guard=breaker)
    worker = worker_of(store, lm, interval=0.05)
    worker.start()
    assert within(20, lambda: len(worker.writers.failures) == 12)

    queue_note(store, "fine", user="bob", tenant="other")

    assert within(20, lambda: queued_sessions(store, "other") == 0)
    (bob,) = store.users.list_all("other")
    assert bob.user == "bob"
    assert queued_sessions(store, "acme") == 12
    assert worker.alive is True
    assert worker.stop(grace=15) is True


def test_a_tenant_whose_model_is_slow_holds_only_its_share_of_the_writers(
    store: Store, scripted: Any
) -> None:
    """A writer has the model write a summary of each session.

    The model does not answer prompts with the word "slow", which only `acme` sends.
    """
    may_answer = threading.Event()

    def reply(field: str, prompt: str, call_number: int) -> dict[str, str]:
        if "slow" in prompt:
            may_answer.wait(20)
        return {field: "summary"}

    for number in range(12):
        queue_note(store, "slow", user=f"user {number}", tenant="acme")
    for number in range(3):
        queue_note(store, "fine", user=f"late {number}", tenant="other")
    memories = Memories(build("recursive-summary"), store, scripted(reply))
    # One tenant may hold half of the four writers.
    worker = Worker(memories, session_gap=30, writers=4, interval=0.05, share=lambda: 0.5)
    worker.start()
    try:
        assert within(10, lambda: queued_sessions(store, "other") == 0)
        assert within(5, lambda: len(worker.writers.running) == 2)
        assert queued_sessions(store, "acme") == 12
    finally:
        may_answer.set()
    assert worker.stop(grace=15)


def test_a_tenant_with_many_users_evicts_only_its_own_users_from_the_cache(store: Store) -> None:
    """Memories that were read are kept for a number of users."""
    ada = Owner("ada", "acme")
    queue_note(store, "fine", user="ada", tenant="acme")
    memories = Memories(build("turn-rag"), store)
    write_all_queued(memories)
    cached_memory = memories.view(ada).finalized

    # `USERS` is the number of users whose memories the cache holds.
    for number in range(USERS + 5):
        memories.view(Owner(f"user {number}", "other"))

    # It is the same object, so it was not read again.
    assert memories.view(ada).finalized is cached_memory


# The breaker.


class FakeClock:
    """A clock that shows the seconds that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_breaker_opens_after_five_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.record_failure(MODEL_IS_DOWN)
    # A request that the model refuses says nothing about the model.
    breaker.record_failure(LMInvalidRequestError("a bad request", model="x"))
    assert not breaker.open

    breaker.record_failure(MODEL_IS_DOWN)

    with pytest.raises(EndpointError):
        breaker.admit()


def test_an_open_breaker_lets_a_call_pass_after_its_pause_and_opens_again_if_that_fails() -> None:
    clock = FakeClock()
    breaker = Breaker(pause=10, clock=clock)
    for _ in range(5):
        breaker.record_failure(MODEL_IS_DOWN)
    assert breaker.open

    clock.seconds = 10.1  # The pause is over.
    breaker.admit()

    breaker.record_failure(MODEL_IS_DOWN)
    assert breaker.open


def test_a_success_closes_a_breaker() -> None:
    clock = FakeClock()
    breaker = Breaker(pause=10, clock=clock)
    for _ in range(5):
        breaker.record_failure(MODEL_IS_DOWN)

    clock.seconds = 10.1  # The pause is over.
    breaker.record_success(tokens=1, cost=None)
    assert not breaker.open

    # One more failure does not open it again: the count has begun anew.
    breaker.record_failure(MODEL_IS_DOWN)
    assert not breaker.open


def is_admitted(breaker: Breaker, caller: Owner) -> bool:
    """Return whether the breaker lets a user's next call pass."""
    context = contextvars.copy_context()
    context.run(CALLER.set, caller)
    try:
        context.run(breaker.admit)
    except EndpointError:
        return False
    return True


def record_failures(breaker: Breaker, caller: Owner, times: int = 1) -> None:
    """Record failed calls for a user."""
    context = contextvars.copy_context()
    context.run(CALLER.set, caller)
    for _ in range(times):
        context.run(breaker.record_failure, MODEL_IS_DOWN)


def breaker_with_tenants(are_several: bool) -> Breaker:
    """Return a new breaker of a service with one tenant or with several."""
    breaker = Breaker(pause=10)
    breaker.several = lambda: are_several
    return breaker


def fail_admitted_calls(breaker: Breaker, callers: Sequence[Owner]) -> None:
    """Let each of these users make a call, in this order; every call that is admitted fails."""
    for caller in callers:
        if is_admitted(breaker, caller):
            record_failures(breaker, caller)


def test_with_one_tenant_only_the_user_whose_calls_fail_is_refused() -> None:
    """One user makes nine calls: five of them fail, and the breaker refuses the others."""
    ada = Owner("ada", "acme")
    bob = Owner("bob", "acme")
    breaker = breaker_with_tenants(are_several=False)

    fail_admitted_calls(breaker, [ada] * 9)

    assert not is_admitted(breaker, ada)
    assert is_admitted(breaker, bob)


def test_with_several_tenants_all_users_of_the_tenant_whose_calls_fail_are_refused() -> None:
    """One call of each of nine users of a tenant fails; from the sixth on they are refused."""
    users = [Owner(f"user {number}", "acme") for number in range(9)]
    user_who_has_not_called = Owner("ada", "acme")
    user_of_other_tenant = Owner("ada", "globex")
    breaker = breaker_with_tenants(are_several=True)

    fail_admitted_calls(breaker, users)

    for user in users:
        assert not is_admitted(breaker, user)
    assert not is_admitted(breaker, user_who_has_not_called)
    assert is_admitted(breaker, user_of_other_tenant)


def test_everybody_is_refused_when_the_calls_of_two_tenants_fail() -> None:
    """Then the model itself seems to be down."""
    ada_of_acme = Owner("ada", "acme")
    ada_of_globex = Owner("ada", "globex")
    user_who_has_not_called = Owner("bob", "acme")
    breaker = breaker_with_tenants(are_several=True)

    fail_admitted_calls(breaker, [ada_of_acme, ada_of_globex] * 3)

    assert not is_admitted(breaker, ada_of_acme)
    assert not is_admitted(breaker, ada_of_globex)
    assert not is_admitted(breaker, user_who_has_not_called)


def test_nobody_is_refused_after_four_failures() -> None:
    """One call of each of four users of a tenant fails. A breaker opens after the fifth failure."""
    users = [Owner(f"user {number}", "acme") for number in range(4)]
    user_who_has_not_called = Owner("ada", "acme")
    user_of_other_tenant = Owner("ada", "globex")
    breaker = breaker_with_tenants(are_several=True)

    fail_admitted_calls(breaker, users)

    for user in (*users, user_who_has_not_called, user_of_other_tenant):
        assert is_admitted(breaker, user)


def test_nobody_is_refused_when_the_fifth_failure_is_the_first_of_another_tenant() -> None:
    """Neither tenant has failed five times, and a single failure does not speak for the model."""
    ada_of_acme = Owner("ada", "acme")
    ada_of_globex = Owner("ada", "globex")
    breaker = breaker_with_tenants(are_several=True)

    fail_admitted_calls(breaker, [ada_of_acme] * 4)
    fail_admitted_calls(breaker, [ada_of_globex])

    assert is_admitted(breaker, ada_of_acme)
    assert is_admitted(breaker, ada_of_globex)


def test_a_breaker_remembers_a_bounded_number_of_users_whose_calls_failed() -> None:
    breaker = Breaker()
    for number in range(3 * MAX_CALLERS):
        record_failures(breaker, Owner(f"user {number}", "acme"))

    assert breaker.open
    # The lower bound shows that it is the users whose number is bounded.
    assert MAX_CALLERS / 2 < largest_container(breaker) <= MAX_CALLERS


# Counts of failures.


def test_failures_in_a_row_are_counted_for_each_user() -> None:
    ada = Owner("ada", "acme")
    namesake = Owner("ada", "other")
    counts = FailureCounts(limit=3)

    assert counts.add(ada) == 1
    assert counts.add(ada) == 2
    assert counts.add(namesake) == 1
    assert counts.add(ada) == 3
    assert len(counts) == 2

    counts.reset(ada)
    assert counts.add(ada) == 1


def test_only_the_failures_of_the_latest_users_are_counted() -> None:
    """With `limit=3` failures of three users are counted."""
    first = Owner("first", "acme")
    second = Owner("second", "acme")
    third = Owner("third", "acme")
    fourth = Owner("fourth", "acme")
    fifth = Owner("fifth", "acme")
    counts = FailureCounts(limit=3)
    for user in (first, second, third, first, fourth, fifth):
        counts.add(user)

    # The second and the third user, whose failures were the oldest, are not counted any more.
    assert len(counts) == 3
    assert counts.add(fifth) == 2
    assert counts.add(first) == 3
    assert counts.add(fourth) == 2
    assert counts.add(second) == 1


def texts_below(root: Any) -> list[str]:
    """Return all texts that an object holds, however deep."""
    return [value for value in values_below(root) if isinstance(value, str)]


def test_counts_of_failures_hold_no_name_and_go_with_a_forgotten_user(
    store: Store, scripted: Any
) -> None:
    """The worker and the breaker count how often calls for each user failed in a row.

    Zoe's failures no longer count when she is forgotten.
    """
    zoe = Owner("zoe-4711", "acme")
    queue_note(store, "bad", user=zoe.user, tenant=zoe.tenant)
    breaker = Breaker()
    lm = scripted(fail_when(lambda prompt, call_number: True), guard=breaker)
    program = build("recursive-summary")
    memories_of_worker = Memories(program, store, lm)
    worker = Worker(memories_of_worker, session_gap=30, writers=1, interval=0.05)
    worker.start()
    assert within(20, lambda: len(worker.writers.failures) == 1)
    assert worker.stop(grace=15)
    record_failures(breaker, zoe, times=DEAD_AFTER)

    for text in texts_below(worker.writers.failures) + texts_below(breaker):
        assert "zoe" not in text

    UserMemory(Memories(program, store, lm), zoe).forget()
    assert len(worker.writers.failures) == 0
    # What failed for the forgotten user does not count as a failure of all.
    record_failures(breaker, zoe)
    record_failures(breaker, Owner("bob", "acme"))
    assert not breaker.open


# Sessions that cannot be written.


class WriterWithFault(Writer):
    """A writer that cannot write sessions with the word "odd", and counts how often it failed."""

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
    """The writer of this program fails at sessions with the word "odd", of which one is queued."""
    program = MemoryProgram(Method(WriterWithFault(), EntryReader()), QuestionAnswering())
    memories = Memories(program, store)
    queue_note(store, "an odd note")
    queue_note(store, "a note")

    counts = write_all_queued(memories)

    assert memories.program.method.writer.failures == 3
    assert counts.items == 1
    (user,) = store.users.list_all()
    assert user.queued == 0
    assert user.failed == 1


@pytest.mark.parametrize("damage", ["json = '{'", "state = 'lost'", "attempts = 'x'"])
def test_a_damaged_row_is_set_aside_and_reported_and_the_rest_of_its_user_is_written(
    store: Store, scripted: Any, connect: Any, damage: str
) -> None:
    """The second of three queued sessions is damaged, e.g. by a failing disk."""
    for number in range(3):
        queue_note(store, f"note {number}")
    path = store.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE mempiler_items SET {damage} WHERE position = 2")
    lm = scripted(answer_all)

    counts = write_all_queued(Memories(build("recursive-summary"), store, lm))

    assert counts.items == 2
    (user,) = store.users.list_all()
    assert user.queued == 0
    assert user.failed == 1
    assert build("recursive-summary").memory(store, "ada", "acme", lm).search("note")
    assert connect().get("/ready").json()["failed"] == 1


def test_sessions_are_stored_while_the_model_is_down(connect: Any, scripted: Any) -> None:
    dead_model = scripted(fail_when(lambda prompt, call_number: True), guard=Breaker())
    client = connect(dead_model, tokens=False).as_tenant(None)

    assert client.add("I moved to Lisbon.").status_code == 201
    # The breaker, which opens after five failures, does not change the status.
    for _ in range(6):
        assert client.ask("Where?").status_code == 502

    ready = client.get("/ready")
    assert ready.status_code == 200
    assert ready.json()["parts"]["model"] is False


# The log.


class UsersWithBug(Users):
    """The users of a store; listing them raises an error that quotes a user."""

    def list_all(self, tenant: str | None = None, user: str | None = None) -> Any:
        raise RuntimeError("SECRET-bug")


@pytest.fixture
def log_text(caplog: pytest.LogCaptureFixture) -> Iterator[io.StringIO]:
    """What a service would log, line by line."""
    caplog.set_level(logging.INFO, "mempiler")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def logged_events(log_text: io.StringIO, event: str) -> list[dict[str, Any]]:
    """Return the lines of the log that are about an event; each line is JSON."""
    lines = [json.loads(line) for line in log_text.getvalue().splitlines()]
    return [line for line in lines if line["event"] == event]


def test_the_log_has_a_line_for_each_request(
    connect: Any, scripted: Any, log_text: io.StringIO
) -> None:
    """The line of a request is written a moment after its response."""
    second_call_fails = fail_when(lambda prompt, call_number: call_number == 2)
    client = connect(scripted(second_call_fails))

    assert client.chat("Hello.").status_code == 200
    assert client.chat("Hello again.").status_code == 502
    assert client.get("/v1/users/ada").status_code == 200

    assert within(20, lambda: len(logged_events(log_text, "request")) == 3)
    requests = logged_events(log_text, "request")
    assert [(request["route"], request["status"]) for request in requests] == [
        ("/v1/chat/completions", 200),
        ("/v1/chat/completions", 502),
        ("/v1/users/{user}", 200),
    ]
    assert {request["tenant"] for request in requests} == {"acme"}


def test_the_log_holds_nothing_that_users_say_and_no_names_of_users(
    connect: Any, scripted: Any, log_text: io.StringIO
) -> None:
    """The error of the model quotes a user, too: see `fail_when`."""
    second_call_fails = fail_when(lambda prompt, call_number: call_number == 2, "SECRET-answer")
    client = connect(scripted(second_call_fails))

    client.chat("SECRET-question", user="SECRET-user")
    client.chat("SECRET-question", user="SECRET-user")

    assert within(20, lambda: len(logged_events(log_text, "request")) == 2)
    assert "SECRET" not in log_text.getvalue()


def test_the_log_has_the_type_of_an_error_and_not_its_text(
    client: Api, store: Store, database: Database, log_text: io.StringIO
) -> None:
    """Listing users raises `RuntimeError("SECRET-bug")` here."""
    store.users = UsersWithBug(database)

    assert client.get("/v1/users/ada").status_code == 500

    assert within(20, lambda: len(logged_events(log_text, "request")) == 1)
    lines = [json.loads(line) for line in log_text.getvalue().splitlines()]
    (error, *_others) = [line["error"] for line in lines if "error" in line]
    assert error["type"] == "RuntimeError"
    assert "SECRET" not in log_text.getvalue()


def test_the_log_names_a_library_that_logs_something_and_leaves_out_what_it_says(
    log_text: io.StringIO,
) -> None:
    logging.getLogger("elsewhere").warning("SECRET-of-a-library")
    logging.getLogger("elsewhere").warning("template %s", "SECRET-argument")

    assert "elsewhere" in log_text.getvalue()
    assert "SECRET" not in log_text.getvalue()


# Writing all that is queued.


def queue_notes(store: Store, users: int, notes_of_each: int) -> None:
    """Queue notes of several users; "note 0 of 3" is the first note of user 3."""
    for user in range(users):
        for number in range(notes_of_each):
            queue_note(store, f"note {number} of {user}", user=f"user {user}")


def test_all_users_are_written_at_the_same_time(store: Store, scripted: Any) -> None:
    """The model, which writes a summary of each note, answers nobody until all users have asked."""
    queue_notes(store, users=12, notes_of_each=2)
    call_of_each_user = threading.Barrier(12, timeout=10)

    def reply(field: str, prompt: str, call_number: int) -> dict[str, str]:
        # Passes once there is a call for every user.
        call_of_each_user.wait()
        return {field: "summary"}

    counts = write_all_queued(Memories(build("recursive-summary"), store, scripted(reply)))

    assert counts.items == 24


def test_a_slow_user_holds_up_nobody_who_comes_later(store: Store, scripted: Any) -> None:
    """The model writes a summary of each note.

    It answers for user 3 only when it was asked for a user who comes later.
    """
    queue_notes(store, users=12, notes_of_each=2)
    late_user_is_written = threading.Event()

    def reply(field: str, prompt: str, call_number: int) -> dict[str, str]:
        if "of late" in prompt:
            late_user_is_written.set()
        if "note 1 of 3" in prompt:
            queue_note(store, "note of late", user="late")
            assert late_user_is_written.wait(20)
        return {field: "summary"}

    counts = write_all_queued(Memories(build("recursive-summary"), store, scripted(reply)))

    assert counts.items == 24 + 1


def test_a_failure_leaves_the_rest_queued_and_no_user_claimed(store: Store, scripted: Any) -> None:
    """Whoever writes the notes of a user claims the user, so that nobody else writes them.

    The model fails for user 3. A user who was still claimed would be passed over the second time.
    """
    queue_notes(store, users=12, notes_of_each=2)
    program = build("recursive-summary")
    lm_that_fails_for_user_3 = scripted(fail_when(lambda prompt, call_number: " of 3" in prompt))
    with pytest.raises(LMServerError):
        write_all_queued(Memories(program, store, lm_that_fails_for_user_3))
    queued_after_failure = queued_sessions(store)
    assert queued_after_failure >= 2  # at least those of user 3

    counts = write_all_queued(Memories(program, store, scripted(answer_all)))

    assert counts.items == queued_after_failure
