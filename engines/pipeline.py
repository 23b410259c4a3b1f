"""The way of one model call: a few steps, one around the other, each of which may answer it.

    RunAnswers -> Cache -> WithinLimits -> Engine        a call of a run
                           WithinLimits -> Replay        a call of a run that is replayed
    RunAnswers ----------> WithinLimits -> Engine        a call of a run that leaves no text behind

Every step has `complete(call)`. It returns the result itself, or that of the step after it:

| step           | what it does                                                                  |
|----------------|-------------------------------------------------------------------------------|
| `RunAnswers`   | returns what the run was answered before, and keeps new answers               |
| `Cache`        | returns what DSPy's cache has, which all runs share, and adds new answers     |
| `WithinLimits` | waits for a slot at the endpoint and for room in the budget, and counts       |
| `Engine`       | asks the model; an endpoint's engine retries (`endpoint.retry`) and transports |
| `Replay`       | returns the answer that a finished run got                                    |

Meter and guard count only what comes to `WithinLimits`; `measure_usage` counts known answers, too.
A known answer waits for nothing, and is also given when a limit is reached or the endpoint is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import dspy
from dspy.clients.call_result import CallResult

from ..async_bridge import disk_off_loop
from ..errors import UserError
from .call import Call
from .call_context import UsageCounter
from .limits import BudgetGuard
from .usage import Usage, UsageReport


class AnswerStore(Protocol):
    """Keep the answers of a run, so that a resumed run asks for missing ones only."""

    def get_or_compute(
        self, key: str, compute: Callable[[], dict[str, Any]], is_shared: bool = False, /
    ) -> tuple[dict[str, Any], bool]:
        """Return the record of a call, and whether it was there before.

        Args:
            key: A digest of the call.
            compute: Makes the call, and returns its record.
            is_shared: Whether equal calls share one answer. Otherwise each call with this key has
                an answer of its own: the second call gets the second answer, also when the run is
                resumed.
        """
        ...


class Step(Protocol):
    """A step on the way of a call."""

    def complete(self, call: Call) -> CallResult:
        """Return the result of a call."""
        ...


class MeteredModel(Protocol):
    """What the steps need of the model that is called; `meter.MeteredLM` is one."""

    guard: BudgetGuard

    @property
    def meter(self) -> UsageCounter:
        """What counts the usage of the run."""
        ...

    @property
    def endpoint(self) -> str:
        """What answers its calls: an address, or else the provider."""
        ...

    def expected_usage(self, call: Call) -> Usage:
        """Return what a call uses at most."""
        ...

    def admitted(self) -> AbstractContextManager[None]:
        """Admit the block's call, and count it if it fails."""
        ...

    def ask_engine(self, call: Call) -> Any:
        """Ask the engine, set the result of the call, and return its answers."""
        ...

    def count_result(self, call: Call, result: CallResult) -> None:
        """Count the result of a call."""
        ...


class RunAnswers:
    """Return what the run was answered before; else go on, and keep the answer.

    Args:
        lm: The model that is called.
        answers: The answers of the run.
        next_step: What is asked for a new answer.
    """

    def __init__(self, lm: MeteredModel, answers: AnswerStore, next_step: Step) -> None:
        self._lm = lm
        self._answers = answers
        self._next_step = next_step

    def complete(self, call: Call) -> CallResult:
        """Return the result of a call.

        Raises:
            UserError: The store of the answers fails, or a later step says so; no further call is
                made.
        """
        # The store asks `compute` only for an answer that it does not have.
        new_results: list[CallResult] = []

        def compute() -> dict[str, Any]:
            result = self._next_step.complete(call)
            new_results.append(result)
            return result.dump()

        try:
            record, _ = self._answers.get_or_compute(call.key, compute, call.cache)
        except UserError as error:
            # Optimizers would take e.g. a failing store for a wrong answer, and go on with calls
            # that are lost.
            self._lm.guard.stop(error)
            raise
        if new_results:
            return new_results[0]
        # The run was answered before.
        self._lm.meter.include(UsageReport(cached=1))
        return CallResult.load(record)


class Cache:
    """Return what DSPy's cache has; else go on, and add the answer to it.

    Of equal calls at the same time, each that finds nothing goes on. In a run, `RunAnswers` lets
    only one of them come here.

    Args:
        lm: The model that is called.
        next_step: What is asked for a new answer.
    """

    def __init__(self, lm: MeteredModel, next_step: Step) -> None:
        self._lm = lm
        self._next_step = next_step

    def complete(self, call: Call) -> CallResult:
        """Return the result of a call; one that may not be cached just goes on."""
        if not call.cache:
            return self._next_step.complete(call)

        cached = disk_off_loop(call.read_cache)
        if cached is not None:
            self._lm.meter.include(UsageReport(cached=1))
            return cached

        result = self._next_step.complete(call)
        # In this thread, also under asyncio: if the call waited for another one, it could be
        # cancelled meanwhile, and the run would lose an answer that is paid for.
        dspy.cache.put(call.cache_key, result.dump())
        return result


class WithinLimits:
    """Go on once there is a slot at the endpoint and room in the budget; count the answer.

    Args:
        lm: The model that is called.
        next_step: What answers the call.
    """

    def __init__(self, lm: MeteredModel, next_step: Step) -> None:
        self._lm = lm
        self._next_step = next_step

    def complete(self, call: Call) -> CallResult:
        """Return the result of a call.

        Raises:
            BudgetError: A limit is reached.
            EndpointError: The endpoint is dead.
            UserError: The endpoint refuses the key.
            LMError: The next step gives no answer.
            AbandonedCallError: The deadline passed while the call waited for a slot or for room.
        """
        lm = self._lm
        # First a slot, then room in the budget, and only then the call is admitted. A call that
        # waits for a slot reserves nothing, and is refused if the endpoint is found dead meanwhile.
        with lm.guard.slots(lm.endpoint).slot(), lm.guard.reserve(lm.expected_usage(call)):
            with lm.admitted():
                result = self._next_step.complete(call)
            lm.count_result(call, result)
        return result


class Engine:
    """Ask the model by its engine.

    Args:
        lm: The model that is called.
    """

    def __init__(self, lm: MeteredModel) -> None:
        self._lm = lm

    def complete(self, call: Call) -> CallResult:
        """Return the result of a call.

        Raises:
            LMError: The model cannot be asked, or gives no answer.
        """
        # `ask_engine` returns the outputs alone. The whole result, with its usage, DSPy hands to
        # `MeteredLM.update_history` only, which sets `call.result`. DSPy would skip that method if
        # the user disabled the history, so the history is on here, whatever the user chose;
        # `update_history` then leaves the call out of it if it is to be hidden.
        with dspy.context(disable_history=False):
            call.outputs = self._lm.ask_engine(call)
        assert call.result is not None
        return call.result


class Replay:
    """Return the answer that a finished run got.

    Args:
        answer: Returns the answer to a call; see `runs.replay`.
    """

    def __init__(self, answer: Callable[[Call], CallResult]) -> None:
        self._answer = answer

    def complete(self, call: Call) -> CallResult:
        """Return the result of a call.

        Raises:
            UserError: The run did not make this call.
        """
        return self._answer(call)
