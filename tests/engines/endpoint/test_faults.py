"""Calls of a model whose endpoint fails, hangs or sends too much; calls that nobody waits for.

A fault with a name, such as "stall" or "trickle", is one of the stub server, whose docstring says
what a request meets then. The times of a model are `timeout`, for a silence of the server, and
`deadline`, for a whole call. The fixture `ask` runs each test twice: it asks a model by a plain
call, and under asyncio.
"""

import asyncio
import gzip
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from dspy.utils.exceptions import (
    ContextWindowExceededError,
    LMError,
    LMProviderError,
    LMRateLimitError,
    LMTimeoutError,
    LMTransportError,
)
from mempiler import UserError
from mempiler.engines.call_context import Deadline, call_context
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.limits import DEAD_AFTER, BudgetGuard
from mempiler.engines.lm import language_model

from ...conftest import within
from ...stub_server import StubServer, at, every
from .helpers import (
    all_connections_close,
    all_slots_are_free,
    http_head,
    model_at,
    server_that_sends,
)

MAX_SECONDS = 15
"""Far more than any of these calls may take, and far less than a call that hangs would take."""

GZIP_BOMB = gzip.compress(b" " * 200_000_000, 1)
GZIP_BOMB_RESPONSE = (
    http_head(f"Content-Encoding: gzip\r\nContent-Length: {len(GZIP_BOMB)}") + GZIP_BOMB
)
INVALID_GZIP_RESPONSE = http_head("Content-Encoding: gzip") + b"no gzip"
CUT_RESPONSE = http_head("Content-Length: 100") + b'{"choi'
TOO_LONG_RESPONSE = (
    http_head("X: y", status="400 Bad")
    + b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
)

IS_TOO_LATE = r"no whole answer came in 0\.6 s"
IS_TOO_LARGE = "larger than 4000000 bytes"


def server_with_fault(fault: str | bytes) -> StubServer:
    """Return a server that meets every request with a fault, or sends these bytes."""
    if isinstance(fault, bytes):
        return server_that_sends(fault)
    return StubServer(every(fault))


def assert_call_fails(
    ask: Callable[..., Any],
    server: StubServer,
    settings: dict[str, Any],
    error: type[Exception],
    message: str | None,
    request_count: int,
) -> None:
    """Assert that a call fails in time, is counted as failed, and gives its slot back.

    Args:
        ask: Asks a model.
        server: The endpoint of the model.
        settings: Those of the model.
        error: The type of the expected error.
        message: A part of its message; None if the message does not matter.
        request_count: How many requests the server must have got.
    """
    lm = model_at(server, **settings)
    start = time.monotonic()

    with pytest.raises(error, match=message):
        ask(lm)

    assert time.monotonic() - start < MAX_SECONDS
    assert len(server.texts) == request_count
    assert lm.meter.read().failed == 1
    assert all_slots_are_free(lm)


@pytest.mark.parametrize(
    ("fault", "settings", "error", "message", "request_count"),
    [
        pytest.param("stall", {"deadline": 0.6}, LMTimeoutError, IS_TOO_LATE, 1, id="no answer"),
        pytest.param(
            "trickle", {"deadline": 0.6}, LMTimeoutError, IS_TOO_LATE, 1, id="slow answer"
        ),
        pytest.param(
            "headers", {"deadline": 0.6}, LMTimeoutError, IS_TOO_LATE, 1, id="slow headers"
        ),
        pytest.param("stall", {"timeout": 0.4}, LMTimeoutError, "timed out", 1, id="silence"),
        pytest.param(
            "endless", {"retries": 2}, LMProviderError, IS_TOO_LARGE, 1, id="endless answer"
        ),
        pytest.param(
            GZIP_BOMB_RESPONSE, {"retries": 2}, LMProviderError, IS_TOO_LARGE, 1, id="gzip bomb"
        ),
        pytest.param(
            INVALID_GZIP_RESPONSE, {}, LMTransportError, "not decode", 1, id="invalid gzip"
        ),
        pytest.param(CUT_RESPONSE, {"retries": 1}, LMTransportError, None, 2, id="cut answer"),
    ],
)
def test_an_answer_that_does_not_come_whole_is_an_error_in_time_and_leaves_no_connection(
    ask: Callable[..., Any],
    fault: str | bytes,
    settings: dict[str, Any],
    error: type[Exception],
    message: str | None,
    request_count: int,
) -> None:
    """Such a call is also counted as failed, and gives its slot back.

    A gzip bomb is a small body that becomes very large when it is unpacked. After an answer that is
    too large a model does not ask again; after a cut one it does.
    """
    with server_with_fault(fault) as server:
        assert_call_fails(ask, server, settings, error, message, request_count)
        assert all_connections_close(server)


@pytest.mark.parametrize(
    ("fault", "settings", "error", "message", "request_count"),
    [
        pytest.param(
            "dead", {"retries": 1}, LMTransportError, "onnection refused", 1, id="dead server"
        ),
        pytest.param(
            "wait",
            {"retries": 2},
            LMRateLimitError,
            "asks for a wait of 3600 s: slow down for an hour",
            1,
            id="asks for a long wait",
        ),
        pytest.param(
            "500",
            {"deadline": 0.9, "retries": 2},
            LMError,
            "the server has a fault",
            1,
            id="no time for a retry",
        ),
        pytest.param("401", {"retries": 2}, UserError, "refuses the key", 1, id="refused key"),
        pytest.param(
            TOO_LONG_RESPONSE,
            {"retries": 2},
            ContextWindowExceededError,
            "too long",
            1,
            id="prompt is too long",
        ),
        pytest.param("no-json", {"retries": 2}, LMProviderError, "not JSON", 1, id="no JSON"),
        pytest.param(b"[]", {"retries": 2}, LMError, "got list", 1, id="a list"),
        pytest.param(b"{}", {"retries": 2}, LMProviderError, "no choices", 1, id="an empty object"),
        pytest.param(
            b'{"choices": []}', {"retries": 2}, LMProviderError, "no choices", 1, id="no choice"
        ),
    ],
)
def test_a_refusal_or_an_answer_of_another_form_is_an_error_in_time(
    ask: Callable[..., Any],
    fault: str | bytes,
    settings: dict[str, Any],
    error: type[Exception],
    message: str | None,
    request_count: int,
) -> None:
    """Such a call is also counted as failed, and gives its slot back.

    No server gets a second request, though the models may make one: the server is gone, or would
    have to be asked too late, or would refuse again.
    """
    with server_with_fault(fault) as server:
        assert_call_fails(ask, server, settings, error, message, request_count)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of types of LiteLLM's own
def test_a_provider_that_only_litellm_knows_is_asked_through_it_until_the_deadline(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "none")
    second_request_stalls = at({2: "stall"})
    with StubServer(second_request_stalls) as server:
        patient_lm = language_model("mistral/any", api_base=server.url, cache=False, retries=0)
        assert ask(patient_lm)  # gets some answer

        hurried_lm = language_model(
            "mistral/any", api_base=server.url, cache=False, retries=0, deadline=0.6
        )
        with pytest.raises(LMTimeoutError, match=IS_TOO_LATE):
            ask(hurried_lm)


# Calls that nobody waits for any more.


def assert_call_is_abandoned(ask: Callable[..., Any], deadline: Deadline) -> None:
    """Assert that a call ends with its deadline, and is not taken for a fault of the endpoint.

    The endpoint never answers.
    """
    guard = BudgetGuard()
    start = time.monotonic()

    with StubServer(every("stall")) as server:
        with call_context(deadline=deadline), pytest.raises(AbandonedCallError):
            ask(model_at(server, guard=guard))
        assert time.monotonic() - start < MAX_SECONDS
        assert all_connections_close(server)

    # If the abandoned call counted as a failure of the endpoint, the last of these would be the
    # one that declares the endpoint dead, which raises an error.
    for _ in range(DEAD_AFTER - 1):
        guard.record_failure(LMTransportError("down"))


def test_a_call_ends_when_the_deadline_of_its_work_passes(ask: Callable[..., Any]) -> None:
    """The endpoint never answers. The work, such as one question, has 0.3 seconds."""
    assert_call_is_abandoned(ask, Deadline(0.3))


def test_a_call_ends_when_its_work_is_cancelled(ask: Callable[..., Any]) -> None:
    """The endpoint never answers, and the deadline of the work is a minute away."""
    deadline = Deadline(60)
    seconds_until_cancelled = 0.3
    threading.Timer(seconds_until_cancelled, deadline.cancel).start()
    assert_call_is_abandoned(ask, deadline)


def test_a_task_that_is_cancelled_leaves_no_connection_and_holds_no_slot() -> None:
    async def cancel_a_call(server: StubServer, lm: Any) -> None:
        call = asyncio.ensure_future(lm.acall("question: Where?"))
        await asyncio.to_thread(within, 5, lambda: bool(server.texts))  # the request has come
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    with StubServer(every("stall")) as server:
        lm = model_at(server)
        asyncio.run(cancel_a_call(server, lm))
        assert all_connections_close(server)
        assert all_slots_are_free(lm)


# Processes.

CALL_IN_A_DAEMON_THREAD = """
import sys, threading, time
from contextlib import suppress
from mempiler.engines.lm import language_model
lm = language_model("openai/own", api_base=sys.argv[1], cache=False, retries=0)

def ask():
    with suppress(Exception):
        lm("question: Where?")

threading.Thread(target=ask, daemon=True).start()
time.sleep(1)
print(time.monotonic(), flush=True)
"""
"""Prints the time at which the main thread of the process ends."""


@pytest.mark.slow
def test_a_process_ends_though_a_call_is_in_flight() -> None:
    with StubServer(every("stall")) as server:
        command = [sys.executable, "-c", CALL_IN_A_DAEMON_THREAD, server.url]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60)

        end_of_main_thread = float(process.stdout)
        assert time.monotonic() - end_of_main_thread < MAX_SECONDS
        assert process.returncode == 0
        assert process.stderr == ""


def test_a_model_works_in_a_forked_process_and_still_works_in_its_parent() -> None:
    with StubServer(answer=lambda body: "fine") as server:
        lm = model_at(server)
        assert lm("before") == ["fine"]

        child = os.fork()
        if child == 0:
            # The child must end here, whatever happens: it must not go on with the tests.
            exit_code = 1
            try:
                if lm("in the child") == ["fine"]:
                    exit_code = 0
            finally:
                os._exit(exit_code)
        _, exit_status = os.waitpid(child, 0)

        assert exit_status == 0
        assert lm("after") == ["fine"]
