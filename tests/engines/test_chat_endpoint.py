"""What a model writes, piece by piece, and requests in OpenAI's own form that are handed on."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import LMError, LMProviderError, LMTimeoutError
from mempiler import UserError
from mempiler.engines.endpoint.endpoint import Upstream, in_pieces, upstream_of
from mempiler.engines.models import language_model

from ..stub_server import StubServer, at, every
from .servers import connections, failing, named, until

HI = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def ask_in_pieces(ask: Any) -> Callable[..., tuple[Any, list[list[str]]]]:
    """Asks a model; returns what it says, and the pieces of each attempt."""

    def asked(lm: Any, pieces: Any = None) -> tuple[Any, list[list[str]]]:
        heard: list[list[str]] = [] if pieces is None else pieces

        def begin() -> Any:
            heard.append([])
            return heard[-1].append

        with in_pieces(begin):
            return ask(lm), heard

    return asked


def test_pieces_make_the_text_and_the_call_is_counted_as_without(ask_in_pieces: Any) -> None:
    with StubServer(answer=lambda body: "I moved to Lisbon.", reused=0.5) as server:
        streaming, whole = named(server), named(server)
        said, pieces = ask_in_pieces(streaming)
        assert (said, pieces) == (["I moved to Lisbon."], [["I", " moved", " to", " Lisbon."]])
        assert whole("question: Where?") == said
        assert streaming.meter.read() == whole.meter.read()
        assert [bool(body.get("stream")) for _, _, body in server.requests] == [True, False]
        assert server.requests[0][2]["stream_options"] == {"include_usage": True}


def test_answer_that_is_known_has_no_pieces(ask_in_pieces: Any) -> None:
    with StubServer(answer=lambda body: "fine") as server:
        lm = named(server, cache=True)
        assert [ask_in_pieces(lm) for _ in range(2)] == [(["fine"], [["fine"]]), (["fine"], [])]
        assert (lm.meter.read().calls, lm.meter.read().cached) == ({"task": 1}, 1)


def test_attempt_that_is_repeated_begins_anew(ask_in_pieces: Any) -> None:
    with StubServer(at({1: "429"}), lambda body: "one two") as server:
        assert ask_in_pieces(named(server, retries=1)) == (["one two"], [[], ["one", " two"]])


def test_endpoint_that_does_not_stream_is_asked_without(ask_in_pieces: Any) -> None:
    whole = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}]}'
    with StubServer(answer=lambda body: whole if not body.get("stream") else b" " + whole) as server:
        assert ask_in_pieces(named(server)) == (["fine"], [[]])
        assert len(server.requests) == 2


ONE = b'data: {"choices": [{"delta": {"content": "one"}}]}\n\n'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ONE, None),
        (ONE + b'data: {"choi\n\n', None),
        (ONE + ONE.replace(b"one", b"x" * 40_000) * 101, "larger than 4000000 bytes"),
    ],
    ids=["cut", "odd", "endless"],
)
def test_stream_that_breaks_off_is_a_failed_call(ask_in_pieces: Any, body: bytes, message: str | None) -> None:
    heard: list[list[str]] = []
    with failing(body) as server:
        lm = named(server)
        with pytest.raises(LMError, match=message):
            ask_in_pieces(lm, heard)
        assert (heard[0][0], len(heard), lm.meter.read().failed) == ("one", 1, 1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_streamify_gives_the_words_of_a_field(asynchronous: bool) -> None:
    program = dspy.Predict("question -> answer")
    listeners = [dspy.streaming.StreamListener("answer")]
    text = "[[ ## answer ## ]]\nto Lisbon in May\n\n[[ ## completed ## ]]"

    async def streamed() -> list[Any]:
        called: Any = dspy.streamify(program, stream_listeners=listeners, is_async_program=asynchronous)
        return [part async for part in called(question="Where?")]

    with StubServer(answer=lambda body: text) as server, dspy.context(lm=named(server)):
        *parts, last = asyncio.run(streamed())
    assert "".join(part.chunk for part in parts).strip() == last.answer == "to Lisbon in May"


# OpenAI's own form


@pytest.mark.parametrize(
    ("name", "base", "key", "model"),
    [
        ("openai/gpt-4.1-mini", None, "OPENAI_API_KEY", "gpt-4.1-mini"),
        ("openai/own", "http://localhost:1/v1", "", "own"),
        ("hosted_vllm/Qwen/Qwen3-8B", "http://localhost:3/v1", "", "Qwen/Qwen3-8B"),
        ("groq/llama", None, "", None),
        ("offline", None, "", None),
        ("anthropic/claude-sonnet-4-5", None, "ANTHROPIC_API_KEY", None),
    ],
)
def test_endpoint_of_a_model_that_speaks_the_chat_of_openai(
    monkeypatch: Any, name: str, base: str | None, key: str, model: str | None
) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    if key:
        monkeypatch.setenv(key, "sk-1")
    found = upstream_of(language_model(name, api_base=base))
    assert (found and found.model) == model
    assert "sk-1" not in repr(found)


def reach(server: Any, **settings: Any) -> Upstream:
    found = upstream_of(named(server, **settings))
    assert found is not None
    return found


def test_tokens_that_no_call_takes_are_not_counted() -> None:
    with StubServer() as server:
        upstream = reach(server, prices=(0.5, 0.5))
        for told in (10**400, -5, None):
            upstream.count({"prompt_tokens": told, "completion_tokens": 2})
        used = upstream.lm.meter.read()
    assert (used.calls, used.input_tokens, used.output_tokens, used.cost) == ({"task": 3}, 0, 6, 3.0)


@pytest.mark.parametrize(
    ("fault", "settings", "error"),
    [
        ("stall", {"deadline": 0.4}, LMTimeoutError),
        ("endless", {}, LMProviderError),
        ("401", {}, UserError),
    ],
)
def test_what_does_not_end_is_ended(fault: str, settings: dict[str, Any], error: type[Exception]) -> None:
    with StubServer(every(fault)) as server:
        upstream, begun = reach(server, **settings), time.monotonic()
        with pytest.raises(error), upstream.ask(HI) as reply:
            b"".join(reply.lines)
        assert time.monotonic() - begun < 8
        assert upstream.lm.meter.read().failed == 1
        assert upstream.lm.guard.lane(upstream.lm.endpoint).free == upstream.lm.guard.in_flight


def test_an_answer_that_is_left_early_leaves_nothing() -> None:
    with StubServer(every("trickle")) as server:
        with reach(server).ask(HI) as reply:
            assert reply.status == 200
        assert until(lambda: not connections(server))


def test_model_and_key_are_those_of_the_service() -> None:
    with StubServer(answer=lambda body: "fine") as server:
        with reach(server).ask({**HI, "model": "another", "top_k": 3}) as reply:
            assert (reply.status, b"fine" in b"".join(reply.lines)) == (200, True)
        ((path, headers, body),) = server.requests
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", "Bearer none")
    assert (body["model"], body["top_k"], body["messages"]) == (server.model[7:], 3, HI["messages"])
