"""How many dollars a tenant may spend in a day, over all processes of a service.

Before a call of a model, the dollars that it may cost at most are reserved. When it has ended, what
it cost takes their place. What is refused costs nothing, and what is given up costs all of them.

The models of these tests cost a tenth of a cent per token, and answer with 100 tokens at most
(`make_priced_lm`). So 10 cents are reserved for an answer, and more for its prompt: twice what its
tokens are estimated to cost.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dspy.utils.exceptions import (
    LMInvalidRequestError,
    LMProviderError,
    LMServerError,
    LMStreamAssemblyError,
    LMTimeoutError,
    LMTransportError,
)
from mempiler import Store, UserError, build
from mempiler.engines.endpoint.errors import (
    AbandonedCallError,
    BrokenReplyError,
    DisconnectedError,
    LargeReplyError,
)
from mempiler.engines.prices import litellm_module
from mempiler.engines.usage import Usage
from mempiler.errors import BudgetError, EndpointError, StoreError, TenantBudgetError
from mempiler.memory.store.database import Database
from mempiler.memory.store.tenant_usage import Reservation, SpendingRefusal, TenantUsage
from mempiler.serving.http.tenant_limits import TenantLimiter
from mempiler.serving.http.token_file import TenantLimits
from mempiler.serving.worker.breaker import CALLER, Breaker
from mempiler.serving.worker.worker import Worker

from ..stub_server import every
from .conftest import (
    ADA,
    PRICES,
    USD_PER_TOKEN,
    Api,
    ModelSaying,
    PausingModel,
    StartRelay,
    StartService,
    StoppedClock,
    service_over,
    serving,
    within,
    write_limits,
)

SECONDS_FROM_NOON_TO_MIDNIGHT = 12 * 3600
"""`stopped_clock` stands at noon. At midnight the next budget begins."""
HALF_A_DAY = str(SECONDS_FROM_NOON_TO_MIDNIGHT)
"""As the header `Retry-After` says it: in seconds."""
DAY = 24 * 3600


def ask_until_refused(client: Api) -> None:
    """Ask the same question until the budget refuses it."""
    for _ in range(100):
        status_code = client.ask("Where do I live?").status_code
        if status_code == 429:
            return
        assert status_code == 200
    raise AssertionError("the budget refuses nothing")


@pytest.mark.usefixtures("stopped_clock")
def test_dollars_are_limited_over_all_processes(
    start_service: StartService, store: Store, make_priced_lm: Any
) -> None:
    """Two services over one store stand for two processes, and share a budget of 2 dollars a day.

    They answer in turns until one of them refuses.
    """
    first_process = start_service(make_priced_lm(), tenant_max_usd_per_day=2.0)
    second_process = start_service(make_priced_lm(), tenant_max_usd_per_day=2.0)
    first_process.add("I moved to Lisbon.")

    statuses = [first_process.ask("Where?").status_code]
    while statuses[-1] == 200:
        client = second_process if len(statuses) % 2 == 1 else first_process
        statuses.append(client.ask("Where?").status_code)
        assert len(statuses) < 100

    assert statuses.count(200) > 2
    assert 0 < store.tenant_usage.spent_today("acme") <= 2.0
    assert first_process.ask("Where?").status_code == 429
    assert second_process.ask("Where?").status_code == 429


@pytest.fixture
def client_without_dollars(
    start_service: StartService, make_priced_lm: Any, stopped_clock: StoppedClock
) -> Api:
    """A client of the tenant `acme`, whose budget of 2 dollars a day is spent at noon."""
    client = start_service(make_priced_lm(), tenant_max_usd_per_day=2.0)
    client.add("I moved to Lisbon.")
    ask_until_refused(client)
    return client


def test_a_question_is_refused_until_midnight_when_the_budget_is_spent(
    client_without_dollars: Api,
) -> None:
    """A budget of 2 dollars a day was spent by noon, which is half a day before midnight."""
    refused = client_without_dollars.ask("Where?")

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == HALF_A_DAY
    assert "2 US dollars" in refused.json()["error"]["message"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_is_refused_until_midnight_when_the_budget_is_spent(
    client_without_dollars: Api, is_streamed: bool
) -> None:
    """A budget of 2 dollars a day was spent by noon, which is half a day before midnight."""
    refused = client_without_dollars.chat("Where do I live?", stream=is_streamed)

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == HALF_A_DAY
    assert "2 US dollars" in refused.text


def test_sessions_are_stored_though_the_budget_is_spent(client_without_dollars: Api) -> None:
    """To store a session asks no model, so it costs nothing."""
    assert client_without_dollars.add("I moved to Porto.").status_code == 201


def test_a_spent_budget_refuses_no_other_tenant(client_without_dollars: Api) -> None:
    """The tenant `acme` has spent its budget, and `globex` has not."""
    globex = client_without_dollars.as_tenant("globex")
    globex.add("I moved to Lisbon.")

    assert globex.ask("Where do I live?").status_code == 200


def test_a_new_budget_begins_at_midnight(
    client_without_dollars: Api, stopped_clock: StoppedClock
) -> None:
    stopped_clock.move_to(seconds_after_noon=SECONDS_FROM_NOON_TO_MIDNIGHT)

    assert client_without_dollars.ask("Where do I live?").status_code == 200


@pytest.mark.usefixtures("stopped_clock")
def test_dollars_stay_counted_after_a_restart(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    """A second service over the same store stands for the service after its restart."""
    first_service = service_over(store, tmp_path, make_priced_lm(), tenant_max_usd_per_day=2.0)
    with serving(first_service) as client:
        client.add("I moved to Lisbon.")
        ask_until_refused(client)

    second_service = service_over(store, tmp_path, make_priced_lm(), tenant_max_usd_per_day=2.0)
    with serving(second_service) as client:
        assert client.ask("Where do I live?").status_code == 429


@pytest.mark.usefixtures("stopped_clock")
def test_a_call_is_refused_for_a_moment_while_another_one_may_use_up_the_rest(
    start_service: StartService, make_priced_lm: Any
) -> None:
    """The budget suffices for what one question may cost at most, and not for two such questions.

    The first one may turn out cheaper, so the second one may be sent again after two seconds.
    """
    model = PausingModel(answer="Lisbon")
    client = start_service(make_priced_lm(model.reply), tenant_max_usd_per_day=1.5)
    client.add("I moved to Lisbon.")
    with ThreadPoolExecutor(1) as executor:
        first_reply = executor.submit(client.ask, "Where?")
        model.wait_until_it_is_asked()

        second_reply = client.as_tenant("acme").ask("Where?")
        model.go_on()

    assert first_reply.result().status_code == 200
    assert second_reply.status_code == 429
    assert second_reply.headers["retry-after"] == "2"
    # The first one has cost less than it might have, so enough is left.
    assert client.ask("Where?").status_code == 200


def queued_sessions(store: Store, tenant: str) -> int:
    """Return how many sessions of a tenant wait to be written."""
    return sum(user.queued for user in store.users.list_all(tenant))


@pytest.fixture
def client_with_twelve_notes(
    store: Store, tmp_path: Path, make_priced_lm: Any, stopped_clock: StoppedClock
) -> Iterator[Api]:
    """A client of `acme`, of which twelve users have a note to be written by a model.

    The budget of 1.5 dollars a day is spent when the test begins, and some notes are not written.
    """
    program = build("recursive-summary")
    service = service_over(store, tmp_path, make_priced_lm(), program, writers=4)
    write_limits(tmp_path, acme="usd-per-day=1.5")
    with serving(service) as acme:
        for number in range(12):
            assert acme.add(f"Note {number}.", user=f"user-{number}").status_code == 201
        assert within(20, lambda: service.tenant_limiter.refusals["usd"] > 0)
        yield acme


@pytest.mark.slow
def test_background_writing_stops_when_the_budget_is_spent(
    client_with_twelve_notes: Api, store: Store
) -> None:
    assert 0 < store.tenant_usage.spent_today("acme") <= 1.5
    assert 0 < queued_sessions(store, "acme") < 12
    assert client_with_twelve_notes.service.worker.alive is True


@pytest.mark.slow
def test_background_writing_goes_on_for_a_tenant_whose_budget_is_not_spent(
    client_with_twelve_notes: Api, store: Store
) -> None:
    """The tenant `acme` has spent its budget, and `globex` has not."""
    queued_sessions_of_acme = queued_sessions(store, "acme")

    client_with_twelve_notes.as_tenant("globex").add("A note.")

    assert within(20, lambda: queued_sessions(store, "globex") == 0)
    assert queued_sessions(store, "acme") == queued_sessions_of_acme


@pytest.mark.slow
@pytest.mark.usefixtures("client_with_twelve_notes")
def test_background_writing_goes_on_with_the_budgets_of_the_next_days(
    store: Store, stopped_clock: StoppedClock
) -> None:
    """Nothing tells that the budget of a day is spent, so each day gets a second and a half."""
    for day in range(1, 40):
        stopped_clock.move_to(seconds_after_noon=day * DAY)
        if within(1.5, lambda: queued_sessions(store, "acme") == 0):
            break

    assert queued_sessions(store, "acme") == 0
    assert store.users.failed_count() == 0


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_budget_holds_for_relayed_chats(
    start_relay: StartRelay, store: Store, is_streamed: bool
) -> None:
    """A relayed chat is one that the service passes on to the language model itself ("-chat")."""
    relay = start_relay(usd_per_day=1)
    chat = {"model": "my-model-chat", "max_tokens": 10, "stream": is_streamed}

    replies = [relay.client.chat("Where do I live?", **chat)]
    while replies[-1].status_code == 200:
        replies.append(relay.client.chat("Where do I live?", **chat))
        assert len(replies) < 100
    *answers, refusal = replies

    assert len(answers) > 2
    assert relay.server.answered == len(answers)
    assert 0.5 < store.tenant_usage.spent_today("acme") <= 1
    assert refusal.status_code == 429
    assert refusal.headers["retry-after"] == HALF_A_DAY


@pytest.fixture
def client_without_price(
    start_service: StartService, model_saying: ModelSaying, tmp_path: Path
) -> Api:
    """A client of `acme`, which gets a budget of 10 dollars a day after the service has started.

    The service starts without a price for its model, `scripted/test`, because no tenant had a
    budget. It looks prices up in a table of the library litellm, which has none for this model.
    """
    litellm_module()  # imported now: on a busy machine it takes longer than a request may
    acme = start_service(model_saying("Lisbon", guard=Breaker(), max_tokens=100))
    acme.add("I moved to Lisbon.")
    assert acme.ask("Where?").status_code == 200

    write_limits(tmp_path, acme="usd-per-day=10")
    return acme


def test_a_tenant_with_a_new_budget_is_refused_while_the_price_of_the_model_is_not_known(
    client_without_price: Api,
) -> None:
    refused = client_without_price.ask("Where?")

    assert refused.status_code == 503
    assert "price of a model is not known" in refused.json()["error"]["message"]


def test_a_tenant_without_a_budget_needs_no_price(client_without_price: Api) -> None:
    """Only `acme` has a budget."""
    globex = client_without_price.as_tenant("globex")
    globex.add("I moved to Lisbon.")

    assert globex.ask("Where?").status_code == 200


def test_a_new_budget_holds_once_the_price_of_the_model_is_known(
    client_without_price: Api, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service learns the price with the first question, which has to be sent again (429)."""
    assert client_without_price.ask("Where?").status_code == 503
    price = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.001}
    monkeypatch.setitem(litellm_module().model_cost, "scripted/test", price)

    first_reply = client_without_price.ask("Where?")
    second_reply = client_without_price.ask("Where?")

    assert first_reply.status_code == 429
    assert first_reply.headers["retry-after"] == "1"
    assert second_reply.status_code == 200
    assert store.tenant_usage.spent_today("acme") > 0


def test_a_budget_needs_a_model_with_a_guard(
    store: Store, tmp_path: Path, model_saying: ModelSaying
) -> None:
    """The guard of a model reserves dollars before each call, so no budget holds without it."""
    unguarded_lm = model_saying("Lisbon", prices=PRICES)

    with pytest.raises(UserError, match="guard=Breaker"):
        service_over(store, tmp_path, unguarded_lm, tenant_max_usd_per_day=1.0)


# What a call counts that fails, is given up, or is in progress when the service stops.


USD_PER_DAY = 10.0
"""The budget of every tenant in the tests below."""


class UsageThatCanFail(TenantUsage):
    """Counts like the store does; while `is_locked`, the costs of calls cannot be counted."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.is_locked = False

    def settle(self, reservation: Reservation, usd: float) -> None:
        if self.is_locked:
            raise StoreError("the database is locked")
        super().settle(reservation, usd)


@pytest.fixture
def usage(database: Database) -> UsageThatCanFail:
    """What tenants use, as the store counts it."""
    return UsageThatCanFail(database)


@pytest.fixture
def guarded_lm(make_priced_lm: Any) -> Any:
    """A model whose calls cost something."""
    return make_priced_lm()


@pytest.fixture
def limiter(usage: UsageThatCanFail, guarded_lm: Any) -> TenantLimiter:
    """The limiter of a model, which lets every tenant spend `USD_PER_DAY`."""
    limiter = TenantLimiter(usage, None, TenantLimits(usd_per_day=USD_PER_DAY))
    limiter.guard_models(guarded_lm, None)
    return limiter


@pytest.fixture
def breaker(limiter: TenantLimiter, guarded_lm: Any) -> Breaker:
    """The guard of the model. `reserve` asks the limiter before a call, and settles it afterwards.

    All calls of the tests are for Ada, a user of the tenant `acme`.
    """
    assert guarded_lm.guard.budgets is limiter
    return guarded_lm.guard


def nothing_is_reserved(store: Store) -> bool:
    """Return whether the tenant `acme` may spend all that it has not spent of `USD_PER_DAY`."""
    usd_left = USD_PER_DAY - store.tenant_usage.spent_today("acme")
    outcome = store.tenant_usage.reserve("acme", usd_left, limit=USD_PER_DAY, lifetime=60.0)
    return isinstance(outcome, Reservation)


async def end_call(breaker: Breaker, error: BaseException | None, is_async: bool) -> None:
    """Reserve half a dollar for a call, as a thread or asyncio does, and raise its error."""
    if is_async:
        async with breaker.areserve(Usage(cost=0.5)):
            if error is not None:
                raise error
    else:
        with breaker.reserve(Usage(cost=0.5)):
            if error is not None:
                raise error


def reserve_and_end_call(breaker: Breaker, error: BaseException | None, is_async: bool) -> None:
    """Make a call for Ada that gets no answer, after half a dollar was reserved for it.

    Args:
        breaker: Reserves the dollars.
        error: With what the call ends; None if it ends without an error.
        is_async: Whether it is called under asyncio.
    """

    async def call() -> None:
        CALLER.set(ADA)
        expected_error = contextlib.nullcontext() if error is None else pytest.raises(type(error))
        with expected_error:
            await end_call(breaker, error, is_async)

    asyncio.run(call())


def caused(error: Exception, cause: Exception) -> Exception:
    """Return an error with a cause, as DSPy raises it."""
    error.__cause__ = cause
    return error


FREE_ERRORS = [
    pytest.param(LMServerError("down", model="x"), id="server error"),
    pytest.param(LMTransportError("unreachable", model="x"), id="unreachable"),
    pytest.param(
        LMTimeoutError("the endpoint timed out", model="x", status=408), id="timeout of endpoint"
    ),
    pytest.param(LMInvalidRequestError("bad", model="x"), id="invalid request"),
    pytest.param(EndpointError("the breaker is open"), id="open breaker"),
]
"""The endpoint did not do the work, so it charges nothing."""

CHARGED_ERRORS = [
    pytest.param(LMTimeoutError("silent", model="x"), id="timeout of client"),
    pytest.param(
        caused(LMTimeoutError("busy", status=408), DisconnectedError("an earlier try")),
        id="earlier try was disconnected",
    ),
    pytest.param(
        caused(LMTransportError("broken"), BrokenReplyError("the answer broke off")),
        id="broken reply",
    ),
    pytest.param(
        caused(LMTransportError("hung up"), DisconnectedError("the server hung up")),
        id="disconnected",
    ),
    pytest.param(
        caused(LMProviderError("large"), LargeReplyError("more than 4 MB")), id="large reply"
    ),
    pytest.param(LMStreamAssemblyError("the stream broke off", model="x"), id="broken stream"),
    pytest.param(AbandonedCallError(), id="abandoned"),
    pytest.param(asyncio.CancelledError(), id="cancelled"),
    pytest.param(GeneratorExit(), id="closed generator"),
]
"""The endpoint may have done the work, and may charge for it."""


@pytest.mark.parametrize("error", FREE_ERRORS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_the_endpoint_refuses_costs_nothing(
    store: Store, breaker: Breaker, error: Exception, is_async: bool
) -> None:
    """After such an error the endpoint has not done the work, so it charges nothing."""
    reserve_and_end_call(breaker, error, is_async)

    assert store.tenant_usage.spent_today("acme") == 0
    assert nothing_is_reserved(store)


@pytest.mark.parametrize("error", CHARGED_ERRORS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_may_have_been_answered_costs_the_dollars_that_were_reserved(
    store: Store, breaker: Breaker, error: BaseException, is_async: bool
) -> None:
    """After such an error nobody knows what the endpoint charges. Half a dollar was reserved."""
    reserve_and_end_call(breaker, error, is_async)

    assert store.tenant_usage.spent_today("acme") == 0.5
    assert nothing_is_reserved(store)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_ends_without_an_answer_and_without_an_error_costs_nothing(
    store: Store, breaker: Breaker, is_async: bool
) -> None:
    """A call ends like that if the endpoint says that it does not serve such requests."""
    reserve_and_end_call(breaker, error=None, is_async=is_async)

    assert store.tenant_usage.spent_today("acme") == 0
    assert nothing_is_reserved(store)


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_costs_dollars_if_the_server_hangs_up_and_nothing_if_no_server_listens(
    start_relay: StartRelay, store: Store, model: str, is_streamed: bool
) -> None:
    """A server that took a request may charge for it.

    The fault "dead" cuts the connection of the first request, and then no server listens any more.
    """
    relay = start_relay(script=every("dead"))
    chat = {"model": model, "stream": is_streamed, "max_tokens": 100}

    relay.client.chat("Hi", **chat)
    spent = store.tenant_usage.spent_today("acme")
    # More was reserved than this, for the prompt.
    assert spent >= 100 * USD_PER_TOKEN

    relay.client.chat("Hi", **chat)
    assert store.tenant_usage.spent_today("acme") == spent
    assert len(relay.server.requests) == 1


def test_a_call_costs_dollars_if_the_server_hung_up_on_its_first_try(
    start_relay: StartRelay, store: Store
) -> None:
    """With `retries = 1` a call that fails is tried once more; at that time no server listens."""
    relay = start_relay(script=every("dead"))
    relay.client.service.lm.engine.retries = 1

    response = relay.client.chat("Hi", model="my-model", max_tokens=100)

    assert response.status_code == 502
    assert len(relay.server.requests) == 1
    # More was reserved than this, for the prompt.
    assert store.tenant_usage.spent_today("acme") >= 100 * USD_PER_TOKEN


async def answer_and_fail_to_store(breaker: Breaker) -> None:
    """Make a call for which half a dollar is reserved, and which costs 12.5 cents; then fail."""
    async with breaker.areserve(Usage(cost=0.5)):
        breaker.record_success(tokens=10, cost=0.125)
        raise BudgetError("the answer could not be stored")


def test_an_answered_call_costs_its_price_though_its_answer_is_not_stored(
    store: Store, breaker: Breaker
) -> None:
    """Half a dollar was reserved for the call, and it has cost 12.5 cents."""
    CALLER.set(ADA)

    with pytest.raises(BudgetError, match="could not be stored"):
        asyncio.run(answer_and_fail_to_store(breaker))

    assert store.tenant_usage.spent_today("acme") == 0.125
    assert nothing_is_reserved(store)


def make_call(breaker: Breaker) -> None:
    """Make a call for Ada that costs 25 cents; a dollar is reserved for it."""
    CALLER.set(ADA)
    with breaker.reserve(Usage(cost=1.0)):
        breaker.record_success(tokens=10, cost=0.25)


def test_a_cost_that_the_store_fails_to_count_is_counted_with_the_next_call(
    store: Store, breaker: Breaker, usage: UsageThatCanFail
) -> None:
    """The database is locked when the first two calls end. Each call costs 25 cents."""
    usage.is_locked = True
    make_call(breaker)
    make_call(breaker)
    assert store.tenant_usage.spent_today("acme") == 0

    usage.is_locked = False
    make_call(breaker)
    assert store.tenant_usage.spent_today("acme") == 0.25 + 0.25 + 0.25
    assert nothing_is_reserved(store)


def test_a_cost_that_the_store_fails_to_count_is_counted_when_the_service_stops(
    store: Store, tmp_path: Path, make_priced_lm: Any, usage: UsageThatCanFail
) -> None:
    """The database is locked while a question is answered. The service stops after the block."""
    store.tenant_usage = usage
    service = service_over(store, tmp_path, make_priced_lm(), tenant_max_usd_per_day=10.0)
    with serving(service) as client:
        client.add("I moved to Lisbon.")
        usage.is_locked = True
        client.ask("Where do I live?")
        assert usage.spent_today("acme") == 0
        usage.is_locked = False

    assert usage.spent_today("acme") > 0


def test_a_call_in_progress_when_the_service_stops_costs_its_reserved_dollars_once(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    """The service stops while a model writes a session into a memory, and waits a second (`grace`).

    The answer comes later. At most 100 tokens were reserved for it, and something for the prompt.
    """
    model = PausingModel(answer="Ada moved.")
    service = service_over(
        store,
        tmp_path,
        make_priced_lm(model.reply),
        build("recursive-summary"),
        writers=1,
        grace=1.0,
        tenant_max_usd_per_day=USD_PER_DAY,
    )
    with serving(service) as client:
        client.add("I moved to Lisbon.")
        model.wait_until_it_is_asked()
    spent_at_stop = store.tenant_usage.spent_today("acme")
    assert spent_at_stop >= 100 * USD_PER_TOKEN

    model.go_on()
    running_writers = service.worker.writers.running
    assert within(20, lambda: all(writer.done() for writer in running_writers))

    assert store.tenant_usage.spent_today("acme") == spent_at_stop
    assert nothing_is_reserved(store)


def test_calls_in_progress_are_counted_though_the_store_fails_once_when_the_service_stops(
    limiter: TenantLimiter, usage: UsageThatCanFail
) -> None:
    """A service that stops counts the dollars that are reserved for each call in progress."""
    limiter.reserve("acme", usd=1.0)
    limiter.reserve("acme", usd=2.0)

    usage.is_locked = True
    limiter.count_cut_off_calls()
    assert usage.spent_today("acme") == 0

    usage.is_locked = False
    limiter.count_earlier_calls()
    assert usage.spent_today("acme") == 1.0 + 2.0


def test_no_call_begins_after_a_stopping_service_has_counted_its_calls(
    store: Store, limiter: TenantLimiter
) -> None:
    """Nobody would count what a later call costs."""
    limiter.count_cut_off_calls()

    with pytest.raises(TenantBudgetError, match="this service ends"):
        limiter.reserve("acme", usd=1.0)
    assert nothing_is_reserved(store)


class UsageDuringStop(TenantUsage):
    """Counts like the store does; the service stops while dollars are being reserved."""

    stop_service: Callable[[], None]
    """A test sets it."""

    def reserve(
        self, tenant: str, usd: float, limit: float, lifetime: float
    ) -> Reservation | SpendingRefusal:
        outcome = super().reserve(tenant, usd, limit, lifetime)
        self.stop_service()
        return outcome


def test_a_call_whose_dollars_are_being_reserved_when_the_service_stops_costs_nothing(
    store: Store, database: Database, make_priced_lm: Any
) -> None:
    """A service that stops calls `count_cut_off_calls`, here during a reservation."""
    usage = UsageDuringStop(database)
    limiter = TenantLimiter(usage, None, TenantLimits(usd_per_day=USD_PER_DAY))
    limiter.guard_models(make_priced_lm(), None)
    usage.stop_service = limiter.count_cut_off_calls

    with pytest.raises(TenantBudgetError, match="this service ends"):
        limiter.reserve("acme", usd=1.0)

    assert store.tenant_usage.spent_today("acme") == 0
    assert nothing_is_reserved(store)


def test_a_stopping_service_counts_calls_in_progress_before_it_sends_spans(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    """Spans are records of requests, which go to a server of the operator.

    Sending them may take so long that the process is killed before it ends.
    """
    pytest.importorskip("opentelemetry.instrumentation.fastapi")
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    spent_when_spans_are_sent: list[float] = []

    class SpendingRecorder(SpanProcessor):
        def shutdown(self) -> None:
            spent_when_spans_are_sent.append(store.tenant_usage.spent_today("acme"))

    spans = TracerProvider(shutdown_on_exit=False)
    spans.add_span_processor(SpendingRecorder())
    service = service_over(
        store, tmp_path, make_priced_lm(), spans=spans, tenant_max_usd_per_day=10.0
    )

    with serving(service):
        service.tenant_limiter.reserve("acme", usd=1.0)

    assert spent_when_spans_are_sent == [1.0]


class WorkerThatFailsToStop(Worker):
    """A worker with a bug: it stops, and then raises an error."""

    has_failed = False

    def stop(self, grace: float) -> bool:
        super().stop(grace)
        self.has_failed = True
        raise RuntimeError("a bug")


def test_a_stopping_service_counts_calls_in_progress_though_its_worker_fails(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    """The worker, which writes sessions in the background, raises an error when it is stopped."""
    service = service_over(store, tmp_path, make_priced_lm(), tenant_max_usd_per_day=10.0)
    worker = WorkerThatFailsToStop(service.memories, session_gap=30, writers=0)
    service.worker = worker

    with serving(service):
        service.tenant_limiter.reserve("acme", usd=1.0)

    assert worker.has_failed
    assert store.tenant_usage.spent_today("acme") == 1.0
