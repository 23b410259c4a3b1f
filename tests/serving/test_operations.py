"""What a service tells its operator: metrics for Prometheus, and spans of OpenTelemetry.

The last test counts the SQL statements of a request.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from mempiler import Store
from mempiler.serving.http.metrics import SHARED_FOLDER
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from sqlalchemy.exc import SQLAlchemyError

from ..conftest import listening
from .conftest import (
    Api,
    StartService,
    first_request_hangs_in_store,
    service_over,
    serving,
    within,
)
from .served import values

OPERATOR_TOKEN = "token-of-who-scrapes-it"
OPERATOR_HEADERS = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}

Scrape = Callable[[], dict[str, float]]


@pytest.fixture
def scrape(client: Api, tmp_path: Path) -> Scrape:
    """A function that reads `/metrics` of the service of `client` with a token of the operator."""
    with (tmp_path / "tokens").open("a") as file:
        file.write(f"metrics {OPERATOR_TOKEN}\n")

    def get_metrics() -> dict[str, float]:
        response = httpx.get(f"{client.address}/metrics", headers=OPERATOR_HEADERS)
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return values(response.text)

    return get_metrics


# Metrics


def test_requests_are_counted_by_route_and_status(client: Api, scrape: Scrape) -> None:
    client.add("I moved to Lisbon.", user="ada")
    assert client.ask("Where did Ada move?", user="ada").status_code == 200
    assert client.ask("Where?", user="nobody").status_code == 404
    assert client.ask("Where?", user="nobody").status_code == 404

    metrics = scrape()

    labels = 'method="POST",route="/v1/users/{user}/ask"'
    assert metrics[f'mempiler_requests_total{{{labels},status="200"}}'] == 1
    assert metrics[f'mempiler_requests_total{{{labels},status="404"}}'] == 2


def test_the_times_of_requests_are_counted_in_buckets(client: Api, scrape: Scrape) -> None:
    """A bucket counts all requests that took no longer than its bound, so the last counts all."""
    for _ in range(3):
        client.ask("Where?", user="nobody")

    metrics = scrape()

    route = 'route="/v1/users/{user}/ask"'
    buckets = [
        metrics[f'mempiler_request_seconds_bucket{{le="{bound}",{route}}}']
        for bound in ("0.005", "1.0", "60.0", "+Inf")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 3
    assert metrics[f"mempiler_request_seconds_count{{{route}}}"] == 3
    assert 0 < metrics[f"mempiler_request_seconds_sum{{{route}}}"] < 30


def test_calls_and_tokens_of_the_model_are_counted(client: Api, scrape: Scrape) -> None:
    client.add("I moved to Lisbon.")
    client.ask("Where did Ada move?")

    metrics = scrape()

    assert metrics['mempiler_lm_calls_total{outcome="answered"}'] == 1
    assert metrics['mempiler_lm_tokens_total{direction="input"}'] > 0
    assert metrics['mempiler_lm_answers_total{outcome="ok"}'] == 1


def test_users_and_waiting_sessions_are_counted(client: Api, scrape: Scrape) -> None:
    client.add("I moved to Lisbon.")

    metrics = scrape()

    assert metrics["mempiler_store_up"] == 1
    assert metrics["mempiler_users"] == 1
    assert metrics['mempiler_sessions{state="queued"}'] == 1
    assert metrics['mempiler_sessions{state="failed"}'] == 0


def test_metrics_tell_neither_who_uses_the_service_nor_what_was_said(
    client: Api, scrape: Scrape
) -> None:
    """The client is one of the tenant `acme`."""
    client.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
    client.ask("Where did Ada move?", user="ada-lovelace")

    names_and_values = str(scrape())

    for word in ("ada", "chat-17", "Lisbon", "acme"):
        assert word not in names_and_values


def test_only_the_operators_token_reads_the_metrics(client: Api, scrape: Scrape) -> None:
    """The status 401 says that there is no valid token, and 403 that the token does not suffice."""
    assert scrape() != {}

    without_token = httpx.get(f"{client.address}/metrics")
    with_token_of_a_tenant = httpx.get(f"{client.address}/metrics", headers=client.headers)

    assert without_token.status_code == 401
    assert with_token_of_a_tenant.status_code == 403


def test_the_operators_token_opens_nothing_else(client: Api, scrape: Scrape) -> None:
    """The operator, who reads metrics, is no tenant and has no users."""
    assert scrape() != {}

    response = httpx.get(f"{client.address}/v1/users", headers=OPERATOR_HEADERS)

    assert response.status_code == 403


def test_while_the_store_is_down_only_its_own_metrics_are_missing(scrape: Scrape) -> None:
    """Every statement that is sent to the database fails here."""

    def fail(*_arguments: Any) -> None:
        raise SQLAlchemyError("the database is gone")

    with listening("before_cursor_execute", fail):
        metrics = scrape()

    assert metrics["mempiler_store_up"] == 0
    # The number of users is read from the store, that of requests is not.
    assert "mempiler_users" not in metrics
    assert 'mempiler_requests_in_progress{pool="asking"}' in metrics


def test_the_state_is_answered_while_requests_of_clients_must_wait(
    start_service: StartService,
) -> None:
    """An operator must see the state of a service that is too busy for requests of clients.

    With `store_threads=1` one request of a client at a time may use the store, and here it hangs.
    """
    client = start_service(tokens=False, store_threads=1).as_tenant(None)

    with ThreadPoolExecutor() as pool, first_request_hangs_in_store() as hanging:
        pool.submit(client.get, "/v1/users")
        hanging.wait_until_it_hangs()

        health = client.get("/health", timeout=5)
        readiness = client.get("/ready", timeout=5)
        metrics = client.get("/metrics", timeout=5)

    assert health.status_code == 200
    assert readiness.status_code == 200
    assert metrics.status_code == 200
    assert values(metrics.text)["mempiler_store_up"] == 1


def write_shared_metric(folder: Path, file_name: str, metric: str) -> None:
    """Write the file in which another process of the service shares a metric; its value is 3."""
    shared = MmapedDict(folder / file_name)
    shared.write_value(mmap_key(metric, metric, [], [], ""), 3.0, 0.0)
    shared.close()


def test_a_file_of_metrics_that_a_dying_process_left_empty_hides_no_other_file(
    scrape: Scrape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of a service share their metrics in files of prometheus-client.

    By itself that library fails at an empty file (its issue 1199).
    """
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    (tmp_path / "counter_1.db").touch()
    write_shared_metric(tmp_path, "counter_2.db", "counter_2")

    assert scrape()["counter_2"] == 3.0


def test_what_a_dead_process_counted_still_counts_but_not_what_it_was_doing(
    scrape: Scrape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters tell what has happened, gauges what is happening now."""
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    # The number at the end of these names is the id of a process that is not there.
    write_shared_metric(tmp_path, "counter_99999999.db", "requests_of_dead_process")
    write_shared_metric(tmp_path, "gauge_livesum_99999999.db", "in_progress_of_dead_process")

    metrics = scrape()

    assert metrics["requests_of_dead_process"] == 3.0
    assert "in_progress_of_dead_process" not in metrics


def test_texts_that_clients_choose_make_no_new_metrics(
    client: Api, scrape: Scrape, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that invents methods and paths must not fill the memory with metrics of its own."""

    def request_records() -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if record.message == "request"]

    with caplog.at_level("INFO", "mempiler.serving"):
        for number in range(5):
            long_method = f"METHOD{number}" * 4000
            client.request(long_method, f"/nowhere/{number}")
        # A line is written after the response is sent.
        assert within(20, lambda: len(request_records()) == 5)

    for record in request_records():
        assert record["method"] == "other"
        assert record["route"] is None
    metrics = scrape()
    assert metrics['mempiler_requests_total{method="other",route="none",status="404"}'] == 5
    assert "METHOD" not in str(metrics)
    assert "nowhere" not in str(metrics)


# Spans


class RecordedSpans:
    """Spans of OpenTelemetry that are kept in this process. `provider` is what a service takes.

    A span is the record of a piece of work. A trace consists of spans: one for a request, and below
    it one for the call of the model.
    """

    def __init__(self) -> None:
        pytest.importorskip("opentelemetry.instrumentation.fastapi")
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[Any]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def wait_for(self, name: str) -> Any:
        """Return the only span of a name. A span of a request ends after its response is sent."""
        assert within(20, lambda: self.named(name))
        (span,) = self.named(name)
        return span

    def as_text(self) -> str:
        return "".join(span.to_json() for span in self._exporter.get_finished_spans())


@pytest.fixture
def spans() -> RecordedSpans:
    return RecordedSpans()


def test_a_request_and_its_call_of_the_model_continue_the_trace_of_the_client(
    store: Store, tmp_path: Path, spans: RecordedSpans
) -> None:
    """The header `traceparent` names the trace of the client, and the span that sent the request.

    A request without it would begin a trace of its own.
    """
    trace_of_client = "1" * 32
    span_of_client = "2" * 16
    headers = {"traceparent": f"00-{trace_of_client}-{span_of_client}-01"}
    service = service_over(store, tmp_path, spans=spans.provider)

    with serving(service) as client:
        client.add("I moved to Lisbon.")
        question = {"question": "Where did Ada move?"}
        client.post("/v1/users/ada/ask", json=question, headers=headers)
        request = spans.wait_for("POST /v1/users/{user}/ask")

    call = spans.wait_for("call of the model")
    assert request.context.trace_id == int(trace_of_client, 16)
    assert request.parent.span_id == int(span_of_client, 16)
    assert call.parent.span_id == request.context.span_id


def test_the_spans_of_an_answered_question_have_its_status_and_its_model(
    store: Store, tmp_path: Path, scripted: Any, spans: RecordedSpans
) -> None:
    lm = scripted(lambda field, prompt, call_number: {"answer": "Lisbon"})
    with serving(service_over(store, tmp_path, lm, spans=spans.provider)) as client:
        client.add("I moved to Lisbon.")
        assert client.ask("Where did Ada move?").status_code == 200
        request = spans.wait_for("POST /v1/users/{user}/ask")

    call = spans.wait_for("call of the model")
    assert request.status.is_ok
    assert request.attributes["http.status_code"] == 200
    assert call.status.is_ok
    assert call.attributes["gen_ai.request.model"] == "scripted/test"


def test_the_spans_of_a_failed_question_have_the_type_of_the_error_and_not_its_text(
    store: Store, tmp_path: Path, scripted: Any, spans: RecordedSpans
) -> None:
    """The text of an error, which OpenTelemetry would put into events, may quote a user."""

    def fail(field: str, prompt: str, call_number: int) -> dict[str, str]:
        raise ValueError(f"the secret word is {prompt}")

    with serving(service_over(store, tmp_path, scripted(fail), spans=spans.provider)) as client:
        client.add("I moved to Lisbon.")
        assert client.ask("Where did Ada move?").status_code == 502
        request = spans.wait_for("POST /v1/users/{user}/ask")

    call = spans.wait_for("call of the model")
    assert not request.status.is_ok
    assert not call.status.is_ok
    assert call.attributes["error.type"] == "LMUnexpectedError"
    assert call.events == ()
    assert "secret" not in spans.as_text()


def test_spans_tell_neither_who_uses_the_service_nor_what_was_said(
    store: Store, tmp_path: Path, spans: RecordedSpans
) -> None:
    """Names stand in the path and in the query of requests. The tenant is `acme`."""
    with serving(service_over(store, tmp_path, spans=spans.provider)) as client:
        client.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
        client.ask("Where did Ada move?", user="ada-lovelace")
        client.get("/v1/users/ada-lovelace/entries", params={"where": '{"channel": "lovelace"}'})
        client.get("/v1/lovelace")
        spans.wait_for("POST /v1/users/{user}/ask")
        spans.wait_for("GET /v1/users/{user}/entries")

    for word in ("lovelace", "chat-17", "Lisbon", "acme"):
        assert word not in spans.as_text()


# SQL statements


TRANSACTION_KEYWORDS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")


def chat(client: Api, number: int) -> httpx.Response:
    return client.chat(f"What is the secret word of garden {number}?")


def ask(client: Api, number: int) -> httpx.Response:
    return client.ask(f"What is the secret word of garden {number}?")


def add_session(client: Api, number: int) -> httpx.Response:
    return client.add(f"The secret word of garden {number} is mk{number}.", user="new")


@pytest.mark.parametrize(
    ("send_request", "max_statements"),
    [
        (chat, 12),
        (ask, 3),
        (add_session, 7),
    ],
)
def test_a_request_takes_few_sql_statements(
    start_service: StartService,
    send_request: Callable[[Api, int], httpx.Response],
    max_statements: int,
) -> None:
    """These are the numbers of today, so that a change that needs more of them is noticed."""
    client = start_service()
    for number in range(5):
        client.add(
            f"The secret word of garden {number} is mk{number:06d}, and it hangs in the harbour."
        )
    statements: list[str] = []

    def note_statement(connection: Any, cursor: Any, statement: str, *_others: Any) -> None:
        if not statement.startswith(TRANSACTION_KEYWORDS):
            statements.append(statement)

    statement_counts: list[int] = []
    with listening("before_cursor_execute", note_statement):
        for number in range(4):
            statements.clear()
            assert send_request(client, number).status_code in (200, 201)
            statement_counts.append(len(statements))

    # The least counts: the first requests read more, and the worker may use the store meanwhile.
    assert 0 < min(statement_counts) <= max_statements
