"""What the routes of one process share: memories, pools of requests, breakers and the worker."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import dspy

from ...engines.endpoint.embeddings import EndpointEmbedding
from ...engines.endpoint.relay import Upstream, upstream_of
from ...engines.fair_semaphore import IN_FLIGHT, FairSemaphore
from ...engines.meter import Meter
from ...memory.store.store import Store
from ...memory.tenant_lock import TenantLock
from ...programs.program import MemoryProgram
from ..memories.memories import Memories
from ..settings import Settings
from ..worker.breaker import Breaker, breakers_of
from ..worker.writers import Worker
from .pool import Pool
from .tenant_limits import TenantLimiter
from .token_file import TenantLimits, Tokens

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

EMBEDDING_SHARE = 2 / 3
"""The part of a request's time that one call of an embedder may take at most."""


class Service:
    """One process of a service.

    Args:
        program: Writes and reads the memories.
        store: Keeps the memories; the whole process shares this open store.
        lm: The language model, or its name.
        name: The `model` under which clients of the chat ask the program.
        tokens: Who may send requests; if None, everybody may, as the tenant `default`.
        settings: Limits of the process.
        spans: OpenTelemetry's provider, which says where spans go; if None, there are no spans.
    """

    def __init__(
        self,
        program: MemoryProgram,
        store: Store,
        lm: str | dspy.BaseLM | None,
        name: str = "mempiler",
        tokens: Tokens | None = None,
        settings: Settings | None = None,
        spans: TracerProvider | None = None,
    ) -> None:
        self.program = program
        self.store = store
        self.name = name
        self.tokens = tokens
        self.settings = settings or Settings()
        self.spans = spans
        self.started = int(time.time())
        """When the service was made, in seconds since 1970."""
        self._stop_at: float | None = None

        self.memories = Memories(program, store, lm)
        self.lm = self.memories.lm

        self.upstream: Upstream | None = upstream_of(self.lm)
        """Where requests for the language model itself go; None if it has no chat API of OpenAI."""
        self.chats = program.task.inputs == ("question",)
        """Whether the program's task takes a question and nothing else, as a chat has it."""
        self.chat_name = f"{name}-chat"
        """The `model` under which clients of the chat ask the language model with a memory."""

        self._make_pools()
        self._limit_shared_work()
        self.breakers = self._connect_breakers()
        """Those of the language model, and of the embedder if it is behind an endpoint."""
        self.tenant_limiter = self._limit_tenants()
        """Counts what tenants use, and refuses what is above their limits."""
        self.worker = Worker(
            self.memories,
            self.settings.session_gap,
            self.settings.writers,
            lease=self.settings.lease,
            share=self.tenant_share,
        )

    def _make_pools(self) -> None:
        settings = self.settings
        self.model_pool = Pool(
            settings.threads, settings.queue, settings.timeout, self.tenant_share
        )
        """Requests that may ask the language model."""
        self.store_pool = Pool(
            settings.store_threads, settings.store_queue, settings.timeout, self.tenant_share
        )
        """Requests that need the store alone."""
        self.request_pool = Pool(
            self.model_pool.places, self.store_pool.places, settings.timeout, self.tenant_share
        )
        """All requests, from the first byte of the body to the last byte of the answer, so also
        streams that their clients do not read."""

    def _limit_shared_work(self) -> None:
        """Let tenants take turns at work that takes a core."""
        embedding = self._endpoint_embedding
        # An embedder of this process needs a core for every call; an endpoint does not.
        embedding_slots = IN_FLIGHT if embedding is not None else os.cpu_count() or 1
        self.memories.lane = FairSemaphore(embedding_slots, self.tenant_share)

        # One thread at a time does long work on texts: all threads share one interpreter, so a
        # second one would only take time from other requests. Who waits for its turn waits beyond
        # its deadline, because an index that is half made is of no use.
        self.memories.text_lock = TenantLock()

    def _connect_breakers(self) -> list[Breaker]:
        """Return the breakers of the models, which from now on tell tenants apart."""
        embedding = self._endpoint_embedding
        if embedding is not None:
            embedding.open(Meter(), Breaker(model="the embedding model"))
            # A request must not end before the breaker hears of an embedder that hangs.
            seconds = EMBEDDING_SHARE * self.settings.timeout
            embedding.waits = embedding.waits.at_most(seconds)

        breakers = breakers_of(self.lm, self.program.method.embedder)
        for breaker in breakers:
            breaker.several = self.has_several_tenants
            breaker.tenant_share = self.tenant_share
        return breakers

    def _limit_tenants(self) -> TenantLimiter:
        """Return the limits of tenants, which the guards of the models keep from now on.

        Raises:
            UserError: A tenant has a budget, and the price of a model is not known.
        """
        defaults = TenantLimits(
            self.settings.tenant_max_usd_per_day, self.settings.tenant_requests_per_minute
        )
        limiter = TenantLimiter(self.store.tenant_usage, self.tokens, defaults)
        limiter.guard_models(self.lm, self.program.method.embedder)
        return limiter

    @property
    def _endpoint_embedding(self) -> EndpointEmbedding | None:
        """The connection of the embedder; None if it is computed in this process."""
        return getattr(self.program.method.embedder, "account", None)

    def has_several_tenants(self) -> bool:
        """Return whether the token file has more than one tenant at the moment."""
        return self.tokens is not None and self.tokens.several

    def tenant_share(self) -> float:
        """Return the part of slots and places that one tenant may hold at the moment.

        A tenant that is alone may hold all.
        """
        return self.settings.tenant_share if self.has_several_tenants() else 1.0

    @property
    def is_stopping(self) -> bool:
        """Whether the service has been told to stop."""
        return self._stop_at is not None

    def begin_stop(self) -> float:
        """Stop new background work, and return the seconds until the process ends."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self.settings.grace
            self.worker.begin_stop()
        return max(0.0, self._stop_at - time.monotonic())
