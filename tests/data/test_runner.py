"""The steps of a data set: a user who interrupts them pays for the calls in flight alone."""

import signal
import threading
import time

import dspy
import pytest
from mempiler.data.synthesis.runner import CheckResult, Runner, Step


class Write(dspy.Signature):
    """Write a text."""

    topic: str = dspy.InputField()
    text: str = dspy.OutputField()


@pytest.fixture
def heeded_interrupts():
    """Let an interrupt raise KeyboardInterrupt, also where a shell started the tests without it.

    A shell has its background jobs ignore interrupts, and Python leaves it at that.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("heeded_interrupts")
def test_an_interrupt_ends_the_jobs_after_their_calls_in_flight(scripted):
    interrupt = threading.Event()
    main_thread = threading.get_ident()

    def reply(kind, text, number):
        if not interrupt.is_set():
            interrupt.set()
            signal.pthread_kill(main_thread, signal.SIGINT)
        time.sleep(0.3)
        return {"text": "refused"}

    lm, runner = scripted(reply), Runner(attempts=6, threads=2)

    def job(topic):
        return runner.ask(
            Step("write", Write), topic, {"topic": topic}, lambda answer: CheckResult(None, ["bad"])
        )

    with dspy.context(lm=lm), pytest.raises(KeyboardInterrupt):
        runner.map(job, ["a", "b", "c"])
    assert sum(lm.engine.calls.values()) <= 2
    assert runner.report.accepted == {}
