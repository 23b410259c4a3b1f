"""Benchmarks of PAL-Bench as runs: a part compiles, a conversation is evaluated against a rival."""

import pytest
from mempiler.errors import UserError
from mempiler.optimizers.compile import Compilation
from mempiler.runs.compile import run_compile
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.planning import plan_compile, plan_evaluate
from mempiler.runs.setup import Setup


def test_a_part_compiles() -> None:
    setup = Setup(benchmark="palbench.select", train=8, dev=2, test=2, threads=1)
    outcome = run_compile("turn-rag", setup, Compilation("labeled"), force=True)
    assert all(row.parts["valid"] == 1 for row in outcome.result.rows)


def test_nothing_compiles_on_a_conversation() -> None:
    setup = Setup(benchmark="palbench.dialogue", judge_lm="offline")
    for attempt in (run_compile, plan_compile):
        with pytest.raises(UserError, match="nothing compiles on it, evaluate on it"):
            attempt("turn-rag", setup, Compilation("labeled"))


def test_a_conversation_is_evaluated_against_a_rival() -> None:
    setup = Setup(
        benchmark="palbench.dialogue", judge_lm="offline", options={"against": "no-memory"}, test=2, threads=1
    )
    found = run_evaluate("turn-rag", setup)
    assert [row.failure for row in found.rows] == [None, None]
    assert all(row.answer.startswith("user: ") and row.answer.count("\n") >= 9 for row in found.rows)
    assert sum(value for name, value in found.aggregate.items() if name.startswith("requirement")) == 2
    replies = sum(row.answer.count("assistant: ") for row in found.rows)
    assert (found.calls["task"], found.calls["prompt"], found.calls["judge"]) == (2 * replies, 2 * replies, 2 * 12)


def test_an_unknown_rival_is_one_line() -> None:
    setup = Setup(benchmark="palbench.dialogue", options={"against": "no-such"}, judge_lm="offline", test=1)
    with pytest.raises(UserError, match="unknown method 'no-such'"):
        run_evaluate("turn-rag", setup)


def test_the_plan_of_a_conversation_counts_both_sides() -> None:
    plan = plan_evaluate("turn-rag", Setup(benchmark="palbench.dialogue", test=2))
    assert plan.calls.high == pytest.approx(2 * 24)
