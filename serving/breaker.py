"""The breaker of a service: calls to an unreachable endpoint are refused for a while, then tried again.

The guard of a run ends the run; a service must survive an outage of its provider. While the breaker is open,
questions fail at once instead of holding a thread until the timeout, and sessions are stored and stay queued.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dspy.utils.exceptions import LMError, LMInvalidRequestError

from ..engines.guard import DEAD_AFTER, Guard
from ..errors import EndpointError


class Breaker(Guard):
    """Refuses calls for `pause` seconds after `DEAD_AFTER` failures in a row; after that, one failure opens it again.

    Args:
        pause: Seconds.
        clock: Returns the time in seconds.
    """

    def __init__(self, pause: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._pause, self._clock, self._closed_from = pause, clock, clock()

    @property
    def open(self) -> bool:
        """Whether calls are refused at the moment."""
        return self._clock() < self._closed_from

    def admit(self) -> None:
        """Called before a call.

        Raises:
            EndpointError: The breaker is open.
        """
        if self.open:
            raise EndpointError("the language model does not answer; it is tried again in a few seconds")
        super().admit()

    def failed(self, error: Exception) -> None:
        """Called after a call that failed; a request that the model refuses does not count."""
        if not isinstance(error, LMError) or isinstance(error, LMInvalidRequestError):
            return
        with self._lock:
            self._row += 1
            if self._row >= DEAD_AFTER:
                self._closed_from = self._clock() + self._pause
