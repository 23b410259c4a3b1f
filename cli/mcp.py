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
@click.option("--feedback", is_flag=True, help="keep answers, so that the agent can rate them")
@asking_options
def command(
    program: str,
    store: str | None,
    user: str,
    tenant: str,
    feedback: bool,
    **options: Unpack[AskingOptions],
) -> None:
    """Give an agent the memory of --user as MCP tools, over standard input and output.

    The agent starts this command, and the command ends when the agent closes its input. PROGRAM is
    a saved program: its folder, or models:/NAME@ALIAS. Needs the extra `mcp`.
    """
    import anyio

    from ..serving.mcp import memory_tools

    opened = open_program_and_model(program, options)
    with open_store(store, make=True) as opened_store:
        memory: UserMemory = opened.program.memory(opened_store, user, tenant, opened.lm, feedback)

        # `memory_tools` calls this for every use of a tool. In the HTTP service, which has the same
        # tools, the request says whose memory is used. Here it is always that of --user.
        async def run_tool(
            _request: object, tool: Callable[[UserMemory], Awaitable[ResultT]]
        ) -> ResultT:
            return await tool(memory)

        server = memory_tools(run_tool)
        anyio.run(server.run_stdio_async)
