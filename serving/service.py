"""What the routes of a service share: a program, one open store, a language model, tokens, pools and the worker."""

from __future__ import annotations

import time
from typing import Any

from ..engines.endpoint.chat import Upstream, upstream_of
from ..engines.meter import Usage
from ..memory.store import Store
from ..memory.stored import Owner
from ..programs.program import MemoryProgram
from .breaker import Breaker
from .logs import log
from .memories import Memories
from .metrics import Metrics
from .pools import Pool
from .settings import Settings
from .tokens import Tokens
from .user_memory import UserMemory
from .worker import Worker

OPEN_TENANT = "default"
"""Whose users a service without tokens serves."""


class Service:
    """One process of a service.

    Args:
        program: Writes and reads the memories.
        store: Keeps them; one open store for the whole process.
        lm: The language model.
        name: What clients call the program: the `model` of the chat.
        tokens: Who may ask; None lets everybody in, as tenant `default`.
        settings: Limits and habits.
        spans: OpenTelemetry's provider, which says where spans go; None makes none.
    """

    def __init__(
        self,
        program: MemoryProgram,
        store: Store,
        lm: Any,
        name: str = "mempiler",
        tokens: Tokens | None = None,
        settings: Settings | None = None,
        spans: Any = None,
    ) -> None:
        self.program, self.store, self.lm, self.name, self.tokens = program, store, lm, name, tokens
        self.settings = limits = settings or Settings()
        self.metrics, self.spans = Metrics(), spans
        self.upstream: Upstream | None = upstream_of(lm)
        """Where requests go that ask for the language model itself; None if it is not behind OpenAI's chat."""
        self.started = int(time.time())
        self._stop_at: float | None = None
        self.asking = Pool(limits.threads, limits.queue, limits.timeout, self._share)
        self.storing = Pool(limits.store_threads, limits.store_queue, limits.timeout, self._share)
        self.memories = Memories(program, store, lm)
        self.worker = Worker(self.memories, limits.session_gap, limits.writers, lease=limits.lease)

    @property
    def chat_name(self) -> str:
        """What clients call the language model with a memory, beside the program."""
        return f"{self.name}-chat"

    @property
    def chats(self) -> bool:
        """Whether the program's task answers a question that comes alone."""
        return self.program.task.inputs == ("question",)

    @property
    def model_down(self) -> bool:
        """Whether the language model is refused at the moment, because it failed again and again."""
        guard = getattr(self.lm, "guard", None)
        return isinstance(guard, Breaker) and guard.open

    @property
    def used(self) -> Usage | None:
        """What the language model was asked since the start; None where nobody counts."""
        meter = getattr(self.lm, "meter", None)
        return None if meter is None else meter.read()

    def tenant_of(self, token: str | None) -> str | None:
        """The tenant that a token belongs to; None if unknown."""
        if self.tokens is None:
            return OPEN_TENANT
        return self.tokens.tenant(token) if token else None

    def memory(self, tenant: str, user: str) -> UserMemory:
        """The memory of a user, known or not."""
        return UserMemory(self.memories, Owner(user, tenant))

    @property
    def stopping(self) -> bool:
        """Whether the service ends."""
        return self._stop_at is not None

    def begin_stop(self) -> float:
        """Stops new background work; returns the seconds left until the process ends."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self.settings.grace
            self.worker.begin_stop()
        return max(0.0, self._stop_at - time.monotonic())

    def note(self, memory: UserMemory, question: str, answer: str) -> None:
        """Logs what was asked and answered, where contents are logged."""
        if self.settings.log_contents:
            log.info("answered", extra={"user": memory.owner.user, "question": question, "answer": answer})

    @property
    def busy(self) -> int:
        """Requests that are worked on, or wait."""
        return self.asking.busy + self.storing.busy

    def _share(self) -> float:
        """The part of threads and places that one tenant may hold: all, if it is the only one."""
        return self.settings.tenant_share if self.tokens is not None and self.tokens.several else 1.0
