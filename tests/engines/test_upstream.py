"""Which endpoint is behind a language model, and what it is asked: OpenAI's own form, within the bounds of a call."""

import time
from typing import Any

import pytest
from dspy.utils.exceptions import LMTimeoutError, LMTransportError
from mempiler.engines.bounds import NobodyWaitsError
from mempiler.engines.deadline import Deadline, within
from mempiler.engines.models import language_model
from mempiler.engines.upstream import OPENAI, Upstream, upstream_of

from ..stub_server import StubServer, every

HI = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("name", "base", "variables", "address", "model", "key"),
    [
        ("openai/gpt-4.1-mini", None, {"OPENAI_API_KEY": "sk-1"}, OPENAI, "gpt-4.1-mini", "sk-1"),
        ("openai/own", "http://localhost:1/v1", {}, "http://localhost:1/v1", "own", "none"),
        ("openai/own", None, {"OPENAI_BASE_URL": "http://localhost:2/v1"}, "http://localhost:2/v1", "own", "none"),
        ("hosted_vllm/Qwen/Qwen3-8B", "http://localhost:3/v1", {}, "http://localhost:3/v1", "Qwen/Qwen3-8B", "none"),
        ("groq/llama", None, {"GROQ_API_KEY": "gsk"}, "https://api.groq.com/openai/v1", "llama", "gsk"),
    ],
)
def test_endpoint_of_a_model_that_speaks_the_chat_of_openai(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    base: str | None,
    variables: dict[str, str],
    address: str,
    model: str,
    key: str,
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    found = upstream_of(language_model(name, api_base=base))
    assert found is not None
    assert (found.address, found.model, found.key) == (address, model, key)
    assert key not in repr(found)


@pytest.mark.parametrize("name", ["offline", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash"])
def test_models_of_this_process_and_those_that_speak_otherwise_have_none(name: str) -> None:
    assert upstream_of(language_model(name)) is None


def reach(server: StubServer, **settings: Any) -> Upstream:
    found = upstream_of(language_model(server.model, api_base=server.url, cache=False, **settings))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fault", "settings", "error"),
    [
        ("stall", {"deadline": 0.4}, LMTimeoutError),
        ("stall", {"timeout": 0.4}, LMTimeoutError),
        ("trickle", {"deadline": 0.4}, LMTimeoutError),
        ("headers", {"deadline": 0.4}, LMTimeoutError),
        ("endless", {}, LMTransportError),
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


def test_a_call_that_nobody_waits_for_is_given_up_and_tells_nothing_of_the_endpoint() -> None:
    with StubServer(every("stall")) as server:
        upstream, request = reach(server), Deadline(0.3)
        with within(request), pytest.raises(NobodyWaitsError), upstream.ask(HI):
            pass
        assert upstream.lm.guard.dead is None


def test_model_and_key_are_those_of_the_service() -> None:
    with StubServer(answer=lambda body: "fine") as server:
        with reach(server).ask({**HI, "model": "another", "top_k": 3}) as reply:
            assert (reply.status, b"fine" in b"".join(reply.lines)) == (200, True)
        ((path, headers, body),) = server.requests
    assert (path, headers["Authorization"], body["model"]) == (
        "/v1/chat/completions",
        "Bearer none",
        server.model.removeprefix("openai/"),
    )
    assert (body["top_k"], body["messages"]) == (3, HI["messages"])
