"""Limits of tenants, requests in a minute and dollars in a day, over all processes of a service."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from mempiler import Store, Turn, UserError, build
from mempiler.engines.endpoint.errors import (
    AbandonedCallError,
    BrokenReplyError,
    DisconnectedError,
    LargeReplyError,
)
from mempiler.engines.prices import TokenPrices, litellm_module
from mempiler.engines.usage import Usage
from mempiler.errors import BudgetError, EndpointError, StoreError, TenantBudgetError
from mempiler.memory.store.database import Database
from mempiler.memory.store.open_sessions import OpenSessions
from mempiler.memory.store.owner import Owner
from mempiler.memory.store.tenant_usage import (
    RequestCount,
    Reservation,
    SpendingRefusal,
    TenantUsage,
)
from mempiler.serving.http.tenant_limits import TenantLimiter
from mempiler.serving.http.token_file import TenantLimits
from mempiler.serving.worker.breaker import CALLER, Breaker
from mempiler.serving.worker.worker import Worker

from ..stub_server import StubServer, every
from .conftest import ADA, TOKENS, Api, Reach, service_over, serving, within
from .served import Served, values

NOON = 1_800_057_600.0 + 12 * 3600
"""A time at which a minute and the second half of a day begin."""
HALF_DAY = 12 * 3600
DAY = 24 * 3600
PRICES = TokenPrices(input=0.001, output=0.001)
"""US dollars per token of the models in this file."""


class StoppedClock:
    """The clock of this process; it shows noon until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.move_to(seconds_after_noon=0)

    def move_to(self, seconds_after_noon: float) -> None:
        now = NOON + seconds_after_noon
        self._monkeypatch.setattr(time, "time", lambda: now)


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    """A clock that stands still, so that no minute and no day ends during a test."""
    return StoppedClock(monkeypatch)


@pytest.fixture
def make_priced_lm(scripted: Any) -> Callable[..., Any]:
    """Make a model whose calls cost something; its guard is a breaker."""

    def make(reply: Any = lambda kind, text, n: {kind: "Lisbon"}) -> Any:
        lm = scripted(reply, guard=Breaker(), prices=PRICES, max_tokens=100)
        lm.callbacks = []
        return lm

    return make


@pytest.fixture
def database(store: Store) -> Iterator[Database]:
    """Another connection to the database of the store, for fakes of the store's parts."""
    database = Database(store.url)
    yield database
    database.close()


def write_limits(folder: Path, **limits: str) -> None:
    """Write the token file again, with limits behind the tokens of some tenants."""
    lines = [f"{tenant} {token} {limits.get(tenant, '')}\n" for tenant, token in TOKENS.items()]
    (folder / "tokens").write_text("".join(lines))


# Requests in a minute.


def list_users_repeatedly(client: Api, times: int) -> list[int]:
    """Send the same request several times, and return the status codes."""
    return [client.get("/v1/users").status_code for _ in range(times)]


def test_requests_are_limited_over_all_processes(connect: Any, stopped_clock: StoppedClock) -> None:
    first_process = connect(tenant_requests_per_minute=3)
    second_process = connect(tenant_requests_per_minute=3)
    stopped_clock.move_to(20)

    assert first_process.get("/v1/users").status_code == 200
    assert second_process.get("/v1/users").status_code == 200
    assert first_process.add("I moved to Lisbon.").status_code == 201

    for client in (first_process, second_process, second_process):
        refused = client.get("/v1/users")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "40"
        assert refused.json()["error"] == {
            "message": "this tenant may send 3 requests in a minute; try again in the next one",
            "type": "rate_limit_error",
            "code": 429,
        }


def test_requests_are_allowed_again_in_the_next_minute(
    connect: Any, stopped_clock: StoppedClock
) -> None:
    first_process = connect(tenant_requests_per_minute=1)
    second_process = connect(tenant_requests_per_minute=1)
    stopped_clock.move_to(20)
    assert list_users_repeatedly(first_process, times=2) == [200, 429]
    assert list_users_repeatedly(second_process, times=1) == [429]

    stopped_clock.move_to(60)
    assert first_process.get("/v1/users").status_code == 200

    stopped_clock.move_to(120)
    assert second_process.get("/v1/users").status_code == 200


@pytest.mark.usefixtures("stopped_clock")
def test_the_limit_of_a_tenant_refuses_no_other_tenant_and_no_health_check(connect: Any) -> None:
    acme = connect(tenant_requests_per_minute=1)
    assert list_users_repeatedly(acme, times=2) == [200, 429]

    assert acme.as_tenant("globex").get("/v1/users").status_code == 200
    assert acme.get("/health").status_code == 200
    assert acme.get("/ready").status_code == 200


@pytest.mark.usefixtures("stopped_clock")
def test_a_refused_request_stores_nothing(connect: Any, store: Store) -> None:
    client = connect(tenant_requests_per_minute=0)

    assert client.add("I moved.").status_code == 429
    assert client.chat("Hello.").status_code == 429
    assert store.users.list_all() == []


@pytest.mark.usefixtures("stopped_clock")
def test_requests_stay_counted_after_a_restart(store: Store, tmp_path: Path) -> None:
    with serving(service_over(store, tmp_path, tenant_requests_per_minute=1)) as client:
        assert client.get("/v1/users").status_code == 200

    with serving(service_over(store, tmp_path, tenant_requests_per_minute=1)) as client:
        assert client.get("/v1/users").status_code == 429


@pytest.mark.usefixtures("stopped_clock")
def test_a_limit_in_the_token_file_overrides_the_option(connect: Any, tmp_path: Path) -> None:
    acme = connect(tenant_requests_per_minute=1)
    globex = acme.as_tenant("globex")
    write_limits(tmp_path, globex="requests-per-minute=3")

    assert list_users_repeatedly(acme, times=4) == [200, 429, 429, 429]
    assert list_users_repeatedly(globex, times=4) == [200, 200, 200, 429]


@pytest.mark.usefixtures("stopped_clock")
def test_a_higher_limit_in_the_token_file_holds_also_for_the_current_minute(
    connect: Any, tmp_path: Path
) -> None:
    client = connect(tenant_requests_per_minute=1)
    assert list_users_repeatedly(client, times=4) == [200, 429, 429, 429]

    write_limits(tmp_path, acme="requests-per-minute=5")

    assert client.get("/v1/users").status_code == 200


@pytest.mark.usefixtures("stopped_clock")
def test_without_tokens_all_requests_of_the_machine_share_one_limit(connect: Any) -> None:
    client = connect(tokens=False, tenant_requests_per_minute=1).as_tenant(None)
    assert list_users_repeatedly(client, times=2) == [200, 429]


@pytest.mark.usefixtures("stopped_clock")
def test_refusals_are_counted_without_names(connect: Any) -> None:
    client = connect(tokens=False, tenant_requests_per_minute=1).as_tenant(None)
    assert list_users_repeatedly(client, times=3) == [200, 429, 429]

    metrics = values(client.get("/metrics").text)

    assert metrics['mempiler_tenant_refusals_total{limit="requests"}'] == 2


class UsageThatHangsForAcme(TenantUsage):
    """Counts requests like the store does, but those of `acme` only after `may_go_on` is set."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.may_go_on = threading.Event()

    def count_request(self, tenant: str) -> RequestCount:
        if tenant == "acme":
            self.may_go_on.wait(20)
        return super().count_request(tenant)


def test_a_store_that_hangs_while_it_counts_holds_up_nobody_else(
    connect: Any, store: Store, database: Database
) -> None:
    hanging_usage = UsageThatHangsForAcme(database)
    store.tenant_usage = hanging_usage
    acme = connect(tenant_requests_per_minute=100, threads=4, store_threads=4)
    globex = acme.as_tenant("globex")
    try:
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                acme.get("/v1/users", timeout=0.1)

        started = time.monotonic()
        assert acme.get("/health").status_code == 200
        assert globex.get("/v1/users").status_code == 200
        assert time.monotonic() - started < 5
    finally:
        hanging_usage.may_go_on.set()


@pytest.mark.slow
def test_requests_are_limited_over_processes_of_their_own(tmp_path: Path) -> None:
    with Served(tmp_path, ["--grace", "5"], workers=2) as served:
        acme_line = f"acme {served.tokens['acme']} requests-per-minute=20\n"
        globex_line = f"globex {served.tokens['globex']}\n"
        (tmp_path / "tokens").write_text(acme_line + globex_line)

        first_minute = time.time() // 60
        with ThreadPoolExecutor(8) as executor:
            status_codes = list(executor.map(lambda _: served.ask("GET", "/v1/users"), range(60)))
        minutes = time.time() // 60 - first_minute + 1

        assert set(status_codes) == {200, 429}
        assert status_codes.count(200) <= 20 * minutes
        # Requests that `Served` sent at its start may be in the same minute.
        assert status_codes.count(200) >= 18


# Dollars in a day.


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
    connect: Any, store: Store, make_priced_lm: Any
) -> None:
    first_process = connect(make_priced_lm(), tenant_max_usd_per_day=2.0)
    second_process = connect(make_priced_lm(), tenant_max_usd_per_day=2.0)
    first_process.add("I moved to Lisbon.")

    # Both processes answer in turns until one of them refuses.
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
        assert refused.headers["retry-after"] == str(HALF_DAY)


@pytest.fixture
def client_without_dollars(connect: Any, make_priced_lm: Any, stopped_clock: StoppedClock) -> Api:
    """A client of the tenant `acme`, whose budget of 2 dollars a day is spent at noon."""
    client = connect(make_priced_lm(), tenant_max_usd_per_day=2.0)
    client.add("I moved to Lisbon.")
    ask_until_refused(client)
    return client


def test_a_question_is_refused_until_midnight_when_the_budget_is_spent(
    client_without_dollars: Api,
) -> None:
    refused = client_without_dollars.ask("Where?")

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == str(HALF_DAY)
    assert "2 US dollars" in refused.json()["error"]["message"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_is_refused_until_midnight_when_the_budget_is_spent(
    client_without_dollars: Api, is_streamed: bool
) -> None:
    refused = client_without_dollars.chat("Where do I live?", stream=is_streamed)

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == str(HALF_DAY)
    assert "2 US dollars" in refused.text


def test_sessions_are_stored_though_the_budget_is_spent(client_without_dollars: Api) -> None:
    assert client_without_dollars.add("I moved to Porto.").status_code == 201


def test_a_spent_budget_refuses_no_other_tenant(client_without_dollars: Api) -> None:
    globex = client_without_dollars.as_tenant("globex")
    globex.add("I moved to Lisbon.")

    assert globex.ask("Where do I live?").status_code == 200


def test_a_new_budget_begins_at_midnight(
    client_without_dollars: Api, stopped_clock: StoppedClock
) -> None:
    stopped_clock.move_to(HALF_DAY)

    assert client_without_dollars.ask("Where do I live?").status_code == 200


@pytest.mark.usefixtures("stopped_clock")
def test_dollars_stay_counted_after_a_restart(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
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
    connect: Any, make_priced_lm: Any
) -> None:
    is_asked = threading.Event()
    may_answer = threading.Event()

    def wait(kind: str, text: str, n: int) -> dict[str, str]:
        is_asked.set()
        may_answer.wait(20)
        return {kind: "Lisbon"}

    # The budget suffices for one call at a time, by what a call may cost at most.
    client = connect(make_priced_lm(wait), tenant_max_usd_per_day=1.5)
    client.add("I moved to Lisbon.")
    with ThreadPoolExecutor(1) as executor:
        first_reply = executor.submit(client.ask, "Where?")
        assert is_asked.wait(20)

        second_reply = client.as_tenant("acme").ask("Where?")
        may_answer.set()

    assert second_reply.status_code == 429
    assert second_reply.headers["retry-after"] == "2"
    assert first_reply.result().status_code == 200
    # The first call has cost less than was reserved for it, so enough is left.
    assert client.ask("Where?").status_code == 200


def queued_sessions(store: Store, tenant: str) -> int:
    """Return how many sessions of a tenant wait to be written."""
    return sum(user.queued for user in store.users.list_all(tenant))


def test_background_writing_waits_for_the_next_day(
    store: Store, tmp_path: Path, make_priced_lm: Any, stopped_clock: StoppedClock
) -> None:
    lm = make_priced_lm()
    service = service_over(store, tmp_path, lm, build("recursive-summary"), writers=4)
    write_limits(tmp_path, acme="usd-per-day=1.5")
    with serving(service) as acme:
        for n in range(12):
            assert acme.add(f"Note {n}.", user=f"user-{n}").status_code == 201

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

        # On each of the next days some more are written, until none is left.
        for day in range(1, 12):
            stopped_clock.move_to(day * DAY)
            if within(4, lambda: queued_sessions(store, "acme") == 0):
                break
        assert queued_sessions(store, "acme") == 0
        assert store.users.failed_count() == 0


@dataclass(frozen=True)
class Relay:
    """A service that relays chats to a stub model, whose calls cost something."""

    client: Api
    server: StubServer

    @property
    def failed_calls(self) -> int:
        return self.client.service.lm.meter.read().failed

    def has_no_request(self) -> bool:
        """Return whether no request holds a place in the pool of the model."""
        return self.client.service.model_pool.held.total() == 0


StartRelay = Callable[..., Relay]


@pytest.fixture
def start_relay(reach: Reach, tmp_path: Path) -> StartRelay:
    """Start a relay with the keywords of `reach`; the tenant `acme` has a budget."""

    def start(usd_per_day: float = 100, **stub: Any) -> Relay:
        client, _, server = reach(**stub)
        client.service.lm.prices = PRICES
        write_limits(tmp_path, acme=f"usd-per-day={usd_per_day}")
        return Relay(client, server)

    return start


@pytest.mark.usefixtures("stopped_clock")
def test_a_budget_holds_for_relayed_chats(start_relay: StartRelay, store: Store) -> None:
    relay = start_relay(usd_per_day=1)
    body = {"model": "my-model-chat", "max_tokens": 10}

    # Every second chat is streamed.
    replies: list[httpx.Response] = []
    while not replies or replies[-1].status_code == 200:
        assert len(replies) < 100
        number = len(replies)
        is_streamed = number % 2 == 1
        reply = relay.client.chat(f"Where do I live? {number}", stream=is_streamed, **body)
        replies.append(reply)
    *answers, refusal = replies

    assert len(answers) > 2
    assert relay.server.answered == len(answers)
    assert 0.5 < store.tenant_usage.spent_today("acme") <= 1
    assert refusal.status_code == 429
    assert refusal.headers["retry-after"] == str(HALF_DAY)
    assert relay.client.as_tenant("globex").chat("Where?", **body).status_code == 200


def test_a_budget_that_is_added_later_holds_once_the_prices_are_known(
    connect: Any,
    store: Store,
    tmp_path: Path,
    scripted: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = scripted(lambda kind, text, n: {kind: "Lisbon"}, guard=Breaker(), max_tokens=100)
    acme = connect(lm)
    globex = acme.as_tenant("globex")
    acme.add("I moved to Lisbon.")
    globex.add("I moved to Lisbon.")
    assert acme.ask("Where?").status_code == 200

    # The tenant gets a budget, but nobody knows what the model costs.
    write_limits(tmp_path, acme="usd-per-day=10")
    reply_without_price = acme.ask("Where?")
    assert reply_without_price.status_code == 503
    error = reply_without_price.json()["error"]
    assert "price of a model is not known" in error["message"]
    assert globex.ask("Where?").status_code == 200

    # litellm's table gets the price. What the next call may cost was not estimated by it yet.
    price = {"input_cost_per_token": 0.001, "output_cost_per_token": 0.001}
    monkeypatch.setitem(litellm_module().model_cost, "scripted/test", price)
    reply_without_estimate = acme.ask("Where?")
    assert reply_without_estimate.status_code == 429
    assert reply_without_estimate.headers["retry-after"] == "1"

    assert acme.ask("Where?").status_code == 200
    assert store.tenant_usage.spent_today("acme") > 0


def test_a_budget_needs_a_model_with_a_known_price(
    store: Store, tmp_path: Path, scripted: Any
) -> None:
    unpriced_lm = scripted(lambda kind, text, n: {kind: "x"}, guard=Breaker())

    with pytest.raises(UserError, match="price of scripted/test is not known") as raised:
        service_over(store, tmp_path, unpriced_lm, tenant_max_usd_per_day=1.0)
    assert "use --tenant-requests" in str(raised.value)


def test_a_budget_needs_a_model_with_a_guard(store: Store, tmp_path: Path, scripted: Any) -> None:
    unguarded_lm = scripted(lambda kind, text, n: {kind: "x"}, prices=PRICES)

    with pytest.raises(UserError, match="guard=Breaker"):
        service_over(store, tmp_path, unguarded_lm, tenant_max_usd_per_day=1.0)


# What a call counts that fails, is given up, or is in progress when the service stops.


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
    """The limiter of a model, which lets every tenant spend 10 dollars a day."""
    limiter = TenantLimiter(usage, None, TenantLimits(usd_per_day=10.0))
    limiter.guard_models(guarded_lm, None)
    return limiter


@pytest.fixture
def breaker(limiter: TenantLimiter, guarded_lm: Any) -> Breaker:
    """The guard of the model, which asks the limiter before each call."""
    assert guarded_lm.guard.budgets is limiter
    return guarded_lm.guard


def can_reserve(store: Store, usd: float) -> bool:
    """Return whether so many dollars are left of the 10 that the tenant `acme` may spend."""
    outcome = store.tenant_usage.reserve("acme", usd, limit=10.0, lifetime=60.0)
    return isinstance(outcome, Reservation)


async def reserve_and_fail(breaker: Breaker, error: BaseException, is_async: bool) -> None:
    """Reserve 50 cents for a call, and fail with an error."""
    if is_async:
        async with breaker.areserve(Usage(cost=0.5)):
            raise error
    else:
        with breaker.reserve(Usage(cost=0.5)):
            raise error


async def make_failing_call(breaker: Breaker, error: BaseException, is_async: bool) -> None:
    """Make a call for Ada that may cost 50 cents, and fails with an error."""
    CALLER.set(ADA)
    with pytest.raises(type(error)):
        await reserve_and_fail(breaker, error, is_async)


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
    asyncio.run(make_failing_call(breaker, error, is_async))

    assert store.tenant_usage.spent_today("acme") == 0.0
    assert can_reserve(store, 10.0)


@pytest.mark.parametrize("error", CHARGED_ERRORS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_is_given_up_counts_as_what_was_reserved(
    store: Store, breaker: Breaker, error: BaseException, is_async: bool
) -> None:
    asyncio.run(make_failing_call(breaker, error, is_async))

    assert store.tenant_usage.spent_today("acme") == 0.5
    assert can_reserve(store, 9.5)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_ends_without_an_answer_and_without_an_error_costs_nothing(
    store: Store, breaker: Breaker, is_async: bool
) -> None:
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
    assert can_reserve(store, 10.0)


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_endpoint_that_hangs_up_counts_and_one_that_is_away_does_not(
    start_relay: StartRelay, store: Store, model: str, is_streamed: bool
) -> None:
    # It hangs up on the first request. From then on nobody listens.
    relay = start_relay(script=every("dead"))
    fields = {"model": model, "stream": is_streamed, "max_tokens": 100}

    assert relay.client.chat("Hi", **fields).status_code == 502
    assert len(relay.server.requests) == 1
    spent = store.tenant_usage.spent_today("acme")
    # Most of what is reserved is for the 100 tokens of the answer.
    assert spent >= 0.1

    assert relay.client.chat("Hi", **fields).status_code == 502
    assert store.tenant_usage.spent_today("acme") == spent


def test_a_call_counts_if_the_endpoint_hung_up_on_any_of_its_tries(
    start_relay: StartRelay, store: Store
) -> None:
    # It hangs up on the first try. At the second one nobody listens, which costs nothing.
    relay = start_relay(script=every("dead"))
    relay.client.service.lm.engine.retries = 1

    assert relay.client.chat("Hi", model="my-model", max_tokens=100).status_code == 502
    assert len(relay.server.requests) == 1
    # Most of what is reserved is for the 100 tokens of the answer.
    assert store.tenant_usage.spent_today("acme") >= 0.1


def test_a_call_that_began_before_the_first_budget_is_refused(breaker: Breaker) -> None:
    CALLER.set(ADA)
    # What the call may cost was not estimated when it began. The prices are known by now.
    not_estimated = Usage(unpriced=1)

    with (
        pytest.raises(TenantBudgetError, match="not known yet"),
        breaker.reserve(not_estimated),
    ):
        pytest.fail("the call was made")


def test_nothing_is_estimated_without_a_limit(make_priced_lm: Any) -> None:
    assert make_priced_lm().expected_usage(None).unpriced == 1


def test_an_answered_call_counts_what_it_cost_whatever_happens_next(
    store: Store, breaker: Breaker
) -> None:
    async def call() -> None:
        CALLER.set(ADA)
        with contextlib.suppress(BudgetError):
            async with breaker.areserve(Usage(cost=0.5)):
                breaker.record_success(10, 0.125)
                raise BudgetError("e.g. the answer could not be stored")
        with pytest.raises(TenantBudgetError):
            async with breaker.areserve(Usage(cost=9.9)):
                pass

    asyncio.run(call())

    assert store.tenant_usage.spent_today("acme") == 0.125


def test_a_cost_that_the_store_fails_to_count_is_counted_with_the_next_call(
    store: Store, breaker: Breaker, usage: UsageThatCanFail
) -> None:
    def make_call() -> None:
        with breaker.reserve(Usage(cost=1.0)):
            breaker.record_success(10, 0.25)

    CALLER.set(ADA)
    usage.is_locked = True
    make_call()
    make_call()
    assert store.tenant_usage.spent_today("acme") == 0

    usage.is_locked = False
    make_call()
    assert store.tenant_usage.spent_today("acme") == 0.75
    # Nothing is reserved any more.
    assert can_reserve(store, 9.25)


def test_a_cost_that_the_store_fails_to_count_is_counted_when_the_service_stops(
    store: Store, tmp_path: Path, make_priced_lm: Any, usage: UsageThatCanFail
) -> None:
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


def test_a_call_of_a_writer_that_the_stop_cuts_off_counts_once_as_what_was_reserved(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    is_asked = threading.Event()
    may_answer = threading.Event()

    def wait(kind: str, text: str, n: int) -> dict[str, str]:
        is_asked.set()
        may_answer.wait(30)
        return {kind: "Ada moved."}

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
        assert is_asked.wait(20)
    spent_at_stop = store.tenant_usage.spent_today("acme")
    # Most of what is reserved is for the 100 tokens of the answer.
    assert spent_at_stop >= 0.1

    # The answer, which comes later, is not counted as well.
    may_answer.set()
    running_writers = service.worker.writers.running
    assert within(20, lambda: all(writer.done() for writer in running_writers))
    assert store.tenant_usage.spent_today("acme") == spent_at_stop
    # Nothing is reserved any more.
    assert can_reserve(store, 10.0 - spent_at_stop)


def test_a_store_that_fails_once_at_the_stop_loses_none_of_the_calls_in_progress(
    limiter: TenantLimiter, usage: UsageThatCanFail
) -> None:
    for usd in (1.0, 2.0, 4.0):
        limiter.reserve("acme", usd)

    usage.is_locked = True
    limiter.count_cut_off_calls()
    assert usage.spent_today("acme") == 0

    usage.is_locked = False
    limiter.count_earlier_calls()
    assert usage.spent_today("acme") == 7.0


def test_no_call_begins_after_the_calls_in_progress_were_counted(
    store: Store, limiter: TenantLimiter
) -> None:
    limiter.count_cut_off_calls()

    with pytest.raises(TenantBudgetError, match="this service ends"):
        limiter.reserve("acme", 1.0)
    # Nothing is reserved.
    assert can_reserve(store, 10.0)


class UsageDuringStop(TenantUsage):
    """Counts like the store does; at the end of each reservation it calls `on_reserved`."""

    on_reserved: Callable[[], None]

    def reserve(
        self, tenant: str, usd: float, limit: float, lifetime: float
    ) -> Reservation | SpendingRefusal:
        outcome = super().reserve(tenant, usd, limit, lifetime)
        self.on_reserved()
        return outcome


def test_a_call_that_was_reserving_at_the_stop_does_not_begin_and_costs_nothing(
    store: Store, database: Database, make_priced_lm: Any
) -> None:
    usage = UsageDuringStop(database)
    limiter = TenantLimiter(usage, None, TenantLimits(usd_per_day=10.0))
    limiter.guard_models(make_priced_lm(), None)
    usage.on_reserved = limiter.count_cut_off_calls

    with pytest.raises(TenantBudgetError, match="this service ends"):
        limiter.reserve("acme", 1.0)

    assert store.tenant_usage.spent_today("acme") == 0
    assert can_reserve(store, 10.0)


def test_calls_that_the_stop_cuts_off_are_counted_before_spans_are_sent(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
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


def test_calls_that_the_stop_cuts_off_are_counted_though_the_worker_fails_to_stop(
    store: Store, tmp_path: Path, make_priced_lm: Any
) -> None:
    service = service_over(store, tmp_path, make_priced_lm(), tenant_max_usd_per_day=10.0)
    worker = WorkerThatFailsToStop(service.memories, session_gap=30, writers=0)
    service.worker = worker

    with serving(service):
        service.tenant_limiter.reserve("acme", 1.0)

    assert worker.has_failed
    assert store.tenant_usage.spent_today("acme") == 1.0


# What a relayed stream counts.

USAGE = {"prompt_tokens": 100, "completion_tokens": 300}
"""The usage that the stub reports, which costs 40 cents."""
DONE = b"data: [DONE]\n\n"
BROKEN_OFF = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n"
"""The head of a reply that is shorter than it says."""


def events(*chunks: dict[str, Any]) -> bytes:
    """Return the chunks of a stream as they are sent."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join(lines).encode()


def chunk(
    delta: dict[str, Any], index: int = 0, finish_reason: str | None = None
) -> dict[str, Any]:
    """Return one chunk of a streamed answer; `index` is the number of the answer."""
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
    return {"choices": [choice]}


def streamed_chat(max_tokens: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return the body of a streamed chat of Ada's with the model itself."""
    body = {
        "model": "my-model-chat",
        "user": "ada",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        **fields,
    }
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    return body


def relay_stream(start_relay: StartRelay, answer: bytes, **fields: Any) -> httpx.Response:
    """Relay a streamed chat to a stub that answers with these bytes, and return the response."""
    relay = start_relay(answer=lambda body: answer)
    response = relay.client.post(
        "/v1/chat/completions", json=streamed_chat(max_tokens=100, **fields)
    )
    # The service needs the usage, so it asks for it, whether or not the client does.
    request_body = relay.server.requests[0][2]
    assert request_body["stream_options"]["include_usage"] is True
    return response


def test_a_stream_counts_its_usage_though_the_client_did_not_ask_for_it(
    start_relay: StartRelay, store: Store
) -> None:
    answer = events(
        chunk({"content": "Lisbon"}, finish_reason="stop"),
        {"choices": [], "usage": USAGE},
    )

    response = relay_stream(start_relay, answer + DONE)

    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.4)
    assert '"usage"' not in response.text
    assert response.text.endswith("data: [DONE]\n\n")


def test_a_client_that_asks_for_the_usage_of_a_stream_gets_it(
    start_relay: StartRelay, store: Store
) -> None:
    answer = events(
        chunk({"content": "Lisbon"}, finish_reason="stop"),
        {"choices": [], "usage": USAGE},
    )

    response = relay_stream(start_relay, answer + DONE, stream_options={"include_usage": True})

    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.4)
    assert '"usage"' in response.text
    assert response.text.endswith("data: [DONE]\n\n")


def test_a_stream_without_usage_counts_all_answers_and_tool_calls(
    start_relay: StartRelay, store: Store
) -> None:
    words = "word " * 400
    tool_call = {"index": 0, "function": {"name": "f", "arguments": json.dumps({"x": words})}}
    answer = events(
        chunk({"content": words}),
        chunk({"content": words}, index=1),
        chunk({"tool_calls": [tool_call]}, index=2),
        chunk({}, finish_reason="stop"),
    )

    relay_stream(start_relay, answer, n=3)

    # Each of the three has 400 words or more, which cost 40 cents or more.
    assert 1.2 <= store.tenant_usage.spent_today("acme") < 3


def test_a_stream_that_breaks_off_counts_as_what_was_reserved(
    start_relay: StartRelay, store: Store
) -> None:
    response = relay_stream(start_relay, events(chunk({"content": "Lis"})))

    assert '"code": 502' in response.text
    # Most of what is reserved is for the 100 tokens of the answer.
    assert store.tenant_usage.spent_today("acme") >= 0.1


def test_done_ends_a_stream_also_without_a_space_before_it(start_relay: StartRelay) -> None:
    answer = events(chunk({"content": "Lisbon"})) + b"data:[DONE]\n\n"

    response = relay_stream(start_relay, answer)

    assert response.text.endswith("data:[DONE]\n\n")


@pytest.mark.parametrize("client_leaves", [False, True])
def test_a_stream_ends_at_done_though_the_endpoint_keeps_its_connection_open(
    start_relay: StartRelay, store: Store, client_leaves: bool
) -> None:
    stream_has_ended = threading.Event()
    has_ended_in_time: list[bool] = []

    def keep_open() -> None:
        """Keep the connection open until the stream has ended, for 5 seconds at most."""
        has_ended_in_time.append(stream_has_ended.wait(5))

    relay = start_relay(answer=lambda body: "Lisbon", usage=USAGE, before_close=keep_open)

    lines: list[str] = []
    with relay.client.stream("POST", "/v1/chat/completions", json=streamed_chat()) as response:
        for line in response.iter_lines():
            lines.append(line)
            if line == "data: [DONE]" and client_leaves:
                break
    assert within(10, relay.has_no_request)
    stream_has_ended.set()

    assert within(10, lambda: has_ended_in_time == [True])
    assert "data: [DONE]" in lines[-2:]
    assert "error" not in "".join(lines)
    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.4)
    assert relay.failed_calls == 0


def test_a_client_that_leaves_a_whole_answer_before_its_usage_pays_for_what_was_written(
    start_relay: StartRelay, store: Store
) -> None:
    may_send_usage = threading.Event()

    def wait_before_usage(event_number: int) -> None:
        if event_number == 3:
            may_send_usage.wait(20)

    relay = start_relay(answer=lambda body: "Lisbon", usage=USAGE, between=wait_before_usage)

    body = streamed_chat(max_tokens=1000)
    with relay.client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if '"finish_reason": "stop"' in line:
                break
    assert within(10, relay.has_no_request)
    may_send_usage.set()

    # 1 dollar and more was reserved.
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5
    assert relay.failed_calls == 0


def read_two_answers_then_break_off(start_relay: StartRelay, last_finish_reason: str | None) -> str:
    """Relay a stream of two answers that breaks off once both were read, and return its text."""
    answers = events(
        chunk({"content": "Porto"}, index=1, finish_reason=last_finish_reason),
        chunk({"content": "Lisbon"}, finish_reason="stop"),
    )
    may_break_off = threading.Event()
    relay = start_relay(
        answer=lambda body: BROKEN_OFF + answers,
        before_close=lambda: may_break_off.wait(20),
    )

    lines: list[str] = []
    body = streamed_chat(max_tokens=1000, n=2)
    with relay.client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            lines.append(line)
            if "Lisbon" in line:
                may_break_off.set()
    return "".join(lines)


def test_a_stream_that_breaks_off_after_all_answers_counts_what_was_written(
    start_relay: StartRelay, store: Store
) -> None:
    text = read_two_answers_then_break_off(start_relay, last_finish_reason="stop")

    assert '"code": 502' not in text
    # 2 dollars and more were reserved.
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5


def test_a_stream_that_breaks_off_before_an_answer_ends_counts_as_what_was_reserved(
    start_relay: StartRelay, store: Store
) -> None:
    text = read_two_answers_then_break_off(start_relay, last_finish_reason=None)

    assert '"code": 502' in text
    # 2 dollars and more were reserved.
    assert store.tenant_usage.spent_today("acme") > 2


class OpenSessionsWithoutAnswers(OpenSessions):
    """Stores what users say, and fails to store answers."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.has_failed = threading.Event()

    def append(
        self, owner: Owner, session_id: str, turns: Sequence[Turn], *arguments: Any, **named: Any
    ) -> tuple[Turn, ...]:
        # The other arguments are those of the store.
        if turns[0].speaker == "assistant":
            self.has_failed.set()
            raise StoreError("the database is locked")
        return super().append(owner, session_id, turns, *arguments, **named)


@pytest.fixture
def sessions_without_answers(store: Store, database: Database) -> OpenSessionsWithoutAnswers:
    """The open sessions of the store, which from now on fails to store answers."""
    open_sessions = OpenSessionsWithoutAnswers(database)
    store.open_sessions = open_sessions
    return open_sessions


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("Lisbon", id="whole answer"),
        pytest.param(events(chunk({"content": "Lisbon"})) + DONE, id="done without a reason"),
    ],
)
@pytest.mark.usefixtures("sessions_without_answers")
def test_an_answer_that_cannot_be_stored_fails_as_such_while_the_connection_stays_open(
    start_relay: StartRelay, store: Store, answer: str | bytes
) -> None:
    may_close = threading.Event()
    relay = start_relay(
        answer=lambda body: answer,
        usage=USAGE,
        before_close=lambda: may_close.wait(20),
    )

    body = streamed_chat(max_tokens=1000)
    response = relay.client.post("/v1/chat/completions", json=body)
    may_close.set()

    assert '"code": 503' in response.text
    # 1 dollar and more was reserved.
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5


def test_an_answer_that_cannot_be_stored_fails_as_such_though_the_endpoint_breaks_off(
    start_relay: StartRelay,
    store: Store,
    sessions_without_answers: OpenSessionsWithoutAnswers,
) -> None:
    answer = BROKEN_OFF + events(chunk({"content": "Lisbon"}, finish_reason="stop"))
    relay = start_relay(
        answer=lambda body: answer,
        usage=USAGE,
        before_close=lambda: sessions_without_answers.has_failed.wait(20),
    )

    body = streamed_chat(max_tokens=1000)
    response = relay.client.post("/v1/chat/completions", json=body)

    assert '"code": 503' in response.text
    # 1 dollar and more was reserved.
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.usefixtures("sessions_without_answers")
def test_an_answer_that_cannot_be_stored_counts_what_it_cost(
    start_relay: StartRelay, store: Store, is_streamed: bool
) -> None:
    relay = start_relay(answer=lambda body: "Lisbon", usage=USAGE)

    response = relay.client.chat("Hi", model="my-model-chat", stream=is_streamed, max_tokens=1000)

    assert '"code":503' in response.text.replace(" ", "")
    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.4)
