"""The tools of `mcp` over HTTP, at `/v1/mcp`: the token and the header `Mempiler-User` say whose memory they reach.

The application sets both. A request carries all there is to know of it, so any process of a service answers any: no
sessions, no streams.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from starlette.routing import Route

from .bodies import Name
from .mcp import Call, MCPServer, memory_tools
from .refusals import Refusal
from .service import Caller, Service

PATH, HEADER = "/v1/mcp", "Mempiler-User"


def route(service: Service) -> tuple[MCPServer, Route]:
    """The tools over the memories of a service, which its worker writes, and their route; the service guards it.

    POST alone: the SDK would open a stream without end for every GET, outside of all pools and limits.
    """
    from mcp.server.transport_security import TransportSecuritySettings

    async def work(request: Any, call: Call) -> Any:
        try:
            (given,) = request.headers.getlist(HEADER)
            user = TypeAdapter(Name).validate_python(given)
        except ValueError as error:
            raise Refusal(400, f"say whose memory it is in one header: {HEADER}: NAME") from error
        caller = await Caller.of(request)
        memory = caller.memory(user)
        try:
            return await caller.asking(lambda _: call(memory.begin()), memory)
        finally:
            service.worker.wake()

    tools = memory_tools(work, remember=False)
    guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = tools.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, transport_security=guarded
    )
    (found,) = (one for one in app.routes if isinstance(one, Route))
    return tools, Route(PATH, found.endpoint, methods=["POST"])
