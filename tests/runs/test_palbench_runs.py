"""Benchmarks of PAL-Bench as runs: a part compiles, a conversation is evaluated against a rival."""

import pytest
from mempiler.optimizers.compile import Compilation
from mempiler.runs.compile import run_compile
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.planning import plan_evaluate
from mempiler.runs.setup import Setup


def test_a_part_compiles() -> None:
    setup = Setup(benchmark="palbench.select", train=8, dev=2, test=2, threads=1)
    outcome = run_compile("turn-rag", setup, Compilation("labeled"), force=True)
    assert all(row.parts["valid"] == 1 for row in outcome.result.rows)


def test_a_conversation_is_evaluated_against_a_rival() -> None:
    setup = Setup(
        benchmark="palbench.dialogue", judge_lm="offline", options={"against": "no-memory"}, test=2, threads=1
    )
    assert plan_evaluate("turn-rag", setup).calls.high == pytest.approx(2 * 24)
    found = run_evaluate("turn-rag", setup)
    assert [row.failure for row in found.rows] == [None, None]
    assert all(row.answer.startswith("user: ") and row.answer.count("\n") >= 9 for row in found.rows)
    assert sum(value for name, value in found.aggregate.items() if name.startswith("requirement")) == 2
    replies = sum(row.answer.count("assistant: ") for row in found.rows)
    assert (found.calls["task"], found.calls["prompt"], found.calls["judge"]) == (2 * replies, 2 * replies, 2 * 12)
