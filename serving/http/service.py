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
from ..worker.worker import Worker
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

    Raises:
        UserError: A tenant has a budget, and the price of a model is not known.
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

        self.model_pool = Pool(
            slots=self.settings.threads,
            queue=self.settings.queue,
            timeout=self.settings.timeout,
            share=self.tenant_share,
        )
        """Requests that may ask the language model."""
        self.store_pool = Pool(
            slots=self.settings.store_threads,
            queue=self.settings.store_queue,
            timeout=self.settings.timeout,
            share=self.tenant_share,
        )
        """Requests that need the store alone."""
        # Nothing runs in this pool: a request takes a place in it, and runs in one of the others.
        self.request_pool = Pool(
            slots=self.model_pool.places + self.store_pool.places,
            queue=0,
            timeout=self.settings.timeout,
            share=self.tenant_share,
        )
        """All requests, from the first byte of the body to the last byte of the answer, so also
        streams that their clients do not read."""

        self._let_tenants_take_turns()

        self._guard_embedder()
        self.breakers = breakers_of(self.lm, self.program.method.embedder)
        """Those of the language model, and of the embedder if it is behind an endpoint."""
        self._tell_breakers_of_tenants()

        self.tenant_limiter = TenantLimiter(
            self.store.tenant_usage,
            self.tokens,
            defaults=TenantLimits(
                self.settings.tenant_max_usd_per_day,
                self.settings.tenant_requests_per_minute,
                self.settings.feedback,
            ),
        )
        """Counts what tenants use, and refuses what is above their limits."""
        self.tenant_limiter.guard_models(self.lm, self.program.method.embedder)

        self.worker = Worker(
            self.memories,
            self.settings.session_gap,
            self.settings.writers,
            lease=self.settings.lease,
            share=self.tenant_share,
        )

    def _let_tenants_take_turns(self) -> None:
        """Limit how much embedding and text work goes on at a time, with fair turns of tenants."""
        # An embedder of this process needs a core for every call; an endpoint does not.
        cores = os.cpu_count() or 1
        embedding_slots = IN_FLIGHT if self._endpoint_embedding is not None else cores
        self.memories.lane = FairSemaphore(embedding_slots, self.tenant_share)

        # Long work on texts, such as an index of a large memory, is done by one thread at a time:
        # all threads share one interpreter, so a second one would only take time from other
        # requests. A thread waits for this lock as long as it takes, also when its request is over:
        # it needs the whole index, and so do the user's next requests.
        self.memories.text_lock = TenantLock()

    def _guard_embedder(self) -> None:
        """Put a breaker before an embedder at an endpoint, and limit how long it is waited for."""
        embedding = self._endpoint_embedding
        if embedding is None:
            return
        embedding.open(Meter(), Breaker(model="the embedding model"))
        # A call that the end of its request ends is no failure. A call to an embedder that hangs
        # must fail before that, or the breaker would never learn of it.
        seconds = EMBEDDING_SHARE * self.settings.timeout
        embedding.waits = embedding.waits.at_most(seconds)

    def _tell_breakers_of_tenants(self) -> None:
        """Let the breakers count the failures of tenants apart, and share slots among tenants."""
        for breaker in self.breakers:
            breaker.several = self.has_several_tenants
            breaker.tenant_share = self.tenant_share

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

    def keeps_answers(self, tenant: str) -> bool:
        """Return whether answers of a tenant are kept at the moment, so that they can be rated."""
        return bool(self.tenant_limiter.limits_of(tenant).feedback)

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
