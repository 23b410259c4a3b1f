"""Calls that run at the same time leave the trace that they leave one after another."""

import time
from functools import partial

import dspy
from mempiler.programs.threads import gather


def leave_step(number: int) -> int:
    """Add a step to the trace; the first calls end last."""
    time.sleep(0.05 * (3 - number))
    assert dspy.settings.trace is not None
    dspy.settings.trace.append(number)
    return number


def traced(steps: int, max_trace_size: int) -> list[int]:
    """The trace of so many calls at the same time, after a step of their caller."""
    trace = [-1]
    with dspy.context(trace=trace, max_trace_size=max_trace_size):
        assert gather([partial(leave_step, number) for number in range(steps)]) == [*range(steps)]
    return trace


def test_steps_of_gathered_calls_are_in_the_trace_of_their_caller_in_call_order() -> None:
    assert traced(3, max_trace_size=10) == [-1, 0, 1, 2]


def test_a_trace_has_no_more_steps_than_dspy_allows() -> None:
    assert traced(3, max_trace_size=3) == [-1, 0, 1]


def test_without_a_trace_nothing_is_left() -> None:
    with dspy.context(trace=None):
        assert gather([partial(int, "1"), partial(int, "2")]) == [1, 2]
        assert dspy.settings.trace is None
