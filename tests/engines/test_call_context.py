"""The call context: blocks within one another, threads of `gather` and tasks of asyncio.

Calls of models inside a block `with call_context(...)` see its fields: for whom they are made,
until when, which slots limit them, and where their usage is counted.
"""

import asyncio

import pytest
from mempiler.engines.call_context import (
    CallContext,
    Deadline,
    call_context,
    current_context,
    measure_usage,
    record_usage,
)
from mempiler.engines.fair_semaphore import FairSemaphore
from mempiler.engines.usage import Usage
from mempiler.programs.threads import gather


def test_a_block_changes_the_fields_that_it_names_and_no_others() -> None:
    slots = FairSemaphore(1)
    with call_context(caller="ada", slots=slots):
        with call_context(caller="bob"):
            assert current_context() == CallContext(caller="bob", slots=slots)
        assert current_context() == CallContext(caller="ada", slots=slots)
    assert current_context() == CallContext()  # without any field


def test_a_block_that_fails_leaves_the_context_as_it_was() -> None:
    with pytest.raises(ValueError, match="broken"), call_context(caller="ada"):
        raise ValueError("broken")
    assert current_context() == CallContext()


def test_a_deadline_passes_no_later_than_the_one_around_it() -> None:
    outer = Deadline(60)  # in seconds
    with call_context(deadline=outer):
        inner = Deadline(3600)
    assert inner.remaining <= 60

    outer.cancel()

    assert inner.passed


def test_usage_counts_in_the_innermost_block_alone() -> None:
    """The sum over all blocks then counts nothing twice."""
    with measure_usage() as outer:
        record_usage(Usage(calls=1))
        with measure_usage() as inner:
            record_usage(Usage(calls=2))
    assert outer.usage.calls == 1
    assert inner.usage.calls == 2


def test_threads_of_gather_work_in_the_context_of_their_caller() -> None:
    def count_a_call() -> object:
        """Count a call, and return for whom it is made."""
        record_usage(Usage(calls=1))
        return current_context().caller

    with call_context(caller="ada"), measure_usage() as tracker:
        callers_in_threads = gather([count_a_call] * 3)  # runs each of them in a thread

    assert callers_in_threads == ["ada", "ada", "ada"]
    assert tracker.usage.calls == 3


def test_tasks_do_not_change_the_context_of_one_another() -> None:
    async def caller_of_block(name: str) -> object:
        with call_context(caller=name):
            await asyncio.sleep(0.01)  # the other task enters its block meanwhile
            return current_context().caller

    async def both() -> list[object]:
        return await asyncio.gather(caller_of_block("ada"), caller_of_block("bob"))

    assert asyncio.run(both()) == ["ada", "bob"]
