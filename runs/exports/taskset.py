"""An exported environment as a task set and harness of `verifiers` (0.4), which must be installed.

    task      one history; its prompt is a description, for the writer's prompts come from the method
    harness   runs the writer in this process; every call goes to the endpoint that the framework listens on
    reward    the history written once more with the completions of the trace, and its questions asked

Calls of a writer do not continue one another, so each becomes a branch of the trace, and each branch a sample. The
reward needs nothing but the trace: traces that were kept can be scored again.
"""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]

from ...engines.endpoint.engine import Engine, engines
from ...engines.metered_lm import MeteredLM
from ...engines.model_checks import endpoint_errors
from ...errors import MempilerError
from .environment import Environment


class HistoryData(vf.TaskData):
    """The history that is to be written."""

    history: str


class HistoryTask(vf.Task[HistoryData]):
    """One history."""

    def __init__(self, data: HistoryData, config: Any, environment: Environment) -> None:
        super().__init__(data, config)
        self.environment = environment

    def __deepcopy__(self, memo: object) -> HistoryTask:
        return HistoryTask(self.data, self.config, self.environment)

    @vf.reward
    async def memory(self, trace: vf.Trace) -> float:
        """The reward of the memory, see `optimizers.logo_grpo.reward`."""
        scored = await asyncio.to_thread(self.environment.score, self.data.history, completions(trace))
        trace.record_metrics({"score": scored.score, "penalty": scored.value - scored.reward})
        return scored.reward


class WriterEnvConfig(vf.SingleAgentEnvConfig):
    """One agent, which runs in this process: a writer runs no code of the model's."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class WriterEnv(vf.Env[WriterEnvConfig]):
    """One history, one rollout."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Lets the agent write the history."""
        await agents.agent.run(task)


def completions(trace: vf.Trace) -> list[str]:
    """The completions of a trace, in the order of the calls."""
    nodes = [trace.nodes[call.node].message for call in trace.calls if call.node is not None]
    return [str(message.content or "") for message in nodes]


def make(path: Path) -> tuple[type[vf.Taskset], type[vf.Harness], type[vf.Env]]:
    """The task set, the harness and the environment of an export.

    Args:
        path: Its `export.json`; read once, when either is made.
    """
    opened = cache(lambda: Environment.open(path))

    class HistoryTaskset(vf.Taskset[HistoryTask, vf.TasksetConfig]):
        """The histories of the exported part."""

        def load(self) -> list[HistoryTask]:
            environment, found = opened(), []
            for id in environment.histories:
                told = f"{len(environment.history(id))} sessions of {environment.benchmark.name}"
                data = HistoryData(name=id, prompt=f"Write the memory of {id}, {told}.", history=id)
                found.append(HistoryTask(data, self.config.task, environment))
            return found

    class WriterHarness(vf.Harness[vf.HarnessConfig]):
        """Runs the method's writer."""

        APPENDS_SYSTEM_PROMPT = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        def __init__(self, config: vf.HarnessConfig) -> None:
            super().__init__(config)
            self.environment = opened()

        async def launch(
            self,
            ctx: vf.ModelContext,
            trace: vf.Trace,
            runtime: vf.Runtime,
            endpoint: str,
            secret: str,
            mcp_urls: dict[str, str],
            data: vf.TaskData,
        ) -> vf.ProgramResult:
            environment, config = self.environment, self.environment.config
            # The framework sets what is sampled, and repeats rollouts that failed.
            name = f"openai/{ctx.model}"
            engine = Engine(name, endpoint, secret, config.execution.timeout, config.execution.lm_deadline, 0)
            lm = MeteredLM(name, cache=False, **engines(engine))
            past = environment.history(data.model_dump()["history"])

            def write() -> None:
                with endpoint_errors():
                    environment.rewarded.write(past, lm)

            try:
                await asyncio.to_thread(write)
            except MempilerError as error:
                return vf.ProgramResult(1, "", str(error))
            return vf.ProgramResult(0, "", "")

    return HistoryTaskset, WriterHarness, WriterEnv
