"""The text of a call piece by piece: what is heard meanwhile, and that the call itself stays as it is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from dspy.utils.exceptions import LMError, LMTimeoutError
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.engines.pieces import in_pieces

from tests.stub_server import StubServer, at, every


@pytest.fixture(params=["call", "acall"])
def ask(request: pytest.FixtureRequest) -> Callable[..., tuple[Any, list[list[str]]]]:
    """Asks a model; returns what it says, and the pieces of each attempt."""

    def asked(lm: Any, text: str = "question: Where?", heard: Any = None) -> tuple[Any, list[list[str]]]:
        pieces: list[list[str]] = [] if heard is None else heard

        def begin() -> Any:
            pieces.append([])
            return pieces[-1].append

        with in_pieces(begin):
            said = lm(text) if request.param == "call" else asyncio.run(lm.acall(text))
        return said, pieces

    return asked


def named(server: StubServer, **more: Any) -> Any:
    more = {"retries": 0, "deadline": 10, "cache": False, **more}
    return language_model(server.model, meter=Meter(), api_base=server.url, **more)


def test_pieces_make_the_text_and_the_call_is_counted_as_without(ask: Any) -> None:
    with StubServer(answer=lambda body: "I moved to Lisbon.", reused=0.5) as server:
        streaming, whole = named(server), named(server)
        said, pieces = ask(streaming)
        assert (said, pieces) == (["I moved to Lisbon."], [["I", " moved", " to", " Lisbon."]])
        assert whole("question: Where?") == said
        assert streaming.meter.read() == whole.meter.read()
        assert streaming.meter.read().output_tokens == 4
        assert [bool(body.get("stream")) for _, _, body in server.requests] == [True, False]
        assert server.requests[0][2]["stream_options"] == {"include_usage": True}


def test_cached_answer_has_no_pieces(ask: Any) -> None:
    with StubServer(answer=lambda body: "fine") as server:
        lm = named(server, cache=True)
        assert [ask(lm) for _ in range(2)] == [(["fine"], [["fine"]]), (["fine"], [])]
        assert lm.meter.read().cached == 1


def test_answer_that_a_run_kept_has_no_pieces(ask: Any) -> None:
    kept: dict[str, Any] = {}

    class Kept:
        def once(self, key: str, compute: Callable[[], dict[str, Any]], merged: bool = False) -> tuple[Any, bool]:
            known = key in kept
            return kept.setdefault(key, None if known else compute()), known

    with StubServer(answer=lambda body: "fine") as server:
        lm = named(server, answers=Kept())
        assert [ask(lm) for _ in range(2)] == [(["fine"], [["fine"]]), (["fine"], [])]
        assert lm.meter.read().calls == {"task": 1}


def test_attempt_that_is_repeated_begins_anew(ask: Any) -> None:
    with StubServer(at({1: "500"}), lambda body: "one two") as server:
        assert ask(named(server, retries=1)) == (["one two"], [[], ["one", " two"]])


def test_endpoint_that_does_not_stream_is_asked_without(ask: Any) -> None:
    completion = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}]}'
    with StubServer(answer=lambda body: completion if not body.get("stream") else b" " + completion) as server:
        assert ask(named(server)) == (["fine"], [[]])
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        b'data: {"choices": [{"delta": {"content": "one"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "one"}}]}\n\ndata: {"error": {"message": "no"}}\n\n',
        b'data: {"choices": [{"delta": {"content": "one"}}]}\n\ndata: {"choi\n\n',
    ],
    ids=["cut", "error", "odd"],
)
def test_stream_that_breaks_off_is_a_failed_call(ask: Any, body: bytes) -> None:
    heard: list[list[str]] = []
    with StubServer(answer=lambda _: body) as server:
        lm = named(server)
        with pytest.raises(LMError):
            ask(lm, heard=heard)
        assert (heard, lm.meter.read().failed) == ([["one"]], 1)


def test_stream_is_bounded_as_any_reply(ask: Any) -> None:
    event = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % (b"x" * 40_000)
    with StubServer(answer=lambda _: event * 101) as server, pytest.raises(LMError, match="larger than 4000000 bytes"):
        ask(named(server))


@pytest.mark.parametrize("fault", ["stall", "trickle"])
def test_stream_ends_at_the_deadline(ask: Any, fault: str) -> None:
    with StubServer(every(fault)) as server, pytest.raises(LMTimeoutError):
        ask(named(server, deadline=0.4))


def test_models_of_this_process_say_it_at_once(ask: Any, scripted: Any) -> None:
    lm = scripted(lambda kind, text, n: "fine")
    assert ask(lm) == (["fine"], [])
