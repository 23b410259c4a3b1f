"""Calls of named models, by threads and by asyncio: faults, pieces, requests in OpenAI's own form; nothing is left."""

import asyncio
import base64
import copy
import gzip
import json
import math
import os
import pickle
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dspy
import psutil
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
from mempiler.engines.call_context import Deadline, call_context, measure_usage
from mempiler.engines.endpoint.errors import AbandonedCallError
from mempiler.engines.endpoint.relay import (
    RESERVED_PART_TOKENS,
    RelayedOutput,
    Upstream,
    upstream_of,
)
from mempiler.engines.limits import DEAD_AFTER, BudgetGuard, Limits
from mempiler.engines.lm import language_model
from mempiler.engines.meter import Meter
from mempiler.engines.prices import TokenPrices
from mempiler.engines.token_counts import text_of_outputs
from mempiler.errors import BudgetError

from ..conftest import within as until
from ..stub_server import StubServer, at, every


def named(server: Any, **more: Any) -> Any:
    settings: dict[str, Any] = {"cache": False, "retries": 0, "deadline": 30, "timeout": 20, **more}
    return language_model(server.model, meter=Meter(), api_base=server.url, **settings)


def head(more: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}\r\n\r\n".encode()


def failing(fault: str | bytes) -> Any:
    """A server with a fault of `StubServer`, or that answers with some bytes, with or without the headers."""
    return StubServer(every(fault)) if isinstance(fault, str) else StubServer(answer=lambda body: fault)


def connections(server: Any) -> list[Any]:
    """Those that this process has to a server."""
    port = int(server.url.removesuffix("/v1").rpartition(":")[2])
    found = psutil.Process().net_connections("tcp4")
    return [each for each in found if each.raddr and each.raddr.port == port and each.status == "ESTABLISHED"]


PACKED = gzip.compress(b" " * 200_000_000, 1)
BOMB = head(f"Content-Encoding: gzip\r\nContent-Length: {len(PACKED)}") + PACKED
TOO_LONG = head("X: y", "400 Bad") + b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
LATE = r"no whole answer came in 0\.6 s"
LARGE = "larger than 4000000 bytes"
FAULTS: dict[str, tuple[str | bytes, dict[str, Any], type[Exception], str | None, int]] = {
    "stall": ("stall", {"deadline": 0.6}, LMTimeoutError, LATE, 1),
    "trickle": ("trickle", {"deadline": 0.6}, LMTimeoutError, LATE, 1),
    "headers": ("headers", {"deadline": 0.6}, LMTimeoutError, LATE, 1),
    "silence": ("stall", {"timeout": 0.4}, LMTimeoutError, "timed out", 1),
    "endless": ("endless", {"retries": 2}, LMProviderError, LARGE, 1),
    "bomb": (BOMB, {"retries": 2}, LMProviderError, LARGE, 1),
    "packed": (head("Content-Encoding: gzip") + b"no gzip", {}, LMTransportError, "not decode", 1),
    "cut": (head("Content-Length: 100") + b'{"choi', {"retries": 1}, LMTransportError, None, 2),
    "dead": ("dead", {"retries": 1}, LMTransportError, "onnection refused", 1),
    "wait": ("wait", {"retries": 2}, LMRateLimitError, "asks for a wait of 3600 s: slow down for an hour", 1),
    "pause": ("500", {"deadline": 0.9, "retries": 2}, LMError, "the server has a fault", 1),
    "401": ("401", {"retries": 2}, UserError, "refuses the key", 1),
    "too long": (TOO_LONG, {"retries": 2}, ContextWindowExceededError, "too long", 1),
    "no json": ("no-json", {"retries": 2}, LMProviderError, "not JSON", 1),
    "list": (b"[]", {"retries": 2}, LMError, "got list", 1),
    "nothing": (b"{}", {"retries": 2}, LMProviderError, "no choices", 1),
    "no choice": (b'{"choices": []}', {"retries": 2}, LMProviderError, "no choices", 1),
}
CUT_OFF = ("stall", "trickle", "headers", "silence", "endless", "bomb", "packed", "cut")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_endpoint_is_an_error_in_time_and_leaves_no_connection(ask: Any, fault: str) -> None:
    made, settings, error, message, requests = FAULTS[fault]
    with failing(made) as server:
        lm, begun = named(server, **settings), time.monotonic()
        with pytest.raises(error, match=message):
            ask(lm)
        assert time.monotonic() - begun < 15
        assert len(server.texts) == requests
        assert lm.meter.read().failed == 1
        assert lm.guard.slots(lm.endpoint).free == lm.guard.in_flight
        if fault in CUT_OFF:
            assert until(20, lambda: not connections(server))


@pytest.mark.filterwarnings("ignore::UserWarning")  # LiteLLM's own types
def test_a_provider_that_only_litellm_knows_is_asked_through_it(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "none")
    with StubServer(at({2: "stall"})) as server:
        name = {"model": "mistral/any", "api_base": server.url, "cache": False, "retries": 0}
        assert ask(language_model(**name))
        with pytest.raises(LMTimeoutError, match=LATE):
            ask(language_model(**name, deadline=0.6))


@pytest.mark.parametrize("end", [lambda deadline: threading.Timer(0.3, deadline.cancel).start(), None])
def test_a_call_ends_with_the_work_that_wants_it_and_tells_nothing_of_the_endpoint(ask: Any, end: Any) -> None:
    guard, request, begun = BudgetGuard(), Deadline(60 if end else 0.3), time.monotonic()
    with StubServer(every("stall")) as server:
        if end:
            end(request)
        with call_context(deadline=request), pytest.raises(AbandonedCallError):
            ask(named(server, guard=guard))
        assert time.monotonic() - begun < 15
        assert until(20, lambda: not connections(server))
    for _ in range(DEAD_AFTER - 1):
        guard.record_failure(LMTransportError("down"))


def test_a_call_that_is_cancelled_leaves_nothing() -> None:
    async def cancelled(lm: Any) -> None:
        task = asyncio.ensure_future(lm.acall("question: Where?"))
        await asyncio.to_thread(until, 5, lambda: bool(server.texts))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with StubServer(every("stall")) as server:
        lm = named(server)
        asyncio.run(cancelled(lm))
        assert until(20, lambda: not connections(server))
        assert lm.guard.slots(lm.endpoint).free == lm.guard.in_flight


def test_copies_share_the_endpoint_and_its_bounds() -> None:
    with StubServer(every("endless")) as server:
        lm = named(server)
        for other in (lm.copy(temperature=0.5), copy.deepcopy(lm), pickle.loads(pickle.dumps(lm))):
            with pytest.raises(LMError, match=LARGE):
                other("question: Where?")
        assert lm.copy().engine is copy.deepcopy(lm).engine is lm.engine


def test_a_program_with_a_model_is_saved_without_address_and_key(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    program = dspy.Predict("question -> answer")
    program.lm = language_model("openai/own", api_base="http://hidden:1/v1", max_tokens=7)
    program.save(tmp_path / "program.json")
    saved = json.loads((tmp_path / "program.json").read_text())["lm"]
    assert saved["model"] == "openai/own"
    assert saved["max_tokens"] == 7
    assert "hidden" not in str(saved)


SETTINGS = {"top_p": 0.5, "seed": 3, "reasoning_effort": "low", "top_k": 5, "metadata": {"who": "me"}}
SETTINGS |= {"chat_template_kwargs": {"enable_thinking": False}, "min_p": 0.1}


def test_every_setting_reaches_the_body_and_tells_answers_apart(ask: Any) -> None:
    with StubServer() as server:
        for more in ({}, {"top_k": 5}, {"min_p": 0.1}, {"min_p": 0.2}, SETTINGS):
            lm = named(server, cache=True, **more)
            ask(lm)
            ask(lm.copy())
            body = server.requests[-1][2]
            assert more == {name: body[name] for name in SETTINGS if name in body}
        assert len(server.texts) == 5


def test_servers_with_a_model_of_the_same_name_do_not_share_cached_answers(ask: Any) -> None:
    model = f"openai/shared-{uuid.uuid4().hex}"
    with StubServer(answer=lambda body: "first") as first, StubServer(answer=lambda body: "second") as second:
        answers = [
            ask(language_model(model, api_base=server.url, meter=Meter()), "Who are you?")
            for server in (first, second, first, second)
        ]
        assert answers == [["first"], ["second"], ["first"], ["second"]]
        assert len(first.texts) == 1
        assert len(second.texts) == 1


def test_a_server_is_known_by_any_spelling_of_its_address(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = f"openai/spelled-{uuid.uuid4().hex}"
    with StubServer(answer=lambda body: "mine") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        for spelling in (server.url, f"{server.url}/", server.url.replace("http://", "HTTP://ann:secret@")):
            ask(language_model(model, api_base=spelling), "Who are you?")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ask(language_model(model), "Who are you?")
        assert len(server.texts) == 1


@pytest.mark.parametrize("key", [None, "sk-own"])
def test_a_name_and_a_password_in_the_address_are_shown_to_the_server(ask: Any, key: str | None) -> None:
    with StubServer() as server:
        address = server.url.replace("http://", "http://ann:secret@")
        assert ask(language_model(server.model, api_base=address, api_key=key, cache=False))
        ((_, headers, _),) = server.requests
        shown = [value for name, value in headers.items() if name.lower() == "authorization"]
        assert shown == ["Basic " + base64.b64encode(b"ann:secret").decode()]


def test_a_name_and_a_password_are_sent_as_utf8(ask: Any) -> None:
    with StubServer() as server:
        address = server.url.replace("http://", "http://ānn:%E5%AF%86@")
        assert ask(language_model(server.model, api_base=address, cache=False))
        ((_, headers, _),) = server.requests
        shown = [value for name, value in headers.items() if name.lower() == "authorization"]
        assert shown == ["Basic " + base64.b64encode("ānn:密".encode()).decode()]


def test_an_address_of_the_environment_tells_servers_apart_as_well(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = f"openai/environment-{uuid.uuid4().hex}"
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with StubServer(answer=lambda body: "first") as first, StubServer(answer=lambda body: "second") as second:
        for server in (first, second):
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            assert ask(language_model(model), "Who are you?") == [server.answer({})]


@pytest.mark.parametrize("address", ["http://localhost:port/v1", "http://[::1/v1", "localhost:8000"])
def test_an_address_of_the_environment_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(UserError, match=r"^OPENAI_BASE_URL .* is no address"):
        language_model("openai/any")


def test_a_known_answer_is_free_and_given_after_a_limit_is_reached(ask: Any) -> None:
    guard = BudgetGuard(Limits(max_calls=1))
    with StubServer(answer=lambda body: "mine") as server:
        lm = language_model(f"openai/known-{uuid.uuid4().hex}", api_base=server.url, meter=Meter(), guard=guard)
        assert ask(lm, "Who are you?") == ["mine"]
        with pytest.raises(BudgetError):
            ask(lm, "Who else?")
        assert ask(lm, "Who are you?") == ["mine"]
        assert len(server.texts) == 1
        assert guard.spent().calls == 1
        assert lm.meter.read().cached == 1


def test_neither_address_nor_key_is_in_a_cache(ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    kept: list[Any] = []
    monkeypatch.setattr(dspy.cache, "put", lambda *given, **named: kept.append((given, named)))
    with StubServer(answer=lambda body: "fine") as server:
        ask(language_model(server.model, api_base=server.url), "Who are you?")
        assert len(kept) == 1
        assert not any(word in repr(kept) for word in ("sk-secret", "127.0.0.1", server.url.split(":")[2]))


# Endpoints that repeat the request, key and all, in what they say of an error

KEY = "sk-0123456789-of-the-operator"


def shown(error: BaseException) -> str:
    """What a log would show of an error and of all that it came from."""
    chain, text = [error], []
    for each in chain:
        text += [repr(each), str(each), repr(vars(each))]
        chain += [cause for cause in (each.__cause__, each.__context__) if cause is not None and cause not in chain]
    return "\n".join(text)


def says_no_part_of(secret: str, text: str) -> bool:
    """Whether a text holds not even half of a secret."""
    half = len(secret) // 2
    return not any(secret[start : start + half] in text for start in range(len(secret) - half + 1))


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("in_parts", [False, True])
def test_an_endpoint_that_repeats_the_key_does_not_make_errors_show_it(
    ask: Any, ask_in_pieces: Any, monkeypatch: pytest.MonkeyPatch, status: int, in_parts: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with StubServer(every(f"echo {status}")) as server:
        lm = named(server)
        with pytest.raises((LMError, UserError)) as caught:
            (ask_in_pieces if in_parts else ask)(lm)
        assert server.requests[0][1]["Authorization"] == f"Bearer {KEY}"
        assert says_no_part_of(KEY, shown(caught.value))
        assert says_no_part_of(KEY, str(lm.guard.fatal_error))


@pytest.mark.parametrize("length", range(100, 520, 7))
def test_a_key_that_is_cut_off_at_the_end_of_a_message_is_hidden_too(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    page = b"x" * length + KEY.encode() + b"y" * 1000
    for status in ("200 OK", "500 Internal Server Error"):
        with failing(head(f"Content-Length: {len(page)}", status) + page) as server:
            with pytest.raises(LMError) as caught:
                named(server)("question: Where?")
            assert says_no_part_of(KEY, shown(caught.value))


@pytest.mark.parametrize(
    "settings",
    [{"api_key": KEY}, {"api_key": "none", "extra_headers": {"X-Api-Key": KEY}}],
    ids=["by api_key", "by headers"],
)
def test_a_key_of_a_model_that_the_user_made_is_hidden(settings: dict[str, Any]) -> None:
    with StubServer(every("echo 500")) as server:
        lm = dspy.LM(server.model, api_base=server.url, num_retries=0, cache=False, **settings)
        with pytest.raises(LMError) as caught:
            language_model(lm, retries=0)("question: Where?")
        assert any(KEY in value for value in server.requests[0][1].values())
        assert says_no_part_of(KEY, str(caught.value))


def test_a_key_of_a_provider_that_litellm_asks_is_hidden(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)
    with StubServer(every("echo 500")) as server:
        lm = language_model("mistral/any", api_base=server.url, cache=False, retries=0)
        with pytest.raises(LMError) as caught:
            ask(lm)
        assert "you sent" in str(caught.value)
        assert says_no_part_of(KEY, str(caught.value))


def test_an_error_in_a_stream_shows_no_key(ask_in_pieces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    event = b'data: {"error": {"message": "you sent %s"}}\n\n' % KEY.encode()
    with failing(event) as server:
        with pytest.raises(LMError, match="you sent") as caught:
            ask_in_pieces(named(server))
        assert says_no_part_of(KEY, shown(caught.value))


LEFT = """
import sys, threading, time
from contextlib import suppress
from mempiler.engines.model_config import ModelConfig
from mempiler.engines.lm import language_model
lm = language_model("openai/own", api_base=sys.argv[1], cache=False, retries=0)

def ask():
    with suppress(Exception):
        lm("question: Where?")

threading.Thread(target=ask, daemon=True).start()
time.sleep(1)
print(time.monotonic(), flush=True)
"""


@pytest.mark.slow
def test_a_process_ends_though_a_call_is_in_flight() -> None:
    with StubServer(every("stall")) as server:
        ended = subprocess.run([sys.executable, "-c", LEFT, server.url], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0
        assert ended.stderr == ""
        assert time.monotonic() - float(ended.stdout) < 15


def test_a_process_that_was_forked_asks_by_itself_and_its_parent_goes_on() -> None:
    with StubServer(answer=lambda body: "fine") as server:
        lm = named(server)
        assert lm("before") == ["fine"]
        child = os.fork()
        if not child:
            os._exit(lm("in the child") != ["fine"])
        assert os.waitpid(child, 0)[1] == 0
        assert lm("after") == ["fine"]


def test_cost_is_that_of_the_price_list_in_history_and_meter(ask: Any) -> None:
    with StubServer(answer=lambda body: "fine", reused=0.5) as server:
        lm = language_model("openai/gpt-4.1-mini", api_base=server.url, cache=False)
        with dspy.context(lm=lm):
            ask(lm, "x" * 400)
        assert lm.history[-1]["cost"] == pytest.approx(50 * 4e-7 + 50 * 1e-7 + 1 * 1.6e-6)
        assert lm.meter.read().cost == lm.history[-1]["cost"]


HI = {"messages": [{"role": "user", "content": "Hi"}]}


# Usage that endpoints report: a prompt of 8,000 and an answer of 1,200 characters, some 2,000 and 300 tokens

QUESTION = "word " * 1600
ANSWER = "words " * 200
LIES: dict[str, Any] = {
    "too few": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    "none": {"prompt_tokens": 0, "completion_tokens": 1},
    "negative": {"prompt_tokens": -5, "completion_tokens": -1},
    "not a number": {"prompt_tokens": math.nan, "completion_tokens": math.nan},
    "infinite": {"prompt_tokens": math.inf, "completion_tokens": 10**400},
    "text": {"prompt_tokens": "many", "completion_tokens": "7"},
    "a list": [1, 2],
    "a word": "unknown",
}


@pytest.mark.parametrize("lie", LIES)
def test_usage_that_cannot_be_true_is_estimated(ask: Any, lie: str) -> None:
    with StubServer(answer=lambda body: ANSWER, usage=LIES[lie]) as server:
        lm = named(server)
        assert ask(lm, QUESTION) == [ANSWER]
    used = lm.meter.read()
    assert used.calls == {"task": 1}
    assert used.failed == 0
    assert used.estimated == 1
    assert 2000 <= used.input_tokens < 2100
    assert 300 <= used.output_tokens < 330


@pytest.mark.parametrize("lie", LIES)
def test_usage_of_a_stream_is_read_like_any(ask_in_pieces: Any, lie: str) -> None:
    with StubServer(answer=lambda body: "one two", usage=LIES[lie]) as server:
        lm = named(server)
        assert ask_in_pieces(lm) == (["one two"], [["one", " two"]])
    assert lm.meter.read().failed == 0


def test_odd_details_of_usage_leave_the_rest_as_it_is(ask: Any) -> None:
    usage = {"prompt_tokens": 1900, "completion_tokens": 290, "total_tokens": math.nan}
    usage["prompt_tokens_details"] = {"cached_tokens": "most"}
    usage["completion_tokens_details"] = ["none"]
    with StubServer(answer=lambda body: ANSWER, usage=usage) as server:
        lm = named(server)
        ask(lm, QUESTION)
    used = lm.meter.read()
    assert used.input_tokens == 1900
    assert used.output_tokens == 290
    assert used.cache_reported_tokens == 0
    assert used.estimated == 0


def test_no_more_tokens_are_cached_than_were_sent(ask: Any) -> None:
    usage = {"prompt_tokens": 1900, "completion_tokens": 290, "prompt_tokens_details": {"cached_tokens": 10**9}}
    with StubServer(answer=lambda body: ANSWER, usage=usage) as server:
        lm = named(server)
        ask(lm, QUESTION)
    assert lm.meter.read().cache_reported_tokens == 1900
    assert lm.meter.read().cached_tokens == 1900


def test_all_candidates_of_an_answer_from_a_cache_are_counted() -> None:
    with StubServer(answer=lambda body: ANSWER) as server:
        spent: list[Any] = []
        for _ in range(2):
            lm = named(server, cache=True)
            with measure_usage() as work:
                assert lm(QUESTION, n=4, temperature=1.0) == [ANSWER] * 4
            spent.extend(work.calls)
    assert lm.meter.read().cached == 1
    assert spent[0] == spent[1]
    assert spent[0].input_tokens > 4 * 1000


def test_chinese_arguments_of_a_tool_count_as_the_model_writes_them() -> None:
    """DSPy shows them as ASCII, six characters for one."""
    sentence = "\u6211\u4e0a\u4e2a\u6708\u642c\u5230\u4e86\u91cc\u65af\u672c" * 20
    arguments = json.dumps({"query": sentence})
    output = {"text": None, "tool_calls": [{"function": {"name": "search", "arguments": arguments}}]}
    assert text_of_outputs([output]) == f'\n{{"query": "{sentence}"}}'
    cut_off = {"tool_calls": [{"function": {"arguments": '{"query": "par'}}]}
    assert text_of_outputs([cut_off]) == '\n{"query": "par'


@pytest.mark.parametrize(
    "text", ["\u6211\u4e0a\u4e2a\u6708\u642c\u5230\u4e86\u91cc\u65af\u672c" * 100, "yes" + " " * 4000]
)
def test_tokenizers_that_need_few_tokens_are_believed(ask: Any, text: str) -> None:
    """Tokenizers of today take .6 tokens for a Chinese character, and one for dozens of spaces."""
    usage = {"prompt_tokens": max(60, int(len(text.strip()) * 0.6)), "completion_tokens": 10}
    with StubServer(answer=lambda body: "fine", usage=usage) as server:
        lm = named(server)
        ask(lm, text)
    assert lm.meter.read().input_tokens == usage["prompt_tokens"]
    assert lm.meter.read().estimated == 0


@pytest.mark.parametrize("limits", [Limits(max_tokens=20_000), Limits(max_usd=20_000 * 4e-7)])
def test_a_budget_holds_where_usage_is_under_reported(ask: Any, limits: Limits) -> None:
    """A call takes 2,300 tokens, so the budget is that of nine calls."""
    with StubServer(answer=lambda body: ANSWER, usage=LIES["too few"]) as server:
        lm = named(server, guard=BudgetGuard(limits), prices=TokenPrices(4e-7, 4e-7))
        for _ in range(40):
            with suppress(BudgetError):
                ask(lm, QUESTION)
        assert 1 <= server.answered <= 9


@pytest.fixture
def ask_in_pieces(ask: Any) -> Callable[..., tuple[Any, list[list[str]]]]:
    """Asks a model; returns what it says, and the pieces of each attempt."""

    def asked(lm: Any, pieces: Any = None) -> tuple[Any, list[list[str]]]:
        heard: list[list[str]] = [] if pieces is None else pieces

        def begin() -> Any:
            heard.append([])
            return heard[-1].append

        with call_context(on_text=begin):
            return ask(lm), heard

    return asked


def test_pieces_make_the_text_and_the_call_is_counted_as_without(ask_in_pieces: Any) -> None:
    with StubServer(answer=lambda body: "I moved to Lisbon.", reused=0.5) as server:
        streaming, whole = named(server), named(server)
        said, pieces = ask_in_pieces(streaming)
        assert said == ["I moved to Lisbon."]
        assert pieces == [["I", " moved", " to", " Lisbon."]]
        assert whole("question: Where?") == said
        assert streaming.meter.read() == whole.meter.read()
        assert [bool(body.get("stream")) for _, _, body in server.requests] == [True, False]
        assert server.requests[0][2]["stream_options"] == {"include_usage": True}


def test_answer_that_is_known_has_no_pieces(ask_in_pieces: Any) -> None:
    with StubServer(answer=lambda body: "fine") as server:
        lm = named(server, cache=True)
        assert [ask_in_pieces(lm) for _ in range(2)] == [(["fine"], [["fine"]]), (["fine"], [])]
        assert lm.meter.read().calls == {"task": 1}
        assert lm.meter.read().cached == 1


def test_attempt_that_is_repeated_begins_anew(ask_in_pieces: Any) -> None:
    with StubServer(at({1: "429", 2: "429"}), lambda body: "one two") as server:
        assert ask_in_pieces(named(server, retries=2)) == (["one two"], [[], [], ["one", " two"]])


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
        assert heard[0][0] == "one"
        assert len(heard) == 1
        assert lm.meter.read().failed == 1


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
def test_endpoint_of_a_model_that_speaks_the_chat_of_openai(monkeypatch, name, base, key, model) -> None:
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


def output(text: str) -> RelayedOutput:
    written = RelayedOutput()
    written.add({"choices": [{"message": {"content": text}}]})
    return written


def test_a_relayed_call_counts_what_is_reported_and_can_be_true() -> None:
    body = {"messages": [{"role": "user", "content": "x" * 400}]}
    with StubServer() as server:
        upstream = reach(server, prices=TokenPrices(0.5, 0.5))
        upstream.count({"prompt_tokens": 90, "completion_tokens": 20}, body, output("y" * 80))
        used = upstream.lm.meter.read()
    assert used.calls == {"task": 1}
    assert used.input_tokens == 90
    assert used.output_tokens == 20
    assert used.cost == 55.0
    assert used.estimated == 0


@pytest.mark.parametrize("reported", [1, 0, -5, 10**400, math.nan, "many", None])
def test_a_relayed_call_is_estimated_where_its_usage_cannot_be_true(reported: Any) -> None:
    parts = [{"type": "text", "text": "x" * 400}, {"type": "image_url", "image_url": {"url": "data:" + "A" * 4000}}]
    body = {"messages": [{"role": "user", "content": parts}]}
    with StubServer() as server:
        upstream = reach(server)
        upstream.count({"prompt_tokens": reported, "completion_tokens": reported}, body, output("y" * 80))
        used = upstream.lm.meter.read()
    assert used.output_tokens == 20
    assert used.estimated == 1
    # The words, the image, and a few tokens for what is around them.
    words_and_image = 100 + RESERVED_PART_TOKENS
    assert words_and_image < used.input_tokens < words_and_image + 20


def test_all_that_a_model_writes_counts_in_any_form() -> None:
    written = RelayedOutput()
    call = {"index": 0, "function": {"name": "f", "arguments": '{"a"'}}
    written.add({"choices": [{"index": 0, "delta": {"content": "Lis", "tool_calls": [call]}}]})
    written.add({"choices": [{"index": 1, "delta": {"refusal": "No."}}]})
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    written.add({"choices": [{"index": 0, "delta": {"content": "bon", "tool_calls": [rest, 5]}}]})
    written.add({"choices": [7, {"delta": "x"}, {"index": [2], "message": {"content": "odd"}}]})
    assert written.text().splitlines() == ["Lisbon", "f", '{"a": 1}', "No.", "odd"]


@pytest.mark.parametrize(
    ("fault", "settings", "error"),
    [("stall", {"deadline": 0.4}, LMTimeoutError), ("endless", {}, LMProviderError), ("401", {}, UserError)],
)
def test_a_reply_that_never_ends_is_cut_off(fault: str, settings: dict[str, Any], error: type[Exception]) -> None:
    async def read_whole_reply(upstream: Upstream) -> None:
        async with upstream.stream(HI) as reply:
            async for _ in reply.lines:
                pass

    with StubServer(every(fault)) as server:
        upstream = reach(server, **settings)
        start = time.monotonic()
        with pytest.raises(error):
            asyncio.run(read_whole_reply(upstream))
        assert time.monotonic() - start < 15
        assert upstream.lm.meter.read().failed == 1
        assert upstream.lm.guard.slots(upstream.lm.endpoint).free == upstream.lm.guard.in_flight


def test_an_answer_that_is_left_early_leaves_nothing() -> None:
    async def read_head(upstream: Upstream) -> int:
        async with upstream.stream(HI) as reply:
            return reply.status

    with StubServer(every("trickle")) as server:
        assert asyncio.run(read_head(reach(server))) == 200
        assert until(20, lambda: not connections(server))


def test_a_cancelled_relay_ends_its_request_and_gives_its_slot_back() -> None:
    async def cancel_while_it_waits(upstream: Upstream) -> None:
        has_begun = asyncio.Event()

        async def read_lines() -> None:
            async with upstream.stream(HI) as reply:
                has_begun.set()
                async for _ in reply.lines:
                    pass

        task = asyncio.ensure_future(read_lines())
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with StubServer(every("trickle")) as server:
        upstream = reach(server)
        asyncio.run(cancel_while_it_waits(upstream))
        assert until(20, lambda: not connections(server))
        assert upstream.lm.guard.slots(upstream.lm.endpoint).free == upstream.lm.guard.in_flight


def test_relays_that_wait_for_a_slot_do_not_hold_up_the_event_loop() -> None:
    async def relay(upstream: Upstream) -> int:
        async with upstream.stream(HI) as reply:
            return len([line async for line in reply.lines])

    async def relay_several(upstream: Upstream) -> list[int]:
        # In one thread they wait for each other: a wait that blocked it would never end.
        return await asyncio.gather(*(relay(upstream) for _ in range(5)))

    with StubServer() as server:
        upstream = reach(server, guard=BudgetGuard(in_flight=1))
        line_counts = asyncio.run(asyncio.wait_for(relay_several(upstream), 20))
    assert all(line_counts)
    assert len(server.requests) == 5
