"""An exported environment as task set, harness and environment of `verifiers` (0.4).

    task      one history; its prompt only describes it, for the prompts come from the method
    harness   runs the writer in this process; its calls go to the endpoint of the framework
    reward    writes the history again with the completions of the trace, and asks the questions

The calls of a writer do not continue one another. So each call is a branch of the trace, and each
branch becomes a sample. The reward needs only the trace: kept traces can be scored again.

`verifiers` must be installed. `environment.write_package` makes packages that call `make`.
"""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import NamedTuple

import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]

from ...engines.endpoint.engine import Engine, engines
from ...engines.metered_lm import MeteredLM
from ...engines.model_checks import endpoint_errors
from ...errors import MempilerError
from .environment import Environment


class HistoryData(vf.TaskData):
    """Which history is to be written."""

    history: str
    """Its id."""


class HistoryTask(vf.Task[HistoryData]):
    """The task to write one history."""

    def __init__(self, data: HistoryData, config: vf.TaskConfig, environment: Environment) -> None:
        super().__init__(data, config)
        self.environment = environment

    def __deepcopy__(self, memo: object) -> HistoryTask:
        # All tasks share one environment.
        return HistoryTask(self.data, self.config, self.environment)

    @vf.reward
    async def memory(self, trace: vf.Trace) -> float:
        """Return the reward of the memory, see `optimizers.logo_grpo.reward`."""
        reward = await asyncio.to_thread(
            self.environment.score, self.data.history, completions(trace)
        )
        trace.record_metrics({"score": reward.score, "penalty": reward.value - reward.reward})
        return reward.reward


class WriterEnvConfig(vf.SingleAgentEnvConfig):
    """One agent, which runs in this process: a writer runs no code of the model's."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class WriterEnv(vf.Env[WriterEnvConfig]):
    """An environment in which a rollout writes one history."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Let the agent write the history."""
        await agents.agent.run(task)


def completions(trace: vf.Trace) -> list[str]:
    """Return the completions of a trace, in the order of the calls."""
    texts: list[str] = []
    for call in trace.calls:
        if call.node is not None:
            message = trace.nodes[call.node].message
            texts.append(str(message.content or ""))
    return texts


class ExportClasses(NamedTuple):
    """The classes that `verifiers` looks for in a package."""

    taskset: type[vf.Taskset]
    harness: type[vf.Harness]
    env: type[vf.Env]


def make(path: Path) -> ExportClasses:
    """Return the classes of an export.

    Packages that were exported before call this function, so it keeps its name.

    Args:
        path: Its `export.json`, which is read once, when the task set or the harness is made.
    """

    @cache
    def open_environment() -> Environment:
        return Environment.open(path)

    class HistoryTaskset(vf.Taskset[HistoryTask, vf.TasksetConfig]):
        """The histories of the exported part."""

        def load(self) -> list[HistoryTask]:
            environment = open_environment()
            tasks: list[HistoryTask] = []
            for history_id in environment.histories:
                data = _task_data(environment, history_id)
                tasks.append(HistoryTask(data, self.config.task, environment))
            return tasks

    class WriterHarness(vf.Harness[vf.HarnessConfig]):
        """Runs the method's writer."""

        APPENDS_SYSTEM_PROMPT = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        def __init__(self, config: vf.HarnessConfig) -> None:
            super().__init__(config)
            self.environment = open_environment()

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
            """Let the model that is trained write the memory of one history.

            Most harnesses start a process for this; `verifiers` passes all that these need, and
            records the calls at the endpoint. So half of the arguments are not used here. The
            memory is not returned either: the reward writes it again from the recorded calls.

            Args:
                ctx: Names the model.
                trace: Not used.
                runtime: Not used.
                endpoint: Address of the model that is trained.
                secret: Key for the endpoint.
                mcp_urls: Not used.
                data: A `HistoryData`.

            Returns:
                What a process would return: exit code 0, or 1 with an error message.
            """
            lm = _trained_model(self.environment, ctx.model, endpoint, secret)
            # `verifiers` may pass the fields of the data in a class of its own.
            history_id: str = data.model_dump()["history"]
            try:
                await asyncio.to_thread(_write_history, self.environment, history_id, lm)
            except MempilerError as error:
                return vf.ProgramResult(1, "", str(error))
            return vf.ProgramResult(0, "", "")

    return ExportClasses(HistoryTaskset, WriterHarness, WriterEnv)


def _task_data(environment: Environment, history_id: str) -> HistoryData:
    """Return the data of the task to write one history.

    `verifiers` wants a prompt for each task. This one only tells people what the task is: the
    prompts that the model gets are those of the method.
    """
    session_count = len(environment.history(history_id))
    prompt = (
        f"Write the memory of {history_id},"
        f" {session_count} sessions of {environment.benchmark.name}."
    )
    return HistoryData(name=history_id, prompt=prompt, history=history_id)


def _trained_model(environment: Environment, model: str, endpoint: str, secret: str) -> MeteredLM:
    """Return the model that is trained, asked at the endpoint of `verifiers`.

    No answer is taken from a cache, because every rollout needs new samples. No call is repeated,
    because `verifiers` repeats a whole rollout that failed.

    Args:
        environment: Says how long a call may take.
        model: The name of the model at the endpoint.
        endpoint: The address.
        secret: The key.
    """
    execution = environment.config.execution
    name = f"openai/{model}"
    engine = Engine(
        name,
        address=endpoint,
        key=secret,
        timeout=execution.timeout,
        seconds=execution.lm_deadline,
        retries=0,
    )
    # DSPy asks by one engine in threads, and by another one in event loops.
    return MeteredLM(name, cache=False, **engines(engine))


def _write_history(environment: Environment, history_id: str, lm: MeteredLM) -> None:
    """Write a history with a model."""
    history = environment.history(history_id)
    with endpoint_errors():
        environment.scorer.write(history, lm)
