"""The tokens that endpoints report: what can be true is believed, the rest is estimated.

The estimate is a token for every four characters. A budget in tokens or dollars counts these
numbers, so an endpoint that reports too few would switch it off. The fixture `ask` runs each test
twice: it asks a model by a plain call, and under asyncio.
"""

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
    """Four characters are a token. There are a few tokens more for what is around the texts."""
    question_of_2000_tokens = "word " * 1600
    answer_of_300_tokens = "words " * 200
    with StubServer(answer=lambda body: answer_of_300_tokens, usage=report) as server:
        lm = model_at(server)
        ask(lm, question_of_2000_tokens)

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
    """The numbers of tokens are near to the estimates, 2,000 and 300, so they are believed."""
    report = {
        "prompt_tokens": 1900,
        "completion_tokens": 290,
        "total_tokens": math.nan,
        "prompt_tokens_details": {"cached_tokens": "most"},
        "completion_tokens_details": ["none"],
    }
    with StubServer(answer=lambda body: "words " * 200, usage=report) as server:
        lm = model_at(server)
        ask(lm, "word " * 1600)

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
    with StubServer(answer=lambda body: "words " * 200, usage=report) as server:
        lm = model_at(server)
        ask(lm, "word " * 1600)

    assert lm.meter.read().cache_reported_tokens == 1900
    assert lm.meter.read().cached_tokens == 1900


CHINESE_SENTENCE = "我上个月搬到了里斯本"
"""Ten characters."""


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
    """Tokenizers of today take .6 tokens for a Chinese character, and one for dozens of spaces."""
    report = {"prompt_tokens": prompt_tokens, "completion_tokens": 10}
    with StubServer(answer=lambda body: "fine", usage=report) as server:
        lm = model_at(server)
        ask(lm, text)

    assert lm.meter.read().input_tokens == prompt_tokens
    assert lm.meter.read().estimated == 0


PRICE_PER_TOKEN = 4e-7


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(max_tokens=20_000), id="tokens"),
        pytest.param(Limits(max_usd=20_000 * PRICE_PER_TOKEN), id="cost of as many tokens"),
    ],
)
def test_a_budget_holds_where_usage_is_under_reported(
    ask: Callable[..., Any], limits: Limits
) -> None:
    """By the reported two tokens of a call, a budget of 20,000 tokens would allow all forty calls.

    By estimate a call has 2,300 tokens. So the ninth call reaches the limit, and is still answered.
    """
    question_of_2000_tokens = "word " * 1600
    answer_of_300_tokens = "words " * 200
    prices = TokenPrices(input=PRICE_PER_TOKEN, output=PRICE_PER_TOKEN)
    with StubServer(answer=lambda body: answer_of_300_tokens, usage=UNDER_REPORTED) as server:
        lm = model_at(server, guard=BudgetGuard(limits), prices=prices)
        for _ in range(40):
            with suppress(BudgetError):
                ask(lm, question_of_2000_tokens)

        assert 1 <= server.answered <= 9


def test_a_cached_answer_counts_as_the_same_work_as_the_call_that_it_saves() -> None:
    """The work for a question is reported alike, whether or not an earlier run has asked it.

    The question has 2,000 tokens, and counts once for each of the four candidates.
    """
    question = "word " * 1600

    def usage_of_a_call(lm: Any) -> list[Usage]:
        """Ask for four candidates, and return what the call used."""
        with measure_usage() as work:
            assert lm(question, n=4, temperature=1.0) == ["Lisbon"] * 4
        return list(work.calls)

    with StubServer(answer=lambda body: "Lisbon") as server:
        asking_lm = model_at(server, cache=True)
        usage_of_asking = usage_of_a_call(asking_lm)
        reading_lm = model_at(server, cache=True)
        usage_of_reading = usage_of_a_call(reading_lm)

    assert reading_lm.meter.read().cached == 1
    assert usage_of_reading == usage_of_asking
    assert usage_of_asking[0].input_tokens >= 4 * 2000


# DSPy shows the arguments of a tool as ASCII, which takes six characters for a Chinese one.


def test_chinese_arguments_of_a_tool_count_as_the_model_wrote_them() -> None:
    """By the form of DSPy, six times as many tokens would be estimated."""
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
