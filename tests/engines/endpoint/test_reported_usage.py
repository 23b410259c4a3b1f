"""The tokens that endpoints report: what can be true is believed, the rest is estimated."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from mempiler.engines.call_context import measure_usage
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.engines.prices import TokenPrices
from mempiler.engines.token_counts import text_of_outputs
from mempiler.engines.usage import Usage
from mempiler.errors import BudgetError

from ...stub_server import StubServer
from .helpers import model_at, record_pieces

QUESTION = "word " * 1600
"""A prompt of 8,000 characters, about 2,000 tokens."""
ANSWER = "words " * 200
"""An answer of 1,200 characters, about 300 tokens."""

UNDER_REPORTED = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
IMPOSSIBLE_REPORTS = [
    pytest.param(UNDER_REPORTED, id="too few"),
    pytest.param({"prompt_tokens": 0, "completion_tokens": 1}, id="zero"),
    pytest.param({"prompt_tokens": -5, "completion_tokens": -1}, id="negative"),
    pytest.param({"prompt_tokens": math.nan, "completion_tokens": math.nan}, id="not a number"),
    pytest.param({"prompt_tokens": math.inf, "completion_tokens": 10**400}, id="infinite"),
    pytest.param({"prompt_tokens": "many", "completion_tokens": "7"}, id="text"),
    pytest.param([1, 2], id="a list"),
    pytest.param("unknown", id="a word"),
]


@pytest.mark.parametrize("report", IMPOSSIBLE_REPORTS)
def test_usage_that_cannot_be_true_is_estimated(ask: Callable[..., Any], report: Any) -> None:
    with StubServer(answer=lambda body: ANSWER, usage=report) as server:
        lm = model_at(server)
        assert ask(lm, QUESTION) == [ANSWER]

    usage = lm.meter.read()
    assert usage.calls == {"task": 1}
    assert usage.failed == 0
    assert usage.estimated == 1
    assert 2000 <= usage.input_tokens < 2100
    assert 300 <= usage.output_tokens < 330


@pytest.mark.parametrize("report", IMPOSSIBLE_REPORTS)
def test_usage_that_cannot_be_true_does_not_break_a_stream(
    ask: Callable[..., Any], report: Any
) -> None:
    with StubServer(answer=lambda body: "one two", usage=report) as server:
        lm = model_at(server)
        with record_pieces() as pieces_by_attempt:
            assert ask(lm) == ["one two"]

    assert pieces_by_attempt == [["one", " two"]]
    assert lm.meter.read().failed == 0


def test_odd_details_of_a_report_do_not_spoil_its_other_numbers(ask: Callable[..., Any]) -> None:
    report = {
        "prompt_tokens": 1900,
        "completion_tokens": 290,
        "total_tokens": math.nan,
        "prompt_tokens_details": {"cached_tokens": "most"},
        "completion_tokens_details": ["none"],
    }
    with StubServer(answer=lambda body: ANSWER, usage=report) as server:
        lm = model_at(server)
        ask(lm, QUESTION)

    usage = lm.meter.read()
    assert usage.input_tokens == 1900
    assert usage.output_tokens == 290
    assert usage.cache_reported_tokens == 0
    assert usage.estimated == 0


def test_no_more_tokens_count_as_cached_than_were_sent(ask: Callable[..., Any]) -> None:
    report = {
        "prompt_tokens": 1900,
        "completion_tokens": 290,
        "prompt_tokens_details": {"cached_tokens": 10**9},
    }
    with StubServer(answer=lambda body: ANSWER, usage=report) as server:
        lm = model_at(server)
        ask(lm, QUESTION)

    assert lm.meter.read().cache_reported_tokens == 1900
    assert lm.meter.read().cached_tokens == 1900


# Tokenizers of today take .6 tokens for a Chinese character, and one for dozens of spaces.
CHINESE_SENTENCE = "我上个月搬到了里斯本"


@pytest.mark.parametrize(
    ("text", "prompt_tokens"),
    [
        pytest.param(CHINESE_SENTENCE * 100, 600, id="Chinese"),
        pytest.param("yes" + " " * 4000, 60, id="spaces"),
    ],
)
def test_a_tokenizer_that_needs_few_tokens_is_believed(
    ask: Callable[..., Any], text: str, prompt_tokens: int
) -> None:
    report = {"prompt_tokens": prompt_tokens, "completion_tokens": 10}
    with StubServer(answer=lambda body: "fine", usage=report) as server:
        lm = model_at(server)
        ask(lm, text)

    assert lm.meter.read().input_tokens == prompt_tokens
    assert lm.meter.read().estimated == 0


# A call takes 2,300 tokens, so each of these budgets is that of nine calls.
@pytest.mark.parametrize("limits", [Limits(max_tokens=20_000), Limits(max_usd=20_000 * 4e-7)])
def test_a_budget_holds_where_usage_is_under_reported(
    ask: Callable[..., Any], limits: Limits
) -> None:
    with StubServer(answer=lambda body: ANSWER, usage=UNDER_REPORTED) as server:
        lm = model_at(server, guard=BudgetGuard(limits), prices=TokenPrices(4e-7, 4e-7))
        for _ in range(40):
            with suppress(BudgetError):
                ask(lm, QUESTION)
        assert 1 <= server.answered <= 9


def test_an_answer_from_the_cache_counts_all_its_candidates_as_its_work() -> None:
    def usage_of_a_call(lm: Any) -> list[Usage]:
        with measure_usage() as work:
            assert lm(QUESTION, n=4, temperature=1.0) == [ANSWER] * 4
        return list(work.calls)

    with StubServer(answer=lambda body: ANSWER) as server:
        asked_usage = usage_of_a_call(model_at(server, cache=True))
        lm = model_at(server, cache=True)
        cached_usage = usage_of_a_call(lm)

    assert lm.meter.read().cached == 1
    assert cached_usage == asked_usage
    assert asked_usage[0].input_tokens > 4 * 1000


# DSPy shows the arguments of a tool as ASCII, which takes six characters for a Chinese one.


def test_chinese_arguments_of_a_tool_count_as_the_model_wrote_them() -> None:
    sentence = CHINESE_SENTENCE * 20
    arguments = json.dumps({"query": sentence})
    output = {
        "text": None,
        "tool_calls": [{"function": {"name": "search", "arguments": arguments}}],
    }
    assert text_of_outputs([output]) == f'\n{{"query": "{sentence}"}}'


def test_arguments_of_a_tool_that_are_cut_off_count_as_they_are() -> None:
    output = {"tool_calls": [{"function": {"arguments": '{"query": "par'}}]}
    assert text_of_outputs([output]) == '\n{"query": "par'
