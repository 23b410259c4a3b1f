"""The runner of synthesis steps: what an interrupt and a spent budget leave behind.

A language model writes data sets (MemoryQuest, PAL-Set) in steps. The runner asks the model for
each step, checks the answer, and asks again if it is refused.
"""

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from mempiler.data.synthesis.memoryquest.make import make_memoryquest
from mempiler.data.synthesis.memoryquest.profiles import read_profiles
from mempiler.data.synthesis.palset.make import make_palset
from mempiler.data.synthesis.palset.setting import Setting
from mempiler.data.synthesis.runner import CheckResult, Runner, Step
from mempiler.engines.limits import BudgetGuard, Limits
from mempiler.errors import BudgetError
from mempiler.runs.run_store import RunStore

from ..scripted_engine import Reply
from . import scripted_memoryquest, scripted_palset
from .scripted_memoryquest import RequestEmbedder


class WriteText(dspy.Signature):
    """Write a text."""

    topic: str = dspy.InputField()
    text: str = dspy.OutputField()


@pytest.fixture
def python_interrupt_handler() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt, even where it is ignored.

    A shell starts its background jobs with interrupts ignored, and Python leaves it at that.
    """
    earlier_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier_handler)


def interrupt_with_first_call() -> Reply:
    """Return a model whose first call interrupts the program, as the user does with Ctrl-C."""
    is_interrupted = threading.Event()
    main_thread = threading.get_ident()

    def reply(kind: str, prompt: str, number: int) -> dict[str, str]:
        if not is_interrupted.is_set():
            is_interrupted.set()
            signal.pthread_kill(main_thread, signal.SIGINT)
        time.sleep(0.3)
        return {"text": "a text that is refused"}

    return reply


def refuse(answer: dspy.Prediction) -> CheckResult[str]:
    """Check an answer, and find it bad."""
    return CheckResult(None, ["bad"])


@pytest.mark.usefixtures("python_interrupt_handler")
def test_after_an_interrupt_only_the_calls_in_flight_are_finished(scripted: Any) -> None:
    """Two of three jobs run at a time. Every answer is refused, so each job would ask six times.

    The first call interrupts the program. By then each of the two threads has begun a call, at
    most.
    """
    lm = scripted(interrupt_with_first_call())
    runner = Runner(attempts=6, threads=2)

    def job(topic: str) -> Any:
        return runner.ask(Step("write", WriteText), topic, {"topic": topic}, refuse)

    with dspy.context(lm=lm), pytest.raises(KeyboardInterrupt):
        runner.map(job, ["a", "b", "c"])

    assert lm.engine.calls.total() <= 2
    assert runner.report.accepted == {}


def make_quest(profiles: Path, folder: Path, runner: Runner) -> list[Path]:
    """Write a MemoryQuest of one user."""
    first_profile = read_profiles(profiles)[:1]
    return make_memoryquest(first_profile, folder, runner, RequestEmbedder())


def make_pal(profiles: Path, folder: Path, runner: Runner) -> list[Path]:
    """Write a PAL-Set of one user and two months; it needs no profiles."""
    setting = Setting("en", months=2, seed=0, runner=runner, reviews=0)
    return make_palset(1, folder, setting, on_progress=lambda line: None)


@pytest.mark.parametrize(
    ("make", "flawless_model"),
    [
        pytest.param(make_quest, scripted_memoryquest.flawless_model, id="memoryquest"),
        pytest.param(make_pal, scripted_palset.flawless_model, id="palset"),
    ],
)
def test_a_run_after_a_spent_budget_gets_the_earlier_answers_again(
    profiles: Path, scripted: Any, tmp_path: Path, make: Any, flawless_model: Any
) -> None:
    """A run ends at its limit of twelve calls, which are paid for. The next run has no limit.

    It takes the twelve answers from a store, and asks the model only for the others.
    """
    answers = RunStore(tmp_path / "answers.sqlite").answers
    prompts: list[str] = []

    def reply(kind: str, prompt: str, number: int) -> Any:
        prompts.append(prompt)
        return flawless_model(kind, prompt, number)

    limited_guard = BudgetGuard(Limits(max_calls=12))
    limited_lm = scripted(reply, guard=limited_guard, answers=answers, cache=True)
    with dspy.context(lm=limited_lm), pytest.raises(BudgetError):
        make(profiles, tmp_path / "out", Runner(threads=2))
    assert len(prompts) == 12

    runner = Runner(threads=2)
    with dspy.context(lm=scripted(reply, answers=answers, cache=True)):
        paths = make(profiles, tmp_path / "out", runner)

    assert json.loads(paths[0].read_text())
    # The second run accepts every answer. The model gave each of them once, in the two runs.
    assert len(prompts) == sum(runner.report.accepted.values())
