"""How many requests a tenant may send in a minute, over all processes of a service.

`tenant_requests_per_minute` is the limit of every tenant, unless the token file has another one. A
request that is one too many gets the status 429. The clock of most tests stands still.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from mempiler import Store
from mempiler.memory.store.database import Database
from mempiler.memory.store.tenant_usage import RequestCount, TenantUsage

from .conftest import Api, StartService, StoppedClock, write_limits
from .served import Served, values


def statuses_of_requests(client: Api, count: int) -> list[int]:
    """Send so many requests, all of them the same, and return their status codes."""
    return [client.get("/v1/users").status_code for _ in range(count)]


@pytest.mark.usefixtures("stopped_clock")
def test_requests_are_limited_over_all_processes(start_service: StartService) -> None:
    """Two services over one store stand for two processes of a service."""
    first_process = start_service(tenant_requests_per_minute=3)
    second_process = start_service(tenant_requests_per_minute=3)

    assert statuses_of_requests(first_process, count=1) == [200]
    assert statuses_of_requests(second_process, count=2) == [200, 200]

    assert statuses_of_requests(first_process, count=1) == [429]
    assert statuses_of_requests(second_process, count=1) == [429]


def test_a_refused_request_says_when_to_try_again(
    start_service: StartService, stopped_clock: StoppedClock
) -> None:
    """At 20 seconds after noon, 40 seconds of the minute are left."""
    client = start_service(tenant_requests_per_minute=0)
    stopped_clock.move_to(seconds_after_noon=20)

    refused = client.get("/v1/users")

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "40"
    assert refused.json()["error"] == {
        "message": "this tenant may send 0 requests in a minute; try again in the next one",
        "type": "rate_limit_error",
        "code": 429,
    }


def test_requests_are_allowed_again_in_the_next_minute(
    start_service: StartService, stopped_clock: StoppedClock
) -> None:
    """Two services over one store stand for two processes, which share the limit."""
    first_process = start_service(tenant_requests_per_minute=1)
    second_process = start_service(tenant_requests_per_minute=1)
    assert statuses_of_requests(first_process, count=2) == [200, 429]
    assert statuses_of_requests(second_process, count=1) == [429]

    stopped_clock.move_to(seconds_after_noon=60)
    assert statuses_of_requests(first_process, count=1) == [200]

    stopped_clock.move_to(seconds_after_noon=120)
    assert statuses_of_requests(second_process, count=1) == [200]


@pytest.mark.usefixtures("stopped_clock")
def test_the_limit_of_a_tenant_refuses_no_other_tenant_and_no_health_check(
    start_service: StartService,
) -> None:
    acme = start_service(tenant_requests_per_minute=1)
    assert statuses_of_requests(acme, count=2) == [200, 429]

    assert acme.as_tenant("globex").get("/v1/users").status_code == 200
    assert acme.get("/health").status_code == 200
    assert acme.get("/ready").status_code == 200


def test_a_refused_request_stores_nothing(start_service: StartService, store: Store) -> None:
    client = start_service(tenant_requests_per_minute=0)

    assert client.add("I moved.").status_code == 429
    assert client.chat("Hello.").status_code == 429
    assert store.users.list_all() == []


@pytest.mark.usefixtures("stopped_clock")
def test_a_limit_in_the_token_file_overrides_the_option(
    start_service: StartService, tmp_path: Path
) -> None:
    """The option allows one request in a minute, and the token file allows `globex` three."""
    acme = start_service(tenant_requests_per_minute=1)
    globex = acme.as_tenant("globex")
    write_limits(tmp_path, globex="requests-per-minute=3")

    assert statuses_of_requests(acme, count=4) == [200, 429, 429, 429]
    assert statuses_of_requests(globex, count=4) == [200, 200, 200, 429]


@pytest.mark.usefixtures("stopped_clock")
def test_a_higher_limit_in_the_token_file_holds_also_for_the_current_minute(
    start_service: StartService, tmp_path: Path
) -> None:
    """The option allows one request in a minute. Then the token file allows five."""
    client = start_service(tenant_requests_per_minute=1)
    assert statuses_of_requests(client, count=4) == [200, 429, 429, 429]

    write_limits(tmp_path, acme="requests-per-minute=5")

    assert client.get("/v1/users").status_code == 200


@pytest.mark.usefixtures("stopped_clock")
def test_refusals_are_counted_without_names(start_service: StartService) -> None:
    """The metric of refused requests names the kind of limit, and no tenant."""
    client = start_service(tokens=False, tenant_requests_per_minute=1).as_tenant(None)
    assert statuses_of_requests(client, count=3) == [200, 429, 429]

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


def test_a_store_that_hangs_while_it_counts_holds_up_no_other_tenant(
    start_service: StartService, store: Store, database: Database
) -> None:
    """Requests are counted in the store, which hangs here for the requests of `acme`."""
    hanging_usage = UsageThatHangsForAcme(database)
    store.tenant_usage = hanging_usage
    acme = start_service(tenant_requests_per_minute=100, threads=4, store_threads=4)
    globex = acme.as_tenant("globex")
    try:
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                acme.get("/v1/users", timeout=0.1)

        assert acme.get("/health", timeout=5).status_code == 200
        assert globex.get("/v1/users", timeout=5).status_code == 200
    finally:
        hanging_usage.may_go_on.set()


@pytest.mark.slow
def test_requests_are_limited_over_processes_of_their_own(tmp_path: Path) -> None:
    """Sixty requests are sent to a service of two processes, and twenty in a minute are allowed.

    If a new minute begins meanwhile, twenty more are allowed.
    """
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
    # `Served` itself has sent up to two requests, which may have been in the same minute.
    assert status_codes.count(200) >= 20 - 2
