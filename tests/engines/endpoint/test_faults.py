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
    LMRateLimitError,
    LMTimeoutError,
    LMTransportError,
)
from mempiler import UserError
from mempiler.engines.call_context import Deadline, call_context
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.limits import DEAD_AFTER, BudgetGuard
from mempiler.engines.lm import language_model
from mempiler.engines.metered_lm import MeteredLM

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
UNREADABLE_ANSWERS = [
    pytest.param(b"no JSON", "not JSON", id="no JSON"),
    pytest.param(b"[]", "got list", id="a list"),
    pytest.param(b"{}", "no choices", id="an empty object"),
    pytest.param(b'{"choices": []}', "no choices", id="no choice"),
]


def error_of_call(ask: Callable[..., Any], lm: MeteredLM) -> Exception:
    """Ask a model, and return the error, which must come in time.

    The call must be counted as failed, and hold no slot at the endpoint any more.
    """
    start = time.monotonic()
    with pytest.raises((LMError, UserError)) as caught:
        ask(lm)

    assert time.monotonic() - start < MAX_SECONDS
    assert lm.meter.read().failed == 1
    assert all_slots_are_free(lm)
    return caught.value


# Answers that do not come whole.


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("stall", id="no answer"),
        pytest.param("trickle", id="an answer that comes a byte at a time"),
        pytest.param("headers", id="headers that come a byte at a time"),
    ],
)
def test_a_call_whose_answer_is_not_whole_at_its_deadline_fails(
    ask: Callable[..., Any], fault: str
) -> None:
    with StubServer(every(fault)) as server:
        error = error_of_call(ask, model_at(server, deadline=0.6))

        assert isinstance(error, LMTimeoutError)
        assert "no whole answer came in 0.6 s" in str(error)
        assert all_connections_close(server)


def test_a_call_of_a_server_that_is_silent_for_too_long_fails(ask: Callable[..., Any]) -> None:
    """The deadline of the call is far away, but the server may be silent for 0.4 seconds only."""
    is_silent = every("stall")
    with StubServer(is_silent) as server:
        error = error_of_call(ask, model_at(server, deadline=30, timeout=0.4))

        assert isinstance(error, LMTimeoutError)
        assert "timed out" in str(error)
        assert all_connections_close(server)


def test_an_answer_that_does_not_end_is_an_error_and_not_asked_for_again(
    ask: Callable[..., Any],
) -> None:
    sends_an_endless_answer = every("endless")
    with StubServer(sends_an_endless_answer) as server:
        error = error_of_call(ask, model_at(server, retries=2))

        assert "larger than 4000000 bytes" in str(error)
        assert len(server.texts) == 1
        assert all_connections_close(server)


def test_a_gzip_bomb_is_an_error_and_not_asked_for_again(ask: Callable[..., Any]) -> None:
    """A gzip bomb is a small body that becomes very large when it is unpacked."""
    with server_that_sends(GZIP_BOMB_RESPONSE) as server:
        error = error_of_call(ask, model_at(server, retries=2))

        assert "larger than 4000000 bytes" in str(error)
        assert len(server.texts) == 1
        assert all_connections_close(server)


def test_an_answer_that_cannot_be_unpacked_is_an_error(ask: Callable[..., Any]) -> None:
    no_gzip_though_it_says_so = http_head("Content-Encoding: gzip") + b"no gzip"
    with server_that_sends(no_gzip_though_it_says_so) as server:
        error = error_of_call(ask, model_at(server))

        assert isinstance(error, LMTransportError)
        assert "not decode" in str(error)
        assert all_connections_close(server)


def test_an_answer_that_is_cut_off_is_asked_for_again(ask: Callable[..., Any]) -> None:
    cut_response = http_head("Content-Length: 100") + b'{"choi'
    with server_that_sends(cut_response) as server:
        error = error_of_call(ask, model_at(server, retries=1))

        assert isinstance(error, LMTransportError)
        assert len(server.texts) == 2
        assert all_connections_close(server)


# Refusals and answers of another form, after which a model does not ask again though it may.


def test_a_server_that_has_died_is_not_asked_again(ask: Callable[..., Any]) -> None:
    dies_at_the_first_request = every("dead")
    with StubServer(dies_at_the_first_request) as server:
        error = error_of_call(ask, model_at(server, retries=1))

    assert isinstance(error, LMTransportError)
    assert "onnection refused" in str(error)
    assert len(server.texts) == 1


def test_a_server_that_asks_for_a_wait_of_an_hour_is_not_asked_again(
    ask: Callable[..., Any],
) -> None:
    asks_for_a_wait_of_an_hour = every("wait")
    with StubServer(asks_for_a_wait_of_an_hour) as server:
        error = error_of_call(ask, model_at(server, retries=2))

    assert isinstance(error, LMRateLimitError)
    assert "asks for a wait of 3600 s: slow down for an hour" in str(error)
    assert len(server.texts) == 1


def test_a_server_is_not_asked_again_if_its_answer_would_come_after_the_deadline(
    ask: Callable[..., Any],
) -> None:
    """Before the second attempt a model waits for longer than the 0.9 seconds of the call."""
    has_a_fault = every("500")
    with StubServer(has_a_fault) as server:
        error = error_of_call(ask, model_at(server, deadline=0.9, retries=2))

    assert "the server has a fault" in str(error)
    assert len(server.texts) == 1


def test_a_server_that_refuses_the_key_is_not_asked_again(ask: Callable[..., Any]) -> None:
    refuses_the_key = every("401")
    with StubServer(refuses_the_key) as server:
        error = error_of_call(ask, model_at(server, retries=2))

    assert isinstance(error, UserError)
    assert "refuses the key" in str(error)
    assert len(server.texts) == 1


def test_a_server_for_which_the_prompt_is_too_long_is_not_asked_again(
    ask: Callable[..., Any],
) -> None:
    response = (
        http_head("X: y", status="400 Bad")
        + b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    )
    with server_that_sends(response) as server:
        error = error_of_call(ask, model_at(server, retries=2))

    assert isinstance(error, ContextWindowExceededError)
    assert len(server.texts) == 1


@pytest.mark.parametrize(("answer", "message"), UNREADABLE_ANSWERS)
def test_a_server_whose_answer_cannot_be_read_is_not_asked_again(
    ask: Callable[..., Any], answer: bytes, message: str
) -> None:
    with server_that_sends(answer) as server:
        error = error_of_call(ask, model_at(server, retries=2))

    assert message in str(error)
    assert len(server.texts) == 1


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
        with pytest.raises(LMTimeoutError, match=r"no whole answer came in 0\.6 s"):
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

    never_answers = every("stall")
    with StubServer(never_answers) as server:
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
