"""How long a call to an endpoint may take, and how often it is repeated."""

from __future__ import annotations

from dataclasses import dataclass, replace

TIMEOUT = 120.0
"""Seconds without a byte from the server after which a call has failed."""
RETRIES = 2
"""Retries of a call that could not reach its model, after 1 and 2 seconds or as the server asks."""
DEADLINE = 600.0
"""Seconds for a call, its retries and waits included."""


@dataclass(frozen=True)
class Waits:
    """How long one call to an endpoint may take; see the constants above."""

    timeout: float = TIMEOUT
    retries: int = RETRIES
    deadline: float = DEADLINE

    def at_most(self, seconds: float) -> Waits:
        """Return these waits with a deadline of at most so many seconds."""
        return replace(self, deadline=min(self.deadline, seconds))
