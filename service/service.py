"""What the routes of a service share: a program, one open store, a language model, tokens, threads and the worker."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from ..errors import MempilerError
from ..memory.store import Store
from ..memory.stored import Owner
from ..programs.program import MemoryProgram
from ..programs.user_memory import UserMemory
from .bodies import Health
from .breaker import Breaker
from .limits import Threads
from .logs import log
from .refusals import UNKNOWN_USER
from .settings import Settings
from .tokens import Tokens
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
    """

    def __init__(
        self,
        program: MemoryProgram,
        store: Store,
        lm: Any,
        name: str = "mempiler",
        tokens: Tokens | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.program, self.store, self.lm, self.name, self.tokens = program, store, lm, name, tokens
        self.settings = settings or Settings()
        self.started = int(time.time())
        self._stop_at: float | None = None
        self.threads = Threads(self.settings.threads, self.settings.queue, self.settings.timeout)
        self.worker = Worker(store, program, lm, self.settings.session_gap, self.settings.writers)

    @property
    def chats(self) -> bool:
        """Whether the program's task answers a question that comes alone."""
        return self.program.task.inputs == ("question",)

    @property
    def model_down(self) -> bool:
        """Whether the language model is refused at the moment, because it failed again and again."""
        guard = getattr(self.lm, "guard", None)
        return isinstance(guard, Breaker) and guard.open

    def tenant_of(self, token: str | None) -> str | None:
        """The tenant that a token belongs to; None if unknown."""
        if self.tokens is None:
            return OPEN_TENANT
        return self.tokens.tenant(token) if token else None

    def memory(self, tenant: str, user: str) -> UserMemory:
        """The memory of a user, known or not, for one request: it stores nothing if they are forgotten meanwhile."""
        owner = Owner(user, tenant)
        return UserMemory(self.program, self.store, owner, self.lm, since=self.store.forgets())

    def known(self, memory: UserMemory) -> UserMemory:
        """The same memory, if something is stored of its user.

        Raises:
            Refusal: Nothing is (404).
        """
        if not self.store.read(memory.owner, lambda version: True).version:
            raise UNKNOWN_USER()
        return memory

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

    def health(self) -> Health:
        """What could not be written, and how the model's answers were read."""
        try:
            counts = self.store.states()
        except MempilerError:
            counts = {}
        meter, answers = getattr(self.lm, "meter", None), Counter[str]()
        for (_, outcome), count in meter.read().answers.items() if meter is not None else ():
            answers[outcome] += count
        return Health(partial=counts.get("partial"), failed=counts.get("failed"), answers=dict(answers))

    def ready(self) -> dict[str, bool]:
        """What must work for a request to be served, each part by name; `model` is informative only."""
        try:
            self.store.read(Owner("ready", "ready"))
            stored = True
        except MempilerError as error:
            log.error("the store does not answer", extra={"kind": type(error).__name__, "reason": str(error)})
            stored = False
        return {
            "store": stored,
            "worker": self.worker.alive,
            "serving": self._stop_at is None,
            "model": not self.model_down,
        }
