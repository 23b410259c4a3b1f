"""How many dollars a tenant may spend in a day, over all processes of a service.

Before a call of a model, the dollars that it may cost at most are reserved. When it has ended, what
it cost takes their place. What is refused costs nothing, and what is given up costs all of them.

The models of these tests cost a tenth of a cent per token, and answer with 100 tokens at most
(`make_priced_lm`). So 10 cents are reserved for an answer, and more for its prompt: twice what its
tokens are estimated to cost.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
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
    Api,
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

    The clock stands at noon, so a refused client may try again after half a day.
    """
    first_process = start_service(make_priced_lm(), tenant_max_usd_per_day=2.0)
    second_process = start_service(make_priced_lm(), tenant_max_usd_per_day=2.0)
    first_process.add("I moved to Lisbon.")

    # They answer in turns until one of them refuses.
    status_codes: list[int] = []
    while 429 not in status_codes:
        client = first_process if len(status_codes) % 2 == 0 else second_process
        status_codes.append(client.ask("Where do I live?").status_code)
        assert len(status_codes) < 100

    assert status_codes.count(200) > 2
    assert 0 < store.tenant_usage.spent_today("acme") <= 2.0
    for client in (first_process, second_process):
        refused = client.ask("Where?")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == str(SECONDS_FROM_NOON_TO_MIDNIGHT)


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
    """The fixture has spent a budget of 2 dollars by noon, half a day before midnight."""
    refused = client_without_dollars.ask("Where?")

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == str(SECONDS_FROM_NOON_TO_MIDNIGHT)
    assert "2 US dollars" in refused.json()["error"]["message"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_is_refused_until_midnight_when_the_budget_is_spent(
    client_without_dollars: Api, is_streamed: bool
) -> None:
    """The fixture has spent a budget of 2 dollars by noon, half a day before midnight."""
    refused = client_without_dollars.chat("Where do I live?", stream=is_streamed)

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == str(SECONDS_FROM_NOON_TO_MIDNIGHT)
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
    stopped_clock.move_to(SECONDS_FROM_NOON_TO_MIDNIGHT)

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
    spent_before_restart = store.tenant_usage.spent_today("acme")
    assert spent_before_restart > 0

    second_service = service_over(store, tmp_path, make_priced_lm(), tenant_max_usd_per_day=2.0)
    with serving(second_service) as client:
        assert client.ask("Where do I live?").status_code == 429
    assert store.tenant_usage.spent_today("acme") == spent_before_restart


@pytest.mark.usefixtures("stopped_clock")
def test_a_call_is_refused_for_a_moment_while_others_may_use_up_the_rest(
    start_service: StartService, make_priced_lm: Any
) -> None:
    """The budget of 1.5 dollars suffices for what one question may cost at most, and not for two.

    So the second question is refused while the first one waits for its answer. The first one may
    turn out cheaper, so the second may be sent again after two seconds.
    """
    model_is_asked = threading.Event()
    model_may_answer = threading.Event()

    def wait(field: str, prompt: str, call_number: int) -> dict[str, str]:
        model_is_asked.set()
        model_may_answer.wait(20)
        return {field: "Lisbon"}

    client = start_service(make_priced_lm(wait), tenant_max_usd_per_day=1.5)
    client.add("I moved to Lisbon.")
    with ThreadPoolExecutor(1) as executor:
        first_reply = executor.submit(client.ask, "Where?")
        assert model_is_asked.wait(20)

        second_reply = client.as_tenant("acme").ask("Where?")
        model_may_answer.set()

    assert second_reply.status_code == 429
    assert second_reply.headers["retry-after"] == "2"
    assert first_reply.result().status_code == 200
    # The first call has cost less than was reserved for it, so enough is left.
    assert client.ask("Where?").status_code == 200


def queued_sessions(store: Store, tenant: str) -> int:
    """Return how many sessions of a tenant wait to be written."""
    return sum(user.queued for user in store.users.list_all(tenant))


@pytest.mark.slow
def test_background_writing_waits_for_the_next_day(
    store: Store, tmp_path: Path, make_priced_lm: Any, stopped_clock: StoppedClock
) -> None:
    """Writers put stored sessions into memories, and ask a model for that, which costs something.

    With a budget of 1.5 dollars a day, the sessions of twelve users are written over several days.
    """
    lm = make_priced_lm()
    service = service_over(store, tmp_path, lm, build("recursive-summary"), writers=4)
    write_limits(tmp_path, acme="usd-per-day=1.5")
    with serving(service) as acme:
        for number in range(12):
            assert acme.add(f"Note {number}.", user=f"user-{number}").status_code == 201

        # The budget of the first day suffices for some sessions, and not for all.
        assert within(20, lambda: service.tenant_limiter.refusals["usd"] > 0)
        assert 0 < store.tenant_usage.spent_today("acme") <= 1.5
        queued_on_first_day = queued_sessions(store, "acme")
        assert 0 < queued_on_first_day < 12

        # Sessions of another tenant are written meanwhile.
        globex = acme.as_tenant("globex")
        assert globex.add("A note.").status_code == 201
        assert within(20, lambda: queued_sessions(store, "globex") == 0)
        assert queued_sessions(store, "acme") == queued_on_first_day
        assert service.worker.alive is True

        # On each of the next days some more are written, until none is left. Nothing tells that the
        # budget of a day is spent, so each day gets a second and a half.
        for day in range(1, 40):
            stopped_clock.move_to(day * DAY)
            if within(1.5, lambda: queued_sessions(store, "acme") == 0):
                break
        assert queued_sessions(store, "acme") == 0
        assert store.users.failed_count() == 0


@pytest.mark.usefixtures("stopped_clock")
def test_a_budget_holds_for_relayed_chats(start_relay: StartRelay, store: Store) -> None:
    """A relayed chat is one that the service passes on to the language model itself.

    The tenant `acme` may spend 1 dollar a day.
    """
    relay = start_relay(usd_per_day=1)
    # With this name of a model the service passes a chat on to the model itself.
    fields = {"model": "my-model-chat", "max_tokens": 10}

    # Every second chat is streamed.
    replies: list[httpx.Response] = []
    while not replies or replies[-1].status_code == 200:
        assert len(replies) < 100
        number = len(replies)
        is_streamed = number % 2 == 1
        reply = relay.client.chat(f"Where do I live? {number}", stream=is_streamed, **fields)
        replies.append(reply)
    *answers, refusal = replies

    assert len(answers) > 2
    assert relay.server.answered == len(answers)
    assert 0.5 < store.tenant_usage.spent_today("acme") <= 1
    assert refusal.status_code == 429
    assert refusal.headers["retry-after"] == str(SECONDS_FROM_NOON_TO_MIDNIGHT)
    assert relay.client.as_tenant("globex").chat("Where?", **fields).status_code == 200


@pytest.fixture
def client_without_price(start_service: StartService, scripted: Any, tmp_path: Path) -> Api:
    """A client of `acme`, which gets a budget of 10 dollars a day after the service has started.

    The service starts without a price for its model, `scripted/test`, because no tenant had a
    budget. It looks prices up in a table of the library litellm, which has none for this model.
    """
    litellm_module()  # imported now: on a busy machine it takes longer than a request may
    lm = scripted(
        lambda field, prompt, call_number: {field: "Lisbon"}, guard=Breaker(), max_tokens=100
    )
    acme = start_service(lm)
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
    """Nobody has estimated what the first call with the price may cost, so it is to be repeated."""
    assert client_without_price.ask("Where?").status_code == 503
    price = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.001}
    monkeypatch.setitem(litellm_module().model_cost, "scripted/test", price)

    first_call = client_without_price.ask("Where?")
    second_call = client_without_price.ask("Where?")

    assert first_call.status_code == 429
    assert first_call.headers["retry-after"] == "1"
    assert second_call.status_code == 200
    assert store.tenant_usage.spent_today("acme") > 0


def test_a_budget_needs_a_model_with_a_known_price(
    store: Store, tmp_path: Path, scripted: Any
) -> None:
    """The table of litellm, a library that knows prices of models, has none for `scripted/test`."""
    unpriced_lm = scripted(lambda field, prompt, call_number: {field: "x"}, guard=Breaker())

    with pytest.raises(UserError, match="price of scripted/test is not known") as raised:
        service_over(store, tmp_path, unpriced_lm, tenant_max_usd_per_day=1.0)
    assert "use --tenant-requests" in str(raised.value)


def test_a_budget_needs_a_model_with_a_guard(store: Store, tmp_path: Path, scripted: Any) -> None:
    """The guard of a model reserves dollars before each call, so no budget holds without it."""
    unguarded_lm = scripted(lambda field, prompt, call_number: {field: "x"}, prices=PRICES)

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


def can_reserve(store: Store, usd: float) -> bool:
    """Return whether so many dollars are left of those that the tenant `acme` may spend."""
    outcome = store.tenant_usage.reserve("acme", usd, limit=USD_PER_DAY, lifetime=60.0)
    return isinstance(outcome, Reservation)


async def reserve_and_fail(
    breaker: Breaker, usd: float, error: BaseException, is_async: bool
) -> None:
    """Reserve dollars for a call, as a thread does or as asyncio does, and fail with an error."""
    if is_async:
        async with breaker.areserve(Usage(cost=usd)):
            raise error
    else:
        with breaker.reserve(Usage(cost=usd)):
            raise error


async def make_failing_call(
    breaker: Breaker, usd: float, error: BaseException, is_async: bool
) -> None:
    """Make a call for Ada that fails with an error, after so many dollars were reserved for it."""
    CALLER.set(ADA)
    with pytest.raises(type(error)):
        await reserve_and_fail(breaker, usd, error, is_async)


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
    """The call ends with an error for which no endpoint charges. The budget is 10 dollars."""
    asyncio.run(make_failing_call(breaker, usd=0.5, error=error, is_async=is_async))

    assert store.tenant_usage.spent_today("acme") == 0.0
    assert can_reserve(store, usd=10.0)


@pytest.mark.parametrize("error", CHARGED_ERRORS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_may_have_been_answered_costs_the_dollars_that_were_reserved(
    store: Store, breaker: Breaker, error: BaseException, is_async: bool
) -> None:
    """After its error nobody knows what the endpoint charges. The budget is 10 dollars."""
    asyncio.run(make_failing_call(breaker, usd=0.5, error=error, is_async=is_async))

    assert store.tenant_usage.spent_today("acme") == 0.5
    assert can_reserve(store, usd=9.5)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_ends_without_an_answer_and_without_an_error_costs_nothing(
    store: Store, breaker: Breaker, is_async: bool
) -> None:
    """A call ends like that if the endpoint says that it does not serve such requests.

    The budget is 10 dollars.
    """

    async def call() -> None:
        CALLER.set(ADA)
        if is_async:
            async with breaker.areserve(Usage(cost=0.5)):
                pass
        else:
            with breaker.reserve(Usage(cost=0.5)):
                pass

    asyncio.run(call())

    assert store.tenant_usage.spent_today("acme") == 0.0
    assert can_reserve(store, usd=10.0)


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_costs_dollars_if_the_server_hangs_up_and_nothing_if_no_server_listens(
    start_relay: StartRelay, store: Store, model: str, is_streamed: bool
) -> None:
    """A server that took a request may charge for it. Nothing is done without a connection.

    The fault "dead" cuts the connection of the first request. From then on no server listens. 10
    cents are reserved for an answer of 100 tokens, and something for its prompt.
    """
    relay = start_relay(script=every("dead"))
    fields = {"model": model, "stream": is_streamed, "max_tokens": 100}

    assert relay.client.chat("Hi", **fields).status_code == 502
    assert len(relay.server.requests) == 1
    spent = store.tenant_usage.spent_today("acme")
    assert spent >= 0.1

    assert relay.client.chat("Hi", **fields).status_code == 502
    assert store.tenant_usage.spent_today("acme") == spent


def test_a_call_costs_dollars_if_the_server_hung_up_on_its_first_try(
    start_relay: StartRelay, store: Store
) -> None:
    """With `retries = 1` a call that fails is tried once more; at that time no server listens.

    10 cents are reserved for an answer of 100 tokens, and something for its prompt.
    """
    relay = start_relay(script=every("dead"))
    relay.client.service.lm.engine.retries = 1

    response = relay.client.chat("Hi", model="my-model", max_tokens=100)

    assert response.status_code == 502
    assert len(relay.server.requests) == 1
    assert store.tenant_usage.spent_today("acme") >= 0.1


def test_a_call_that_began_before_the_first_budget_is_refused(breaker: Breaker) -> None:
    """Without budgets nobody estimates what a call may cost. A budget comes after this call began.

    So nothing can be reserved for it, and the client has to try again.
    """
    CALLER.set(ADA)
    not_estimated = Usage(unpriced=1)

    with (
        pytest.raises(TenantBudgetError, match="not known yet"),
        breaker.reserve(not_estimated),
    ):
        pytest.fail("the call was made")


def test_nothing_is_estimated_without_a_limit(make_priced_lm: Any) -> None:
    """Then what a call may cost is "unpriced", and its prompt, here None, is not even looked at."""
    lm_without_limit = make_priced_lm()

    assert lm_without_limit.expected_usage(None) == Usage(unpriced=1)


def test_an_answered_call_costs_its_price_though_its_answer_is_not_stored(
    store: Store, breaker: Breaker
) -> None:
    """Half a dollar is reserved for the call, and it costs 12.5 cents.

    An error follows its answer.
    """

    async def make_call_whose_answer_is_not_stored() -> None:
        async with breaker.areserve(Usage(cost=0.5)):
            breaker.record_success(tokens=10, cost=0.125)
            raise BudgetError("the answer could not be stored")

    async def make_calls() -> None:
        CALLER.set(ADA)
        with pytest.raises(BudgetError, match="could not be stored"):
            await make_call_whose_answer_is_not_stored()
        # 12.5 cents of 10 dollars are spent, so 9.90 dollars are too many.
        with pytest.raises(TenantBudgetError):
            async with breaker.areserve(Usage(cost=9.9)):
                pass

    asyncio.run(make_calls())

    assert store.tenant_usage.spent_today("acme") == 0.125


def test_a_cost_that_the_store_fails_to_count_is_counted_with_the_next_call(
    store: Store, breaker: Breaker, usage: UsageThatCanFail
) -> None:
    """The database is locked when the first two calls end. Each call costs 25 cents.

    The budget is 10 dollars.
    """

    def make_call() -> None:
        with breaker.reserve(Usage(cost=1.0)):
            breaker.record_success(tokens=10, cost=0.25)

    CALLER.set(ADA)
    usage.is_locked = True
    make_call()
    make_call()
    assert store.tenant_usage.spent_today("acme") == 0

    usage.is_locked = False
    make_call()
    assert store.tenant_usage.spent_today("acme") == 0.75
    # Nothing is reserved any more.
    assert can_reserve(store, usd=9.25)


def test_a_cost_that_the_store_fails_to_count_is_counted_when_the_service_stops(
    store: Store, tmp_path: Path, make_priced_lm: Any, usage: UsageThatCanFail
) -> None:
    """The database is locked while a question is answered.

    The service stops when the block ends.
    """
    store.tenant_usage = usage
    with serving(
        service_over(store, tmp_path, make_priced_lm(), tenant_max_usd_per_day=10.0)
    ) as client:
        client.add("I moved to Lisbon.")

        usage.is_locked = True
        assert client.ask("Where do I live?").status_code == 200
        assert usage.spent_today("acme") == 0

        usage.is_locked = False
    assert usage.spent_today("acme") > 0


def test_a_call_in_progress_when_the_service_stops_costs_its_reserved_dollars_once(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    """A writer asks its model to write a session into a memory. The service waits a second for it.

    10 cents and more are reserved for the call. The budget is 10 dollars.
    """
    model_is_asked = threading.Event()
    model_may_answer = threading.Event()

    def wait(field: str, prompt: str, call_number: int) -> dict[str, str]:
        model_is_asked.set()
        model_may_answer.wait(30)
        return {field: "Ada moved."}

    service = service_over(
        store,
        tmp_path,
        make_priced_lm(wait),
        build("recursive-summary"),
        writers=1,
        grace=1.0,
        tenant_max_usd_per_day=10.0,
    )

    # The service stops while a writer waits for its model.
    with serving(service) as client:
        client.add("I moved to Lisbon.")
        assert model_is_asked.wait(20)
    spent_at_stop = store.tenant_usage.spent_today("acme")
    assert spent_at_stop >= 0.1

    # The answer, which comes later, is not counted as well.
    model_may_answer.set()
    running_writers = service.worker.writers.running
    assert within(20, lambda: all(writer.done() for writer in running_writers))
    assert store.tenant_usage.spent_today("acme") == spent_at_stop
    # Nothing is reserved any more.
    assert can_reserve(store, usd=10.0 - spent_at_stop)


def test_calls_in_progress_are_counted_though_the_store_fails_once_when_the_service_stops(
    limiter: TenantLimiter, usage: UsageThatCanFail
) -> None:
    """A service that stops counts each call in progress as the dollars that were reserved for it.

    Three calls have reserved 1, 2 and 4 dollars here, and the store fails at the first attempt.
    """
    for usd in (1.0, 2.0, 4.0):
        limiter.reserve("acme", usd)

    usage.is_locked = True
    limiter.count_cut_off_calls()
    assert usage.spent_today("acme") == 0

    usage.is_locked = False
    limiter.count_earlier_calls()
    assert usage.spent_today("acme") == 1.0 + 2.0 + 4.0


def test_no_call_begins_after_a_stopping_service_has_counted_its_calls(
    store: Store, limiter: TenantLimiter
) -> None:
    """A service calls `count_cut_off_calls` when it stops. Nobody would count a later call."""
    limiter.count_cut_off_calls()

    with pytest.raises(TenantBudgetError, match="this service ends"):
        limiter.reserve("acme", 1.0)
    # Nothing is reserved.
    assert can_reserve(store, usd=10.0)  # the whole budget


class UsageDuringStop(TenantUsage):
    """Counts like the store does; a test lets the service stop at the end of a reservation.

    It calls `on_reserved`, which the test sets.
    """

    on_reserved: Callable[[], None]

    def reserve(
        self, tenant: str, usd: float, limit: float, lifetime: float
    ) -> Reservation | SpendingRefusal:
        outcome = super().reserve(tenant, usd, limit, lifetime)
        self.on_reserved()
        return outcome


def test_a_call_whose_dollars_are_being_reserved_when_the_service_stops_costs_nothing(
    store: Store, database: Database, make_priced_lm: Any
) -> None:
    """A service calls `count_cut_off_calls` when it stops, here during a reservation."""
    usage = UsageDuringStop(database)
    limiter = TenantLimiter(usage, None, TenantLimits(usd_per_day=USD_PER_DAY))
    limiter.guard_models(make_priced_lm(), None)
    usage.on_reserved = limiter.count_cut_off_calls

    with pytest.raises(TenantBudgetError, match="this service ends"):
        limiter.reserve("acme", 1.0)

    assert store.tenant_usage.spent_today("acme") == 0
    assert can_reserve(store, usd=10.0)  # the whole budget


def test_a_stopping_service_counts_calls_in_progress_before_it_sends_spans(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    """Spans are records of requests, which a service sends to a server of its operator.

    Sending them may take so long that the process is killed before it ends.
    """
    pytest.importorskip("opentelemetry.instrumentation.fastapi")
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    spent_at_shutdown: list[float] = []

    class SpendingRecorder(SpanProcessor):
        """Notes what the tenant has spent when the spans are to be sent."""

        def shutdown(self) -> None:
            spent_at_shutdown.append(store.tenant_usage.spent_today("acme"))

    spans = TracerProvider(shutdown_on_exit=False)
    spans.add_span_processor(SpendingRecorder())
    service = service_over(
        store, tmp_path, make_priced_lm(), spans=spans, tenant_max_usd_per_day=10.0
    )

    with serving(service):
        service.tenant_limiter.reserve("acme", 1.0)

    assert spent_at_shutdown == [1.0]


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
        service.tenant_limiter.reserve("acme", 1.0)

    assert worker.has_failed
    assert store.tenant_usage.spent_today("acme") == 1.0
