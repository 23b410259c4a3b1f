"""Limits of money, tokens and calls over real HTTP, with many calls in flight and with endpoints that tell no usage."""

from typing import Any

import dspy
import pytest
from mempiler.data.catalog import benchmark
from mempiler.engines.guard import Guard, Limits
from mempiler.engines.meter import Meter
from mempiler.engines.models import language_model
from mempiler.engines.spending import litellm_module
from mempiler.errors import UserError
from mempiler.programs.catalog import build
from mempiler.runs.evaluate import evaluate
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.pages.page import spent_line
from mempiler.runs.results import Evaluation
from mempiler.runs.setup import Setup

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
    assert "estimated" not in spent_line(found.spent)


@pytest.mark.parametrize("threads", [1, 64])
@pytest.mark.parametrize(("name", "limit"), LIMITS[:2])
def test_a_limit_holds_where_the_endpoint_tells_no_usage(stub: Any, name: str, limit: float, threads: int) -> None:
    server = stub(usage=False)
    found = run(server, threads, **{name: limit})
    assert limit <= spent(found)[name] <= limit + largest(found)[name]
    calls, asked = found.calls["task"], sum(map(len, server.texts)) / 4
    assert calls == found.tokens["estimated_calls"] == len(server.texts) < 30
    assert asked <= found.tokens["input"] <= 1.3 * asked
    assert f"tokens (estimated for {calls} calls: the endpoint reports no usage)" in spent_line(found.spent)


def embedded(server: Any, **limits: Any) -> Evaluation:
    """Evaluates on the offline engine, with an embedder behind an address."""
    about = {"embedder": server.model, "embedder_api_base": server.url}
    # One at a time: the server tells more tokens of a short question than are set aside for it.
    setup = Setup("locomo", test=4, threads=1, limits=Limits(**limits), **about)
    return run_evaluate("turn-rag", setup)


def test_an_embedding_endpoint_is_in_limits_and_tables(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = stub()
    with pytest.raises(UserError, match=f"the price of {server.model} is not known"):
        embedded(server, max_usd=1)
    monkeypatch.setitem(litellm_module().model_cost, server.model, {"input_cost_per_token": 1e-6})
    stopped = embedded(server, max_usd=150e-6)
    assert (stopped.stopped, stopped.rows, len(server.requests)) == ("budget reached: max-usd 0.00015", (), 2)
    found = embedded(server)
    sent = found.tokens["input"] - found.answering.input_tokens
    # What the first of them had embedded is not asked for again.
    assert (found.calls["embedding"], sent) == (len(server.requests) - 2, 100 * (len(server.requests) - 2))
    assert found.cost == pytest.approx(sent * 1e-6)
    assert f"{found.calls['embedding']} embedding; " in spent_line(found.spent)
