"""Plans before spending: what a run really took lies in the range that was planned."""

import json

import pytest
from mempiler.cli import app
from mempiler.engines.guard import Limits
from mempiler.engines.prices import token_prices
from mempiler.errors import UserError
from mempiler.optimizers.catalog import OPTIMIZERS
from mempiler.optimizers.compile import Compilation
from mempiler.optimizers.effort import NOTHING, Range, effort
from mempiler.runs.experiment import run_compile, run_evaluate
from mempiler.runs.planning import plan_compile, plan_evaluate
from mempiler.runs.setup import Setup

SMALL = Setup(benchmark="locomo", train=30, dev=10, test=10, threads=4)


def calls_made(outcome):
    """LM calls of a whole run, from its MLflow-free record."""
    return sum(outcome.usage["calls"].values()) - outcome.usage["calls"]["cached"]


@pytest.mark.parametrize("name", ["bootstrap", "mipro", "gepa"])
@pytest.mark.parametrize("setup", [SMALL, Setup(benchmark="locomo", train=45, dev=15, test=15, threads=4)])
def test_the_calls_of_a_compile_lie_in_the_planned_range(name, setup):
    plan = plan_compile("turn-rag", setup, Compilation(name, threads=4))
    made = calls_made(run_compile("turn-rag", setup, Compilation(name)))
    assert plan.calls.low <= made <= plan.calls.high
    assert plan.calls.high / plan.calls.low <= 2


def test_a_method_that_writes_with_an_lm_is_planned_for_the_read_stage():
    how = Compilation("bootstrap", "read", threads=4)
    plan = plan_compile("memory-r2", SMALL, how)
    made = calls_made(run_compile("memory-r2", SMALL, how))
    assert plan.calls.low <= made <= plan.calls.high
    assert plan.calls.high / plan.calls.low <= 2


def test_the_plan_of_an_evaluation_is_close():
    plan = plan_evaluate("turn-rag", SMALL)
    assert plan.calls == Range(10, 10)
    found = run_evaluate("turn-rag", SMALL)
    assert found.calls["task"] == 10
    assert plan.tokens.low <= sum(found.tokens.values()) <= plan.tokens.high


def test_planning_makes_no_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEMPILER_HOME", str(tmp_path))
    app.main(["compile", "turn-rag", "--on", "locomo", "--plan", "--json"], standalone_mode=False)
    assert set(json.loads(capsys.readouterr().out)) == {"calls", "tokens", "usd", "phases"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_an_effort(name):
    found = effort(name, OPTIMIZERS[name].settings, train=40, val=20, predictors=2)
    assert 0 <= found.runs.low <= found.runs.high
    assert found.proposals.low <= found.proposals.high


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("labeled", NOTHING),
        # Between the 4 demos wanted and the 30 questions tried at most.
        ("bootstrap", Range(4, 30)),
        # 9 evaluations of 20 questions, 72 % of them at least new; 3 bootstrapped sets of 4 + 1 + 1 to 3 x 30 tries.
        ("mipro", Range(9 * 20 * 0.72 + 6, 9 * 20 + 90)),
        # 3 x 20 + 40 metric calls; 55 % at least, and at most one valset and two minibatches more.
        ("gepa", Range(55.0, 126)),
    ],
)
def test_efforts_follow_from_settings(name, runs):
    found = effort(name, OPTIMIZERS[name].settings, train=40, val=20, predictors=1).runs
    assert (found.low, found.high) == pytest.approx((runs.low, runs.high))


@pytest.mark.parametrize(
    ("name", "known"), [("offline", True), ("openai/gpt-4.1-mini", True), ("hosted_vllm/nobody-knows-this", False)]
)
def test_prices_come_from_the_table_or_are_unknown(name, known):
    assert (token_prices(name) is not None) is known


def test_a_limit_of_money_needs_a_known_price():
    setup = Setup(benchmark="locomo", lm="hosted_vllm/nobody-knows-this", test=2, limits=Limits(max_usd=1))
    with pytest.raises(UserError, match="the price of hosted_vllm/nobody-knows-this is not known"):
        run_evaluate("turn-rag", setup)
