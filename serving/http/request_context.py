"""Who sent a request, and how work for it is run.

@router.post("/{user}/ask")
async def ask(user: UserName, body: Question, context: CurrentContext) -> Answer:
    memory = context.memory(user)

    async def answer(deadline: Deadline) -> Answer:
        ...

    return await context.run_model_work(answer)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from ...engines.call_context import Deadline
from ...memory.store.owner import Owner
from ..memories.user_memory import UserMemory
from ..worker.breaker import CALLER
from .errors import UNKNOWN_TOKEN
from .pool import Receive
from .schemas import Name
from .service import Service

T = TypeVar("T")


@dataclass(frozen=True)
class RequestContext:
    """The tenant that sent a request, and the pools of the service that serves it."""

    service: Service
    tenant: str
    receive: Receive
    """Tells when the client leaves."""

    @classmethod
    async def of(cls, request: Request) -> RequestContext:
        """Return the context of a request whose token `AuthMiddleware` has accepted.

        Raises:
            HTTPException: The request has no tenant (401).
        """
        # A coroutine, although it waits for nothing: FastAPI calls a plain function in a thread.
        tenant = request.scope.get("state", {}).get("tenant")
        if not tenant:
            raise UNKNOWN_TOKEN()
        return cls(request.app.state.service, tenant, request.receive)

    def memory(self, user: str) -> UserMemory:
        """Return the memory of a user of the tenant, who need not be known.

        The rest of the request then counts as work for this user.
        """
        owner = Owner(user, self.tenant)
        # The guards of models (`Breaker`) read it, to count failures and costs for the right one.
        CALLER.set(owner)
        keeps_answers = self.service.keeps_answers(self.tenant)
        return UserMemory(self.service.memories, owner, feedback=keeps_answers)

    def check_message_count(self, count: int) -> None:
        """Refuse a request with too many messages.

        Raises:
            HTTPException: There are too many (413).
        """
        maximum = self.service.settings.max_turns
        if count > maximum:
            raise HTTPException(413, f"{count} messages are too many; send at most {maximum}")

    def check_text_lengths(self, texts: Iterable[str]) -> None:
        """Refuse a request with a text that is too long.

        Raises:
            HTTPException: A text is too long (413).
        """
        maximum = self.service.settings.max_text
        for text in texts:
            if len(text) > maximum:
                raise HTTPException(
                    413,
                    f"a text of {len(text)} characters is too long; send at most {maximum} in one",
                )

    async def run_model_work(
        self, work: Callable[[Deadline], Awaitable[T]], memory: UserMemory | None = None
    ) -> T:
        """Await work that asks a model, once a slot of the tenant is free.

        No thread waits for the model. What blocks or computes for long, such as reading the store,
        must be done in a thread by the work itself (`async_bridge.in_thread`).

        Args:
            work: Takes the deadline of the request, which passes at once when the client leaves.
            memory: The memory in which the work stores something; None if it stores nothing. If the
                request has to wait for its slot, `bind_view` is called before it waits, so that
                nothing is stored of a user who is forgotten while it waits. The work must call
                `bind_view` in any case, since most requests do not wait.

        Raises:
            HTTPException: As `Pool.run`.
        """
        before_wait = None if memory is None else memory.bind_view
        return await self.service.model_pool.run(work, self.tenant, self.receive, before_wait)

    async def run_store_call(self, call: Callable[[], T]) -> T:
        """Make a call that needs no model but only the store, in a thread of `store_pool`.

        Raises:
            HTTPException: As `Pool.run`.
        """
        return await self.service.store_pool.run_call(call, self.tenant, self.receive)

    async def run_user_write(self, user: str, call: Callable[[UserMemory], T]) -> T:
        """Make a call that stores something of a user, in a thread of `store_pool`.

        Nothing is stored if the user is forgotten after the request came. So the memory is bound to
        its state before the request waits for a slot or, if it need not wait, before the call.

        Args:
            user: The user, who need not be known.
            call: Takes the memory of the user.

        Raises:
            HTTPException: As `Pool.run`.
            ConflictError: The user was forgotten meanwhile.
        """
        memory = self.memory(user)

        def bind_and_call() -> T:
            # Changes nothing if the memory was bound before a wait: the first binding holds.
            memory.bind_view()
            return call(memory)

        return await self.service.store_pool.run_call(
            bind_and_call, self.tenant, self.receive, before_wait=memory.bind_view
        )


CurrentContext = Annotated[RequestContext, Depends(RequestContext.of)]
"""A parameter of a route: the context of its request."""

UserName = Annotated[Name, Path(description="The user")]
"""A parameter of a route: the user named in its path."""

BEARER_TOKEN = Depends(HTTPBearer(auto_error=False))
"""A dependency of every router below /v1, which shows in the OpenAPI page that a token is needed.

It checks nothing: `AuthMiddleware` has looked at the token before.
"""
