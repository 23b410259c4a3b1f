"""Plans before spending: what a run really took lies in the range that was planned."""

from dataclasses import replace

import pytest
from mempiler.optimizers.compile import Compilation
from mempiler.optimizers.effort import Range
from mempiler.runs.compile import run_compile
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.planning import plan_compile, plan_evaluate
from mempiler.runs.setup import Setup

SMALL = Setup(benchmark="locomo", train=30, dev=10, test=10, threads=4)


def calls_made(outcome):
    """LM calls of a whole run, from its MLflow-free record."""
    return sum(outcome.usage["calls"].values()) - outcome.usage["calls"]["cached"]


@pytest.mark.parametrize(
    ("method", "how"),
    [
        *(("turn-rag", Compilation(name, threads=4)) for name in ("bootstrap", "mipro", "gepa")),
        ("memory-r2", Compilation("bootstrap", "read", threads=4)),
    ],
)
def test_the_calls_of_a_compile_lie_in_the_planned_range(method, how):
    plan = plan_compile(method, SMALL, how)
    made = calls_made(run_compile(method, SMALL, how))
    assert plan.calls.low <= made <= plan.calls.high
    assert plan.calls.high / plan.calls.low <= 2


def test_the_plan_of_an_evaluation_is_close():
    plan = plan_evaluate("turn-rag", SMALL)
    assert plan.calls == Range(10, 10)
    found = run_evaluate("turn-rag", SMALL)
    assert found.calls["task"] == 10
    assert plan.tokens.low <= sum(found.tokens.values()) <= plan.tokens.high


@pytest.mark.parametrize("lm", ["offline", "openai/gpt-4.1-mini"])
def test_minutes_are_planned_where_an_endpoint_is_asked(lm):
    minutes = plan_evaluate("turn-rag", replace(SMALL, lm=lm)).minutes
    assert minutes is None if lm == "offline" else 0 < minutes.low < 1 < minutes.high * 10
