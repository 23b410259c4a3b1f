"""The tools of the Model Context Protocol over HTTP, at /v1/mcp (extra `mcp`).

The bearer token says whose users an agent may reach, and the header `Mempiler-User` names one. A
request carries everything that there is to know about it, so any process of a service can answer
it: there are no sessions and no streams.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ...async_bridge import in_thread
from ...engines.call_context import Deadline
from ...optional_import import require_package
from ..mcp import memory_tools
from ..memories.user_memory import UserMemory
from .request_context import RequestContext
from .schemas import Name
from .service import Service

with require_package("mcp", "mcp"):
    from mcp.server import MCPServer
    from mcp.server.transport_security import TransportSecuritySettings

T = TypeVar("T")

PATH = "/v1/mcp"
USER_HEADER = "Mempiler-User"

_USER_NAME = TypeAdapter[str](Name)


class McpEndpoint(NamedTuple):
    """The tools of a service over HTTP."""

    server: MCPServer
    """Its `session_manager` must run while requests are served."""
    route: Route


def mcp_endpoint(service: Service) -> McpEndpoint:
    """Return an MCP server with the tools of a service, and the route that serves them."""

    async def run_tool(request: Request, tool: Callable[[UserMemory], Awaitable[T]]) -> T:
        """Run a tool with the memory of the user whom the request names."""
        context = await RequestContext.of(request)
        memory = context.memory(_user_of(request))

        async def bind_and_run(_: Deadline) -> T:
            # `run_model_work` binds the memory only if the request waits. The first binding holds.
            await in_thread(memory.bind_view)
            return await tool(memory)

        try:
            return await context.run_model_work(bind_and_run, memory)
        finally:
            # The tool may have stored a session, also if it failed afterwards. The worker writes
            # what it finds, which may be nothing.
            service.worker.wake()

    server = memory_tools(run_tool, remember=False)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        # `AuthMiddleware` has checked hosts and origins before.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    sdk_routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(sdk_routes) == 1
    # POST alone: for every GET the SDK would open a stream without an end, outside of all pools.
    return McpEndpoint(server, Route(PATH, sdk_routes[0].endpoint, methods=["POST"]))


def _user_of(request: Request) -> str:
    """Return the user that the header of a request names.

    Raises:
        HTTPException: The header is missing, repeated, or no valid name (400).
    """
    values = request.headers.getlist(USER_HEADER)
    try:
        if len(values) == 1:
            return _USER_NAME.validate_python(values[0])
    except ValueError:
        pass
    raise HTTPException(400, f"say whose memory it is in one header: {USER_HEADER}: NAME")
