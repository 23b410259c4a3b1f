"""A benchmark and a method as an environment for trainers that run elsewhere: a folder, and what opens it there.

    OUT/pyproject.toml, PACKAGE/__init__.py, PACKAGE/export.json ── open ──> histories, what completions are worth

`export.json` names benchmark, method and reward. It holds no question and no answer: the benchmark's file is read where
it lies, and its digest must be the one that was exported; so must the method's prompts and settings. Keys are those of
the environment variables of whoever trains. Addresses and paths are in the file: edit those that differ there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict, ValidationError

from ...engines.limits import BudgetGuard
from ...engines.lm import language_model
from ...engines.meter import Meter
from ...engines.metered_lm import MeteredLM
from ...engines.model_config import ModelConfig
from ...errors import DataError, ProgramError, UserError
from ...optimizers.logo_grpo.completion_replay import ReplayScorer, RolloutReward
from ...optimizers.logo_grpo.policy import questions_by_history
from ...optimizers.logo_grpo.reward import RewardSettings, released_f1
from ...optimizers.logo_grpo.rollout import truncate_history
from ...optimizers.metric_views import MetricViews
from ...programs.cache import MemoryCache
from ...programs.identity import program_digest
from ...programs.program import MemoryProgram
from ...records import History, read_json
from ...validation import validation_message
from ..config import CONFIG_FIELDS, RunConfig
from ..evaluate import Part
from ..folder import RunFolder
from ..results_folder import create_folder
from ..inputs import RunInputs
from ..run import Run

_KEPT_OPTIONS = (
    "benchmark",
    "data",
    "metric",
    "categories",
    "benchmark_set",
    "train",
    "dev",
    "test",
    "seed",
    "lm",
    "api_base",
    "lm_set",
    "set",
    "embedder",
    "embedder_api_base",
    "reranker",
    "adapter",
    "allow_code",
    "timeout",
    "retries",
    "lm_deadline",
)
"""Options of a run that an export keeps."""


class Export(BaseModel):
    """What `export.json` holds."""

    model_config = ConfigDict(extra="forbid")

    method: str
    part: Part = "train"
    sessions: int | None = None
    """Sessions of a history that are written; all of them if None."""
    reward: dict[str, Any] = {}
    options: dict[str, Any]
    """Options of a run, as `RunConfig.from_options` takes them."""
    benchmark_sha256: str = ""
    program: str = ""
    """Digest of the method's prompts and settings."""

    @classmethod
    def of(cls, method: str, inputs: RunInputs, **more: Any) -> Export:
        """An export of a method, which keeps of a run's configuration what a trainer elsewhere needs.

        Raises:
            UserError: The adapter asks its endpoint what it can, which is not the trainer's; or the model is an
                object, which no file can hold.
        """
        config = inputs.config
        if inputs.user_models:
            name = config.models.task.name
            raise UserError(f"lm: {name} is an object; an export holds the names of models, as in lm='openai/NAME'")
        if config.method.adapter == "auto":
            raise UserError("--adapter auto asks an endpoint what it can; choose chat, json or compact for an export")
        data = str(Path(config.data.file).absolute()) if config.data.file else None
        options = config.with_options(data=data).options()
        kept_options = {name: options[name] for name in _KEPT_OPTIONS}
        return cls(method=method, options=kept_options, **more)


class Environment:
    """A benchmark and a method, for trainers that sample themselves.

    Args:
        export: What it is made of.
        folder: Where its file is.

    Raises:
        UserError: The benchmark or the method gives no reward to train on.
    """

    def __init__(self, export: Export, folder: Path) -> None:
        self.export = export
        inputs = RunInputs(RunConfig.from_options(**export.options))
        self.config = inputs.config
        self.benchmark = benchmark = inputs.benchmark_for_compiling()
        if benchmark.scorer.required_judges:
            raise UserError(f"{benchmark.name} is scored by a judge, which is no reward to train on; choose a metric")
        run = Run(inputs, Meter(), BudgetGuard(), RunFolder(folder))
        made = run.program(export.method, benchmark, MemoryCache())
        adapter = self.config.method.adapter or made.adapter
        adapter = "chat" if adapter == "auto" else adapter
        self.program = MemoryProgram(made.method, made.task, made.cache, adapter, made.name)
        if not self.program.method.writer.predictors_below():
            raise UserError(f"{export.method} writes without a language model, so there is nothing to train")
        self.digests = {"benchmark_sha256": benchmark.source.sha256, "program": program_digest(self.program)}
        """What identifies data and method."""
        split = inputs.split()
        self._asked = questions_by_history(benchmark.examples if export.part == "all" else getattr(split, export.part))
        self.histories = {history.id: history for history in self._asked if len(history)}
        """The histories of the exported part, whole, by their ids."""
        try:
            reward = RewardSettings(**export.reward)
        except ValidationError as error:
            raise UserError(f"--reward-set: {validation_message(error)}; it has: {', '.join(vars(RewardSettings()))}") from error
        metric = released_f1 if reward.metric == "released" else MetricViews(benchmark).score
        reader = self._reader() if self.program.task.predictors() else None
        self.rewarded = ReplayScorer(self.program, metric, self._questions, reader, reward, self.config.data.seed)

    @classmethod
    def open(cls, path: str | Path) -> Environment:
        """Opens an exported environment.

        Args:
            path: Its `export.json`.

        Raises:
            DataError: The benchmark's file is another one now.
            ProgramError: The file is none, or the method has other prompts or settings now.
        """
        path = Path(path)
        try:
            export = Export.model_validate(read_json(path))
        except ValidationError as error:
            raise ProgramError(f"{path}: is no export: {validation_message(error)}; export anew") from error
        unknown_settings = export.options.keys() - CONFIG_FIELDS.keys()
        if unknown_settings:
            names = ", ".join(sorted(unknown_settings))
            raise ProgramError(f"{path}: was exported by another version: unknown settings {names}; export anew")
        found = cls(export, path.parent)
        if found.digests["benchmark_sha256"] != export.benchmark_sha256:
            where = found.benchmark.source.path
            raise DataError(f"{where}: is not the data that was exported (sha256 differs); export anew")
        if found.digests["program"] != export.program:
            raise ProgramError(f"{path}: {export.method} has other prompts or settings than were exported; export anew")
        return found

    def history(self, id: str) -> History:
        """The sessions of a history that are written."""
        return truncate_history(self.histories[id], self.export.sessions or len(self.histories[id]))

    def score(self, id: str, said: Sequence[str]) -> RolloutReward:
        """Scores a history that was written with given completions."""
        return self.rewarded.score(self.rewarded.replay(self.history(id), said), self.histories[id])

    def _reader(self) -> MeteredLM:
        task = self.config.models.task
        execution = self.config.execution
        model_config = ModelConfig(
            api_base=task.api_base,
            timeout=execution.timeout,
            retries=execution.retries,
            deadline=execution.lm_deadline,
            cache=False,
            settings={"temperature": 0.0, **task.settings},
        )
        return language_model(task.name, model_config)

    def _questions(self, history: History, sessions: int) -> Sequence[dspy.Example]:
        found = self.benchmark.questions_after(history, sessions, self._asked[history])
        return [example for example in found if self.benchmark.in_headline(example)]


def write(export: Export, folder: Path) -> dict[str, str | int]:
    """Writes an export: a package for `verifiers`.

    Args:
        export: What it is made of, without digests.
        folder: Where to.

    Returns:
        The folder, the name of the package, and how many histories it has.

    Raises:
        UserError: The folder is not empty or cannot be written, or there is nothing to train on.
    """
    create_folder(folder)
    if any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; choose another --out")
    environment = Environment(export, folder)
    benchmark, histories = environment.benchmark.name, len(environment.histories)
    if not histories:
        raise UserError(f"the part {export.part} of {benchmark} has no history; choose another --split")
    name = re.sub(r"\W+", "_", f"mempiler_{environment.program.name}_{benchmark}").lower()
    (folder / name).mkdir()
    whole = export.model_copy(update=environment.digests).model_dump_json(indent=1) + "\n"
    (folder / name / "export.json").write_text(whole, encoding="utf-8")
    (folder / name / "__init__.py").write_text(_PACKAGE, encoding="utf-8")
    project = _PYPROJECT.format(name=name, dashed=name.replace("_", "-"), benchmark=benchmark)
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    return {"folder": str(folder), "name": name, "histories": histories}


_PYPROJECT = """\
[project]
name = "{dashed}"
version = "0.1.0"
description = "Writing the memory of {benchmark}, an environment of Mempiler"
requires-python = ">=3.11"
dependencies = ["verifiers>=0.4,<0.5", "mempiler"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{name}"]
"""

_PACKAGE = '''\
"""The task set, the harness and the environment of export.json."""

from pathlib import Path

from mempiler.runs.exports.taskset import make

Taskset, Harness, Env = make(Path(__file__).with_name("export.json"))
__all__ = ["Env", "Harness", "Taskset"]
'''
