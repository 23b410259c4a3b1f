"""Memories for agents: tools of MCP over HTTP, whose tenant the token names and whose user a header; a tool of DSPy."""

import asyncio
from datetime import datetime
from importlib.util import find_spec
from json import loads
from pathlib import Path
from typing import Any

import mempiler
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mempiler import Hit, Store
from mempiler.engines.lm import language_model
from mempiler.serving.prompt_text import NOTHING, data_lines, hits_with_fallback, prepend_text

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs the extra mcp")


def ask(
    client: Any, tool: str, user: str | None = "ada", token: str | None = None, **arguments: Any
) -> Any:
    """Calls one tool over HTTP with the SDK's client."""
    import httpx2
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {
        "Authorization": token or client.headers["Authorization"],
        **({"Mempiler-User": user} if user else {}),
    }

    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=20) as http,
            Client(streamable_http_client(f"{client.address}/v1/mcp", http_client=http)) as agent,
        ):
            return await agent.call_tool(tool, arguments)

    return asyncio.run(run())


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def test_tools_work_on_the_user_of_the_header_and_the_tenant_of_the_token(
    connect: Any, store: Store
) -> None:
    client = connect(mcp=True, writers=1)
    other = client.as_tenant("globex")
    assert text(ask(client, "add_memory", text="My code word is falcon.")) == "Remembered as D1."
    assert "falcon" in text(ask(client, "search_memory", query="code word"))
    assert "falcon" in text(ask(client, "ask_memory", question="What is the code word?"))
    for foreign in (
        ask(client, "search_memory", "bob", query="code word"),
        ask(other, "search_memory", query="word"),
    ):
        assert text(foreign) == "Nothing was found."
    assert text(ask(other, "forget_memory", session="D1")) == "There is no session D1."
    assert [user["user"] for user in client.get("/v1/users").json()["users"]] == ["ada"]


def test_a_call_for_no_user_or_without_a_token_is_refused(connect: Any) -> None:
    client = connect(mcp=True)
    for user in (None, "../ada", ""):
        found = ask(client, "search_memory", user, query="x")
        assert found.is_error is True
        assert "in one header: Mempiler-User" in text(found)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    refused = client.as_tenant(None).post("/v1/mcp", json=call)
    assert refused.status_code == 401
    assert "Bearer" in refused.json()["error"]["message"]
    assert connect().post("/v1/mcp", json=call).status_code == 404  # unless it is switched on


VERSION = "2026-07-28"
LISTEN = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    },
    "notifications": {"toolsListChanged": True},
}


def test_no_request_opens_a_stream_without_an_end(connect: Any) -> None:
    client, call = (
        connect(mcp=True),
        {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": LISTEN},
    )
    headers = {"Accept": "application/json, text/event-stream"}
    posted = {**headers, "MCP-Protocol-Version": VERSION, "Mcp-Method": call["method"]}
    for method, sent, json, status, allowed in (
        ("GET", headers, None, 405, "POST"),
        ("DELETE", headers, None, 405, "POST"),
        ("POST", posted, call, 404, None),
    ):
        with client.stream(method, "/v1/mcp", json=json, headers=sent, timeout=5) as response:
            assert response.status_code == status
            assert response.headers.get("allow") == allowed
            assert response.headers["content-type"] == "application/json"


@pytest.fixture
def memory(store: Store) -> mempiler.UserMemory:
    """An empty memory of Ada's."""
    return mempiler.build("turn-rag").memory(store, "ada", lm=language_model("offline"))


def test_tool_takes_a_query_and_a_number_and_says_plain_lines(memory: mempiler.UserMemory) -> None:
    tool = mempiler.memory_tool(memory)
    assert tool.name == "search_memory"
    assert list(tool.args or {}) == ["query", "k"]
    assert tool(query="Lisbon") == NOTHING
    said = ("I moved to Lisbon.\nIn spring.", "Lisbon is warm.", "Lisbon has hills.")
    memory.add(
        [{"role": "user", "name": "Ada", "content": text, "time": "2024-03-05"} for text in said]
    )
    memory.add(
        [{"role": "user", "name": "Ada", "content": "In Lisbon I eat fish."}], remember=False
    )
    found = str(tool(query="Lisbon", k=2)).splitlines()
    assert len(found) == 3  # two of the memory, one that waits
    assert all(line.startswith("- (") for line in found)
    assert "- (5 March 2024, Tuesday) Ada: I moved to Lisbon. In spring." in str(
        tool(query="moved in spring", k=1)
    )
    assert found[-1].endswith("Ada: In Lisbon I eat fish.")


PIECES = (
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


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_entry_ends_the_block_it_stands_in(said: str) -> None:
    block = prepend_text(f"- Ada: {said}", [])[0]["text"]
    assert block.count("</memory>") == 1
    assert block.endswith("\n</memory>")
    assert "<|im_end|>" not in block


def test_an_agent_reads_of_each_entry_when_it_was_said() -> None:
    dated = Hit(
        id="D1:1",
        text="I moved.",
        score=1.0,
        kind="turn",
        sources=("D1:1",),
        time=datetime(2024, 3, 1),
    )
    undated = dated.model_copy(update={"time": None})
    first, second = (
        loads(line.removeprefix("- ")) for line in data_lines([dated, undated]).splitlines()
    )
    assert first["when"] == "2024-03-01 00:00:00"
    assert "when" not in second


def test_context_for_a_message_includes_the_turns_that_are_not_written_yet(tmp_path: Path) -> None:
    store, lm = Store(tmp_path / "memories.sqlite"), language_model("offline")
    memory = mempiler.build("turn-rag").memory(store=store, user="ada", lm=lm)
    memory.add([{"role": "user", "name": "Ada", "content": "I moved to Lisbon."}])
    memory.add([{"role": "user", "name": "Ada", "content": "Lisbon is warm."}], remember=False)
    assert [hit.id for hit in hits_with_fallback(memory, "Lisbon", 5)] == ["D1:1", "D2:1"]
    store.close()
