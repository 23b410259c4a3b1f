"""Limits of money, tokens and calls over real HTTP, with many calls in flight and with endpoints that tell no usage."""

from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.engines.guard import Guard, Limits
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.programs.catalog import build
from mempiler.runs.evaluate import evaluate
from mempiler.runs.report import usage_line
from mempiler.runs.results import Evaluation

LIMITS = [("max_usd", 0.005), ("max_tokens", 10_000), ("max_calls", 30)]


def run(server: Any, threads: int, **limits: Any) -> Evaluation:
    """Evaluates turn RAG against a server, at the prices of a small model, within limits."""
    meter, guard, prices = Meter(), Guard(Limits(**limits)), (4e-7, 1.6e-6)
    lm = language_model(server.model, meter, api_base=server.url, guard=guard, prices=prices)
    asked = benchmark("locomo")
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
        return evaluate(build("turn-rag", asked.task), asked, asked.examples[:100], meter, threads)


def spent(found: Evaluation) -> dict[str, float]:
    tokens = found.tokens["input"] + found.tokens["output"]
    return {"max_usd": found.cost or 0, "max_tokens": tokens, "max_calls": found.calls["task"]}


def largest(found: Evaluation) -> dict[str, float]:
    """What the largest call took of each limit; calls themselves are counted before they are made."""
    tokens = max(row.prompt_tokens + row.output_tokens for row in found.rows)
    return {"max_usd": max(row.cost or 0 for row in found.rows), "max_tokens": tokens, "max_calls": 0}


@pytest.mark.parametrize(("name", "limit"), LIMITS)
def test_sixty_four_threads_overrun_a_limit_by_one_call_at_most(stub: Any, name: str, limit: float) -> None:
    found = run(stub(delay=0.2), 64, **{name: limit})
    assert found.stopped == f"budget reached: {name.replace('_', '-')} {limit:g}"
    assert limit <= spent(found)[name] <= limit + largest(found)[name]
    assert "estimated" not in usage_line(found)


@pytest.mark.parametrize("threads", [1, 64])
@pytest.mark.parametrize(("name", "limit"), LIMITS[:2])
def test_a_limit_holds_where_the_endpoint_tells_no_usage(stub: Any, name: str, limit: float, threads: int) -> None:
    server = stub(usage=False)
    found = run(server, threads, **{name: limit})
    assert limit <= spent(found)[name] <= limit + largest(found)[name]
    calls, asked = found.calls["task"], sum(map(len, server.texts)) / 4
    assert calls == found.tokens["estimated_calls"] == len(server.texts) < 30
    assert asked <= found.tokens["input"] <= 1.3 * asked
    assert f"tokens (estimated for {calls} calls: the endpoint reports no usage)" in usage_line(found)
