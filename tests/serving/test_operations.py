"""What a service tells of itself: counts for Prometheus, spans; how many SQL statements a request takes."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler import Store, StoreError
from mempiler.serving.http.metrics import SHARED_FOLDER
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from ..conftest import listening
from .conftest import service_over, serving, within
from .served import values

SCRAPER = {"Authorization": "Bearer token-of-who-scrapes-it"}


@pytest.fixture
def scraped(client: Any, tmp_path: Path) -> Callable[[], dict[str, float]]:
    """Reads `/metrics` of the service with a token of the operator's."""
    with (tmp_path / "tokens").open("a") as file:
        file.write("metrics token-of-who-scrapes-it\n")

    def get() -> dict[str, float]:
        answer = httpx.get(f"{client.address}/metrics", headers=SCRAPER)
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return values(answer.text)

    return get


def test_requests_model_and_store_are_counted_without_names(client: Any, scraped: Any) -> None:
    client.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
    assert client.ask("Where did Ada move?", user="ada-lovelace").status_code == 200
    assert [client.ask("Where?", user="nobody").status_code for _ in range(2)] == [404, 404]
    found = scraped()
    asked = 'mempiler_requests_total{method="POST",route="/v1/users/{user}/ask",status="%d"}'
    assert found[asked % 200] == 1
    assert found[asked % 404] == 2
    timed = 'mempiler_request_seconds_%s{%sroute="/v1/users/{user}/ask"}'
    buckets = [
        found[timed % ("bucket", f'le="{bound}",')] for bound in ("0.005", "1.0", "60.0", "+Inf")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found[timed % ("count", "")] == 3
    assert 0 < found[timed % ("sum", "")] < 30
    assert found['mempiler_lm_calls_total{outcome="answered"}'] == 1
    assert found['mempiler_lm_tokens_total{direction="input"}'] > 0
    assert found['mempiler_lm_answers_total{outcome="ok"}'] == 1
    assert found["mempiler_users"] == 1
    assert found["mempiler_store_up"] == 1
    assert [found[f'mempiler_sessions{{state="{state}"}}'] for state in ("queued", "failed")] == [
        1,
        0,
    ]
    assert not re.search("ada|chat-17|Lisbon|acme", str(found))


def test_only_the_operators_token_reads_it_and_opens_nothing_else(
    client: Any, scraped: Any
) -> None:
    scraped()
    statuses = [
        httpx.get(f"{client.address}/metrics", headers=h).status_code for h in ({}, client.headers)
    ]
    assert statuses == [401, 403]
    assert httpx.get(f"{client.address}/v1/users", headers=SCRAPER).status_code == 403


def test_a_store_that_is_down_costs_its_own_values_only(
    client: Any, scraped: Any, monkeypatch: Any
) -> None:
    def down() -> None:
        raise StoreError("gone")

    monkeypatch.setattr(client.service.store.users, "counts", down)
    found = scraped()
    assert found["mempiler_store_up"] == 0
    assert "mempiler_users" not in found
    assert 'mempiler_requests_in_progress{pool="asking"}' in found


def test_the_state_is_answered_while_every_slot_for_store_calls_is_taken(
    connect: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, go, begun = (
        connect(tokens=False, store_threads=1).as_tenant(None),
        threading.Event(),
        threading.Event(),
    )
    page = store.users.page

    def hanging(*arguments: Any) -> Any:
        begun.set()
        go.wait(20)
        return page(*arguments)

    monkeypatch.setattr(store.users, "page", hanging)
    thread = threading.Thread(target=client.get, args=("/v1/users",))
    thread.start()
    try:
        assert begun.wait(20)
        answers = [client.get(path, timeout=5) for path in ("/health", "/ready", "/metrics")]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert values(answers[-1].text)["mempiler_store_up"] == 1
    finally:
        go.set()
        thread.join(20)


def test_a_process_that_died_as_it_made_its_file_hides_no_other(
    scraped: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """prometheus-client reads no empty file (its issue 1199); of the second no process is left, nor what it was at."""
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    (tmp_path / "counter_1.db").touch()
    for name in ("gauge_livesum_99999999", "counter_2"):
        shared = MmapedDict(tmp_path / f"{name}.db")
        shared.write_value(mmap_key(name, name, [], [], ""), 3.0, 0.0)
        shared.close()
    assert [name for name in scraped() if name[-1].isdigit()] == ["counter_2"]


def test_texts_that_clients_choose_make_no_new_metrics(
    client: Any, scraped: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "mempiler.serving"):
        for n in range(5):
            client.request(f"METHOD{n}" * 4000, f"/nowhere/{n}")
        # A line is written once the answer is sent.
        assert within(20, lambda: [one.message for one in caplog.records].count("request") == 5)
    lines = [vars(one) for one in caplog.records if one.message == "request"]
    assert [(line["method"], line["route"]) for line in lines] == [("other", None)] * 5
    found = scraped()
    assert found['mempiler_requests_total{method="other",route="none",status="404"}'] == 5
    assert not re.search("METHOD|nowhere", str(found))


def test_a_question_is_one_trace_which_names_nobody_and_tells_errors_by_their_kind(
    store, tmp_path, scripted
) -> None:
    pytest.importorskip("opentelemetry.instrumentation.fastapi")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    def reply(kind: str, text: str, n: int) -> Any:
        if n == 2:
            raise ValueError(f"the secret word is {text}")
        return {"answer": "Lisbon"}

    def spans(name: str) -> list[Any]:
        return [span for span in kept.get_finished_spans() if span.name == name]

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    parent, body = f"00-{'1' * 32}-{'2' * 16}-01", {"question": "Where did Ada move?"}
    with serving(service_over(store, tmp_path, scripted(reply), spans=provider)) as client:
        client.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
        for status in (200, 502):
            asked = client.post(
                "/v1/users/ada-lovelace/ask", json=body, headers={"traceparent": parent}
            )
            assert asked.status_code == status
        client.get("/v1/users/ada-lovelace/entries", params={"where": '{"channel": "lovelace"}'})
        client.get("/v1/lovelace")
        assert within(20, lambda: len(spans("POST /v1/users/{user}/ask")) == 2)
        assert within(20, lambda: spans("GET /v1/users/{user}/entries"))
    (request, refused), (call, failed) = (
        spans("POST /v1/users/{user}/ask"),
        spans("call of the model"),
    )
    assert request.context.trace_id == int("1" * 32, 16)
    assert request.parent.span_id == int("2" * 16, 16)
    assert call.parent.span_id == request.context.span_id
    assert failed.parent.span_id == refused.context.span_id
    assert request.attributes["http.status_code"] == 200
    assert call.attributes["gen_ai.request.model"] == "scripted/test"
    assert failed.attributes["error.type"] == "LMUnexpectedError"
    assert failed.events == ()
    assert [span.status.is_ok for span in (request, call, refused, failed)] == [
        True,
        True,
        False,
        False,
    ]
    told = "".join(span.to_json() for span in kept.get_finished_spans())
    assert [
        word for word in ("lovelace", "chat-17", "Lisbon", "acme", "secret") if word in told
    ] == []


TRANSACTION = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")


def test_a_request_takes_few_statements(connect: Any, store: Store) -> None:
    client, seen = connect(), list[str]()
    for n in range(5):
        client.add(f"The secret word of garden {n} is mk{n:06d}, and it hangs in the harbour.")
    requests: list[tuple[Callable[[int], Any], int]] = [
        (lambda n: client.chat(f"What is the secret word of garden {n}?"), 12),
        (lambda n: client.ask(f"What is the secret word of garden {n}?"), 3),
        (lambda n: client.add(f"The secret word of garden {n} is mk{n}.", user="new"), 7),
    ]

    def note_statement(db: Any, cursor: Any, statement: str, *rest: Any) -> None:
        seen.append(statement)

    for request, most in requests:
        # What is read once, by the first requests, is no part of it, nor what the worker looks for meanwhile.
        counts = list[int]()
        for n in range(4):
            seen.clear()
            with listening("before_cursor_execute", note_statement):
                assert request(n).status_code in (200, 201)
            counts.append(sum(text.split()[0] not in TRANSACTION for text in seen))
        assert 0 < min(counts) <= most
