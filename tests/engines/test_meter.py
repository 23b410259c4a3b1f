"""Counting at the boundary of the language model, under threads, copies, caches and failures."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from dspy.lm15 import AuthError, ConfigurationError, NotConfiguredError, ServerError
from dspy.utils.exceptions import LMServerError
from mempiler.engines.spending import Usage, measure_usage
from mempiler.errors import UserError


def echo(kind: str, text: str, n: int) -> str:
    return f"answer to {text}"


def failing(error: Exception) -> Any:
    def reply(kind: str, text: str, n: int) -> str:
        raise error

    return reply


def test_threads_and_copies_count_into_the_same_meter(scripted):
    lm = scripted(echo)
    twins = [lm.copy(rollout_id=3, temperature=1.0), copy.deepcopy(lm), copy.copy(lm), lm]
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda n: twins[n % 4](f"question {n}"), range(200)))
    assert lm.meter.read().calls["task"] == len(lm.engine.prompts) == 200
    assert pickle.loads(pickle.dumps(lm.meter)).read() == Usage()


def test_several_answers_of_one_call_are_several_calls(scripted):
    lm = scripted(echo, temperature=1.0)
    assert len(lm("hello", n=3)) == 3
    assert lm.meter.read().calls["task"] == len(lm.engine.prompts) == 3


def test_a_failed_call_is_counted_as_failed_only(scripted):
    lm = scripted(failing(ServerError("is down")))
    with pytest.raises(LMServerError):
        lm("hello")
    usage = lm.meter.read()
    assert (usage.failed, dict(usage.calls)) == (1, {})


def test_readings_subtract(scripted):
    lm = scripted(echo)
    lm.count(5, 2, cost=0.5)
    before = lm.meter.read()
    lm.role = "judge"
    lm.count(7, 1)
    lm.meter.include(Usage(cached=1))
    since = lm.meter.read() - before
    assert since.by_role() == {"task": 0, "prompt": 0, "judge": 1, "cached": 1}
    assert (since.input_tokens, since.output_tokens, since.cost, since.unpriced) == (7, 1, 0.0, 1)
    assert before == Usage(before.calls, 0, 0, 5, 2, 0.5, 0)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (AuthError("wrong key"), "refuses the key.*wrong key"),
        (NotConfiguredError("no key", env_keys=("OPENAI_API_KEY",)), "set OPENAI_API_KEY"),
        (ConfigurationError("no such region"), "no such region"),
    ],
)
def test_what_only_the_user_can_mend_ends_the_run_at_once(scripted, failure, words):
    lm = scripted(failing(failure))
    for _ in range(3):
        with pytest.raises(UserError, match=words):
            lm("hello")
    assert len(lm.engine.prompts) == 1


@pytest.mark.parametrize(("prices", "cost"), [(None, 0.0), ((0.001, 0.002), 0.2 + 0.2)])
def test_an_answer_without_a_cost_is_priced_by_its_tokens(scripted, prices, cost):
    lm = scripted(lambda kind, text, n: "x" * 400, prices=prices)
    lm("y" * 800)
    usage = lm.meter.read()
    assert (dict(usage.calls), usage.input_tokens, usage.output_tokens) == ({"task": 1}, 200, 100)
    assert (usage.cost, usage.unpriced, usage.failed) == (pytest.approx(cost), int(prices is None), 0)


@pytest.mark.parametrize(("reused", "told"), [(75, (100, 75)), (0, (100, 0)), (None, (0, 0))])
def test_prompt_tokens_that_the_server_had_are_counted_where_it_says_so(scripted, reused, told):
    lm, details = scripted(echo), {} if reused is None else {"prompt_tokens_details": {"cached_tokens": reused}}
    lm.count(100, 1, details)
    usage = lm.meter.read()
    assert (usage.told_tokens, usage.reused_tokens, usage.input_tokens) == (*told, 100)


def test_a_piece_of_work_takes_what_it_asks_answers_from_a_cache_included(scripted):
    lm = scripted(echo, cache=True)
    lm("before")
    with measure_usage() as work:
        lm("x" * 40)
        lm("x" * 40)
    lm("after")
    assert [each.input_tokens for each in work.calls] == [10, 10]
    used = lm.meter.read()
    assert (used.calls["task"], used.cached) == (3, 1)
