"""The state that routes share: program, store, language model, pools, worker; and who is calling."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import anyio.to_thread
import dspy
from anyio import CapacityLimiter
from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from ...engines.endpoint.embeddings import EndpointEmbedding
from ...engines.endpoint.relay import Upstream, upstream_of
from ...engines.call_context import Deadline, call_context
from ...engines.fair_semaphore import IN_FLIGHT, FairSemaphore
from ...engines.meter import Meter
from ...memory.store.store import Store
from ...memory.store.owner import Owner
from ...memory.tenant_lock import CURRENT_TENANT, TenantLock
from ...programs.program import MemoryProgram
from ...records.context_variables import set_context
from .auth import Tokens
from .schemas import Name
from ..worker.breaker import CALLER, Breaker, breakers_of
from .errors import GONE, LATE, OVERLOADED, TENANT_OVERLOADED, UNKNOWN_TOKEN
from ..memories.memories import Memories
from ..settings import Settings
from ..memories.user_memory import UserMemory
from ..worker.worker import Worker

T = TypeVar("T")
EMBEDDING_SHARE = 2 / 3
"""Part of a request's time that one call of an embedder may take at most."""
Receive = Callable[[], Awaitable[Any]]


class Pool:
    """A bounded number of threads with a bounded queue.

    A tenant may hold its share of the places and of the threads, so that others are served while it waits. A call of a
    model ends when its request does (`endpoint.loop`), and a place is free when its work has really ended. The
    place of a client that has gone away is given up.

    Args:
        threads: Calls that run at the same time.
        queue: Calls that wait for a thread.
        timeout: Seconds for each, the wait included.
        share: The part of places and threads that one tenant may hold at the moment.
    """

    def __init__(self, threads: int, queue: int, timeout: float, share: Callable[[], float] = lambda: 1.0) -> None:
        self._size, self._timeout, self._share = threads, timeout, share
        self.places = threads + queue
        self._threads, self._unlimited = CapacityLimiter(threads), CapacityLimiter(math.inf)
        self._tenants: dict[str, CapacityLimiter] = {}
        self.held: Counter[str] = Counter()
        """Calls that run or wait, by tenant."""

    @contextmanager
    def slot(self, tenant: str) -> Generator[None]:
        """Holds a place for a tenant.

        Raises:
            HTTPException: There is none (503), or none for this tenant (429).
        """
        if self.held.total() >= self.places:
            raise OVERLOADED()
        if self.held[tenant] >= max(1, int(self.places * self._share())):
            raise TENANT_OVERLOADED()
        self.held[tenant] += 1
        try:
            yield
        finally:
            self.held[tenant] -= 1

    async def run(
        self,
        call: Callable[[Deadline], T],
        tenant: str,
        receive: Receive,
        before: Callable[[], object] | None = None,
    ) -> T:
        """Runs a call in a thread.

        Args:
            call: Takes the deadline of its request.
            tenant: Whose work it is.
            receive: Tells when the client goes away.
            before: What the call does first; if it has to wait for its thread, this does not wait with it.

        Raises:
            HTTPException: There is no place (503), none for this tenant (429), the time is over (504), the client gone.
        """
        deadline, begun = Deadline(self._timeout), asyncio.Event()
        work = asyncio.ensure_future(self._work(call, tenant, deadline, begun, before))
        left = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({work, left}, timeout=self._timeout, return_when="FIRST_COMPLETED")
            if work.done():
                return work.result()
            raise GONE() if left.done() else LATE()
        finally:
            left.cancel()
            if not work.done():
                deadline.cancel()
                work.add_done_callback(lambda work: work.cancelled() or work.exception())
                # A thread cannot be stopped: its place is taken until it has seen the deadline.
                if not begun.is_set():
                    work.cancel()

    async def _work(self, call: Any, tenant: str, deadline: Deadline, begun: asyncio.Event, before: Any) -> Any:
        with self.slot(tenant), set_context(CURRENT_TENANT, tenant):
            own = self._tenants.setdefault(tenant, CapacityLimiter(1))
            own.total_tokens = max(1, int(self._size * self._share()))
            if before is not None and min(self._threads.available_tokens, own.available_tokens) < 1:
                await anyio.to_thread.run_sync(before)
            async with own, self._threads:
                begun.set()
                with call_context(deadline=deadline):
                    return await anyio.to_thread.run_sync(call, deadline, limiter=self._unlimited)


class Service:
    """One process of a service.

    Args:
        program: Writes and reads the memories.
        store: Keeps them; one open store for the whole process.
        lm: The language model, or its name.
        name: What clients call the program: the `model` of the chat.
        tokens: Who may ask; None lets everybody in, as tenant `default`.
        settings: Limits and habits.
        spans: OpenTelemetry's provider, which says where spans go; None makes none.
    """

    def __init__(
        self,
        program: MemoryProgram,
        store: Store,
        lm: str | dspy.BaseLM | None,
        name: str = "mempiler",
        tokens: Tokens | None = None,
        settings: Settings | None = None,
        spans: Any = None,
    ) -> None:
        self.program, self.store, self.name, self.tokens = program, store, name, tokens
        self.memories = Memories(program, store, lm)
        self.lm = lm = self.memories.lm
        self.settings = limits = settings or Settings()
        self.spans = spans
        self.upstream: Upstream | None = upstream_of(lm)
        """Where requests go that ask for the language model itself; None if it is not behind OpenAI's chat."""
        self.chats = program.task.inputs == ("question",)
        """Whether the program's task answers a question that comes alone."""
        self.chat_name = f"{name}-chat"
        """What clients call the language model with a memory, beside the program."""
        self.started = int(time.time())
        self._stop_at: float | None = None
        several = lambda: tokens is not None and tokens.several  # noqa: E731
        # One tenant may hold all threads and places if it is the only one.
        share = lambda: limits.tenant_share if several() else 1.0  # noqa: E731
        self.asking = Pool(limits.threads, limits.queue, limits.timeout, share)
        self.storing = Pool(limits.store_threads, limits.store_queue, limits.timeout, share)
        self.requests = Pool(self.asking.places, self.storing.places, limits.timeout, share)
        """All requests, from their bodies until the last byte is sent: streams too that nobody reads."""
        account: EndpointEmbedding | None = getattr(program.method.embedder, "account", None)
        if account is not None:
            account.open(Meter(), Breaker(model="the embedding model"))
            # A request must not end before the breaker hears of an embedder that hangs.
            account.waits = account.waits.at_most(EMBEDDING_SHARE * limits.timeout)
        # What is computed here takes a core.
        self.memories.lane = FairSemaphore(os.cpu_count() or 1 if account is None else IN_FLIGHT, share)
        # Threads that work on text share one interpreter: a second one would only take time from what is served. An
        # index that is half made is of no use, so a turn is waited for beyond the deadline of a request.
        self.memories.text_lock = TenantLock()
        self.breakers = breakers_of(lm, program.method.embedder)
        """Those of the language model, and of the embedder where an endpoint is asked."""
        for breaker in self.breakers:
            breaker.several, breaker.tenant_share = several, share
        self.worker = Worker(self.memories, limits.session_gap, limits.writers, lease=limits.lease, share=share)

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


@dataclass(frozen=True)
class RequestContext:
    """Who asks: a tenant, its memories, and where work for it is done."""

    service: Service
    tenant: str
    receive: Receive
    """Tells when the client goes away."""

    @classmethod
    async def of(cls, request: Request) -> RequestContext:
        """The caller of a request that passed the middleware.

        Raises:
            HTTPException: It did not (401).
        """
        # A coroutine though it waits for nothing: FastAPI calls a plain function in a thread.
        tenant = request.scope.get("state", {}).get("tenant")
        if not tenant:
            raise UNKNOWN_TOKEN()
        return cls(request.app.state.service, tenant, request.receive)

    def memory(self, user: str) -> UserMemory:
        """The memory of one of the tenant's users, known or not; models are asked for this caller from then on."""
        owner = Owner(user, self.tenant)
        CALLER.set(owner)
        return UserMemory(self.service.memories, owner)

    def check_number(self, messages: int) -> None:
        """Refuse requests of too many messages.

        Raises:
            HTTPException: 413.
        """
        most = self.service.settings.max_turns
        if messages > most:
            raise HTTPException(413, f"{messages} messages are too many; send at most {most}")

    def check_texts(self, texts: Iterable[str]) -> None:
        """Refuse requests with a text that is too long.

        Raises:
            HTTPException: 413.
        """
        longest = max(map(len, texts), default=0)
        most = self.service.settings.max_text
        if longest > most:
            raise HTTPException(413, f"a text of {longest} characters is too long; send at most {most} in one")

    async def run_model_call(self, call: Callable[[Deadline], T], begins: UserMemory | None = None) -> T:
        """Runs a call that asks the language model; it stores nothing of `begins` if that user is forgotten."""
        begin = begins.bind_view if begins else None
        return await self.service.asking.run(call, self.tenant, self.receive, begin)

    async def run_store_call(self, call: Callable[[], T]) -> T:
        """Runs a call that needs the store alone."""
        return await self.service.storing.run(lambda _: call(), self.tenant, self.receive)

    async def run_user_write(self, user: str, call: Callable[[UserMemory], T]) -> T:
        """Runs a call that stores something of a user, unless that one is forgotten since it came."""
        memory = self.memory(user)
        return await self.service.storing.run(
            lambda _: call(memory.bind_view()), self.tenant, self.receive, memory.bind_view
        )


Asked = Annotated[RequestContext, Depends(RequestContext.of)]
User = Annotated[Name, Path(description="The user")]
GUARD = Depends(HTTPBearer(auto_error=False))
"""A dependency of every router below /v1, for the OpenAPI page: `auth.Gate` has looked at the token by then."""


async def _left(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
