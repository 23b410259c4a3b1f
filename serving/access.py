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

from ..engines.deadline import Deadline
from ..programs.user_memory import UserMemory
from .bodies import Name
from .limits import send_refusal
from .pools import Pool
from .refusals import OTHER_ORIGIN, OTHER_PATH, UNKNOWN_HOST, UNKNOWN_TOKEN, Refusal
from .service import Service

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
                await send_refusal(send, refused)
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


class _Shown(HTTPBearer):
    """What the OpenAPI page says of tokens; `Access` has looked at the request's by then."""

    async def __call__(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Called for every request."""


GUARD = Depends(_Shown())
"""A dependency of every router below `GUARDED`."""

# These are coroutines though they wait for nothing: FastAPI calls a plain function in a thread, each time. Each takes
# the request, and none another one: FastAPI goes through all that one takes, again for each that takes it.


async def service_of(request: Request) -> Service:
    """The service behind a request."""
    return request.app.state.service


async def tenant_of(request: Request) -> str:
    """The tenant of a request's token.

    Args:
        request: What `Access` let pass.

    Raises:
        Refusal: The request came past the middleware (401).
    """
    tenant = request.scope.get("state", {}).get("tenant")
    if not tenant:
        raise UNKNOWN_TOKEN()
    return tenant


Served = Annotated[Service, Depends(service_of)]
Tenant = Annotated[str, Depends(tenant_of)]


User = Annotated[Name, Path(description="The user")]


async def memory_of(user: User, request: Request) -> UserMemory:
    """The memory of the user in the path, known or not."""
    return (await service_of(request)).memory(await tenant_of(request), user)


Memory = Annotated[UserMemory, Depends(memory_of)]


async def before_waiting(memory: UserMemory, pool: Pool, tenant: str, later: bool = False) -> UserMemory:
    """A memory for work that stores something: work that has to wait begins now, for its user may be forgotten then.

    Args:
        memory: Whose.
        pool: Where the work is done next.
        tenant: Whose work it is.
        later: Whether others may come there first.
    """
    return await anyio.to_thread.run_sync(memory.begun) if later or pool.waits(tenant) else memory


class Work:
    """Where the work of one request is done."""

    def __init__(self, request: Request, service: Service, tenant: str) -> None:
        self._request, self._service, self._tenant = request, service, tenant

    async def asking(self, call: Callable[[Deadline], T]) -> T:
        """Runs a call that asks the language model."""
        return await self._service.asking.run(call, self._tenant, self._request.receive)

    async def storing(self, call: Callable[[], T]) -> T:
        """Runs a call that needs the store alone."""
        return await self._service.storing.run(lambda _: call(), self._tenant, self._request.receive)

    async def writing(self, memory: UserMemory, call: Callable[[UserMemory], T]) -> T:
        """Runs a call that stores something of a user: it does not if the user is forgotten meanwhile."""
        writing = await before_waiting(memory, self._service.storing, self._tenant)
        return await self.storing(lambda: call(writing.begun()))


async def work_of(request: Request) -> Work:
    """Where the work of a request is done."""
    return Work(request, await service_of(request), await tenant_of(request))


Places = Annotated[Work, Depends(work_of)]
