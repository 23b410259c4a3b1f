"""Limits of tenants, requests in a minute and dollars in a day, over all processes of a service."""

import asyncio
import contextlib
import json
import threading
import time
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
from mempiler.engines.prices import TokenPrices
from mempiler.engines.usage import Usage
from mempiler.errors import BudgetError, EndpointError, StoreError, TenantBudgetError
from mempiler.serving.http.conversation import Conversation
from mempiler.serving.http.tenant_limits import TenantLimiter
from mempiler.serving.http.token_file import TenantLimits
from mempiler.serving.worker.breaker import CALLER, Breaker

from ..stub_server import every
from .conftest import ADA, TOKENS, Reach, service_over, serving, within
from .served import Served, values

NOON = 1_800_057_600.0 + 12 * 3600
"""A time at which a minute and the second half of a day begin."""
HALF_DAY, DAY = 12 * 3600, 24 * 3600
PRICES = TokenPrices(input=0.001, output=0.001)
SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Stop the clock at so many seconds after noon; at noon unless said otherwise."""

    def stop_at(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: NOON + seconds)

    stop_at(0)
    return stop_at


@pytest.fixture
def priced(scripted: Any) -> Callable[..., Any]:
    """Make a model whose calls cost something; its guard is a breaker."""

    def make(reply: Any = lambda kind, text, n: {kind: "Lisbon"}) -> Any:
        lm = scripted(reply, guard=Breaker(), prices=PRICES, max_tokens=100)
        lm.callbacks = []
        return lm

    return make


def limit_in_file(folder: Path, **limits: str) -> None:
    """Write the token file anew, with limits behind the tokens of some tenants."""
    lines = [f"{tenant} {token} {limits.get(tenant, '')}\n" for tenant, token in TOKENS.items()]
    (folder / "tokens").write_text("".join(lines))


# Requests.


def test_requests_are_limited_over_all_processes(connect: Any, set_clock: SetClock) -> None:
    first, second = connect(tenant_requests_per_minute=3), connect(tenant_requests_per_minute=3)
    set_clock(20)
    assert first.get("/v1/users").status_code == 200
    assert second.get("/v1/users").status_code == 200
    assert first.add("I moved to Lisbon.").status_code == 201
    for client in (first, second, second):
        refused = client.get("/v1/users")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "40"
        assert refused.json()["error"] == {
            "message": "this tenant may send 3 requests in a minute; try again in the next one",
            "type": "rate_limit_error",
            "code": 429,
        }

    others = [
        first.as_tenant("globex").get("/v1/users"),
        second.get("/health"),
        second.get("/ready"),
    ]
    assert [answer.status_code for answer in others] == [200, 200, 200]
    set_clock(60)
    assert [client.get("/v1/users").status_code for client in (first, second)] == [200, 200]


def test_a_refused_request_stores_nothing(connect: Any, store: Store, set_clock: SetClock) -> None:
    client = connect(tenant_requests_per_minute=0)
    assert client.add("I moved.").status_code == 429
    assert client.chat("Hello.").status_code == 429
    assert store.users.list_all() == []


def test_requests_stay_counted_after_a_restart(
    store: Store, tmp_path: Path, set_clock: SetClock
) -> None:
    for status in (200, 429):
        with serving(service_over(store, tmp_path, tenant_requests_per_minute=1)) as client:
            assert client.get("/v1/users").status_code == status


def test_a_line_of_the_token_file_overrides_the_option(
    connect: Any, tmp_path: Path, set_clock: SetClock
) -> None:
    client = connect(tenant_requests_per_minute=1)
    limit_in_file(tmp_path, globex="requests-per-minute=3")
    for tenant, allowed in (("acme", 1), ("globex", 3)):
        statuses = [client.as_tenant(tenant).get("/v1/users").status_code for _ in range(4)]
        assert statuses == [200] * allowed + [429] * (4 - allowed)
    # A higher limit holds at once, also in this minute.
    limit_in_file(tmp_path, acme="requests-per-minute=5")
    assert client.get("/v1/users").status_code == 200


def test_without_tokens_the_option_limits_the_machine(connect: Any, set_clock: SetClock) -> None:
    client = connect(tokens=False, tenant_requests_per_minute=1).as_tenant(None)
    assert [client.get("/v1/users").status_code for _ in range(2)] == [200, 429]


def test_refusals_are_counted_without_names(connect: Any, set_clock: SetClock) -> None:
    client = connect(tokens=False, tenant_requests_per_minute=1).as_tenant(None)
    for _ in range(3):
        client.get("/v1/users")
    counted = values(client.get("/metrics").text)
    assert counted['mempiler_tenant_refusals_total{limit="requests"}'] == 2


def test_a_store_that_hangs_while_it_counts_holds_up_nobody_else(
    connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(tenant_requests_per_minute=100, threads=4, store_threads=4)
    go, count = threading.Event(), store.tenant_usage.count_request

    def hanging(tenant: str) -> Any:
        if tenant == "acme":
            go.wait(20)
        return count(tenant)

    monkeypatch.setattr(store.tenant_usage, "count_request", hanging)
    try:
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                client.get("/v1/users", timeout=0.1)
        begun = time.monotonic()
        assert client.get("/health").status_code == 200
        assert client.as_tenant("globex").get("/v1/users").status_code == 200
        assert time.monotonic() - begun < 5
    finally:
        go.set()


@pytest.mark.slow
def test_requests_are_limited_over_processes_of_their_own(tmp_path: Path) -> None:
    with Served(tmp_path, ["--grace", "5"], workers=2) as served:
        limited = [f"{tenant} {token}\n" for tenant, token in served.tokens.items()]
        limited[0] = f"acme {served.tokens['acme']} requests-per-minute=20\n"
        (tmp_path / "tokens").write_text("".join(limited))
        begun = time.time() // 60
        with ThreadPoolExecutor(8) as clients:
            statuses = list(clients.map(lambda n: served.ask("GET", "/v1/users"), range(60)))
        minutes = time.time() // 60 - begun + 1
        assert set(statuses) == {200, 429}
        assert statuses.count(200) <= 20 * minutes
        # A request of the start may be in the same minute.
        assert statuses.count(200) >= 18


# Dollars.


def test_dollars_are_limited_over_all_processes_until_midnight(
    store: Store, tmp_path: Path, priced: Any, set_clock: SetClock
) -> None:
    limit = 2.0
    options = {"tenant_max_usd_per_day": limit}
    with (
        serving(service_over(store, tmp_path, priced(), **options)) as first,
        serving(service_over(store, tmp_path, priced(), **options)) as second,
    ):
        first.add("I moved to Lisbon.")
        first.as_tenant("globex").add("I moved to Lisbon.")
        statuses = list[int]()
        while 429 not in statuses:
            statuses.append((first, second)[len(statuses) % 2].ask("Where do I live?").status_code)
            assert len(statuses) < 100
        assert statuses.count(200) > 2
        assert 0 < store.tenant_usage.spent_today("acme") <= limit

        for refused in (first.ask("Where?"), second.ask("Where?"), second.chat("Where do I live?")):
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == str(HALF_DAY)
            assert "2 US dollars" in refused.json()["error"]["message"]
        streamed = second.chat("Where do I live?", stream=True)
        assert streamed.status_code == 429
        assert streamed.headers["retry-after"] == str(HALF_DAY)

        assert first.add("I moved to Porto.").status_code == 201
        assert second.as_tenant("globex").ask("Where do I live?").status_code == 200
        set_clock(HALF_DAY)
        assert second.ask("Where do I live?").status_code == 200


def test_dollars_stay_counted_after_a_restart(
    store: Store, tmp_path: Path, priced: Any, set_clock: SetClock
) -> None:
    options = {"tenant_max_usd_per_day": 2.0}
    with serving(service_over(store, tmp_path, priced(), **options)) as client:
        client.add("I moved to Lisbon.")
        for _ in range(100):
            if client.ask("Where?").status_code == 429:
                break
    spent = store.tenant_usage.spent_today("acme")
    with serving(service_over(store, tmp_path, priced(), **options)) as client:
        assert client.ask("Where?").status_code == 429
    assert store.tenant_usage.spent_today("acme") == spent > 0


def test_a_call_is_refused_for_a_moment_while_others_may_use_up_the_rest(
    store: Store, tmp_path: Path, priced: Any, set_clock: SetClock
) -> None:
    asked, go = threading.Event(), threading.Event()

    def wait(kind: str, text: str, n: int) -> dict[str, str]:
        asked.set()
        go.wait(20)
        return {kind: "Lisbon"}

    lm = priced(wait)
    with serving(service_over(store, tmp_path, lm, tenant_max_usd_per_day=1.5)) as client:
        client.add("I moved to Lisbon.")
        statuses = list[int]()
        thread = threading.Thread(target=lambda: statuses.append(client.ask("Where?").status_code))
        thread.start()
        assert asked.wait(20)
        refused = client.as_tenant("acme").ask("Where?")
        go.set()
        thread.join(20)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "2"
        assert statuses == [200]
        # It has cost less than was reserved.
        assert client.ask("Where?").status_code == 200


def test_background_writing_waits_for_the_next_day(
    store: Store, tmp_path: Path, priced: Any, set_clock: SetClock
) -> None:
    def queued(tenant: str) -> int:
        return sum(user.queued for user in store.users.list_all(tenant))

    service = service_over(store, tmp_path, priced(), build("recursive-summary"), writers=4)
    limit_in_file(tmp_path, acme="usd-per-day=1.5")
    with serving(service) as client:
        for n in range(12):
            assert client.add(f"Note {n}.", user=f"user-{n}").status_code == 201
        assert within(20, lambda: service.tenant_limiter.refusals["usd"] > 0)
        assert 0 < store.tenant_usage.spent_today("acme") <= 1.5
        waiting = queued("acme")
        assert 0 < waiting < 12

        other = client.as_tenant("globex")
        assert other.add("A note.").status_code == 201
        assert within(20, lambda: queued("globex") == 0)
        assert queued("acme") == waiting
        assert service.worker.alive is True
        # Whoever is not written is tried anew on each of the next days.
        for day in range(1, 12):
            set_clock(day * DAY)
            if within(4, lambda: queued("acme") == 0):
                break
        assert queued("acme") == 0
        assert store.users.failed_count() == 0


def test_a_budget_holds_for_relayed_chats(
    reach: Reach, store: Store, tmp_path: Path, set_clock: SetClock
) -> None:
    client, _, server = reach()
    client.service.lm.prices = PRICES
    body = {"model": "my-model-chat", "max_tokens": 10}
    limit_in_file(tmp_path, acme="usd-per-day=1")
    statuses = list[int]()
    while 429 not in statuses and len(statuses) < 100:
        stream = len(statuses) % 2 == 1
        answer = client.chat(f"Where do I live? {len(statuses)}", stream=stream, **body)
        statuses.append(answer.status_code)
    assert statuses.count(200) > 2
    assert server.answered == statuses.count(200)
    assert 0.5 < store.tenant_usage.spent_today("acme") <= 1
    assert answer.headers["retry-after"] == str(HALF_DAY)
    assert client.as_tenant("globex").chat("Where?", **body).status_code == 200


def test_a_budget_that_comes_later_holds_once_the_prices_are_known(
    store: Store, tmp_path: Path, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = scripted(lambda kind, text, n: {kind: "Lisbon"}, guard=Breaker(), max_tokens=100)
    known: dict[str, TokenPrices] = {}
    monkeypatch.setattr("mempiler.serving.http.tenant_limits.token_prices", known.get)
    with serving(service_over(store, tmp_path, lm)) as client:
        client.add("I moved to Lisbon.")
        assert client.ask("Where?").status_code == 200
        limit_in_file(tmp_path, acme="usd-per-day=10")
        refused = client.ask("Where?")
        assert refused.status_code == 503
        assert "price of a model is not known" in refused.json()["error"]["message"]
        assert client.as_tenant("globex").ask("Where?").status_code in (200, 404)
        known["scripted/test"] = PRICES
        late = client.ask("Where?")
        assert late.status_code == 429
        assert late.headers["retry-after"] == "1"
        assert client.ask("Where?").status_code == 200
        assert store.tenant_usage.spent_today("acme") > 0


def test_a_budget_needs_prices_and_a_guard(store: Store, tmp_path: Path, scripted: Any) -> None:
    unpriced = scripted(lambda kind, text, n: {kind: "x"}, guard=Breaker())
    with pytest.raises(
        UserError, match=r"price of scripted/test is not known.*use --tenant-requests"
    ):
        service_over(store, tmp_path, unpriced, tenant_max_usd_per_day=1.0)
    unguarded = scripted(lambda kind, text, n: {kind: "x"}, prices=PRICES)
    with pytest.raises(UserError, match="guard=Breaker"):
        service_over(store, tmp_path, unguarded, tenant_max_usd_per_day=1.0)


# What a call counts that is not answered.


@pytest.fixture
def breaker(store: Store, priced: Any) -> Breaker:
    """The guard of a model, where every tenant may spend 10 dollars."""
    lm = priced()
    limiter = TenantLimiter(store.tenant_usage, None, TenantLimits(usd_per_day=10.0))
    limiter.guard_models(lm, None)
    return lm.guard


def caused(error: Exception, cause: Exception) -> Exception:
    """Return an error with a cause, as DSPy raises it."""
    error.__cause__ = cause
    return error


ENDINGS: list[tuple[BaseException | None, float]] = [
    (None, 0.0),
    (LMServerError("down", model="x"), 0.0),
    (LMTransportError("unreachable", model="x"), 0.0),
    (LMTimeoutError("the endpoint timed out", model="x", status=408), 0.0),
    (LMTimeoutError("silent", model="x"), 0.5),
    (caused(LMTimeoutError("busy", status=408), DisconnectedError("an earlier try")), 0.5),
    (caused(LMTransportError("broken"), BrokenReplyError("the answer broke off")), 0.5),
    (caused(LMTransportError("hung up"), DisconnectedError("the server hung up")), 0.5),
    (caused(LMProviderError("large"), LargeReplyError("more than 4 MB")), 0.5),
    (LMStreamAssemblyError("the stream broke off", model="x"), 0.5),
    (LMInvalidRequestError("bad", model="x"), 0.0),
    (EndpointError("the breaker is open"), 0.0),
    (AbandonedCallError(), 0.5),
    (asyncio.CancelledError(), 0.5),
    (GeneratorExit(), 0.5),
]


@pytest.mark.parametrize(("error", "spent"), ENDINGS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_is_given_up_counts_as_what_was_reserved(
    store: Store, breaker: Breaker, error: BaseException | None, spent: float, is_async: bool
) -> None:
    expected = Usage(cost=0.5)

    def call() -> None:
        with breaker.reserve(expected):
            if error is not None:
                raise error

    async def acall() -> None:
        async with breaker.areserve(expected):
            if error is not None:
                raise error

    async def as_ada() -> None:
        CALLER.set(ADA)
        with contextlib.suppress(BaseException):
            if is_async:
                await acall()
            else:
                call()

    asyncio.run(as_ada())
    assert store.tenant_usage.spent_today("acme") == spent
    whole_rest = store.tenant_usage.reserve("acme", 10.0 - spent, 10.0, 60.0)
    assert hasattr(whole_rest, "id")


@pytest.mark.parametrize("model", ["my-model", "my-model-chat"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_endpoint_that_hangs_up_counts_and_one_that_is_away_does_not(
    reach: Reach, store: Store, tmp_path: Path, model: str, is_streamed: bool
) -> None:
    # It hangs up on the first request. From then on nobody listens.
    client, _, server = reach(script=every("dead"))
    client.service.lm.prices = PRICES
    limit_in_file(tmp_path, acme="usd-per-day=100")
    fields = {"model": model, "stream": is_streamed, "max_tokens": 100}
    assert client.chat("Hi", **fields).status_code == 502
    spent = store.tenant_usage.spent_today("acme")
    assert len(server.requests) == 1
    # Most of what is reserved is that of the answer.
    assert spent >= 0.1
    assert client.chat("Hi", **fields).status_code == 502
    assert store.tenant_usage.spent_today("acme") == spent


def test_a_call_counts_if_the_endpoint_hung_up_on_any_of_its_tries(
    reach: Reach, store: Store, tmp_path: Path
) -> None:
    # It hangs up on the first try. At the second one nobody listens, which costs nothing.
    client, _, server = reach(script=every("dead"))
    client.service.lm.prices = PRICES
    client.service.lm.engine.retries = 1
    limit_in_file(tmp_path, acme="usd-per-day=100")
    assert client.chat("Hi", model="my-model", max_tokens=100).status_code == 502
    assert len(server.requests) == 1
    # Most of what is reserved is that of the answer.
    assert store.tenant_usage.spent_today("acme") >= 0.1


def test_a_call_that_began_before_the_first_budget_is_refused(breaker: Breaker) -> None:
    CALLER.set(ADA)
    # The prices are known by now. What the call may cost was not estimated.
    with (
        pytest.raises(TenantBudgetError, match="not known yet"),
        breaker.reserve(Usage(unpriced=1)),
    ):
        pytest.fail("the call was made")


def test_nothing_is_estimated_without_a_limit(priced: Any) -> None:
    assert priced().expected_usage(None).unpriced == 1


def test_a_cost_that_the_store_fails_to_count_is_counted_with_the_next_call(
    store: Store, breaker: Breaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = store.tenant_usage.settle
    is_locked = True

    def fail_first(*arguments: Any, **named: Any) -> None:
        if is_locked:
            raise StoreError("the database is locked")
        settle(*arguments, **named)

    def make_call() -> None:
        with breaker.reserve(Usage(cost=1.0)):
            breaker.record_success(10, 0.25)

    monkeypatch.setattr(store.tenant_usage, "settle", fail_first)
    CALLER.set(ADA)
    make_call()
    make_call()
    assert store.tenant_usage.spent_today("acme") == 0
    is_locked = False
    make_call()
    assert store.tenant_usage.spent_today("acme") == 0.75
    # Nothing is reserved any more.
    assert hasattr(store.tenant_usage.reserve("acme", 9.25, 10.0, 60.0), "id")


def test_a_cost_that_the_store_fails_to_count_is_counted_when_the_service_stops(
    store: Store, tmp_path: Path, priced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("the database is locked")

    service = service_over(store, tmp_path, priced(), tenant_max_usd_per_day=10.0)
    with serving(service) as client:
        client.add("I moved to Lisbon.")
        with monkeypatch.context() as patches:
            patches.setattr(store.tenant_usage, "settle", fail)
            assert client.ask("Where do I live?").status_code == 200
        assert store.tenant_usage.spent_today("acme") == 0
    assert store.tenant_usage.spent_today("acme") > 0


def test_a_call_of_a_writer_that_the_stop_cuts_off_counts_once_as_what_was_reserved(
    store: Store, tmp_path: Path, priced: Any
) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def wait(kind: str, text: str, n: int) -> dict[str, str]:
        is_asked.set()
        may_answer.wait(30)
        return {kind: "Ada moved."}

    program = build("recursive-summary")
    settings = {"writers": 1, "grace": 1.0, "tenant_max_usd_per_day": 10.0}
    service = service_over(store, tmp_path, priced(wait), program, **settings)
    with serving(service) as client:
        client.add("I moved to Lisbon.")
        assert is_asked.wait(20)
    spent = store.tenant_usage.spent_today("acme")
    # Most of it for the answer, of 100 tokens at most.
    assert spent >= 0.1

    may_answer.set()
    writers = service.worker.writers
    assert within(20, lambda: all(writer.done() for writer in writers.running))
    assert store.tenant_usage.spent_today("acme") == spent
    # Nothing is reserved any more.
    assert hasattr(store.tenant_usage.reserve("acme", 10.0 - spent, 10.0, 60.0), "id")


@pytest.fixture
def limiter(breaker: Breaker) -> TenantLimiter:
    """The limiter behind the guard, where every tenant may spend 10 dollars."""
    assert isinstance(breaker.budgets, TenantLimiter)
    return breaker.budgets


def test_a_store_that_fails_once_at_the_stop_loses_none_of_the_calls_in_progress(
    store: Store, limiter: TenantLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("the database is locked")

    for usd in (1.0, 2.0, 4.0):
        limiter.reserve("acme", usd)
    with monkeypatch.context() as patches:
        patches.setattr(store.tenant_usage, "settle", fail)
        limiter.count_cut_off_calls()
    assert store.tenant_usage.spent_today("acme") == 0

    limiter.count_earlier_calls()
    assert store.tenant_usage.spent_today("acme") == 7.0


def test_no_call_begins_after_the_calls_in_progress_were_counted(
    store: Store, limiter: TenantLimiter
) -> None:
    limiter.count_cut_off_calls()
    with pytest.raises(TenantBudgetError, match="this service ends"):
        limiter.reserve("acme", 1.0)
    # Nothing is reserved.
    assert hasattr(store.tenant_usage.reserve("acme", 10.0, 10.0, 60.0), "id")


def test_a_call_that_was_reserving_at_the_stop_does_not_begin_and_costs_nothing(
    store: Store, limiter: TenantLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = store.tenant_usage.reserve

    def stop_meanwhile(*arguments: Any) -> Any:
        reservation = reserve(*arguments)
        limiter.count_cut_off_calls()
        return reservation

    with monkeypatch.context() as patches:
        patches.setattr(store.tenant_usage, "reserve", stop_meanwhile)
        with pytest.raises(TenantBudgetError, match="this service ends"):
            limiter.reserve("acme", 1.0)
    assert store.tenant_usage.spent_today("acme") == 0
    assert hasattr(store.tenant_usage.reserve("acme", 10.0, 10.0, 60.0), "id")


def test_calls_that_the_stop_cuts_off_are_counted_before_spans_are_sent(
    store: Store, tmp_path: Path, priced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.instrumentation.fastapi")
    from opentelemetry.sdk.trace import TracerProvider

    spent_at_shutdown: list[float] = []
    spans = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(
        spans, "shutdown", lambda: spent_at_shutdown.append(store.tenant_usage.spent_today("acme"))
    )
    service = service_over(store, tmp_path, priced(), spans=spans, tenant_max_usd_per_day=10.0)
    with serving(service):
        service.tenant_limiter.reserve("acme", 1.0)
    assert spent_at_shutdown == [1.0]


def test_calls_that_the_stop_cuts_off_are_counted_though_the_worker_fails_to_stop(
    store: Store, tmp_path: Path, priced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_over(store, tmp_path, priced(), tenant_max_usd_per_day=10.0)
    stop = service.worker.stop

    def stop_and_fail(grace: float) -> None:
        stop(grace)
        raise RuntimeError("a bug")

    monkeypatch.setattr(service.worker, "stop", stop_and_fail)
    with serving(service):
        service.tenant_limiter.reserve("acme", 1.0)
    assert store.tenant_usage.spent_today("acme") == 1.0


# What a relayed stream counts.

USAGE = {"prompt_tokens": 100, "completion_tokens": 300}


def events(*chunks: dict[str, Any]) -> bytes:
    """Return the chunks of a stream as they are sent."""
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join(lines).encode()


def written(delta: dict[str, Any], index: int = 0, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def spend_on_stream(
    reach: Reach, store: Store, folder: Path, answer: bytes, **fields: Any
) -> tuple[float, str]:
    """Relay a streamed chat of a tenant with a budget; return the dollars, and what was sent."""
    client, _, server = reach(lambda body: answer)
    client.service.lm.prices = PRICES
    limit_in_file(folder, acme="usd-per-day=100")
    response = client.chat("Hi", model="my-model-chat", stream=True, max_tokens=100, **fields)
    assert server.requests[0][2]["stream_options"]["include_usage"] is True
    return store.tenant_usage.spent_today("acme"), response.text


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_stream_counts_its_usage_which_the_client_need_not_ask_for(
    reach: Reach, store: Store, tmp_path: Path, is_asked_for: bool
) -> None:
    answer = events(written({"content": "Lisbon"}, reason="stop"), {"choices": [], "usage": USAGE})
    fields = {"stream_options": {"include_usage": True}} if is_asked_for else {}
    spent, text = spend_on_stream(reach, store, tmp_path, answer + b"data: [DONE]\n\n", **fields)
    assert spent == pytest.approx(0.4)
    assert ('"usage"' in text) == is_asked_for
    assert text.endswith("data: [DONE]\n\n")


def test_a_stream_without_usage_counts_all_answers_and_tool_calls(
    reach: Reach, store: Store, tmp_path: Path
) -> None:
    words = "word " * 400
    call = {"index": 0, "function": {"name": "f", "arguments": json.dumps({"x": words})}}
    answer = events(
        written({"content": words}),
        written({"content": words}, index=1),
        written({"tool_calls": [call]}, index=2),
        written({}, reason="stop"),
    )
    spent, _ = spend_on_stream(reach, store, tmp_path, answer, n=3)
    # Each of the three has 400 words or more.
    assert 1.2 <= spent < 3


def test_a_stream_that_breaks_off_counts_as_what_was_reserved(
    reach: Reach, store: Store, tmp_path: Path
) -> None:
    answer = events(written({"content": "Lis"}))
    spent, text = spend_on_stream(reach, store, tmp_path, answer)
    assert '"code": 502' in text
    # Most of it for the answer: 2,048 tokens or `max_tokens`.
    assert spent >= 0.1


@pytest.mark.parametrize("client_leaves", [False, True])
def test_a_stream_ends_at_done_though_the_endpoint_keeps_its_connection_open(
    reach: Reach, store: Store, tmp_path: Path, client_leaves: bool
) -> None:
    may_close = threading.Event()
    was_open_too_long: list[bool] = []
    client, _, _ = reach(
        lambda body: "Lisbon",
        usage=USAGE,
        # The stream must not wait for the end of the connection.
        before_close=lambda: was_open_too_long.append(not may_close.wait(5)),
    )
    client.service.lm.prices = PRICES
    limit_in_file(tmp_path, acme="usd-per-day=100")
    message = {"role": "user", "content": "Hi"}
    body = {"model": "my-model-chat", "user": "ada", "messages": [message], "stream": True}
    lines: list[str] = []
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            lines.append(line)
            if line == "data: [DONE]" and client_leaves:
                break
    assert within(10, lambda: not client.service.model_pool.held.total())
    may_close.set()
    assert within(10, lambda: was_open_too_long == [False])
    assert "data: [DONE]" in lines[-2:]
    assert "error" not in "".join(lines)
    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.4)
    assert client.service.lm.meter.read().failed == 0


def test_a_client_that_leaves_a_whole_answer_before_its_usage_pays_for_what_was_written(
    reach: Reach, store: Store, tmp_path: Path
) -> None:
    may_go_on = threading.Event()

    def wait_before_usage(event: int) -> None:
        if event == 3:
            may_go_on.wait(20)

    client, _, _ = reach(lambda body: "Lisbon", usage=USAGE, between=wait_before_usage)
    client.service.lm.prices = PRICES
    limit_in_file(tmp_path, acme="usd-per-day=100")
    message = {"role": "user", "content": "Hi"}
    body = {"model": "my-model-chat", "user": "ada", "messages": [message], "stream": True}
    with client.stream(
        "POST", "/v1/chat/completions", json={**body, "max_tokens": 1000}
    ) as response:
        for line in response.iter_lines():
            if '"finish_reason": "stop"' in line:
                break
    assert within(10, lambda: not client.service.model_pool.held.total())
    may_go_on.set()
    # 1 dollar and more was reserved.
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5
    assert client.service.lm.meter.read().failed == 0


BROKEN_OFF = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n"
"""The head of a reply that is shorter than it says."""


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_stream_that_breaks_off_counts_what_was_written_only_if_all_answers_ended(
    reach: Reach, store: Store, tmp_path: Path, is_whole: bool
) -> None:
    second_answer = written({"content": "Porto"}, index=1, reason="stop" if is_whole else None)
    first_answer = written({"content": "Lisbon"}, reason="stop")
    may_close = threading.Event()
    client, _, _ = reach(
        lambda body: BROKEN_OFF + events(second_answer, first_answer),
        before_close=lambda: may_close.wait(20),
    )
    client.service.lm.prices = PRICES
    limit_in_file(tmp_path, acme="usd-per-day=100")
    message = {"role": "user", "content": "Hi"}
    body = {"model": "my-model-chat", "user": "ada", "messages": [message], "stream": True}
    lines: list[str] = []
    with client.stream(
        "POST", "/v1/chat/completions", json={**body, "n": 2, "max_tokens": 1000}
    ) as response:
        for line in response.iter_lines():
            lines.append(line)
            if "Lisbon" in line:
                may_close.set()
    assert ('"code": 502' in "".join(lines)) == (not is_whole)
    # 2 dollars and more were reserved.
    spent = store.tenant_usage.spent_today("acme")
    assert 0 < spent < 0.5 if is_whole else spent > 2


def test_done_ends_a_stream_also_without_a_space_before_it(
    reach: Reach, store: Store, tmp_path: Path
) -> None:
    answer = events(written({"content": "Lisbon"})) + b"data:[DONE]\n\n"
    _, text = spend_on_stream(reach, store, tmp_path, answer)
    assert text.endswith("data:[DONE]\n\n")


@pytest.mark.parametrize("end", ["open", "broken off", "done without a reason"])
def test_an_answer_that_cannot_be_stored_fails_as_such_however_the_endpoint_goes_on(
    reach: Reach, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    may_close = threading.Event()

    def fail(*_: Any) -> None:
        if end == "broken off":
            may_close.set()
        raise StoreError("the database is locked")

    answers: dict[str, str | bytes] = {
        "open": "Lisbon",
        "broken off": BROKEN_OFF + events(written({"content": "Lisbon"}, reason="stop")),
        "done without a reason": events(written({"content": "Lisbon"})) + b"data: [DONE]\n\n",
    }
    client, _, _ = reach(
        lambda body: answers[end],
        usage=USAGE,
        before_close=lambda: may_close.wait(20),
    )
    client.service.lm.prices = PRICES
    limit_in_file(tmp_path, acme="usd-per-day=100")
    monkeypatch.setattr(Conversation, "store_answer", fail)
    response = client.chat("Hi", model="my-model-chat", stream=True, max_tokens=1000)
    may_close.set()
    assert '"code": 503' in response.text
    # 1 dollar and more was reserved.
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_cannot_be_stored_counts_what_it_cost(
    reach: Reach,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_streamed: bool,
) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("the database is locked")

    client, _, _ = reach(lambda body: "Lisbon", usage=USAGE)
    client.service.lm.prices = PRICES
    limit_in_file(tmp_path, acme="usd-per-day=100")
    monkeypatch.setattr(Conversation, "store_answer", fail)
    response = client.chat("Hi", model="my-model-chat", stream=is_streamed, max_tokens=1000)
    assert '"code":503' in response.text.replace(" ", "")
    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.4)


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
