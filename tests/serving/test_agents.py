"""Agents use the memory of a user as a tool: over HTTP by the protocol MCP, or in Python with DSPy.

Of a request to MCP the token names the tenant, and the header `Mempiler-User` the user. A session
that is stored waits until it is written into the memory. Until then its turns are found as they
were said. An entry is a piece of a memory that a search can find.
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
from mempiler.serving.prompt_text import data_lines, hits_with_fallback, prepend_text

from .conftest import Api, StartService

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


def test_an_agent_adds_to_a_memory_and_then_searches_and_asks_it(
    start_service: StartService,
) -> None:
    client = start_service(mcp=True, writers=1)

    added = call_tool(client, "add_memory", text="My code word is falcon.")
    hits = call_tool(client, "search_memory", query="code word")
    answer = call_tool(client, "ask_memory", question="What is the code word?")

    # Sessions without a name are called D1, D2 and so on.
    assert text_of(added) == "Remembered as D1."
    assert "falcon" in text_of(hits)
    assert "falcon" in text_of(answer)


@pytest.fixture
def acme_with_falcon(start_service: StartService) -> Api:
    """A client of `acme`, whose user Ada has said "My code word is falcon." in session D1."""
    acme = start_service(mcp=True, writers=1)
    call_tool(acme, "add_memory", user="ada", text="My code word is falcon.")
    return acme


def test_a_tool_finds_nothing_of_another_user(acme_with_falcon: Api) -> None:
    hits = call_tool(acme_with_falcon, "search_memory", user="bob", query="code word")

    assert text_of(hits) == "Nothing was found."


def test_a_tool_finds_and_forgets_nothing_of_another_tenant(acme_with_falcon: Api) -> None:
    """Both tenants have a user "ada", and only that of `acme` has the session D1."""
    globex = acme_with_falcon.as_tenant("globex")

    hits = call_tool(globex, "search_memory", user="ada", query="word")
    forgotten = call_tool(globex, "forget_memory", user="ada", session="D1")

    assert text_of(hits) == "Nothing was found."
    assert text_of(forgotten) == "There is no session D1."


@pytest.mark.parametrize(
    "user",
    [
        pytest.param(None, id="no user"),
        pytest.param("../ada", id="no name of a user"),
        pytest.param("", id="an empty name"),
    ],
)
def test_a_call_without_a_valid_user_is_refused(
    start_service: StartService, user: str | None
) -> None:
    client = start_service(mcp=True)

    result = call_tool(client, "search_memory", user=user, query="x")

    assert result.is_error is True
    assert "in one header: Mempiler-User" in text_of(result)


def test_a_call_without_a_token_is_refused(start_service: StartService) -> None:
    client = start_service(mcp=True).as_tenant(None)
    list_tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

    response = client.post("/v1/mcp", json=list_tools)

    assert response.status_code == 401
    assert "Bearer" in response.json()["error"]["message"]


def test_there_are_no_tools_unless_they_are_switched_on(start_service: StartService) -> None:
    client = start_service()  # without mcp=True
    list_tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

    response = client.post("/v1/mcp", json=list_tools)

    assert response.status_code == 404


MCP_VERSION = "2026-07-28"
CALL_THAT_SUBSCRIBES = {
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
HEADERS_OF_SUBSCRIPTION = {
    "MCP-Protocol-Version": MCP_VERSION,
    "Mcp-Method": "subscriptions/listen",
}


ACCEPT_STREAMS = {"Accept": "application/json, text/event-stream"}
"""With this header a client of MCP says that the answer may be a stream."""


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_get_or_delete_request_to_the_tools_is_refused(
    start_service: StartService, method: str
) -> None:
    """MCP lets a server send events to a `GET` for ever; here that would hold a connection."""
    client = start_service(mcp=True)

    with client.stream(method, "/v1/mcp", headers=ACCEPT_STREAMS, timeout=5) as response:
        assert response.status_code == 405
        assert response.headers["allow"] == "POST"


def test_a_call_that_subscribes_to_endless_events_is_refused(start_service: StartService) -> None:
    """MCP has such calls, and this service does not offer them."""
    client = start_service(mcp=True)
    headers = {**ACCEPT_STREAMS, **HEADERS_OF_SUBSCRIPTION}

    with client.stream(
        "POST", "/v1/mcp", json=CALL_THAT_SUBSCRIBES, headers=headers, timeout=5
    ) as response:
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/json"


# The tool of DSPy, and what is recalled as a text


def message_of_ada(text: str) -> dict[str, str]:
    """Return a message that Ada said on 5 March 2024, a Tuesday."""
    return {"role": "user", "name": "Ada", "content": text, "time": "2024-03-05"}


@pytest.fixture
def memory(store: Store) -> mempiler.UserMemory:
    """An empty memory of Ada's."""
    return mempiler.build("turn-rag").memory(store, "ada", lm=language_model("offline"))


def test_the_tool_of_an_empty_memory_says_that_there_is_nothing(
    memory: mempiler.UserMemory,
) -> None:
    tool = mempiler.memory_tool(memory)

    assert tool(query="Lisbon") == "Nothing was found."


def test_the_tool_returns_an_entry_of_several_lines_on_one_line_with_its_date(
    memory: mempiler.UserMemory,
) -> None:
    memory.add([message_of_ada("I moved to Lisbon.\nIn spring.")])
    tool = mempiler.memory_tool(memory)

    result = str(tool(query="moved in spring", k=1))

    assert result == "- (5 March 2024, Tuesday) Ada: I moved to Lisbon. In spring."


def test_the_tool_returns_k_entries_of_the_memory_and_behind_them_turns_that_wait(
    memory: mempiler.UserMemory,
) -> None:
    """With `remember=False` a session is only stored: it waits to be written into the memory."""
    memory.add([message_of_ada("I moved to Lisbon."), message_of_ada("Lisbon is warm.")])
    memory.add([message_of_ada("In Lisbon I eat fish.")], remember=False)
    tool = mempiler.memory_tool(memory)

    first_line, second_line = str(tool(query="Lisbon", k=1)).splitlines()

    assert first_line.startswith("- (5 March 2024, Tuesday) Ada: ")
    assert second_line == "- (5 March 2024, Tuesday) Ada: In Lisbon I eat fish."


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
def test_the_text_of_an_entry_cannot_close_the_memory_block_of_a_prompt(entry_text: str) -> None:
    """What was recalled stands between `<memory>` and `</memory>` before the prompt of an agent.

    If the text of an entry closed this block, its other words would be read as a part of the
    prompt. Here the text is put together of "<", "/memory", "</memory>", "<|im_end|>" and others.
    """
    (memory_part,) = prepend_text(f"- Ada: {entry_text}", content=[])
    block = memory_part["text"]

    assert block.count("</memory>") == 1
    assert block.endswith("\n</memory>")
    assert "<|im_end|>" not in block


def test_an_agent_reads_when_an_entry_was_said() -> None:
    """`data_lines` writes each hit of a search as a line of JSON, which an agent reads."""
    hit = Hit(id="D1:1", text="I moved.", time=datetime(2024, 3, 1))

    line = data_lines([hit])

    assert json.loads(line.removeprefix("- "))["when"] == "2024-03-01 00:00:00"


def test_turns_that_wait_are_among_the_hits_that_are_put_before_a_message_to_an_agent(
    memory: mempiler.UserMemory,
) -> None:
    """With `remember=False` a session is only stored: it waits to be written into the memory."""
    memory.add([message_of_ada("I moved to Lisbon.")])
    memory.add([message_of_ada("Lisbon is warm.")], remember=False)

    hits = hits_with_fallback(memory, "Lisbon", k=5)

    assert [hit.text for hit in hits] == ["Ada: I moved to Lisbon.", "Ada: Lisbon is warm."]
