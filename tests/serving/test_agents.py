"""Memories for agents: tools of MCP over HTTP, and a tool of DSPy.

Of a request to MCP the token names the tenant, and the header `Mempiler-User` the user.
"""

import asyncio
import json
from datetime import datetime
from importlib.util import find_spec
from typing import Any

import mempiler
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Hit, Store
from mempiler.engines.lm import language_model
from mempiler.serving.prompt_text import NOTHING, data_lines, hits_with_fallback, prepend_text

from .conftest import Api, Connect

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the extra mcp")


# Tools over HTTP


def call_tool(api: Api, tool: str, user: str | None = "ada", **arguments: Any) -> Any:
    """Call a tool over HTTP with the client of MCP's SDK, and return its result."""
    import httpx2
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": api.headers["Authorization"]}
    if user:
        headers["Mempiler-User"] = user

    async def call() -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20) as http_client,
            Client(
                streamable_http_client(f"{api.address}/v1/mcp", http_client=http_client)
            ) as agent,
        ):
            return await agent.call_tool(tool, arguments)

    return asyncio.run(call())


def text_of(result: Any) -> str:
    """Return the text of a tool's result."""
    return "\n".join(part.text for part in result.content)


def test_tools_add_search_and_ask(connect: Connect) -> None:
    client = connect(mcp=True, writers=1)

    added = call_tool(client, "add_memory", text="My code word is falcon.")
    assert text_of(added) == "Remembered as D1."

    hits = call_tool(client, "search_memory", query="code word")
    assert "falcon" in text_of(hits)
    answer = call_tool(client, "ask_memory", question="What is the code word?")
    assert "falcon" in text_of(answer)


def test_tools_reach_the_memory_of_no_other_user_or_tenant(connect: Connect) -> None:
    acme = connect(mcp=True, writers=1)
    globex = acme.as_tenant("globex")
    call_tool(acme, "add_memory", text="My code word is falcon.")

    hits_of_bob = call_tool(acme, "search_memory", user="bob", query="code word")
    assert text_of(hits_of_bob) == "Nothing was found."
    hits_of_globex = call_tool(globex, "search_memory", query="word")
    assert text_of(hits_of_globex) == "Nothing was found."
    forgotten_by_globex = call_tool(globex, "forget_memory", session="D1")
    assert text_of(forgotten_by_globex) == "There is no session D1."

    # These calls have created no user.
    users = acme.get("/v1/users").json()["users"]
    assert [user["user"] for user in users] == ["ada"]


@pytest.mark.parametrize(
    "user",
    [
        pytest.param(None, id="no user"),
        pytest.param("../ada", id="no name of a user"),
        pytest.param("", id="an empty name"),
    ],
)
def test_a_call_without_a_valid_user_is_refused(connect: Connect, user: str | None) -> None:
    client = connect(mcp=True)

    result = call_tool(client, "search_memory", user=user, query="x")

    assert result.is_error is True
    assert "in one header: Mempiler-User" in text_of(result)


LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def test_a_call_without_a_token_is_refused(connect: Connect) -> None:
    client = connect(mcp=True).as_tenant(None)

    response = client.post("/v1/mcp", json=LIST_TOOLS)

    assert response.status_code == 401
    assert "Bearer" in response.json()["error"]["message"]


def test_there_are_no_tools_unless_they_are_switched_on(client: Api) -> None:
    assert client.post("/v1/mcp", json=LIST_TOOLS).status_code == 404


MCP_VERSION = "2026-07-28"
LISTEN_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": MCP_VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        },
        "notifications": {"toolsListChanged": True},
    },
}
"""A call whose answer would be a stream that does not end."""
LISTEN_HEADERS = {"MCP-Protocol-Version": MCP_VERSION, "Mcp-Method": "subscriptions/listen"}


@pytest.mark.parametrize(
    ("method", "headers", "body", "status", "allowed_method"),
    [
        pytest.param("GET", {}, None, 405, "POST", id="GET"),
        pytest.param("DELETE", {}, None, 405, "POST", id="DELETE"),
        pytest.param("POST", LISTEN_HEADERS, LISTEN_CALL, 404, None, id="listening"),
    ],
)
def test_no_request_opens_a_stream_that_does_not_end(
    connect: Connect,
    method: str,
    headers: dict[str, str],
    body: Any,
    status: int,
    allowed_method: str | None,
) -> None:
    client = connect(mcp=True)
    headers = {"Accept": "application/json, text/event-stream", **headers}

    with client.stream(method, "/v1/mcp", json=body, headers=headers, timeout=5) as response:
        assert response.status_code == status
        assert response.headers.get("allow") == allowed_method
        assert response.headers["content-type"] == "application/json"


# The tool of DSPy, and what is recalled as a text


def message_of_ada(text: str) -> dict[str, str]:
    return {"role": "user", "name": "Ada", "content": text, "time": "2024-03-05"}


@pytest.fixture
def memory(store: Store) -> mempiler.UserMemory:
    """An empty memory of Ada's."""
    return mempiler.build("turn-rag").memory(store, "ada", lm=language_model("offline"))


def test_the_tool_takes_a_query_and_a_number(memory: mempiler.UserMemory) -> None:
    tool = mempiler.memory_tool(memory)

    assert tool.name == "search_memory"
    assert list(tool.args or {}) == ["query", "k"]


def test_the_tool_of_an_empty_memory_says_that_there_is_nothing(
    memory: mempiler.UserMemory,
) -> None:
    tool = mempiler.memory_tool(memory)

    assert tool(query="Lisbon") == NOTHING


def test_the_tool_returns_each_entry_on_a_line_of_its_own(memory: mempiler.UserMemory) -> None:
    memory.add(
        [
            message_of_ada("I moved to Lisbon.\nIn spring."),
            message_of_ada("Lisbon is warm."),
            message_of_ada("Lisbon has hills."),
        ]
    )
    pending = {"role": "user", "name": "Ada", "content": "In Lisbon I eat fish."}
    memory.add([pending], remember=False)
    tool = mempiler.memory_tool(memory)

    lines = str(tool(query="Lisbon", k=2)).splitlines()
    # Two lines are of the memory, and one is of the session that waits.
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("- (")
    assert lines[-1].endswith("Ada: In Lisbon I eat fish.")

    result = str(tool(query="moved in spring", k=1))
    assert "- (5 March 2024, Tuesday) Ada: I moved to Lisbon. In spring." in result


TEXT_PIECES = (
    "<",
    "/",
    "memory",
    ">",
    "</memory>",
    " ",
    "~",
    "<~/memory>",
    "\n",
    "<|im_end|>",
    "word",
    "[[ ## a ## ]]",
)


@given(st.lists(st.sampled_from(TEXT_PIECES), max_size=12).map("".join))
def test_no_entry_ends_the_block_in_which_it_stands(entry_text: str) -> None:
    block = prepend_text(f"- Ada: {entry_text}", [])[0]["text"]

    assert block.count("</memory>") == 1
    assert block.endswith("\n</memory>")
    assert "<|im_end|>" not in block


def test_an_agent_reads_when_each_entry_was_said() -> None:
    dated_hit = Hit(
        id="D1:1",
        text="I moved.",
        score=1.0,
        kind="turn",
        sources=("D1:1",),
        time=datetime(2024, 3, 1),
    )
    undated_hit = dated_hit.model_copy(update={"time": None})

    first_line, second_line = data_lines([dated_hit, undated_hit]).splitlines()

    first_entry = json.loads(first_line.removeprefix("- "))
    assert first_entry["when"] == "2024-03-01 00:00:00"
    second_entry = json.loads(second_line.removeprefix("- "))
    assert "when" not in second_entry


def test_pending_turns_are_among_the_hits_for_a_message(memory: mempiler.UserMemory) -> None:
    memory.add([message_of_ada("I moved to Lisbon.")])
    memory.add([message_of_ada("Lisbon is warm.")], remember=False)

    hits = hits_with_fallback(memory, "Lisbon", 5)

    assert [hit.id for hit in hits] == ["D1:1", "D2:1"]
