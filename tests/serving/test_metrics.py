"""What a service tells of itself: counts for Prometheus, added up over processes, and a page of its routes."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler import StoreError
from mempiler.serving.metrics import FRESH, Metrics, sample

LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[\d.]+(?:e[+-]?\d+)?)')
SCRAPER = {"Authorization": "Bearer token-of-who-scrapes-it"}


def read(text: str) -> dict[str, float]:
    """The values of the text format by name and labels; every line must be one, or a comment."""
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    assert all(LINE.fullmatch(line) for line in lines), text
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
    buckets = [found[timed % ("bucket", f'le="{bound}",')] for bound in ("0.005", "1", "60", "+Inf")]
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


def test_processes_add_up_and_what_a_dead_one_counted_stays(tmp_path: Path) -> None:
    first, second = Metrics(tmp_path), Metrics(tmp_path)
    calls, busy = (
        sample("mempiler_lm_calls_total", outcome="answered"),
        sample("mempiler_requests_in_progress", pool="x"),
    )
    for _ in range(3):
        first.request("/v1/users", "GET", 200, 0.01)
    first.share({calls: 5}, {busy: 2})
    second.request("/v1/users", "GET", 200, 0.01)
    requests = 'mempiler_requests_total{method="GET",route="/v1/users",status="200"}'
    found = read(second.text({calls: 1}, {busy: 1}))
    assert [found[requests], found['mempiler_lm_calls_total{outcome="answered"}']] == [4, 6]
    assert found['mempiler_requests_in_progress{pool="x"}'] == 3
    assert read(first.text({calls: 5}))[requests] == 4

    long_ago = time.time() - 2 * FRESH
    for path in tmp_path.glob("*.json"):
        os.utime(path, (long_ago, long_ago))
    found = read(second.text({calls: 1}, {busy: 1}))
    assert (found[requests], found['mempiler_requests_in_progress{pool="x"}']) == (4, 1)


def test_what_clients_choose_makes_no_new_values() -> None:
    metrics = Metrics()
    for n in range(50):
        metrics.request(None, f"METHOD{n}", 404, 0.01)
    (requests,) = (line for line in metrics.text().splitlines() if line.startswith("mempiler_requests_total"))
    assert requests == 'mempiler_requests_total{method="other",route="none",status="404"} 50'


def test_the_frameworks_page_of_routes_needs_no_token(client: Any) -> None:
    stranger = client.as_tenant(None)
    assert "/openapi.json" in stranger.get("/docs").text
    assert "/v1/users/{user}/ask" in stranger.get("/openapi.json").json()["paths"]
