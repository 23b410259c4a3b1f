"""What a call to a named model may take at most: time in all, bytes, and the wait that an endpoint asks for.

    call ──> attempt ──> too many requests, wait 2 s ──> attempt ──> answer
    └──────────────────────────── deadline ───────────────────────┘

Every attempt runs in a thread of its own, and its caller waits no longer than the deadline: name lookups, and the
clients of LiteLLM, cannot be stopped otherwise. What DSPy's own clients read ends at the deadline as well
(`engines.transport`); a call that goes on nevertheless is counted, and at `MOST_OVERDUE` of them no other begins.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from dspy.utils.exceptions import LMError, LMTimeoutError, LMTransportError, is_retryable_lm_error

from .deadline import DEADLINE, RETRIES, SLICE, Deadline, within

T = TypeVar("T")

LONGEST_WAIT = 60.0
"""Most seconds that an endpoint may ask to wait; a call that is to wait longer has failed."""
MOST_OVERDUE = 64
"""Calls of one model that go on after their deadline before no other begins."""


class NobodyWaitsError(LMTimeoutError):
    """Raised if the work that wants a call ended before the call's own time; it tells nothing of the endpoint."""


class Bounds:
    """The bounds of the calls of one model, shared by its copies.

    Args:
        seconds: For a call, its retries and waits included.
        retries: How often a call is repeated that could not reach its model.
    """

    def __init__(self, seconds: float = DEADLINE, retries: int = RETRIES) -> None:
        self.seconds, self.retries = seconds, retries
        self._lock = threading.Lock()
        self._overdue = 0

    def run(self, attempt: Callable[[], T], model: str) -> T:
        """Makes a call.

        Raises:
            LMTimeoutError: The deadline has passed.
            LMError: The last attempt failed.
        """
        deadline = Deadline(self.seconds)
        for number in range(self.retries + 1):
            try:
                return self._in_time(attempt, deadline, model)
            except LMError as error:
                deadline.sleep(self._pause(error, number, deadline, model))
        raise AssertionError  # the last attempt returns or raises

    async def arun(self, attempt: Callable[[], Awaitable[T]], model: str) -> T:
        """The same for asyncio, where a call that is late is cancelled."""
        deadline = Deadline(self.seconds)
        for number in range(self.retries + 1):
            try:
                async with asyncio.timeout(min(deadline.left, 1e9)):
                    return await attempt()
            except TimeoutError:
                raise self._late(model, deadline) from None
            except LMError as error:
                await asyncio.sleep(self._pause(error, number, deadline, model))
        raise AssertionError

    def _pause(self, error: LMError, number: int, deadline: Deadline, model: str) -> float:
        """Seconds until the next attempt; raises the error if there is none."""
        if deadline.passed and isinstance(error, LMTransportError):
            raise self._late(model, deadline) from error
        if number >= self.retries or not is_retryable_lm_error(error):
            raise error
        asked = error.retry_after
        pause = asked if asked is not None and math.isfinite(asked) else min(2.0**number, LONGEST_WAIT)
        if pause >= deadline.left or pause > LONGEST_WAIT:
            if asked is not None:
                error.args = (f"the endpoint asks for a wait of {asked:.0f} s: {error}", *error.args[1:])
            raise error
        return pause

    def _in_time(self, attempt: Callable[[], T], deadline: Deadline, model: str) -> T:
        if deadline.passed:
            raise self._late(model, deadline)
        if self._overdue >= MOST_OVERDUE:
            raise LMTimeoutError(f"{self._overdue} calls have not returned long after their time", model=model)
        work = _Work(attempt, deadline)
        while not work.done.wait(min(SLICE, deadline.left)):
            if deadline.passed:
                with self._lock:
                    self._overdue += 1
                work.leave(self._returned)
                raise self._late(model, deadline)
        return work.result()

    def _returned(self) -> None:
        with self._lock:
            self._overdue -= 1

    def _late(self, model: str, deadline: Deadline) -> LMTimeoutError:
        if deadline.cut_short:
            return NobodyWaitsError("nobody waits for the answer any more", model=model)
        return LMTimeoutError(f"no whole answer came in {self.seconds:g} s", model=model)

    def __deepcopy__(self, memo: object = None) -> Bounds:
        return self

    def __reduce__(self) -> tuple[type[Bounds], tuple[float, int]]:
        return Bounds, (self.seconds, self.retries)


class _Work:
    """One attempt in a thread of its own; a daemon, for it must not keep the process from ending."""

    def __init__(self, attempt: Callable[[], Any], deadline: Deadline) -> None:
        self.done = threading.Event()
        self._attempt, self._deadline = attempt, deadline
        self._lock = threading.Lock()
        self._value: Any = None
        self._error: BaseException | None = None
        self._left: Callable[[], None] | None = None
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._run,), name="mempiler-lm", daemon=True).start()

    def leave(self, returned: Callable[[], None]) -> None:
        """Waits no longer; `returned` is called when the work has ended after all."""
        with self._lock:
            if not self.done.is_set():
                self._left = returned
                return
        returned()

    def result(self) -> Any:
        """What the work came to."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # an error and the frame that holds it would keep each other alive
        return self._value

    def _run(self) -> None:
        try:
            with within(self._deadline):
                self._value = self._attempt()
        except BaseException as error:
            self._error = error
        with self._lock:
            self.done.set()
            left = self._left
        if left is not None:
            left()
