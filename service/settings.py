"""What the operator of a service can set; every value has an option of `mempiler serve` and a variable MEMPILER_*."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import MOST_SECONDS, check_number


@dataclass(frozen=True)
class Settings:
    """Limits and habits of one service process."""

    session_gap: float = 30.0
    """Minutes without a turn after which a chat session ends."""
    timeout: float = 60.0
    """Seconds after which a request is answered with 504; a language model should be given less."""
    max_body: int = 1_000_000
    """Most bytes of a request's body."""
    max_turns: int = 1000
    """Most messages of one request."""
    threads: int = 32
    """Requests that work at the same time."""
    queue: int = 512
    """Requests that wait for a thread; those beyond are answered with 503."""
    writers: int = 2
    """Threads that write queued sessions into memories; 0 leaves that to other processes."""
    grace: float = 20.0
    """Seconds for requests and writes in progress to finish when the service is stopped."""
    log_contents: bool = False
    """Whether logs hold what was asked and answered, names of users, and error messages."""

    def __post_init__(self) -> None:
        """Refuses numbers that no clock and no limit can go by.

        Raises:
            UserError: One is negative, infinite, NaN or too large.
        """
        for name in ("session_gap", "timeout", "grace"):
            check_number(name, getattr(self, name), most=MOST_SECONDS)
        for name in ("max_body", "max_turns", "threads", "queue", "writers"):
            check_number(name, getattr(self, name))
