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
from .conftest import (
    Api,
    FailingModel,
    ModelSaying,
    PausingModel,
    StartService,
    within,
)

MODEL_IS_DOWN = LMServerError("down", model="x")


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


def test_a_stopped_worker_finishes_the_session_that_it_is_writing_and_leaves_the_rest_queued(
    store: Store, scripted: Any
) -> None:
    """The only writer is at the first of three sessions, and waits for its model."""
    model = PausingModel()
    for number in range(3):
        queue_note(store, f"note {number}")
    worker = worker_of(store, scripted(model.reply))
    worker.start()
    model.wait_until_it_is_asked()

    has_finished_in_time = worker.stop(grace=0.05)  # seconds
    assert has_finished_in_time is False
    assert queued_sessions(store) == 3

    model.go_on()
    has_finished_in_time = worker.stop(grace=15)
    assert has_finished_in_time is True
    assert queued_sessions(store) == 2


def test_a_worker_goes_on_after_a_failed_call(store: Store, failing_model: FailingModel) -> None:
    queue_note(store, "note 1")
    queue_note(store, "note 2")
    worker = worker_of(store, failing_model(calls={1}), interval=0.01)

    worker.start()

    assert within(20, lambda: queued_sessions(store) == 0)
    assert worker.stop(grace=15) is True


def test_users_who_cannot_be_written_delay_nobody_else(
    store: Store, failing_model: FailingModel
) -> None:
    """Calls with the word "bad" fail: those for twelve users of the tenant `acme`."""
    for number in range(12):
        queue_note(store, "bad", user=f"user {number}", tenant="acme")
    lm = failing_model(word="bad", guard=breaker_with_tenants(are_several=True))
    worker = worker_of(store, lm, interval=0.05)
    worker.start()
    assert within(20, lambda: len(worker.writers.failures) == 12)

    queue_note(store, "fine", user="bob", tenant="globex")

    assert within(20, lambda: queued_sessions(store, "globex") == 0)
    assert queued_sessions(store, "acme") == 12
    assert worker.stop(grace=15) is True


def test_a_tenant_whose_model_is_slow_holds_only_its_share_of_the_writers(
    store: Store, scripted: Any
) -> None:
    """One tenant may hold half (`share`) of the four writers.

    The model does not answer prompts with the word "slow", which only `acme` sends.
    """
    model = PausingModel(word="slow", other_answer="summary")
    for number in range(12):
        queue_note(store, "slow", user=f"user {number}", tenant="acme")
    for number in range(3):
        queue_note(store, "fine", user=f"user {number}", tenant="globex")
    memories = Memories(build("recursive-summary"), store, scripted(model.reply))
    worker = Worker(memories, session_gap=30, writers=4, interval=0.05, share=lambda: 0.5)

    worker.start()
    try:
        assert within(10, lambda: queued_sessions(store, "globex") == 0)
        assert within(5, lambda: len(worker.writers.running) == 2)
        assert queued_sessions(store, "acme") == 12
    finally:
        model.go_on()
    assert worker.stop(grace=15)


def test_a_tenant_with_many_users_evicts_no_users_of_another_tenant_from_the_cache(
    store: Store,
) -> None:
    """Memories that were read are cached for `USERS` users, and `globex` reads those of more."""
    ada = Owner("ada", "acme")
    queue_note(store, "fine", user="ada", tenant="acme")
    memories = Memories(build("turn-rag"), store)
    write_all_queued(memories)
    cached_memory = memories.view(ada).finalized

    for number in range(USERS + 5):
        memories.view(Owner(f"user {number}", "globex"))

    # It is the same object, so it was not read from the store again.
    assert memories.view(ada).finalized is cached_memory


# The breaker.


class FakeClock:
    """A clock that shows the seconds that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_breaker_refuses_calls_after_five_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.record_failure(MODEL_IS_DOWN)
    assert not breaker.open

    breaker.record_failure(MODEL_IS_DOWN)

    with pytest.raises(EndpointError):
        breaker.admit()


def test_a_request_that_the_model_refuses_does_not_open_a_breaker() -> None:
    """The model is well: the fault is in the request."""
    breaker = Breaker()

    for _ in range(5):
        breaker.record_failure(LMInvalidRequestError("a bad request", model="x"))

    assert not breaker.open


def test_an_open_breaker_lets_a_call_pass_after_its_pause_and_opens_again_if_that_fails() -> None:
    clock = FakeClock()
    breaker = Breaker(pause=10, clock=clock)
    for _ in range(5):
        breaker.record_failure(MODEL_IS_DOWN)
    assert breaker.open

    clock.seconds = 10.1
    breaker.admit()
    breaker.record_failure(MODEL_IS_DOWN)

    assert breaker.open


def test_a_success_closes_a_breaker_and_the_count_of_failures_begins_anew() -> None:
    clock = FakeClock()
    breaker = Breaker(pause=10, clock=clock)
    for _ in range(5):
        breaker.record_failure(MODEL_IS_DOWN)

    clock.seconds = 10.1
    breaker.record_success(tokens=1, cost=None)
    assert not breaker.open

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


def make_failing_calls(breaker: Breaker, callers: Sequence[Owner]) -> None:
    """Let each of these users make a call, in this order; all calls fail that are admitted."""
    for caller in callers:
        if is_admitted(breaker, caller):
            record_failures(breaker, caller)


def test_with_one_tenant_only_the_user_whose_calls_fail_is_refused() -> None:
    """Ada makes nine calls. Five fail, and then the breaker refuses the others."""
    ada = Owner("ada", "acme")
    bob = Owner("bob", "acme")
    breaker = breaker_with_tenants(are_several=False)

    make_failing_calls(breaker, [ada] * 9)

    assert not is_admitted(breaker, ada)
    assert is_admitted(breaker, bob)


def test_with_several_tenants_all_users_of_the_tenant_whose_calls_fail_are_refused() -> None:
    """Nine users of `acme` make a call each. Five calls fail, and then the others are refused."""
    users = [Owner(f"user {number}", "acme") for number in range(9)]
    user_who_has_not_called = Owner("ada", "acme")
    user_of_other_tenant = Owner("ada", "globex")
    breaker = breaker_with_tenants(are_several=True)

    make_failing_calls(breaker, users)

    for user in users:
        assert not is_admitted(breaker, user)
    assert not is_admitted(breaker, user_who_has_not_called)
    assert is_admitted(breaker, user_of_other_tenant)


def test_everybody_is_refused_when_the_calls_of_two_tenants_fail() -> None:
    """With calls of several tenants failing, the model itself seems to be down."""
    ada_of_acme = Owner("ada", "acme")
    ada_of_globex = Owner("ada", "globex")
    user_who_has_not_called = Owner("bob", "acme")
    breaker = breaker_with_tenants(are_several=True)

    make_failing_calls(breaker, [ada_of_acme, ada_of_globex] * 3)

    assert not is_admitted(breaker, ada_of_acme)
    assert not is_admitted(breaker, ada_of_globex)
    assert not is_admitted(breaker, user_who_has_not_called)


def test_nobody_is_refused_when_the_fifth_failure_is_the_first_of_another_tenant() -> None:
    """Four failures of `acme` do not open the breaker for `acme`.

    One failure of `globex` does not show that the model itself is down.
    """
    ada_of_acme = Owner("ada", "acme")
    ada_of_globex = Owner("ada", "globex")
    breaker = breaker_with_tenants(are_several=True)

    make_failing_calls(breaker, [ada_of_acme] * 4)
    make_failing_calls(breaker, [ada_of_globex])

    assert is_admitted(breaker, ada_of_acme)
    assert is_admitted(breaker, ada_of_globex)


def test_a_breaker_remembers_a_bounded_number_of_users_whose_calls_failed() -> None:
    """Otherwise its memory would grow with every user for whom a call fails."""
    breaker = Breaker()
    for number in range(3 * MAX_CALLERS):
        record_failures(breaker, Owner(f"user {number}", "acme"))

    # The lower bound shows that the largest container is that of the users.
    assert MAX_CALLERS / 2 < largest_container(breaker) <= MAX_CALLERS


# Counts of failures.


def test_failures_in_a_row_are_counted_for_each_user() -> None:
    """Ada of `globex` is another user than Ada of `acme`. A success ends a row (`reset`)."""
    ada_of_acme = Owner("ada", "acme")
    ada_of_globex = Owner("ada", "globex")
    counts = FailureCounts()

    assert counts.add(ada_of_acme) == 1
    assert counts.add(ada_of_acme) == 2
    assert counts.add(ada_of_globex) == 1

    counts.reset(ada_of_acme)
    assert counts.add(ada_of_acme) == 1
    assert counts.add(ada_of_globex) == 2


def test_only_the_failures_of_the_latest_users_are_counted() -> None:
    """With `limit=2` the failures of two users are counted; Ada's are the oldest."""
    ada = Owner("ada", "acme")
    bob = Owner("bob", "acme")
    cleo = Owner("cleo", "acme")
    counts = FailureCounts(limit=2)
    counts.add(ada)
    counts.add(bob)

    counts.add(cleo)

    assert len(counts) == 2
    assert counts.add(bob) == 2
    assert counts.add(cleo) == 2
    assert counts.add(ada) == 1  # as if it were her first failure


def texts_below(root: Any) -> list[str]:
    """Return all texts that an object holds, however deep."""
    return [value for value in values_below(root) if isinstance(value, str)]


@pytest.fixture
def zoe(store: Store) -> Owner:
    """A user, Zoe of `acme`, who has one session in the queue."""
    queue_note(store, "a note", user="zoe-4711", tenant="acme")
    return Owner("zoe-4711", "acme")


def worker_that_failed_once(memories: Memories) -> Worker:
    """Return a stopped worker that tried to write the only user of a store, and failed."""
    worker = Worker(memories, session_gap=30, writers=1, interval=0.05)
    worker.start()
    assert within(20, lambda: len(worker.writers.failures) == 1)
    assert worker.stop(grace=15)
    return worker


def test_what_a_worker_and_a_breaker_know_of_failures_holds_no_name_of_a_user(
    store: Store, zoe: Owner, failing_model: FailingModel
) -> None:
    """They count failures for each user, here for "zoe-4711".

    Nobody must find a user in a dump of the process who was forgotten since.
    """
    breaker = Breaker()
    memories = Memories(build("recursive-summary"), store, failing_model(guard=breaker))
    worker = worker_that_failed_once(memories)
    record_failures(breaker, zoe, times=DEAD_AFTER)

    for text in texts_below(worker.writers.failures) + texts_below(breaker):
        assert "zoe" not in text


def test_failures_of_a_forgotten_user_do_not_count(
    store: Store, zoe: Owner, failing_model: FailingModel
) -> None:
    """A worker has failed to write Zoe's session. Then a request forgets her."""
    program = build("recursive-summary")
    breaker = Breaker()
    lm = failing_model(guard=breaker)
    worker = worker_that_failed_once(Memories(program, store, lm))
    record_failures(breaker, zoe, times=DEAD_AFTER)
    memory_of_request = UserMemory(Memories(program, store, lm), zoe)

    memory_of_request.forget()

    assert len(worker.writers.failures) == 0
    # If they still counted, two more failures would show that the model is down for everybody.
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
    """`WriterWithFault` fails at sessions with the word "odd"."""
    program = MemoryProgram(Method(WriterWithFault(), EntryReader()), QuestionAnswering())
    memories = Memories(program, store)
    queue_note(store, "an odd note")
    queue_note(store, "a note")

    write_all_queued(memories)

    assert memories.program.method.writer.failures == 3
    (ada,) = store.users.list_all()
    assert ada.failed == 1
    assert ada.queued == 0


@pytest.mark.parametrize("damage", ["json = '{'", "state = 'lost'", "attempts = 'x'"])
def test_a_damaged_session_is_set_aside_and_reported_and_the_others_are_written(
    store: Store, model_saying: ModelSaying, start_service: StartService, damage: str
) -> None:
    """A failing disk, say, has damaged the row of the second of three queued sessions."""
    for number in range(3):
        queue_note(store, f"note {number}")
    path = store.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE mempiler_items SET {damage} WHERE position = 2")
    lm = model_saying("summary")

    counts = write_all_queued(Memories(build("recursive-summary"), store, lm))

    assert counts.items == 2
    (ada,) = store.users.list_all()
    assert ada.failed == 1
    assert build("recursive-summary").memory(store, "ada", "acme", lm).search("note")
    assert start_service().get("/ready").json()["failed"] == 1


def test_sessions_are_stored_while_the_model_is_down(
    start_service: StartService, failing_model: FailingModel
) -> None:
    client = start_service(failing_model(guard=Breaker()), tokens=False).as_tenant(None)
    assert client.add("I moved to Lisbon.").status_code == 201

    # The breaker refuses calls after five failures; clients get the same status from it.
    for _ in range(6):
        assert client.ask("Where?").status_code == 502

    assert client.add("I moved to Porto.").status_code == 201
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
    start_service: StartService, failing_model: FailingModel, log_text: io.StringIO
) -> None:
    """The line of a request is written a moment after its response."""
    client = start_service(failing_model(calls={2}))

    client.chat("Hello.")
    client.chat("Hello again.")
    client.get("/v1/users/ada")

    assert within(20, lambda: len(logged_events(log_text, "request")) == 3)
    first_chat, second_chat, status = logged_events(log_text, "request")
    assert first_chat["route"] == "/v1/chat/completions"
    assert first_chat["status"] == 200
    assert first_chat["tenant"] == "acme"
    assert second_chat["status"] == 502
    assert status["route"] == "/v1/users/{user}"


def test_the_log_holds_nothing_that_users_say_and_no_names_of_users(
    start_service: StartService, failing_model: FailingModel, log_text: io.StringIO
) -> None:
    """The second call of the model fails with "down: SECRET-reason", which may quote a user."""
    client = start_service(failing_model(calls={2}, answer="SECRET-answer"))

    client.chat("SECRET-question", user="SECRET-user")
    client.chat("SECRET-question", user="SECRET-user")

    assert within(20, lambda: len(logged_events(log_text, "request")) == 2)
    assert "SECRET" not in log_text.getvalue()


def test_the_log_has_the_type_of_an_error_and_not_its_text(
    client: Api, store: Store, database: Database, log_text: io.StringIO
) -> None:
    """The service has a bug here: listing users raises `RuntimeError("SECRET-bug")`."""
    store.users = UsersWithBug(database)

    assert client.get("/v1/users/ada").status_code == 500

    assert within(20, lambda: logged_events(log_text, "request"))
    assert '"RuntimeError"' in log_text.getvalue()
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
    """Queue notes of several users; "note 0 of 2" is the first note of user 2."""
    for user in range(users):
        for number in range(notes_of_each):
            queue_note(store, f"note {number} of {user}", user=f"user {user}")


def test_all_users_are_written_at_the_same_time(store: Store, scripted: Any) -> None:
    """The model, which writes a summary of each note, answers only when all users have asked."""
    queue_notes(store, users=12, notes_of_each=1)
    all_users_have_asked = threading.Barrier(12, timeout=10)

    def reply(field: str, prompt: str, call_number: int) -> dict[str, str]:
        all_users_have_asked.wait()
        return {field: "summary"}

    counts = write_all_queued(Memories(build("recursive-summary"), store, scripted(reply)))

    assert counts.items == 12


def test_a_slow_user_holds_up_nobody_who_comes_later(store: Store, scripted: Any) -> None:
    """When the model is asked for the slow user, a late user comes.

    It answers for the slow user only after it was asked for the late one.
    """
    queue_note(store, "a note of slow", user="slow")
    late_user_is_written = threading.Event()

    def reply(field: str, prompt: str, call_number: int) -> dict[str, str]:
        if "of slow" in prompt:
            queue_note(store, "a note of late", user="late")
            assert late_user_is_written.wait(20)
        if "of late" in prompt:
            late_user_is_written.set()
        return {field: "summary"}

    counts = write_all_queued(Memories(build("recursive-summary"), store, scripted(reply)))

    assert counts.items == 2


def test_after_a_failure_the_next_try_writes_all_that_is_left(
    store: Store, model_saying: ModelSaying, failing_model: FailingModel
) -> None:
    """A user is claimed while the notes of this user are written, so that nobody else writes them.

    If a failure left a user claimed, the next try would pass over the user's notes.
    """
    queue_notes(store, users=3, notes_of_each=2)
    program = build("recursive-summary")
    with pytest.raises(LMServerError):
        write_all_queued(Memories(program, store, failing_model(word="of 2")))
    assert queued_sessions(store) >= 2  # those of user 2

    write_all_queued(Memories(program, store, model_saying("summary")))

    assert queued_sessions(store) == 0
