"""Memories as tools of agents over HTTP: the service at `/v1/mcp`, by MCP's streamable transport.

    POST /v1/mcp   Authorization: Bearer TOKEN ──> tenant      Mempiler-User: ada ──> whose memory it is
    GET, DELETE    405: there are no sessions, and no streams

The user is a header, which the application sets where it connects; it is nothing that the agent's model can choose.
Requests carry all there is to know of them, so any process of the service answers any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from .auth import Caller
from .bodies import Name
from .refusals import CAUGHT, Refusal, refusal_of
from .service import Service
from .tools import Call, MCPServer, ToolError, memory_tools

PATH = "/v1/mcp"
HEADER = "Mempiler-User"
_NAME: TypeAdapter[str] = TypeAdapter(Name)


def agent_tools(service: Service) -> MCPServer:
    """The tools over the memories of a service; what they add is written by its worker."""

    async def work(request: Any, call: Call) -> str:
        try:
            caller = Caller(request)
            memory = await caller.begun(_user(request), service.asking)
            return await caller.asking(lambda _: call(memory.begin()))
        except CAUGHT as error:
            raise ToolError(refusal_of(error).message) from error

    return memory_tools(work, service.worker.wake)


def routes(tools: MCPServer) -> Sequence[Any]:
    """The routes of the tools; what guards the service stands before them.

    POST alone: the SDK would open a stream without end for every GET, outside of all pools and limits.
    """
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.routing import Route

    guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = tools.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, transport_security=guarded
    )
    return [Route(PATH, route.endpoint, methods=["POST"]) for route in app.routes if isinstance(route, Route)]


def _user(request: Any) -> str:
    given = request.headers.getlist(HEADER)
    if len(given) != 1:
        raise Refusal(400, f"say whose memory it is in one header: {HEADER}: NAME")
    try:
        return _NAME.validate_python(given[0])
    except ValidationError as error:
        raise Refusal(400, f"{HEADER}: {error.errors()[0]['msg']}") from error
