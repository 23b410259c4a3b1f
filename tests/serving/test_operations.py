"""What a service tells its operator: metrics for Prometheus, and spans of OpenTelemetry.

The last test counts the SQL statements of a request.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
    TOKENS,
    Api,
    ModelSaying,
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
    """A function that reads `/metrics` with the token of the operator."""
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
    client.ask("Where did Ada move?", user="ada")  # status 200
    client.ask("Where?", user="nobody")  # status 404
    client.ask("Where?", user="nobody")

    metrics = scrape()

    labels = 'method="POST",route="/v1/users/{user}/ask"'
    assert metrics[f'mempiler_requests_total{{{labels},status="200"}}'] == 1
    assert metrics[f'mempiler_requests_total{{{labels},status="404"}}'] == 2


def test_the_times_of_requests_are_counted_in_buckets(client: Api, scrape: Scrape) -> None:
    """The bucket of 60 seconds counts all requests that took no longer than a minute."""
    for _ in range(3):
        client.ask("Where?", user="nobody")

    metrics = scrape()

    route = 'route="/v1/users/{user}/ask"'
    assert metrics[f'mempiler_request_seconds_bucket{{le="60.0",{route}}}'] == 3
    assert metrics[f'mempiler_request_seconds_bucket{{le="+Inf",{route}}}'] == 3
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
    """Nobody writes sessions into memories here (`writers=0`), so the one of Ada waits."""
    client.add("I moved to Lisbon.", user="ada")

    metrics = scrape()

    assert metrics["mempiler_store_up"] == 1
    assert metrics["mempiler_users"] == 1
    assert metrics['mempiler_sessions{state="queued"}'] == 1
    assert metrics['mempiler_sessions{state="failed"}'] == 0


def test_metrics_tell_neither_who_uses_the_service_nor_what_was_said(
    client: Api, scrape: Scrape
) -> None:
    acme = client
    acme.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
    acme.ask("Where did Ada move?", user="ada-lovelace")

    names_and_values = str(scrape())

    for word in ("ada", "chat-17", "Lisbon", "acme"):
        assert word not in names_and_values


@pytest.mark.usefixtures("scrape")
def test_metrics_are_refused_without_a_token(client: Api) -> None:
    response = httpx.get(f"{client.address}/metrics")

    assert response.status_code == 401


@pytest.mark.usefixtures("scrape")
def test_metrics_are_refused_to_a_tenant(client: Api) -> None:
    """Only the token of the operator opens them; `client` has that of the tenant `acme`."""
    assert client.get("/metrics").status_code == 403


@pytest.mark.usefixtures("scrape")
def test_the_operators_token_opens_nothing_but_the_metrics(client: Api) -> None:
    """The operator, who reads metrics, is no tenant and has no users."""
    response = httpx.get(f"{client.address}/v1/users", headers=OPERATOR_HEADERS)

    assert response.status_code == 403


def fail_statement(*_arguments: Any) -> None:
    raise SQLAlchemyError("the database is gone")


def test_while_the_store_is_down_only_its_own_metrics_are_missing(scrape: Scrape) -> None:
    with listening("before_cursor_execute", fail_statement):  # at each SQL statement
        metrics = scrape()

    assert metrics["mempiler_store_up"] == 0
    # The number of users is read from the store, that of requests is not.
    assert "mempiler_users" not in metrics
    assert 'mempiler_requests_in_progress{pool="asking"}' in metrics


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics"])
def test_the_state_is_answered_while_requests_of_clients_must_wait(
    start_service: StartService, path: str
) -> None:
    """An operator must see the state of a service that is too busy for requests of clients.

    With `store_threads=1` one request of a client at a time may use the store, and here it hangs.
    """
    client = start_service(tokens=False, store_threads=1).as_tenant(None)

    with ThreadPoolExecutor() as pool, first_request_hangs_in_store() as hanging:
        pool.submit(client.get, "/v1/users")
        hanging.wait_until_it_hangs()

        assert client.get(path, timeout=5).status_code == 200


def write_shared_metric(folder: Path, file_name: str, metric: str, value: float) -> None:
    """Write a file in which another process of the service shares a metric."""
    shared = MmapedDict(folder / file_name)
    shared.write_value(mmap_key(metric, metric, [], [], ""), value, 0.0)
    shared.close()


@pytest.fixture
def shared_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the files in which the processes of a service share their metrics."""
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    return tmp_path


def test_a_file_of_metrics_that_a_dying_process_left_empty_hides_no_other_file(
    scrape: Scrape, shared_metrics: Path
) -> None:
    """By itself the library prometheus-client fails at an empty file (its issue 1199)."""
    (shared_metrics / "counter_1.db").touch()
    write_shared_metric(shared_metrics, "counter_2.db", "requests", value=3.0)

    assert scrape()["requests"] == 3.0


DEAD_PROCESS = 99_999_999
"""The id of a process that is not there."""


def test_what_a_dead_process_has_counted_still_counts(scrape: Scrape, shared_metrics: Path) -> None:
    file_name = f"counter_{DEAD_PROCESS}.db"
    write_shared_metric(shared_metrics, file_name, "requests_of_dead_process", value=3.0)

    assert scrape()["requests_of_dead_process"] == 3.0


def test_what_a_dead_process_was_doing_does_not_count(scrape: Scrape, shared_metrics: Path) -> None:
    """A gauge tells what is happening now, here how many requests are in progress."""
    file_name = f"gauge_livesum_{DEAD_PROCESS}.db"
    write_shared_metric(shared_metrics, file_name, "in_progress_of_dead_process", value=3.0)

    assert "in_progress_of_dead_process" not in scrape()


def test_methods_and_paths_that_a_client_invents_make_no_new_metrics(
    client: Api, scrape: Scrape
) -> None:
    """Otherwise a client could fill the memory of the service with metrics."""
    for number in range(5):
        client.request(f"METHOD{number}", f"/nowhere/{number}")

    unknown = 'mempiler_requests_total{method="other",route="none",status="404"}'
    # A request is counted a moment after its response is sent.
    assert within(20, lambda: scrape().get(unknown) == 5)
    assert "METHOD" not in str(scrape())
    assert "nowhere" not in str(scrape())


def test_methods_and_paths_that_a_client_invents_are_not_logged(
    client: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a client could fill the disk: this method has 24,000 letters."""

    def request_records() -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if record.message == "request"]

    with caplog.at_level("INFO", "mempiler.serving"):
        client.request("METHOD" * 4_000, "/nowhere")
        # A line is written after the response is sent.
        assert within(20, lambda: len(request_records()) == 1)

    (record,) = request_records()
    assert record["method"] == "other"
    assert record["route"] is None


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
    """A client names its trace and its span in the header `traceparent`.

    Without it a request would begin a trace of its own.
    """
    trace_of_client = "1" * 32
    span_of_client = "2" * 16
    headers = {"traceparent": f"00-{trace_of_client}-{span_of_client}-01"}
    question = {"question": "Where did Ada move?"}

    with serving(service_over(store, tmp_path, spans=spans.provider)) as client:
        client.add("I moved to Lisbon.")
        client.post("/v1/users/ada/ask", json=question, headers=headers)
        request = spans.wait_for("POST /v1/users/{user}/ask")

    call = spans.wait_for("call of the model")
    assert request.context.trace_id == int(trace_of_client, 16)
    assert request.parent.span_id == int(span_of_client, 16)
    assert call.parent.span_id == request.context.span_id


def test_the_spans_of_an_answered_question_have_its_status_and_its_model(
    store: Store, tmp_path: Path, model_saying: ModelSaying, spans: RecordedSpans
) -> None:
    lm = model_saying("Lisbon")
    with serving(service_over(store, tmp_path, lm, spans=spans.provider)) as client:
        client.add("I moved to Lisbon.")
        client.ask("Where did Ada move?")
        request = spans.wait_for("POST /v1/users/{user}/ask")

    call = spans.wait_for("call of the model")
    assert request.status.is_ok
    assert request.attributes["http.status_code"] == 200
    assert call.status.is_ok
    assert call.attributes["gen_ai.request.model"] == "scripted/test"


def fail_and_quote_prompt(field: str, prompt: str, call_number: int) -> dict[str, str]:
    raise ValueError(f"cannot answer {prompt}")


def test_the_spans_of_a_failed_question_have_the_type_of_the_error_and_not_its_text(
    store: Store, tmp_path: Path, scripted: Any, spans: RecordedSpans
) -> None:
    """The text of an error, which OpenTelemetry would put into events, may quote a user."""
    lm = scripted(fail_and_quote_prompt)
    with serving(service_over(store, tmp_path, lm, spans=spans.provider)) as client:
        client.add("I moved to Lisbon.")
        client.ask("Where did Ada move?")
        request = spans.wait_for("POST /v1/users/{user}/ask")

    call = spans.wait_for("call of the model")
    assert not request.status.is_ok
    assert not call.status.is_ok
    assert call.attributes["error.type"] == "LMUnexpectedError"
    assert call.events == ()
    assert "Lisbon" not in spans.as_text()


def test_spans_tell_neither_who_uses_the_service_nor_what_was_said(
    store: Store, tmp_path: Path, spans: RecordedSpans
) -> None:
    """The name of a user stands in paths, and metadata stand in the query of an address."""
    with serving(service_over(store, tmp_path, spans=spans.provider)) as acme:
        acme.add("I moved to Lisbon.", user="ada-lovelace", id="chat-17")
        acme.ask("Where did Ada move?", user="ada-lovelace")
        acme.get("/v1/users/ada-lovelace/entries", params={"where": '{"channel": "lovelace"}'})
        acme.get("/v1/lovelace")
        spans.wait_for("POST /v1/users/{user}/ask")
        spans.wait_for("GET /v1/users/{user}/entries")

    for word in ("lovelace", "chat-17", "Lisbon", "acme", TOKENS["acme"]):
        assert word not in spans.as_text()


# SQL statements


TRANSACTION_KEYWORDS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")


def chat(client: Api, number: int) -> httpx.Response:
    return client.chat(f"What is the secret word of garden {number}?")


def ask(client: Api, number: int) -> httpx.Response:
    return client.ask(f"What is the secret word of garden {number}?")


def add_session(client: Api, number: int) -> httpx.Response:
    return client.add(f"The secret word of garden {number} is mk{number}.", user="new")


@contextmanager
def counted_statements() -> Iterator[list[str]]:
    """Yield a list of all SQL statements that are sent in the block, but for transactions."""
    statements: list[str] = []

    def note_statement(connection: Any, cursor: Any, statement: str, *_others: Any) -> None:
        if not statement.startswith(TRANSACTION_KEYWORDS):
            statements.append(statement)

    with listening("before_cursor_execute", note_statement):
        yield statements


@pytest.mark.parametrize(
    ("send_request", "max_statements"),
    [
        (chat, 12),
        (ask, 3),
        (add_session, 7),
    ],
)
def test_a_request_takes_few_sql_statements(
    client: Api, send_request: Callable[[Api, int], httpx.Response], max_statements: int
) -> None:
    """These are the numbers of today, so that a change that needs more of them is noticed.

    The least of four requests counts: the first ones read more, and the worker may use the store
    meanwhile.
    """
    for number in range(5):
        client.add(f"The secret word of garden {number} is mk{number}.")

    statement_counts: list[int] = []
    for number in range(4):
        with counted_statements() as statements:
            assert send_request(client, number).status_code in (200, 201)
        statement_counts.append(len(statements))

    assert 0 < min(statement_counts) <= max_statements
