"""What a service tells of itself: counts for Prometheus, and a page of its routes."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from mempiler import StoreError
from mempiler.serving.operations import Metrics

SCRAPER = {"Authorization": "Bearer token-of-who-scrapes-it"}


def read(text: str) -> dict[str, float]:
    """The values of the text format by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.fixture
def scraped(client: Any) -> Callable[[], dict[str, float]]:
    """Reads `/metrics` of the service with a token of the operator's."""
    with (client.service.tokens._path).open("a") as file:
        file.write("metrics token-of-who-scrapes-it\n")

    def get() -> dict[str, float]:
        answer = httpx.get(f"{client.address}/metrics", headers=SCRAPER)
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return read(answer.text)

    return get


def test_requests_model_and_store_are_counted_without_names(client: Any, scraped: Any) -> None:
    client.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
    assert client.ask("Where did Ada move?", user="ada-lovelace").status_code == 200
    assert [client.ask("Where?", user="nobody").status_code for _ in range(2)] == [404, 404]
    found = scraped()
    asked = 'mempiler_requests_total{method="POST",route="/v1/users/{user}/ask",status="%d"}'
    assert (found[asked % 200], found[asked % 404]) == (1, 2)
    timed = 'mempiler_request_seconds_%s{%sroute="/v1/users/{user}/ask"}'
    buckets = [found[timed % ("bucket", f'le="{bound}",')] for bound in ("0.005", "1.0", "60.0", "+Inf")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found[timed % ("count", "")] == 3
    assert 0 < found[timed % ("sum", "")] < 30
    assert found['mempiler_lm_calls_total{outcome="answered"}'] == 1
    assert found['mempiler_lm_tokens_total{direction="input"}'] > 0
    assert found['mempiler_lm_answers_total{outcome="ok"}'] == 1
    assert (found["mempiler_users"], found["mempiler_store_up"]) == (1, 1)
    assert [found[f'mempiler_sessions{{state="{state}"}}'] for state in ("queued", "failed")] == [1, 0]
    assert found["mempiler_store_bytes"] > 4096
    assert not re.search("ada|chat-17|Lisbon|acme", str(found))


def test_only_the_operators_token_reads_it_and_opens_nothing_else(client: Any, scraped: Any) -> None:
    scraped()
    statuses = [httpx.get(f"{client.address}/metrics", headers=h).status_code for h in ({}, client.headers)]
    assert statuses == [401, 403]
    assert httpx.get(f"{client.address}/v1/users", headers=SCRAPER).status_code == 403


def test_without_tokens_this_machine_reads_it_and_no_page_of_another_origin(connect: Any) -> None:
    client = connect(tokens=False).as_tenant(None)
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", headers={"Origin": "http://e.example"}).status_code == 403


def test_a_store_that_is_down_costs_its_own_values_only(client: Any, scraped: Any, monkeypatch: Any) -> None:
    def down() -> None:
        raise StoreError("gone")

    monkeypatch.setattr(client.service.store, "measures", down)
    found = scraped()
    assert found["mempiler_store_up"] == 0
    assert "mempiler_users" not in found
    assert 'mempiler_requests_in_progress{pool="asking"}' in found


def test_what_clients_choose_makes_no_new_values() -> None:
    metrics = Metrics()
    for n in range(50):
        metrics.request(None, f"METHOD{n}", 404, 0.01)
    lines = metrics.text(None).decode().splitlines()
    (requests,) = (line for line in lines if line.startswith("mempiler_requests_total"))
    assert requests == 'mempiler_requests_total{method="other",route="none",status="404"} 50.0'
