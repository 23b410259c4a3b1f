"""Export a benchmark and a method as an environment for trainers that run elsewhere.

`write_package` makes a package for `verifiers`, and `Environment.open` opens it there:

    OUT/pyproject.toml
    OUT/PACKAGE/__init__.py
    OUT/PACKAGE/export.json         what `Export` holds

    environment = Environment.open("OUT/PACKAGE/export.json")
    environment.score(history_id, completions).reward

The export names benchmark, method and reward, but holds no question and no answer: the benchmark's
file is read where it lies. Its digest, and that of the method's prompts and settings, must be the
exported ones. Addresses and paths are in the export: edit those that differ on the other machine.
Keys are read from the environment variables there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from ..inputs import RunInputs
from ..results_folder import create_folder
from ..run import Run

_EXPORTED_OPTIONS = (
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
"""Options of a run that an export holds."""


class Export(BaseModel):
    """What `export.json` holds."""

    model_config = ConfigDict(extra="forbid")

    method: str
    part: Part = "train"
    sessions: int | None = None
    """The most sessions of a history that are written; all of them if None."""
    reward: dict[str, Any] = {}
    """Fields of `RewardSettings`."""
    options: dict[str, Any]
    """Options of a run, as `RunConfig.from_options` takes them."""
    benchmark_sha256: str = ""
    """Digest of the benchmark's file; "" until `write_package` adds it."""
    program: str = ""
    """Digest of the method's prompts and settings; "" until `write_package` adds it."""

    @classmethod
    def of(
        cls,
        method: str,
        inputs: RunInputs,
        part: Part = "train",
        sessions: int | None = None,
        reward: Mapping[str, Any] | None = None,
    ) -> Export:
        """Return an export with those options of a run that a trainer needs.

        It does not say yet which state of data and method was exported: `write_package` adds their
        digests.

        Args:
            method: The method or saved program that writes.
            inputs: Data, the models' names, and the method's settings.
            part: Which histories are exported.
            sessions: The most sessions of a history that are written; all of them if None.
            reward: Fields of `RewardSettings` that differ from the defaults.

        Raises:
            UserError: A model or the questions are objects, which no file can hold. Or the adapter
                is "auto".
        """
        config = inputs.config
        _refuse_objects(inputs)
        # "auto" would find out what an endpoint can do. The endpoint of the options is another one
        # than that of the trainer, so the answer would be wrong.
        if config.method.adapter == "auto":
            raise UserError(
                "--adapter auto asks an endpoint what it can;"
                " choose chat, json or compact for an export"
            )

        # Whoever opens the export does so from another folder.
        data = str(Path(config.data.file).absolute()) if config.data.file else None
        options = config.with_options(data=data).options()
        exported_options = {name: options[name] for name in _EXPORTED_OPTIONS}
        return cls(
            method=method,
            part=part,
            sessions=sessions,
            reward=dict(reward or {}),
            options=exported_options,
        )


class Digests(NamedTuple):
    """What identifies the state of data and method; the fields are those of `Export`."""

    benchmark_sha256: str
    program: str


class Environment:
    """A benchmark and a method, for trainers that do their own sampling.

    Args:
        export: What it is made of.
        folder: An existing folder, in which somebody else's memory system may keep files.

    Raises:
        UserError: The benchmark or the method gives no reward to train on.
    """

    def __init__(self, export: Export, folder: Path) -> None:
        self.export = export
        inputs = RunInputs(RunConfig.from_options(**export.options))
        self.config = inputs.config
        self.benchmark = inputs.benchmark_for_compiling()
        inputs.refuse_as_reward()

        self.program = _exported_program(export.method, inputs, folder)
        if not self.program.method.writer.predictors_below():
            raise UserError(
                f"{export.method} writes without a language model, so there is nothing to train"
            )
        self.digests = Digests(
            benchmark_sha256=self.benchmark.source.sha256,
            program=program_digest(self.program),
        )
        """Of data and method as they are now."""

        examples = self.benchmark.examples
        if export.part != "all":
            examples = getattr(inputs.split(), export.part)
        self._questions_by_history = questions_by_history(examples)
        self.histories: dict[str, History] = {}
        """The histories of the exported part, whole, by their ids."""
        for history in self._questions_by_history:
            if not len(history):
                continue
            if history.id in self.histories:
                raise UserError(
                    f"{self.benchmark.name}: two different histories have the id {history.id!r},"
                    " by which an export names them; give each its own"
                )
            self.histories[history.id] = history

        settings = _reward_settings(export.reward)
        released = settings.metric == "released"
        self.scorer = ReplayScorer(
            self.program,
            released_f1 if released else MetricViews(self.benchmark).score,
            self._questions_after,
            self._load_answering_model() if self.program.task.predictors() else None,
            settings,
            self.config.data.seed,
        )
        """Writes histories, and rewards the memories."""

    @classmethod
    def open(cls, path: str | Path) -> Environment:
        """Open an exported environment.

        Args:
            path: Its `export.json`.

        Raises:
            DataError: The benchmark's file is another one now.
            ProgramError: The file is no export, or the method has other prompts or settings now.
        """
        path = Path(path)
        export = _read_export(path)
        environment = cls(export, path.parent)
        if environment.digests.benchmark_sha256 != export.benchmark_sha256:
            data_path = environment.benchmark.source.path
            raise DataError(
                f"{data_path}: is not the data that was exported (sha256 differs); export anew"
            )
        if environment.digests.program != export.program:
            raise ProgramError(
                f"{path}: {export.method} has other prompts or settings than were exported;"
                " export anew"
            )
        return environment

    def history(self, history_id: str) -> History:
        """Return a history, cut to the sessions that are written."""
        history = self.histories[history_id]
        return truncate_history(history, self.export.sessions or len(history))

    def score(self, history_id: str, completions: Sequence[str]) -> RolloutReward:
        """Return the reward of the memory that a model wrote elsewhere.

        The memory is written again here, with the completions of the model in place of calls.

        Args:
            history_id: Which history was written.
            completions: What the trained model answered, in the order of the calls.
        """
        rollout = self.scorer.replay(self.history(history_id), completions)
        # Questions are found by the whole history, of which only some sessions may be written.
        return self.scorer.score(rollout, self.histories[history_id])

    def _load_answering_model(self) -> MeteredLM:
        """Return the model that answers the questions: the one that the export names.

        It answers at temperature 0, so that equal memories have equal rewards.
        """
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

    def _questions_after(self, history: History, sessions: int) -> Sequence[dspy.Example]:
        """Return the questions for the score that can be asked after so many sessions."""
        examples = self._questions_by_history[history]
        due_examples = self.benchmark.questions_after(history, sessions, examples)
        return [example for example in due_examples if self.benchmark.in_headline(example)]


def _refuse_objects(inputs: RunInputs) -> None:
    """Refuse models and questions that were made in Python: no file can hold them."""
    if inputs.user_benchmark is not None:
        raise UserError(
            "an export reads its questions from the file of a benchmark, so it cannot hold yours;"
            " name a benchmark, as in benchmark='jsonl', data='questions.jsonl'"
        )
    for role, lm in inputs.user_models.items():
        if role == "task":
            raise UserError(
                f"lm: {lm.model} is an object; an export holds the names of models,"
                " as in lm='openai/NAME'"
            )
        raise UserError(
            f"{role}_lm: {lm.model} is an object, and an export keeps no model but lm;"
            f" leave {role}_lm out"
        )


def _exported_program(method: str, inputs: RunInputs, folder: Path) -> MemoryProgram:
    """Return the program whose memory a trainer's model learns to write.

    Args:
        method: The name of a method, or the address of a saved program.
        inputs: The benchmark and the settings that the program is built with.
        folder: An existing folder, in which somebody else's memory system may keep files.
    """
    # `Run.program` builds programs of all kinds. The run is made for this alone: it asks no model,
    # so its meter and its guard have nothing to do.
    run = Run(inputs, Meter(), BudgetGuard(), RunFolder(folder))
    program = run.program(method, inputs.benchmark, MemoryCache())

    adapter_name = inputs.config.method.adapter or program.adapter
    if adapter_name == "auto":
        # "auto" chooses an adapter by what the model behind `--lm` supports. The prompts made here
        # go to the model that the trainer trains, so an adapter is set that suits every model.
        adapter_name = "chat"
    # The adapter of a program cannot be changed, so the program is built again.
    return MemoryProgram(
        method=program.method,
        task=program.task,
        cache=program.cache,
        adapter=adapter_name,
        name=program.name,
    )


def _reward_settings(settings: Mapping[str, Any]) -> RewardSettings:
    """Return the settings of a reward; a name or a value that does not fit is a UserError."""
    try:
        return RewardSettings(**settings)
    except ValidationError as error:
        names = ", ".join(vars(RewardSettings()))
        raise UserError(f"--reward-set: {validation_message(error)}; it has: {names}") from error


def _read_export(path: Path) -> Export:
    """Read and check an `export.json`.

    Raises:
        ProgramError: The file is no export, or has fields, options or values that this version of
            Mempiler does not know.
    """
    content = read_json(path)
    try:
        export = Export.model_validate(content)
    except ValidationError as error:
        is_export = isinstance(content, dict) and "method" in content
        problem = "was exported by another version" if is_export else "is no export"
        raise ProgramError(
            f"{path}: {problem}: {validation_message(error)}; export anew"
        ) from error
    unknown_options = export.options.keys() - CONFIG_FIELDS.keys()
    if unknown_options:
        names = ", ".join(sorted(unknown_options))
        raise ProgramError(
            f"{path}: was exported by another version: unknown settings {names}; export anew"
        )

    # The values are checked by making settings of them. `Environment` makes them again; here the
    # error can name the file.
    try:
        RunConfig.from_options(**export.options)
        _reward_settings(export.reward)
    except UserError as error:
        raise ProgramError(f"{path}: {error}; export anew") from error
    return export


class ExportedPackage(NamedTuple):
    """A package for `verifiers` that was written."""

    folder: str
    name: str
    """The name of the package in Python."""
    histories: int
    """How many histories the environment has."""


def write_package(export: Export, folder: Path) -> ExportedPackage:
    """Write an export as a package for `verifiers`.

    Args:
        export: What the package opens. The digests of data and method are added to it.
        folder: A folder that is new or empty.

    Raises:
        UserError: The folder is not empty or cannot be written, or there is nothing to train on.
    """
    create_folder(folder)
    if any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; choose another --out")

    # Opening the environment checks that a trainer will be able to, and computes the digests.
    environment = Environment(export, folder)
    benchmark = environment.benchmark.name
    if not environment.histories:
        raise UserError(
            f"the part {export.part} of {benchmark} has no history; choose another --split"
        )

    name = re.sub(r"\W+", "_", f"mempiler_{environment.program.name}_{benchmark}").lower()
    # `Environment.open` compares the digests with those of data and method on the other machine.
    complete_export = export.model_copy(update=environment.digests._asdict())
    _write_files(complete_export, folder, name, benchmark)
    return ExportedPackage(str(folder), name, len(environment.histories))


def _write_files(export: Export, folder: Path, name: str, benchmark: str) -> None:
    """Write the files of a package: the export, the module that opens it, and `pyproject.toml`.

    Args:
        export: The export, with digests.
        folder: The folder of the package's project.
        name: The name of the package in Python.
        benchmark: The name of the benchmark.
    """
    package_folder = folder / name
    package_folder.mkdir()
    export_text = export.model_dump_json(indent=1) + "\n"
    (package_folder / "export.json").write_text(export_text, encoding="utf-8")
    (package_folder / "__init__.py").write_text(_PACKAGE, encoding="utf-8")

    project = _PYPROJECT.format(name=name, dashed=name.replace("_", "-"), benchmark=benchmark)
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")


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
