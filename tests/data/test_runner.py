"""The runner of synthesis steps: an interrupt stops it after the calls that are in flight."""

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import dspy
import pytest
from mempiler.data.synthesis.runner import CheckResult, Runner, Step


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


@pytest.mark.usefixtures("python_interrupt_handler")
def test_an_interrupt_ends_the_jobs_after_their_calls_in_flight(scripted: Any) -> None:
    is_interrupted = threading.Event()
    main_thread = threading.get_ident()

    def interrupt_and_answer(kind: str, prompt: str, number: int) -> dict[str, str]:
        if not is_interrupted.is_set():
            is_interrupted.set()
            signal.pthread_kill(main_thread, signal.SIGINT)
        time.sleep(0.3)
        return {"text": "a text that is refused"}

    def refuse(answer: dspy.Prediction) -> CheckResult[str]:
        return CheckResult(None, ["bad"])

    lm = scripted(interrupt_and_answer)
    runner = Runner(attempts=6, threads=2)

    def job(topic: str) -> Any:
        return runner.ask(Step("write", WriteText), topic, {"topic": topic}, refuse)

    with dspy.context(lm=lm), pytest.raises(KeyboardInterrupt):
        runner.map(job, ["a", "b", "c"])

    assert sum(lm.engine.calls.values()) <= 2
    assert runner.report.accepted == {}
