"""Requests in OpenAI's own form, which are handed on to a model's endpoint as they are.

An `Upstream` is such an endpoint. What is handed on is limited and counted like calls of the model.
"""

import asyncio
import math
import time
from typing import Any

import pytest
from dspy.utils.exceptions import LMProviderError, LMTimeoutError
from mempiler import UserError
from mempiler.engines.endpoint.relay import (
    RESERVED_PART_TOKENS,
    RelayedOutput,
    Upstream,
    upstream_of,
)
from mempiler.engines.limits import BudgetGuard
from mempiler.engines.lm import language_model
from mempiler.engines.prices import TokenPrices

from ...stub_server import StubServer, every
from .helpers import all_connections_close, all_slots_are_free, model_at

REQUEST = {"messages": [{"role": "user", "content": "Hi"}]}


def upstream_at(server: StubServer, **options: Any) -> Upstream:
    """Return the upstream of a server's model; options are those of `model_at`."""
    upstream = upstream_of(model_at(server, **options))
    assert upstream is not None
    return upstream


# Which models can be asked in this form.


@pytest.mark.parametrize(
    ("name", "name_at_the_server"),
    [("openai/own", "own"), ("hosted_vllm/Qwen/Qwen3-8B", "Qwen/Qwen3-8B")],
)
def test_a_model_of_a_server_that_speaks_the_chat_of_openai_has_an_upstream(
    name: str, name_at_the_server: str
) -> None:
    upstream = upstream_of(language_model(name, api_base="http://localhost:1/v1"))

    assert upstream is not None
    assert upstream.model == name_at_the_server


def test_a_model_of_openai_has_an_upstream_that_shows_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")

    upstream = upstream_of(language_model("openai/gpt-4.1-mini"))

    assert upstream is not None
    assert upstream.model == "gpt-4.1-mini"
    assert "sk-1" not in repr(upstream)


@pytest.mark.parametrize("name", ["groq/llama", "offline", "anthropic/claude-sonnet-4-5"])
def test_other_models_have_no_upstream(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Groq's model has no key, "offline" runs here, and Anthropic speaks another protocol."""
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    assert upstream_of(language_model(name)) is None


# Usage of relayed calls.


def relayed_output(text: str) -> RelayedOutput:
    """Return the output of a model that wrote a text."""
    output = RelayedOutput()
    output.add({"choices": [{"message": {"content": text}}]})
    return output


def test_reported_usage_of_a_relayed_call_counts_if_it_can_be_true() -> None:
    """The server reports 90 tokens for a prompt that is estimated to have 100."""
    text_of_100_tokens = "x" * 400
    text_of_20_tokens = "y" * 80
    body = {"messages": [{"role": "user", "content": text_of_100_tokens}]}
    report = {"prompt_tokens": 90, "completion_tokens": 20}
    dollars_per_token = TokenPrices(input=1.0, output=1.0)
    with StubServer() as server:
        upstream = upstream_at(server, prices=dollars_per_token)
        upstream.count(report, body, relayed_output(text_of_20_tokens))

    usage = upstream.lm.meter.read()
    assert usage.calls == {"task": 1}
    assert usage.input_tokens == 90
    assert usage.output_tokens == 20
    assert usage.cost == 110.0
    assert usage.estimated == 0


@pytest.mark.parametrize("reported_tokens", [1, 0, -5, 10**400, math.nan, "many", None])
def test_usage_of_a_relayed_call_is_estimated_if_the_report_cannot_be_true(
    reported_tokens: Any,
) -> None:
    """An image counts as `RESERVED_PART_TOKENS`, however long it is.

    There are a few tokens more for what is around text and image.
    """
    text_of_100_tokens = "x" * 400
    text_of_20_tokens = "y" * 80
    text_part = {"type": "text", "text": text_of_100_tokens}
    image_part = {"type": "image_url", "image_url": {"url": "data:" + "A" * 4000}}
    body = {"messages": [{"role": "user", "content": [text_part, image_part]}]}
    report = {"prompt_tokens": reported_tokens, "completion_tokens": reported_tokens}
    with StubServer() as server:
        upstream = upstream_at(server)
        upstream.count(report, body, relayed_output(text_of_20_tokens))

    usage = upstream.lm.meter.read()
    assert usage.estimated == 1
    assert usage.output_tokens == 20
    text_and_image_tokens = 100 + RESERVED_PART_TOKENS
    assert text_and_image_tokens < usage.input_tokens < text_and_image_tokens + 20


def choice(index: int, **delta: Any) -> dict[str, Any]:
    """Return a piece of the answer with a number, as an event of a stream has it."""
    return {"choices": [{"index": index, "delta": delta}]}


def test_the_pieces_of_each_answer_are_put_together() -> None:
    """Two answers were asked for: the first one is "Lisbon", and the second one refuses."""
    output = RelayedOutput()

    output.add(choice(0, content="Lis"))
    output.add(choice(1, refusal="No."))
    output.add(choice(0, content="bon"))

    assert output.text().splitlines() == ["Lisbon", "No."]


def test_the_pieces_of_a_call_of_a_tool_are_put_together() -> None:
    """The model calls the tool `f` with the argument `a`."""
    output = RelayedOutput()

    output.add(choice(0, tool_calls=[{"index": 0, "function": {"name": "f", "arguments": '{"a"'}}]))
    output.add(choice(0, tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}]))

    assert output.text().splitlines() == ["f", '{"a": 1}']


def test_parts_of_an_event_that_cannot_be_read_do_not_hide_the_others() -> None:
    no_choice = 7
    no_delta = {"delta": "x"}
    no_index = {"index": [2], "message": {"content": "Lisbon"}}
    no_call = 5
    output = RelayedOutput()

    output.add({"choices": [no_choice, no_delta, no_index]})
    output.add(choice(0, content="Oslo", tool_calls=[no_call]))

    assert sorted(output.text().splitlines()) == ["Lisbon", "Oslo"]


# Replies that do not end, and replies that nobody reads to the end.


async def read_reply(upstream: Upstream) -> list[Any]:
    """Relay a request, and return the lines of the whole reply."""
    async with upstream.stream(REQUEST) as reply:
        return [line async for line in reply.lines]


@pytest.mark.parametrize(
    ("fault", "options", "error"),
    [
        pytest.param("stall", {"deadline": 0.4}, LMTimeoutError, id="no reply"),
        pytest.param("endless", {}, LMProviderError, id="a reply that does not end"),
        pytest.param("401", {}, UserError, id="a refused key"),
    ],
)
def test_a_reply_that_fails_or_does_not_end_is_an_error_in_time(
    fault: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with StubServer(every(fault)) as server:
        upstream = upstream_at(server, **options)
        start = time.monotonic()
        with pytest.raises(error):
            asyncio.run(read_reply(upstream))
        assert time.monotonic() - start < 15  # a reply that hangs would take longer

    assert upstream.lm.meter.read().failed == 1
    assert all_slots_are_free(upstream.lm)


def test_a_reply_of_which_only_the_head_is_read_leaves_no_connection() -> None:
    async def read_status(upstream: Upstream) -> int:
        async with upstream.stream(REQUEST) as reply:
            return reply.status

    sends_a_byte_now_and_then = every("trickle")
    with StubServer(sends_a_byte_now_and_then) as server:
        assert asyncio.run(read_status(upstream_at(server))) == 200
        assert all_connections_close(server)


def test_a_cancelled_relay_leaves_no_connection_and_holds_no_slot() -> None:
    async def cancel_while_reading(upstream: Upstream) -> None:
        has_begun = asyncio.Event()

        async def read_lines() -> None:
            async with upstream.stream(REQUEST) as reply:
                has_begun.set()
                async for _ in reply.lines:
                    pass

        task = asyncio.ensure_future(read_lines())
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    sends_a_byte_now_and_then = every("trickle")
    with StubServer(sends_a_byte_now_and_then) as server:
        upstream = upstream_at(server)
        asyncio.run(cancel_while_reading(upstream))
        assert all_connections_close(server)
        assert all_slots_are_free(upstream.lm)


def test_relays_that_wait_for_a_slot_do_not_hold_up_the_event_loop() -> None:
    # Five relays in one thread, where only one at a time has a slot: if waiting for a slot blocked
    # the thread, the relay that holds the slot could never go on.
    async def relay_five_requests(upstream: Upstream) -> list[list[Any]]:
        return await asyncio.gather(*(read_reply(upstream) for _ in range(5)))

    with StubServer() as server:
        upstream = upstream_at(server, guard=BudgetGuard(in_flight=1))
        replies = asyncio.run(asyncio.wait_for(relay_five_requests(upstream), 20))

    assert len(server.requests) == 5
    for lines_of_reply in replies:
        assert lines_of_reply != []
