"""What the routes of a service share: a program, one open store, a language model, tokens, pools and the worker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..engines.upstream import Upstream, upstream_of
from ..memory.store import Store
from ..memory.stored import Owner
from ..programs.program import MemoryProgram
from .bodies import Health
from .breaker import Breaker
from .logs import log
from .memories import Memories
from .metrics import Metrics, Values, sample
from .pools import Pool
from .probe import Probe, Seen
from .settings import Settings
from .tokens import Tokens
from .user_memory import UserMemory
from .worker import Worker
from .writers import Threads
from .writing import Remembered

if TYPE_CHECKING:
    from .spans import Spans

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
        metrics: Counts; shared by the processes of a service of several.
        spans: Where spans go; None makes none.
    """

    def __init__(
        self,
        program: MemoryProgram,
        store: Store,
        lm: Any,
        name: str = "mempiler",
        tokens: Tokens | None = None,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.program, self.store, self.lm, self.name, self.tokens = program, store, lm, name, tokens
        self.settings = settings or Settings()
        self.metrics, self.spans = metrics or Metrics(), spans
        self.upstream: Upstream | None = upstream_of(lm)
        """Where requests go that ask for the language model itself; None if it is not behind OpenAI's chat."""
        self.started = int(time.time())
        self._stop_at: float | None = None
        limits = self.settings
        self.asking = Pool(limits.threads, limits.queue, limits.timeout, self._share)
        self.storing = Pool(limits.store_threads, limits.store_queue, limits.timeout, self._share)
        self.probe = Probe(store)
        threads: Callable[..., Threads[Remembered]] = Threads
        self.memories = Memories(program, store, lm)
        self._memory: Callable[..., UserMemory] = UserMemory
        if spans is not None:
            from . import spans as traced  # an extra

            threads, self._memory = partial(traced.TracedThreads, spans), partial(traced.TracedMemory, spans)
            lm.callbacks = [*lm.callbacks, traced.TracedCalls(spans)]
        self.worker = Worker(self.memories, limits.session_gap, limits.writers, lease=limits.lease, threads=threads)

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

    def tenant_of(self, token: str | None) -> str | None:
        """The tenant that a token belongs to; None if unknown."""
        if self.tokens is None:
            return OPEN_TENANT
        return self.tokens.tenant(token) if token else None

    def memory(self, tenant: str, user: str) -> UserMemory:
        """The memory of a user, known or not."""
        return self._memory(self.memories, Owner(user, tenant))

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

    def health(self, seen: Seen) -> Health:
        """What could not be written, and how the model's answers were read."""
        return Health(partial=seen.counts.get("partial"), failed=seen.counts.get("failed"), answers=self._answers())

    def counted(self) -> Values:
        """What this process asked its language model, and what came back."""
        meter = getattr(self.lm, "meter", None)
        if meter is None:
            return {}
        used = meter.read()
        calls = {"answered": used.calls.total(), "cached": used.cached, "failed": used.failed}
        tokens = {"input": used.input_tokens, "output": used.output_tokens}
        kinds = (("calls", "outcome", calls), ("tokens", "direction", tokens), ("answers", "outcome", self._answers()))
        return {
            sample("mempiler_lm_cost_dollars_total"): used.cost,
            **{
                sample(f"mempiler_lm_{name}_total", **{label: kind}): float(value)
                for name, label, values in kinds
                for kind, value in values.items()
            },
        }

    def gauges(self) -> Values:
        """What this process is at."""
        pools = {"asking": self.asking, "storing": self.storing}
        return {sample("mempiler_requests_in_progress", pool=name): pool.busy for name, pool in pools.items()}

    def ready(self, seen: Seen) -> dict[str, bool]:
        """What must work for a request to be served, each part by name; `model` is informative only."""
        return {
            "store": seen.store,
            "disk": seen.disk,
            "worker": self.worker.alive,
            "room": not (self.asking.full or self.storing.full),
            "tokens": self.tokens is None or self.tokens.works,
            "serving": not self.stopping,
            "model": not self.model_down,
        }

    def _answers(self) -> dict[str, int]:
        """The model's answers since the start, by how they could be read."""
        meter, answers = getattr(self.lm, "meter", None), Counter[str]()
        for (_, outcome), count in meter.read().answers.items() if meter is not None else ():
            answers[outcome] += count
        return dict(answers)

    def _share(self) -> float:
        """The part of threads and places that one tenant may hold: all, if it is the only one."""
        return self.settings.tenant_share if self.tokens is not None and self.tokens.several else 1.0
