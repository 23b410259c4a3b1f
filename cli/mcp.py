"""`mempiler mcp`: the memory of one user as tools for an agent, over standard input and output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, Unpack

import click

from .option_values import AskingOptions
from .options import STORE, TENANT, asking_options, open_program_and_model, open_store

if TYPE_CHECKING:
    from ..serving.memories.user_memory import UserMemory

ResultT = TypeVar("ResultT")


@click.command("mcp")
@click.argument("program", type=click.Path())
@STORE
@click.option("--user", required=True, help="the user whose memory the agent gets, and no other")
@TENANT
@asking_options
def command(
    program: str, store: str | None, user: str, tenant: str, **options: Unpack[AskingOptions]
) -> None:
    """Give an agent the memory of --user as tools of MCP, over standard input and output.

    The command ends when the agent leaves. PROGRAM is a saved program: its folder, or
    models:/NAME@ALIAS. Needs the extra `mcp`.
    """
    import anyio

    from ..serving.mcp import memory_tools

    memory_program, _, lm = open_program_and_model(program, options)
    with open_store(store, make=True) as opened_store:
        memory: UserMemory = memory_program.memory(opened_store, user, tenant, lm)

        async def run_tool(
            _request: object, tool: Callable[[UserMemory], Awaitable[ResultT]]
        ) -> ResultT:
            return await tool(memory)

        server = memory_tools(run_tool)
        anyio.run(server.run_stdio_async)
