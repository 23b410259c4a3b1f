"""Answers in pieces: a call context with `on_text` has models stream their answers.

The stub server sends each word of an answer as a piece. `record_pieces` lists the pieces by
attempt, since a call that fails is tried again, and begins its answer anew. The fixture `ask` runs
each test twice: it asks a model by a plain call, and under asyncio.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMError

from ...stub_server import StubServer, at
from .helpers import model_at, record_pieces, server_that_sends


def test_an_answer_comes_in_pieces(ask: Callable[..., Any]) -> None:
    server = StubServer(answer=lambda body: "I moved to Lisbon.")
    with server, record_pieces() as pieces_by_attempt:
        answers = ask(model_at(server))

    assert answers == ["I moved to Lisbon."]
    assert pieces_by_attempt == [["I", " moved", " to", " Lisbon."]]
    (request,) = server.requests
    assert request.body["stream"] is True
    assert request.body["stream_options"] == {"include_usage": True}


def test_a_streamed_call_is_counted_like_any_other(ask: Callable[..., Any]) -> None:
    # The server also reports that half of the prompt was in its cache.
    with StubServer(answer=lambda body: "I moved to Lisbon.", reused=0.5) as server:
        plain_lm = model_at(server)
        ask(plain_lm)
        streaming_lm = model_at(server)
        with record_pieces():
            ask(streaming_lm)

    assert streaming_lm.meter.read() == plain_lm.meter.read()


def test_a_cached_answer_has_no_pieces(ask: Callable[..., Any]) -> None:
    with StubServer(answer=lambda body: "fine") as server:
        lm = model_at(server, cache=True)
        with record_pieces() as first_pieces:
            assert ask(lm) == ["fine"]
        with record_pieces() as pieces_of_cached_answer:
            assert ask(lm) == ["fine"]

    assert first_pieces == [["fine"]]
    assert pieces_of_cached_answer == []
    assert lm.meter.read().calls == {"task": 1}
    assert lm.meter.read().cached == 1


def test_every_attempt_of_a_call_has_its_own_pieces(ask: Callable[..., Any]) -> None:
    first_two_are_refused = at({1: "429", 2: "429"})
    server = StubServer(first_two_are_refused, answer=lambda body: "one two")
    with server, record_pieces() as pieces_by_attempt:
        assert ask(model_at(server, retries=2)) == ["one two"]

    assert pieces_by_attempt == [[], [], ["one", " two"]]


def test_an_endpoint_that_does_not_stream_is_asked_again_without(ask: Callable[..., Any]) -> None:
    completion = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}]}'

    def answer_without_streaming(body: dict[str, Any]) -> bytes:
        # The stub makes a stream of a body that begins with "{", but not of this one.
        return b" " + completion if body.get("stream") else completion

    server = StubServer(answer=answer_without_streaming)
    with server, record_pieces() as pieces_by_attempt:
        assert ask(model_at(server)) == ["fine"]

    # The second request asked for no stream, so its answer came as a whole, without pieces.
    assert pieces_by_attempt == [[]]
    assert len(server.requests) == 2


def event_with_text(text: str) -> bytes:
    return f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}]}}\n\n'.encode()


@pytest.mark.parametrize(
    ("later_events", "message"),
    [
        pytest.param(b"", None, id="the stream ends too early"),
        pytest.param(b'data: {"choi\n\n', None, id="an event is no JSON"),
        pytest.param(
            event_with_text("x" * 40_000) * 101, "larger than 4000000 bytes", id="it does not end"
        ),
    ],
)
def test_a_stream_that_breaks_off_is_a_failed_call(
    ask: Callable[..., Any], later_events: bytes, message: str | None
) -> None:
    stream = event_with_text("one") + later_events
    with server_that_sends(stream) as server:
        lm = model_at(server)
        with record_pieces() as pieces_by_attempt, pytest.raises(LMError, match=message):
            ask(lm)

    assert len(pieces_by_attempt) == 1
    assert pieces_by_attempt[0][0] == "one"
    assert lm.meter.read().failed == 1


@pytest.mark.parametrize("is_async_program", [False, True])
def test_streamify_of_dspy_gives_the_words_of_a_field(is_async_program: bool) -> None:
    """`dspy.streamify` yields the words of an output field as they come, then the prediction."""
    completion = "[[ ## answer ## ]]\nto Lisbon in May\n\n[[ ## completed ## ]]"

    async def stream_answer() -> list[Any]:
        streaming_program: Any = dspy.streamify(
            dspy.Predict("question -> answer"),
            stream_listeners=[dspy.streaming.StreamListener("answer")],
            is_async_program=is_async_program,
        )
        return [part async for part in streaming_program(question="Where?")]

    with StubServer(answer=lambda body: completion) as server, dspy.context(lm=model_at(server)):
        *chunks, prediction = asyncio.run(stream_answer())

    assert "".join(chunk.chunk for chunk in chunks).strip() == "to Lisbon in May"
    assert prediction.answer == "to Lisbon in May"
