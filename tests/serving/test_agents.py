"""Agents reach the memories of a service as tools of MCP: tenant by token, user by header."""

import asyncio
from importlib.util import find_spec
from typing import Any

import pytest
from mempiler import Store

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the extra mcp")


def ask(client: Any, tool: str, user: str | None = "ada", token: str | None = None, **arguments: Any) -> Any:
    """Calls one tool over HTTP with the SDK's client."""
    import httpx2
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": token or client.headers["Authorization"], **({"Mempiler-User": user} if user else {})}

    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20) as http,
            Client(streamable_http_client(f"{client.address}/v1/mcp", http_client=http)) as agent,
        ):
            return await agent.call_tool(tool, arguments)

    return asyncio.run(run())


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def test_tools_work_on_the_user_of_the_header_and_the_tenant_of_the_token(connect: Any, store: Store) -> None:
    client = connect(mcp=True, writers=1)
    other = client.as_tenant("globex")
    assert text(ask(client, "add_memory", text="My code word is falcon.")) == "Remembered as D1."
    assert "falcon" in text(ask(client, "search_memory", query="code word"))
    assert "falcon" in text(ask(client, "ask_memory", question="What is the code word?"))
    for foreign in (ask(client, "search_memory", "bob", query="code word"), ask(other, "search_memory", query="word")):
        assert text(foreign) == "Nothing was found."
    assert text(ask(other, "forget_memory", session="D1")) == "There is no session D1."
    assert [user["user"] for user in client.get("/v1/users").json()["users"]] == ["ada"]


@pytest.mark.parametrize(
    ("user", "says"), [(None, "in one header"), ("../ada", "Mempiler-User"), ("", "Mempiler-User")]
)
def test_a_call_for_no_user_is_refused(connect: Any, user: str | None, says: str) -> None:
    client = connect(mcp=True)
    found = ask(client, "search_memory", user, query="x")
    assert (found.is_error, says in text(found)) == (True, True)


def test_no_token_no_tools_and_none_unless_switched_on(connect: Any) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    client = connect(mcp=True)
    refused = client.as_tenant(None).post("/v1/mcp", json=call)
    assert (refused.status_code, "Bearer" in refused.json()["error"]["message"]) == (401, True)
    assert connect().post("/v1/mcp", json=call).status_code == 404


VERSION = "2026-07-28"
LISTEN = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    },
    "notifications": {"toolsListChanged": True},
}


@pytest.mark.parametrize(
    ("method", "call", "status"),
    [
        ("GET", None, 405),
        ("DELETE", None, 405),
        ("POST", {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": LISTEN}, 404),
    ],
)
def test_no_request_opens_a_stream_without_an_end(connect: Any, method: str, call: Any, status: int) -> None:
    client = connect(mcp=True)
    headers = {"Accept": "application/json, text/event-stream"}
    if call:
        headers |= {"MCP-Protocol-Version": VERSION, "Mcp-Method": call["method"]}
    with client.stream(method, "/v1/mcp", json=call, headers=headers, timeout=5) as response:
        assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
        assert response.headers.get("allow") == ("POST" if status == 405 else None)
