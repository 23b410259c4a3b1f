"""What a call to a model may take: time in all, bytes, waits; and that nothing of it goes on for long afterwards."""

import asyncio
import copy
import gc
import pickle
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from dspy.utils.exceptions import LMError, LMRateLimitError, LMTimeoutError, is_retryable_lm_error
from mempiler.engines.bounds import MOST_OVERDUE, Bounds, NobodyWaitsError
from mempiler.engines.deadline import Deadline, within
from mempiler.engines.guard import Guard
from mempiler.engines.models import language_model

from tests.stub_server import StubServer, at, every


def named(server: Any, deadline: float = 0.6, retries: int = 0, **more: Any) -> Any:
    return language_model(
        server.model, api_base=server.url, cache=False, retries=retries, deadline=deadline, timeout=20, **more
    )


def calls_end(seconds: float = 5) -> bool:
    until = time.monotonic() + seconds
    while any(thread.name == "mempiler-lm" for thread in threading.enumerate()):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(params=["call", "acall"])
def ask(request: pytest.FixtureRequest) -> Any:
    def asked(lm: Any, text: str = "question: Where?") -> Any:
        return lm(text) if request.param == "call" else asyncio.run(lm.acall(text))

    return asked


@pytest.mark.parametrize("fault", ["stall", "trickle", "headers"])
def test_a_call_ends_at_its_deadline_and_its_thread_too(ask: Any, fault: str) -> None:
    with StubServer(every(fault)) as server:
        lm, begun = named(server), time.monotonic()
        with pytest.raises(LMTimeoutError, match=r"no whole answer came in 0\.6 s"):
            ask(lm)
        assert time.monotonic() - begun < 3
        assert calls_end()


def test_a_reply_without_end_is_not_read_to_it(ask: Any) -> None:
    with StubServer(every("endless")) as server:
        with pytest.raises(LMError, match="larger than 4000000 bytes") as raised:
            ask(named(server, 30, retries=2))
        assert not is_retryable_lm_error(raised.value)
        assert server.sent < 25_000_000  # the rest is in sockets
        assert len(server.texts) == 1


@pytest.mark.parametrize("fault", ["endless", "trickle", "headers"])
def test_what_is_cut_off_leaves_no_connection(ask: Any, fault: str) -> None:
    gc.disable()  # sockets that only the collector would close are found open
    try:
        with StubServer(every(fault)) as server:
            lm = named(server, 1.5)
            with pytest.raises(LMError) as raised:
                ask(lm)
            assert calls_end()
            assert raised.value is not None
            assert not open_to(server)
    finally:
        gc.enable()


def open_to(server: Any) -> list[socket.socket]:
    address = urlsplit(server.url)
    known = [one for one in gc.get_objects() if type(one) is socket.socket]
    return [one for one in known if f"raddr=('{address.hostname}', {address.port})" in repr(one)]


def test_a_wait_beyond_the_deadline_fails_at_once_with_the_reason(ask: Any) -> None:
    with StubServer(every("wait")) as server:
        begun = time.monotonic()
        with pytest.raises(LMRateLimitError, match=r"asks for a wait of 3600 s: .* slow down for an hour"):
            ask(named(server, 600, retries=2))
        assert (time.monotonic() - begun < 3, len(server.texts)) == (True, 1)


def test_what_passes_is_repeated_within_the_deadline(ask: Any) -> None:
    with StubServer(at({1: "429", 2: "429"})) as server:
        assert ask(named(server, 30, retries=2))
        assert len(server.texts) == 3


def test_a_pause_that_does_not_fit_is_not_begun() -> None:
    with StubServer(every("500")) as server:
        with pytest.raises(LMError, match="the server has a fault"):
            named(server, 0.9, retries=2)("question: Where?")
        assert len(server.texts) == 1


@pytest.mark.filterwarnings("ignore::UserWarning")  # LiteLLM's own types
def test_a_call_through_litellm_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with StubServer(every("trickle")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)  # makes DSPy choose LiteLLM
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        lm = language_model(server.model, cache=False, retries=0, deadline=0.6)
        with pytest.raises(LMTimeoutError, match="no whole answer"):
            lm("question: Where?")
        server.die()
        assert calls_end(30)  # it may be at importing LiteLLM


def test_a_call_ends_with_the_work_that_wants_it_and_does_not_count_against_the_endpoint() -> None:
    class Counted(Guard):
        failures = 0

        def failed(self, error: Exception) -> None:
            self.failures += 1

    guard = Counted()
    with StubServer(every("stall")) as server:
        request = Deadline(60)
        threading.Timer(0.3, request.cancel).start()
        begun = time.monotonic()
        with within(request), pytest.raises(NobodyWaitsError):
            named(server, 30, guard=guard)("question: Where?")
        assert time.monotonic() - begun < 3
        assert calls_end()
    assert guard.failures == 0


def test_calls_that_never_return_are_bounded() -> None:
    bounds, go = Bounds(0.01, 0), threading.Event()
    try:
        for _ in range(MOST_OVERDUE):
            with pytest.raises(LMTimeoutError, match="no whole answer"):
                bounds.run(go.wait, "m")
        with pytest.raises(LMTimeoutError, match="64 calls have not returned"):
            bounds.run(go.wait, "m")
    finally:
        go.set()
    assert calls_end()
    assert bounds.run(lambda: 1, "m") == 1


def test_copies_share_the_bounds() -> None:
    with StubServer(every("endless")) as server:
        lm = named(server, 30)
        for other in (lm.copy(temperature=0.5), copy.deepcopy(lm), pickle.loads(pickle.dumps(lm))):
            with pytest.raises(LMError, match="larger than"):
                other("question: Where?")
        assert lm.copy().bounds is lm.bounds
