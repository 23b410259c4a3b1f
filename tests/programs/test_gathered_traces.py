"""Calls that run at the same time leave the same trace as calls one after another.

The trace is a list in DSPy's settings, to which every predictor adds a step. Optimizers read it.
"""

import time
from functools import partial
from typing import Any

import dspy
from mempiler.programs.threads import gather


def add_step(number: int) -> int:
    """Add call 0, 1 or 2 to the trace; the first calls end last."""
    time.sleep(0.05 * (3 - number))
    trace: list[Any] | None = dspy.settings.trace
    assert trace is not None
    trace.append(f"step of call {number}")
    return number


def trace_of_three_calls(max_trace_size: int) -> list[str]:
    """Return the trace of three gathered calls, after a step of their caller."""
    trace = ["step of the caller"]
    with dspy.context(trace=trace, max_trace_size=max_trace_size):
        results = gather([partial(add_step, number) for number in range(3)])
    assert results == [0, 1, 2]
    return trace


def test_steps_of_gathered_calls_are_in_the_trace_of_their_caller_in_call_order() -> None:
    """A trace is a list to which every call of a predictor adds a step; optimizers read it.

    Three calls run at the same time, and the first ends last.
    """
    assert trace_of_three_calls(max_trace_size=10) == [
        "step of the caller",
        "step of call 0",
        "step of call 1",
        "step of call 2",
    ]


def test_a_trace_has_no_more_steps_than_dspy_allows() -> None:
    """The setting `max_trace_size` of DSPy is the limit; here it leaves out the step of call 2."""
    assert trace_of_three_calls(max_trace_size=3) == [
        "step of the caller",
        "step of call 0",
        "step of call 1",
    ]


def test_gathered_calls_make_no_trace_if_their_caller_has_none() -> None:
    """Without a trace in the settings, DSPy records no steps."""
    with dspy.context(trace=None):
        results = gather([partial(int, "1"), partial(int, "2")])

        assert results == [1, 2]
        assert dspy.settings.trace is None
