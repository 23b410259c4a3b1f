"""Finds or builds the program that a run compiles, trains or scores.

| what the user named                             | the program                           |
|-------------------------------------------------|---------------------------------------|
| a `MemoryProgram`                               | a copy of it                          |
| a folder, `models:/NAME/VERSION`, or `hf://...` | the saved program                     |
| `module:Class`, a URL, or another Python object | a program around that external system |
| the name of a method                            | a new program of the method           |

All of them keep their memories in the cache of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.benchmark import Benchmark
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..errors import UserError
from ..programs.cache import MemoryCache
from ..programs.catalog import build, method_class, needs_embedder, preset, with_task
from ..programs.external.program import build_external_program
from ..programs.external.target import takes_embedder
from ..programs.program import MemoryProgram
from ..programs.tasks.settings import TASK_PREFIX, split_config
from .artifact import load
from .artifact_embedder import choose_embedder
from .config import RunConfig
from .external import isolate_stores, name_in_tables, resolve_external
from .inputs import RunInputs
from .manifest import read_manifest
from .program_address import program_folder
from .role_models import default_adapter
from .run_models import RunModels


@dataclass(frozen=True)
class RunPrograms:
    """Makes programs for one run, with its settings and its embedder."""

    inputs: RunInputs
    models: RunModels
    systems_folder: Path
    """Where external systems keep their files."""
    cache: MemoryCache
    """The memories of the programs."""

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.inputs.config

    def find(self, target: object, benchmark: Benchmark) -> MemoryProgram:
        """Return the program that a target stands for.

        Args:
            target: A name, a program, or an external system; the table at the top of this module
                lists them.
            benchmark: Whose task the program is for.

        Raises:
            UserError: A saved program is for another task, or settings were given for it, which it
                does not take.
        """
        if isinstance(target, MemoryProgram):
            return self._copy_program(target, benchmark)
        if not isinstance(target, str):
            return self._external_program(target, benchmark)

        folder = program_folder(target)
        if folder is not None:
            return self._load_program(target, folder, benchmark)
        system = resolve_external(target)
        if system is not None:
            return self._external_program(system, benchmark, name=target)
        return self._build_program(target, benchmark)

    def _copy_program(self, program: MemoryProgram, benchmark: Benchmark) -> MemoryProgram:
        """Return a copy of a program that the user made, with its memories in this run's cache."""
        if self.config.method.settings:
            raise UserError(
                f"{program.name}: a program keeps its settings;"
                " build it with others instead of `set`"
            )
        _check_task(program, program.name, benchmark)
        copied = program.deepcopy()
        copied.cache = self.cache
        return copied

    def _load_program(self, name: str, folder: Path, benchmark: Benchmark) -> MemoryProgram:
        """Return a saved program, with its embedder, for the task of the benchmark."""
        method = self.config.method
        if method.settings:
            raise UserError(
                f"{name}: a saved program keeps its settings; compile a new one with --set instead"
            )

        if self.models.replay is not None:
            # Other runs send texts to an embedder behind an endpoint only if the user allows it. A
            # replay sends nothing: it has the vectors that the replayed run kept.
            embedder_name = read_manifest(folder).embedder or OFFLINE_EMBEDDER
            embedder = self.models.make_embedder(embedder_name)
        else:
            embedder = choose_embedder(
                folder, method.embedder, method.embedder_api_base, method.reranker
            )
            if embedder is not None:
                embedder = self.models.connect_embedder(embedder)
        program = load(folder, method.allow_code, embedder)

        # This refuses a program for another task, unless that task asks no model. Then nothing of
        # the task was tuned, only how memories are written. They can serve another task as well.
        _check_task(program, name, benchmark)
        _, task_config = split_config(_default_task_settings(benchmark), benchmark.task)
        program = with_task(program, benchmark.task, task_config)
        program.cache = self.cache
        return program

    def _external_program(
        self, system: object, benchmark: Benchmark, name: str | None = None
    ) -> MemoryProgram:
        """Return a program around an external system.

        Args:
            system: A store or an agent of the user's, or a class or function that makes one.
            benchmark: Whose task the program is for.
            name: The name by which the user gave the system; None if it was given itself.
        """
        shown_name = name_in_tables(system) if name is None else name
        settings = {**_default_task_settings(benchmark), **self.config.method.settings}

        # Stores that can be made by a name work in processes of their own: if one crashes, the run
        # goes on. The setting `isolated` can switch that off; it is none of the system's own.
        is_isolated = settings.pop("isolated", True)
        if name is not None and is_isolated:
            system = isolate_stores(name, system)

        embedder = None
        if takes_embedder(system):
            embedder = self.models.make_embedder(self.config.method.embedder)
        return build_external_program(
            system,
            name=shown_name,
            task=benchmark.task,
            embedder=embedder,
            cache=self.cache,
            adapter=default_adapter(self.inputs),
            folder=self.systems_folder,
            config=settings,
        )

    def _build_program(self, method: str, benchmark: Benchmark) -> MemoryProgram:
        """Return a new program of a method, with the settings that suit the benchmark."""
        embedder = None
        if needs_embedder(method):
            embedder = self.models.make_embedder(self.config.method.embedder)
        settings = {
            **preset(method, benchmark.name),
            **_default_task_settings(benchmark),
            **self.config.method.settings,
        }
        adapter = default_adapter(self.inputs)
        return build(method, benchmark.task, embedder, self.cache, adapter, **settings)


def refuse_unknown_method(target: object) -> None:
    """Refuse the name of a method that does not exist.

    A run calls this before it makes its folder, so that a typo leaves no folder of a failed run.
    Folders, addresses, and systems of the user are left to `RunPrograms.find`.

    Raises:
        UnknownNameError: There is no such method; the message names a similar one.
    """
    if not isinstance(target, str) or ":" in target:
        return
    if program_folder(target) is None:
        method_class(target)


def _default_task_settings(benchmark: Benchmark) -> dict[str, Any]:
    """Return the settings of the task that the benchmark asks for: declining, if that is right."""
    return {f"{TASK_PREFIX}abstain": True} if benchmark.has_unanswerable else {}


def _check_task(program: MemoryProgram, name: str, benchmark: Benchmark) -> None:
    """Refuse a program that was made for another task, if its task asks a model."""
    if program.task.name != benchmark.task and program.task.predictors():
        raise UserError(
            f"{name}: is for {program.task.name}, but {benchmark.name} asks for {benchmark.task}"
        )
