"""Calls of memory systems and agents, each with a time limit.

The caller waits without holding a thread, if it runs under asyncio. The call itself is made in a
copy of the caller's context, so that models that it asks are metered as the caller's own.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any

from ...async_bridge import result_of
from ...errors import BudgetError, EndpointError, MempilerError, UserError
from ...records.shared_by_copies import SharedByCopies
from ..recording import ExternalError, failure_of
from ._loop_threads import Call, LoopThread, Outcome, ends_within, supervise, supervisor_loop

FATAL_ERRORS = (BudgetError, EndpointError, UserError)
"""Errors that end the run: a limit, an endpoint that is gone, a mistake of the user's."""

CLOSING_SECONDS = 10.0
"""How long a system may take to end, after `close` or after `kill`."""

MAX_FUNCTION_CALLS = 64
"""Most calls of one function at the same time. Each has a thread."""

_open_systems: set[SystemCalls] = set()
"""The systems of the process that are not closed yet."""


class SystemCalls:
    """The calls of one memory system: in one thread, one after the other.

    Code that hangs cannot be ended in Python. Its thread is left behind, and every later call fails
    at once with the same reason.

    Args:
        name: The name of the system in errors.
        timeout: Seconds that one call may take.
    """

    def __init__(self, name: str, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self.end_reason = ""
        """Why no further call is made; empty while calls are made."""
        self._system: Any = None
        self._thread = LoopThread(f"external {name}")
        self._supervisor = supervisor_loop()
        self._turn = asyncio.Lock()
        self._closing: Future[None] | None = None

        _open_systems.add(self)
        _close_systems_at_exit()

    def make_system(self, make: Callable[[], Any]) -> None:
        """Make the system in the thread in which all its methods will be called too.

        The system is stored in this object. Nothing is returned.

        Args:
            make: Returns a new system; it may be a coroutine function.

        Raises:
            ExternalError: `make` failed, or took too long.
            MempilerError: A budget is spent, or the model's endpoint is gone.
        """
        call = Call("make", make)
        self._wait_for(self._run_and_store_system(call), call.label)

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the system and return its result; it may be a coroutine method.

        Raises:
            ExternalError: The method failed, or this call or an earlier one took too long.
            MempilerError: A budget is spent, or the model's endpoint is gone.
        """

        def call_method() -> Any:
            return getattr(self._system, method)(*args)

        call = Call(method, call_method)
        return self._wait_for(self._run_in_turn(call), call.label)

    def _wait_for(self, coroutine: Coroutine[Any, Any, Outcome], label: str) -> Any:
        """Run a coroutine that calls the system; wait, and return what the system returned.

        The coroutine runs in the supervisor, an event loop in a thread where no code of the user's
        runs. So nothing blocks it, and time limits are kept even if the system hangs.

        Args:
            coroutine: Calls the system in its own thread, and returns the outcome.
            label: The name of the call in errors.
        """
        outcome = result_of(supervise(coroutine, self._supervisor))
        return _value_or_raise(outcome, self.name, label)

    async def _run_and_store_system(self, call: Call) -> Outcome:
        """Run a call that makes the system, and store the system in this object."""
        outcome = await self._run_in_turn(call)
        # The system is stored here, not by the code that waits for it: that code may be cancelled
        # while the system is being made, and the system must be closed even then.
        self._system = outcome.value
        return outcome

    async def _run_in_turn(self, call: Call) -> Outcome:
        """Run a call after all earlier ones have ended.

        Raises:
            ExternalError: The system was closed or killed, or the call took too long.
        """
        async with self._turn:
            if self.end_reason:
                raise ExternalError(f"{self.name}: {self.end_reason}")
            return await self._run(call, self.timeout)

    async def _run(self, call: Call, seconds: float) -> Outcome:
        """Run a call in the thread of the system, which no other call uses now.

        Raises:
            ExternalError: The call took longer than `seconds`. The system was killed, if it has a
                method `kill`, and no further call is made.
        """
        running = self._thread.start(call)
        if await ends_within(running, seconds):
            return running.result()

        self.end_reason = f"{call.label}: no answer within {seconds:g} s"
        await self._kill()
        raise ExternalError(f"{self.name}: {self.end_reason}")

    async def _kill(self) -> None:
        """Call the method `kill` of a system that hangs, if it has one.

        It is called in a new thread, since the system's own thread is blocked by the call that
        hangs.
        """

        def kill_system() -> Any:
            if hasattr(self._system, "kill"):
                return self._system.kill()

        thread = LoopThread(f"external {self.name} kill")
        await ends_within(thread.start(Call("kill", kill_system)), CLOSING_SECONDS)
        thread.stop()

    def begin_close(self) -> Future[None]:
        """Begin to close the system and to end its thread; return at once.

        This waits for no call and no lock, so finalizers may call it.

        Returns:
            A future that is done when the system is closed; the same future at every call.
        """

        def close_system() -> Any:
            # Read when earlier calls have ended: one of them may still be making the system now.
            if hasattr(self._system, "close"):
                return self._system.close()

        if self._closing is None:
            closing = self._close(Call("close", close_system))
            # The supervisor, an event loop in another thread, waits for the earlier calls.
            self._closing = supervise(closing, self._supervisor)
        return self._closing

    async def _close(self, call: Call) -> None:
        """Close the system after all calls so far, and end its thread.

        Args:
            call: Calls the method `close` of the system, if it has one.
        """
        async with self._turn:
            # `end_reason` says why no further call is made. It is set already if an earlier call
            # hung. Then the system was killed, and cannot be closed any more.
            was_killed = bool(self.end_reason)
            if not was_killed:
                try:
                    await self._run(call, min(self.timeout, CLOSING_SECONDS))
                except ExternalError:
                    # `close` hung. `_run` has killed the system and set `end_reason`.
                    pass
                else:
                    # From now on, calls fail with this reason.
                    self.end_reason = "is closed"

            self._system = None
            self._thread.stop()
            _open_systems.discard(self)

    def wait_until_closed(self) -> None:
        """Wait until the system is closed, if `begin_close` was called; else return at once."""
        if self._closing is not None:
            result_of(self._closing)


@functools.cache
def _close_systems_at_exit() -> None:
    """Have all systems closed at the end of the process; only the first call has an effect.

    Functions that are registered with `atexit` run in reverse order. This one is registered after
    the functions that remove temporary folders, so systems are closed before their folders go.
    """
    atexit.register(_close_open_systems)


def _close_open_systems() -> None:
    """Close all systems at the same time; wait at most as long as a single one may take."""
    closings = [calls.begin_close() for calls in tuple(_open_systems)]
    wait(closings, CLOSING_SECONDS)


class FunctionCalls(SharedByCopies):
    """The calls of a function that answers questions, at most `MAX_FUNCTION_CALLS` at a time.

    Every call has a thread to itself while it runs, since functions may block. Later calls reuse
    the thread. One whose call takes too long is left behind, and a new one takes its place.

    Args:
        name: The name of the function in errors.
        timeout: Seconds that one call may take, from its start.
    """

    def __init__(self, name: str, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self._supervisor = supervisor_loop()
        self._slots = asyncio.Semaphore(MAX_FUNCTION_CALLS)
        # Only code in the supervisor loop changes the list.
        self._idle_threads: list[LoopThread] = []
        weakref.finalize(
            self, self._supervisor.call_soon_threadsafe, _stop_threads, self._idle_threads
        )

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function or a coroutine function, and return its result.

        Raises:
            ExternalError: The function failed, or took too long.
            MempilerError: A budget is spent, or the model's endpoint is gone.
        """
        call = Call("answer", function)
        # The supervisor is an event loop in a thread where no code of the user's runs. So nothing
        # blocks it, and the time limit is kept even if the function hangs.
        outcome = result_of(supervise(self._run(call), self._supervisor))
        return _value_or_raise(outcome, self.name, call.label)

    async def _run(self, call: Call) -> Outcome:
        """Run a call in an idle thread, or in a new one if none is idle.

        Raises:
            ExternalError: The call took too long.
        """
        async with self._slots:
            if self._idle_threads:
                thread = self._idle_threads.pop()
            else:
                thread = LoopThread(f"external {self.name}")

            running = thread.start(call)
            if await ends_within(running, self.timeout):
                self._idle_threads.append(thread)
                return running.result()

        # The thread still runs the call that took too long, so no other call may have it.
        thread.stop()
        raise ExternalError(f"{self.name}: answer: no answer within {self.timeout:g} s")

    def stop_idle_threads(self) -> None:
        """End the threads that make no call; do not wait for their end."""
        self._supervisor.call_soon_threadsafe(_stop_threads, self._idle_threads)


def _stop_threads(threads: list[LoopThread]) -> None:
    """Stop threads, and take them out of their list."""
    while threads:
        threads.pop().stop()


def _value_or_raise(outcome: Outcome, name: str, label: str) -> Any:
    """Return what a call to the user's system or function returned; raise an error if it failed.

    The errors of `FATAL_ERRORS` are raised as they are, and end the run. All others are raised as
    an ExternalError: it fails only the questions that need the call, and the run goes on.

    Args:
        outcome: The value or error of the call.
        name: The name of the system or function, with which the message of an error begins.
        label: What was called, such as the method "search". It follows the name in the message.

    Raises:
        ExternalError: The call failed with an error that is not fatal.
        BudgetError: A limit was reached.
        EndpointError: The model's endpoint is gone.
        UserError: A mistake of the user's must be corrected first.
    """
    error = outcome.error
    if error is None:
        return outcome.value
    if isinstance(error, FATAL_ERRORS):
        raise error
    if isinstance(error, MempilerError):
        # Errors of Mempiler already say what failed, so neither name nor label is added.
        raise ExternalError(str(error)) from error

    failure = failure_of(label, error)
    raise ExternalError(f"{name}: {label}: {failure.message}") from error


# A forked process has none of the systems of its parent.
os.register_at_fork(after_in_child=_open_systems.clear)
