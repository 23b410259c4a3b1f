"""Authentication: bearer tokens are checked before a body is read, and every route gets its user through its tenant.

    Authorization: Bearer TOKEN ──> tenant ──> Owner(user, tenant)

No route takes a tenant from the request, so no token reaches the users of another tenant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import anyio.to_thread
from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer

from ..engines.endpoint.deadline import Deadline
from .bodies import Name
from .pools import Pool
from .refusals import OTHER_ORIGIN, OTHER_PATH, UNKNOWN_HOST, UNKNOWN_TOKEN, Refusal, response_of
from .service import Service
from .user_memory import UserMemory

T = TypeVar("T")

GUARDED = "/v1"
"""Below this path every request needs a token; other paths reveal nothing about users."""
METRICS = "/metrics"
"""What all tenants together did is for nobody but the operator."""
OPERATOR = "metrics"
"""The tenant whose tokens open `METRICS`, and nothing else."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine; a service without tokens answers to no other."""


class Access:
    """ASGI middleware that turns a token into a tenant.

    Args:
        app: The application behind it.
        service: Knows the tokens.
    """

    def __init__(self, app: Any, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes a request on with its tenant; or refuses it."""
        if scope["type"] == "http" and (scope["path"].startswith(GUARDED) or scope["path"] == METRICS):
            tenant = self._service.tenant_of(token_of(scope["headers"]))
            if (refused := self._refused(scope, tenant)) is not None:
                await response_of(refused)(scope, receive, send)
                return
            scope.setdefault("state", {})["tenant"] = tenant
        await self._app(scope, receive, send)

    def _refused(self, scope: Any, tenant: str | None) -> Refusal | None:
        """Why a request is not served."""
        if tenant is None:
            return UNKNOWN_TOKEN()
        if self._service.tokens is None:
            return _of_another_page(scope["headers"])
        return OTHER_PATH() if (tenant == OPERATOR) != (scope["path"] == METRICS) else None


def token_of(headers: Any) -> str | None:
    """The bearer token of a request; None if there is none, or more than one."""
    given = [value for name, value in headers if name == b"authorization"]
    scheme, _, token = given[0].decode("latin-1").partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def _of_another_page(headers: Any) -> Refusal | None:
    """Why a web page in a browser of this machine must not be taken for its user; None for anything else."""
    given = [value.decode("latin-1") for name, value in headers if name == b"host"]
    host = given[0] if len(given) == 1 else ""
    if _name(host) not in LOOPBACK:
        return UNKNOWN_HOST()  # DNS rebinding
    for name, value in headers:
        if name == b"origin" and value.decode("latin-1").lower() not in (f"http://{host}", f"https://{host}"):
            return OTHER_ORIGIN()
        if name == b"sec-fetch-site" and value not in (b"same-origin", b"none"):
            return OTHER_ORIGIN()
    return None


def _name(given: str) -> str:
    """A host without its port."""
    return given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]


GUARD = Depends(HTTPBearer(auto_error=False))
"""A dependency of every router below `GUARDED`, for the OpenAPI page: `Access` has looked at the token by then."""


class Caller:
    """Who asks: a tenant, its memories, and where work for it is done.

    Args:
        request: What `Access` let pass.

    Raises:
        Refusal: The request came past the middleware (401).
    """

    def __init__(self, request: Request) -> None:
        self.service: Service = request.app.state.service
        self.tenant: str = request.scope.get("state", {}).get("tenant") or ""
        self._receive = request.receive
        if not self.tenant:
            raise UNKNOWN_TOKEN()

    def memory(self, user: str) -> UserMemory:
        """The memory of one of the tenant's users, known or not."""
        return self.service.memory(self.tenant, user)

    def check_length(self, messages: int) -> None:
        """Refuses requests of too many messages.

        Raises:
            Refusal: 413.
        """
        most = self.service.settings.max_turns
        if messages > most:
            raise Refusal(413, f"{messages} messages are too many; send at most {most}")

    async def asking(self, call: Callable[[Deadline], T]) -> T:
        """Runs a call that asks the language model."""
        return await self.service.asking.run(call, self.tenant, self._receive)

    async def storing(self, call: Callable[[], T]) -> T:
        """Runs a call that needs the store alone."""
        return await self.service.storing.run(lambda _: call(), self.tenant, self._receive)

    async def writing(self, user: str, call: Callable[[UserMemory], T]) -> T:
        """Runs a call that stores something of a user: it does not if the user is forgotten meanwhile."""
        memory = await self.begun(user, self.service.storing)
        return await self.storing(lambda: call(memory.begin()))

    async def begun(self, user: str, pool: Pool, later: bool = False) -> UserMemory:
        """A user's memory, for work that stores something: what has to wait begins now, as its user may be forgotten.

        Args:
            user: Whose.
            pool: Where the work is done next.
            later: Whether others may come there first.
        """
        memory = self.memory(user)
        return await anyio.to_thread.run_sync(memory.begin) if later or pool.waits(self.tenant) else memory


async def _caller(request: Request) -> Caller:
    # A coroutine though it waits for nothing: FastAPI calls a plain function in a thread.
    return Caller(request)


Asked = Annotated[Caller, Depends(_caller)]
User = Annotated[Name, Path(description="The user")]
