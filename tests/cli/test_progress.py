"""What is told of a run while it goes on: of how much, how fast, how long still, and what it has cost."""

import io
from collections import Counter
from typing import Any

from mempiler.cli.progress import progress, spent
from mempiler.engines.guard import Limits
from mempiler.engines.meter import Usage
from mempiler.optimizers.compile import Compilation
from mempiler.runs.compile import run_compile
from mempiler.runs.experiment import run_evaluate
from mempiler.runs.setup import Setup
from rich.console import Console

from ..conftest import within


def test_what_is_spent_stands_beside_its_limit() -> None:
    usage = Usage(calls=Counter(task=1200), cost=0.5, failed=2, answers=Counter({("p", "lost"): 3, ("p", "ok"): 9}))
    assert spent(usage, None) == "1,200 calls, $0.5000, 3 lost, 2 failed"
    assert spent(usage, Limits(max_usd=5, max_calls=2000)) == "1,200 of 2,000 calls, $0.5000 of $5, 3 lost, 2 failed"
    assert spent(Usage(), Limits(max_tokens=9000)) == "0 calls, 0 of 9,000 tokens"


def test_a_file_has_a_line_a_phase_now_and_then() -> None:
    said = io.StringIO()
    with progress(console=Console(file=said, width=80), every=0.02) as (note, _):
        note("dev questions")(4, 4)
        note("warming up")
        told = note("test questions")
        told(1, 40)
        told(0, 40)
        assert within(20, lambda: "test questions" in said.getvalue())
    lines = [line.split() for line in said.getvalue().splitlines()]
    assert lines[:2] == [["test", "questions", "1/40"], ["0", "calls"]]


def heard(setup: Setup, run: Any) -> dict[str, list[tuple[int, int]]]:
    """What a run tells, by phase."""
    told: dict[str, list[tuple[int, int]]] = {}
    run(lambda phase: lambda done, total: told.setdefault(phase, []).append((done, total)))
    return told


def test_sessions_are_counted_while_memories_are_written() -> None:
    setup = Setup(benchmark="locomo", test=6, embedder="offline", threads=2)
    told = heard(setup, lambda note: run_evaluate("memory-r2", setup, note=note))
    sessions = told["evaluating, sessions remembered"]
    total = sessions[0][1]
    assert sessions[0] == (0, total)
    assert sorted(sessions) == [(n, total) for n in range(total + 1)]
    histories = {example.history for example in setup.split(setup.load()).test}
    assert total == sum(len(history.items) for history in histories)
    assert sorted(told["evaluating"])[-1] == (6, 6)


def test_an_optimizer_says_how_many_questions_it_has_asked() -> None:
    setup = Setup(benchmark="locomo", train=8, dev=2, test=2, embedder="offline", threads=1)
    told = heard(setup, lambda note: run_compile("turn-rag", setup, Compilation("bootstrap"), note=note))
    asked = told["compiling with bootstrap"]
    assert [done for done, _ in asked] == sorted(done for done, _ in asked)
    assert 0 < asked[-1][0] <= asked[-1][1]
