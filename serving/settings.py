"""What the operator of a service can set; every value has an option of `mempiler serve` and a variable MEMPILER_*."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import MOST_SECONDS, check_number
from ..memory.stored import LONGEST_LEASE
from .writers import AT_ONCE
from .writing import LEASE


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
    """Questions and chats that are worked on at the same time."""
    queue: int = 512
    """Questions and chats that wait for a thread; those beyond are answered with 503."""
    store_threads: int = 8
    """Other requests, which need the store alone, that are worked on at the same time."""
    store_queue: int = 256
    """Other requests that wait for a thread."""
    tenant_share: float = 0.5
    """The part of threads and of places that one of several tenants may hold; beyond it is 429."""
    keep_alive: float = 30.0
    """Seconds after which a connection without a further request is closed."""
    writers: int = AT_ONCE
    """Users whose queued sessions are written into memories at the same time; 0 leaves that to other processes."""
    lease: float = LEASE
    """Seconds after which another process writes the sessions of a user whom a killed one was writing."""
    grace: float = 20.0
    """Seconds for requests and writes in progress to finish when the service is stopped."""
    mcp: bool = False
    """Whether agents reach memories as tools of MCP, at /v1/mcp; needs the extra `mcp`."""
    log_contents: bool = False
    """Whether logs hold what was asked and answered, names of users, and error messages."""

    def __post_init__(self) -> None:
        """Refuses numbers that no clock and no limit can go by.

        Raises:
            UserError: One is negative, infinite, NaN or too large.
        """
        for name in ("session_gap", "timeout", "grace", "keep_alive"):
            check_number(name, getattr(self, name), most=MOST_SECONDS)
        counts = ("threads", "queue", "store_threads", "store_queue", "writers")
        for name in ("max_body", "max_turns", *counts):
            check_number(name, getattr(self, name))
        check_number("tenant_share", self.tenant_share, most=1)
        check_number("lease", self.lease, 1, LONGEST_LEASE)
