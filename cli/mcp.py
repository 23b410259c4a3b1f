"""`mempiler mcp`: the memory of one user as tools for an agent, over standard input and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from .options import STORE, TENANT, asking_options, open_asked, open_store


@click.command("mcp")
@click.argument("program", type=click.Path())
@STORE
@click.option("--user", required=True, help="the user whose memory the agent gets, and no other")
@TENANT
@asking_options
def command(program: str, store: str | None, user: str, tenant: str, **asking: Any) -> None:
    """Give an agent the memory of --user as tools of MCP, on standard input and output, until the agent leaves.

    PROGRAM is a saved program: its folder, or models:/NAME@ALIAS. Needs the extra `mcp`.
    """
    import anyio
    import anyio.to_thread

    from ..serving.mcp import memory_tools

    loaded, _, model = open_asked(program, asking)
    with open_store(store, make=True) as opened:
        memory = loaded.memory(opened, user, tenant, model)

        async def work(_: object, call: Callable[[Any], Any]) -> Any:
            return await anyio.to_thread.run_sync(call, memory)

        anyio.run(memory_tools(work).run_stdio_async)
