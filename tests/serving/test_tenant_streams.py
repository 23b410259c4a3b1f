"""What a relayed stream of a model counts for the budget of its tenant, also if it breaks off.

A relayed chat is one that the service passes on to the language model itself. A token costs
`USD_PER_TOKEN` here. Before a call the most that it may cost is reserved: for each answer
`max_tokens` times that, and something for the prompt. In a stream that has begun, an error of the
endpoint has the code 502, and an error of the store 503.

A stream consists of events. An answer has ended when an event has its `finish_reason`, and `[DONE]`
is the last event. "Usage" is what OpenAI calls the numbers of tokens, which a model reports.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from mempiler import Store, StoreError, Turn
from mempiler.memory.store.database import Database
from mempiler.memory.store.open_sessions import OpenSessions
from mempiler.memory.store.owner import Owner

from .conftest import USD_PER_TOKEN, StartRelay, only_request_body, within

DONE = b"data: [DONE]\n\n"
BROKEN_OFF = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n"
"""The head of a reply that breaks off: its body will be shorter than 100,000 bytes."""


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


def relay_stream(
    start_relay: StartRelay, answer: bytes, max_tokens: int = 100, **fields: Any
) -> httpx.Response:
    """Relay a streamed chat to a model that answers with these bytes, and return the response."""
    relay = start_relay(answer=answer)
    body = streamed_chat(max_tokens=max_tokens, **fields)
    return relay.client.post("/v1/chat/completions", json=body)


ANSWER_WITH_USAGE_OF_400_TOKENS = (
    events(
        chunk({"content": "Lisbon"}, finish_reason="stop"),
        {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 300}},
    )
    + DONE
)


def test_a_stream_costs_what_its_usage_says_though_the_client_did_not_ask_for_usage(
    start_relay: StartRelay, store: Store
) -> None:
    """The service asks the model for the usage, and keeps it from the client.

    A token costs a tenth of a cent, so 400 tokens cost 40 cents.
    """
    relay = start_relay(answer=ANSWER_WITH_USAGE_OF_400_TOKENS)

    response = relay.client.post("/v1/chat/completions", json=streamed_chat(max_tokens=100))

    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.40)
    assert only_request_body(relay.server)["stream_options"]["include_usage"] is True
    assert '"usage"' not in response.text
    assert response.text.endswith("data: [DONE]\n\n")


def test_a_client_that_asks_for_the_usage_of_a_stream_gets_it(start_relay: StartRelay) -> None:
    response = relay_stream(
        start_relay, ANSWER_WITH_USAGE_OF_400_TOKENS, stream_options={"include_usage": True}
    )

    assert '"completion_tokens": 300' in response.text
    assert response.text.endswith("data: [DONE]\n\n")


def test_a_stream_without_usage_counts_all_answers_and_tool_calls(
    start_relay: StartRelay, store: Store
) -> None:
    """Two answers and a tool call have 400 words each. A word counts as a token at least."""
    words = "word " * 400
    tool_call = {"index": 0, "function": {"name": "f", "arguments": json.dumps({"x": words})}}
    answer = events(
        chunk({"content": words}),
        chunk({"content": words}, index=1),
        chunk({"tool_calls": [tool_call]}, index=2),
        chunk({}, finish_reason="stop"),
    )

    relay_stream(start_relay, answer, n=3)

    # The tokens are estimated, so the upper bound is generous.
    usd_of_all_words = 3 * 400 * USD_PER_TOKEN
    assert usd_of_all_words <= store.tenant_usage.spent_today("acme") < 3


def test_a_stream_that_breaks_off_costs_the_dollars_that_were_reserved(
    start_relay: StartRelay, store: Store
) -> None:
    """The model sends "Lis" of "Lisbon", and then neither a `finish_reason` nor `[DONE]`.

    More of the answer may have been written, so it costs what was reserved for 100 tokens.
    """
    first_part_of_answer = events(chunk({"content": "Lis"}, finish_reason=None))

    response = relay_stream(start_relay, first_part_of_answer, max_tokens=100)

    assert '"code": 502' in response.text  # an error of the endpoint
    # Something was reserved for the prompt as well.
    assert store.tenant_usage.spent_today("acme") >= 100 * USD_PER_TOKEN


def test_done_ends_a_stream_also_without_a_space_before_it(start_relay: StartRelay) -> None:
    """Some endpoints send `data:[DONE]`. It is no error that the answer has no `finish_reason`."""
    answer = events(chunk({"content": "Lisbon"})) + b"data:[DONE]\n\n"

    response = relay_stream(start_relay, answer)

    assert response.text.endswith("data:[DONE]\n\n")


class OpenConnection:
    """Keeps the connection of a model open behind its answer, until `close`; 5 seconds at most."""

    def __init__(self) -> None:
        self._may_close = threading.Event()
        self.was_closed_in_time: bool | None = None
        """Whether `close` was called within the 5 seconds; None until then."""

    def close(self) -> None:
        self._may_close.set()

    def before_close(self) -> None:
        """Wait; the stub server calls this before it closes the connection."""
        self.was_closed_in_time = self._may_close.wait(5)


@pytest.mark.parametrize("client_leaves", [False, True])
def test_a_stream_ends_at_done_though_the_endpoint_keeps_its_connection_open(
    start_relay: StartRelay, client_leaves: bool
) -> None:
    """The client leaves at `[DONE]`, or waits for the end of the stream."""
    connection = OpenConnection()
    relay = start_relay(answer="Lisbon", before_close=connection.before_close)

    lines: list[str] = []
    with relay.client.stream("POST", "/v1/chat/completions", json=streamed_chat()) as response:
        for line in response.iter_lines():
            lines.append(line)
            if line == "data: [DONE]" and client_leaves:
                break
    assert within(10, relay.has_no_request)
    connection.close()

    assert within(10, lambda: connection.was_closed_in_time)
    assert "data: [DONE]" in lines[-2:]
    assert "error" not in "".join(lines)
    assert relay.failed_calls == 0


def test_a_client_that_leaves_between_answer_and_usage_pays_for_what_was_written(
    start_relay: StartRelay, store: Store
) -> None:
    """The answer "Lisbon" was complete, and costs much less than the dollar that was reserved."""
    may_send_usage = threading.Event()
    number_of_usage = 3  # Events 0 to 2 are the role, the answer and its end.

    def wait_before_usage(event_number: int) -> None:
        if event_number == number_of_usage:
            may_send_usage.wait(20)

    relay = start_relay(answer="Lisbon", between=wait_before_usage)

    body = streamed_chat(max_tokens=1000)
    with relay.client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if '"finish_reason": "stop"' in line:
                break
    assert within(10, relay.has_no_request)
    may_send_usage.set()

    assert 0 < store.tenant_usage.spent_today("acme") < 0.5
    assert relay.failed_calls == 0


def read_two_answers_then_break_off(
    start_relay: StartRelay, finish_reason_of_porto: str | None
) -> str:
    """Relay a stream of two answers that breaks off once both were read, and return its text.

    The answer "Lisbon" ends before that, and the answer "Porto" if it has a reason to end.
    """
    answers = events(
        chunk({"content": "Porto"}, index=1, finish_reason=finish_reason_of_porto),
        chunk({"content": "Lisbon"}, finish_reason="stop"),
    )
    may_break_off = threading.Event()
    relay = start_relay(
        answer=BROKEN_OFF + answers,
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


def test_a_stream_that_breaks_off_after_all_its_answers_costs_what_was_written(
    start_relay: StartRelay, store: Store
) -> None:
    """The client asks for two answers, "Lisbon" and "Porto", and gets the whole of both.

    A dollar was reserved for each of them.
    """
    text = read_two_answers_then_break_off(start_relay, finish_reason_of_porto="stop")

    assert '"code": 502' not in text
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5


def test_a_stream_that_breaks_off_before_an_answer_ends_costs_the_reserved_dollars(
    start_relay: StartRelay, store: Store
) -> None:
    """Of two answers only "Lisbon" has ended. More of "Porto" may have been written.

    A dollar was reserved for each of them, and something for the prompt.
    """
    text = read_two_answers_then_break_off(start_relay, finish_reason_of_porto=None)

    assert '"code": 502' in text
    assert store.tenant_usage.spent_today("acme") > 2.0


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
def test_an_answer_that_cannot_be_stored_is_an_error_though_the_connection_stays_open(
    start_relay: StartRelay, store: Store, answer: str | bytes
) -> None:
    """The store fails for answers (503). The endpoint keeps its connection open after the answer.

    The answer costs what was written of it, and not the dollar that was reserved.
    """
    connection = OpenConnection()
    relay = start_relay(answer=answer, before_close=connection.before_close)

    body = streamed_chat(max_tokens=1000)
    response = relay.client.post("/v1/chat/completions", json=body)
    connection.close()

    assert '"code": 503' in response.text
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5


def test_an_answer_that_cannot_be_stored_is_an_error_of_the_store_though_the_endpoint_breaks_off(
    start_relay: StartRelay,
    store: Store,
    sessions_without_answers: OpenSessionsWithoutAnswers,
) -> None:
    """The store fails first. So the client gets its error (503), and not the later one (502).

    The answer costs what was written of it, and not the dollar that was reserved.
    """
    answer = BROKEN_OFF + events(chunk({"content": "Lisbon"}, finish_reason="stop"))
    relay = start_relay(
        answer=answer,
        before_close=lambda: sessions_without_answers.has_failed.wait(20),
    )

    body = streamed_chat(max_tokens=1000)
    response = relay.client.post("/v1/chat/completions", json=body)

    assert '"code": 503' in response.text
    assert 0 < store.tenant_usage.spent_today("acme") < 0.5


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.usefixtures("sessions_without_answers")
def test_an_answer_that_cannot_be_stored_costs_what_its_usage_says(
    start_relay: StartRelay, store: Store, is_streamed: bool
) -> None:
    """The store fails for answers. A token costs a tenth of a cent, so 400 tokens cost 40 cents."""
    usage = {"prompt_tokens": 100, "completion_tokens": 300}
    relay = start_relay(answer="Lisbon", usage=usage)

    response = relay.client.chat("Hi", model="my-model-chat", stream=is_streamed, max_tokens=1000)

    assert '"code":503' in response.text.replace(" ", "")
    assert store.tenant_usage.spent_today("acme") == pytest.approx(0.40)
