"""One run: its folder, its models with their limits, and its record in MLflow.

The life of an evaluation, from the command to the result:

    run = Run.start(inputs, "evaluate", "turn-rag", {"part": "test"})
    with run.folder.recording():
        program, benchmark = run.load_target("turn-rag")
        with run.context(program), run.tracked("evaluate", "turn-rag-locomo", logged) as tracker:
            evaluation = Evaluator(run, benchmark, progress, "turn-rag")(program, examples, "test")
            tracker.log_evaluation("evaluation", evaluation)
    run.folder.update(status="finished", result=evaluation.to_dict())

`start` checks the models, then makes the folder of the run or opens the one that is resumed. While
it is `recording`, no other process works in that folder, and an error is written to its `run.json`.
Models are made when a role needs one: each counts its calls in `meter`, is refused a call by
`guard` when a limit is reached, and keeps its answers in the store of the folder. So a run that is
stopped at any point goes on from there with `--resume`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.judge import AnyJudge
from ..engines.call_context import Accounting, call_context
from ..engines.fair_semaphore import IN_FLIGHT
from ..engines.limits import BudgetGuard
from ..engines.lm import LoadedModels
from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..engines.usage import Role
from ..errors import EndpointError, MempilerError, UserError
from ..programs.adapter import adapter as make_adapter
from ..programs.auto_adapter import AutoAdapter
from ..programs.cache import MemoryCache
from ..programs.program import MemoryProgram
from ..programs.single_flight import SingleFlight
from ..programs.tasks.settings import TASK_PREFIX
from .artifact import versions
from .config import RunConfig
from .folder import RunFolder
from .inputs import RunInputs
from .program_address import program_folder
from .repeating import resume_key
from .replay import Replay
from .role_models import check_models
from .run_models import RunModels
from .run_programs import RunPrograms
from .tracking.tracker import Tracker


@dataclass(frozen=True)
class Parent:
    """What a run shares with the larger run that it is a part of, e.g. `reproduce`."""

    folder: RunFolder
    """The part's own folder; its store is that of the whole."""
    guard: BudgetGuard
    tags: Mapping[str, str]
    """Labels of the MLflow run."""
    cache: MemoryCache | None = None
    """Memories of all parts; None where each part has its own."""


@dataclass(frozen=True)
class Run:
    """The folder, models and limits of one run."""

    inputs: RunInputs
    meter: Meter
    """Counts the calls of all its models."""
    guard: BudgetGuard
    """Refuses calls when a limit is reached or an endpoint is unreachable."""
    folder: RunFolder
    loaded: LoadedModels = field(default_factory=LoadedModels)
    """Models in this process: all roles share one copy of the weights."""
    adapters: SingleFlight = field(default_factory=SingleFlight)
    """Adapters by name: all roles share what they learn about endpoints."""
    replay: Replay | None = None
    """The run whose answers are given in the place of any call."""
    parent: Parent | None = None
    """The larger run that it is a part of."""

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.inputs.config

    @classmethod
    def start(
        cls,
        inputs: RunInputs,
        command: str,
        program: str,
        settings: Mapping[str, Any],
        meter: Meter | None = None,
        parent: Parent | None = None,
    ) -> Run:
        """Make the run's folder, or open the one that is resumed.

        Args:
            inputs: What the run rests on.
            command: "compile", "evaluate" or "train".
            program: The method or saved program.
            settings: Everything else that decides the result.
            meter: Counts the calls; a new one if None.
            parent: The larger run that it is a part of. That run has checked the models, and
                resumes its parts with itself.

        Raises:
            UserError: The run to resume is not there, or was started with other settings; a model's
                key is missing.
        """
        meter = meter or Meter()
        if parent is not None:
            return cls(inputs, meter, parent.guard, parent.folder, parent=parent)
        config = inputs.config
        if config.execution.replay is None:
            check_models(inputs)

        decisive = {"command": command, "program": program, **resume_key(inputs), **settings}
        if config.execution.resume is not None:
            folder = RunFolder.resume(config.execution.resume, decisive)
        else:
            folder = RunFolder.create(f"{command}-{program}-{config.data.benchmark}", decisive)

        guard = BudgetGuard(config.limits, in_flight=max(IN_FLIGHT, config.execution.threads))
        replay = Replay(config.execution.replay, guard) if config.execution.replay else None
        return cls(inputs, meter, guard, folder, replay=replay)

    def record_python_objects(self, objects: Sequence[str]) -> None:
        """Write into `run.json` what was made in Python, beside what is there of earlier starts.

        It is no part of the settings: a resumed run may name a model that was an object before.
        """
        if self.parent is None and objects:
            before = self.folder.read().get("python_objects", [])
            self.folder.update(python_objects=sorted({*before, *objects}))

    @contextmanager
    def tracked(self, command: str, name: str, parameters: dict[str, Any]) -> Iterator[Tracker]:
        """Open the MLflow run; it is called after the command, what is run, and the folder.

        Its parameters are written to `run.json` too.
        """
        tags = {} if self.parent is None else self.parent.tags
        # The end of the folder's name tells it from other runs of the same kind.
        mark = self.folder.path.name.rpartition("-")[2]
        with Tracker(f"{command}-{name}-{mark}", {"command": command, **tags}) as tracker:
            self.folder.update(run_id=tracker.run_id, parameters=parameters, versions=versions())
            tracker.log_params(parameters)
            yield tracker

    @contextmanager
    def context(self, program: MemoryProgram) -> Iterator[None]:
        """Set DSPy's settings for the run: its task model, and its adapter, or the program's.

        Raises:
            EndpointError: The endpoint is unreachable; the message says how to resume.
            UserError: It refuses the key; likewise.
        """
        adapter = self.adapter(self.config.method.adapter or program.adapter)
        # The program may have an embedder that the user made, whose requests nobody counts yet.
        accounting = Accounting(self.meter, self.guard)
        try:
            with (
                dspy.context(lm=self.model(), adapter=adapter, warn_on_type_mismatch=False),
                call_context(accounting=accounting),
            ):
                yield
        except MempilerError as error:
            endpoint_failed = self.guard.fatal_error is not None or isinstance(error, EndpointError)
            if self.config.execution.replay or not endpoint_failed:
                raise
            self.folder.update(status="stopped")
            advice = f"--resume {self.folder.resumable.name} goes on from here"
            raise type(error)(f"{error}; {advice}") from error
        finally:
            self._record_output_modes(adapter)

    def _record_output_modes(self, adapter: dspy.Adapter) -> None:
        """Write down in `run.json` how endpoints were asked for structured answers.

        A resumed run reads there which of them refused a schema, and does not try it again.
        """
        if not isinstance(adapter, AutoAdapter):
            return
        modes = adapter.output_modes()
        if not modes:
            return
        parameters = self.folder.read().get("parameters")
        if parameters:
            self.folder.update(parameters={**parameters, "schemas": modes})

    def adapter(self, name: str) -> dspy.Adapter:
        """Return the adapter of a name; all roles of the run share it."""
        return self.adapters.get_or_compute(name, partial(self._make_adapter, name))

    def _make_adapter(self, name: str) -> dspy.Adapter:
        """Return a new adapter.

        "auto" finds out which schemas each endpoint accepts. It begins with what `run.json` says of
        that, from before the run was resumed, or from the run that is replayed.
        """
        adapter = make_adapter(name)
        if not isinstance(adapter, AutoAdapter):
            return adapter

        replayed = self.config.execution.replay
        folder = self.folder if replayed is None else RunFolder.open(replayed)
        parameters = folder.read().get("parameters") or {}
        output_modes = parameters.get("schemas") or {}
        adapter.add_output_modes(output_modes)
        return adapter

    @property
    def models(self) -> RunModels:
        """What makes the models of the run."""
        return RunModels(self.inputs, self.meter, self.guard, self.folder, self.loaded, self.replay)

    def model(self, role: Role = "task") -> MeteredLM:
        """Return the language model of a role, with the limits and the store of the run.

        Raises:
            UserError: The role is the judge, and no model is named for it.
        """
        return self.models.model(role)

    def with_judges(self, benchmark: Benchmark) -> Benchmark:
        """Return the benchmark with its judges bound to the judge model, if it asks any."""
        if not benchmark.scorer.required_judges:
            return benchmark
        lm = self.model("judge")
        adapter = self.adapter(self.config.method.adapter or "chat")
        return benchmark.with_judges(partial(_make_judge, lm, adapter))

    def load_target(self, target: object) -> tuple[MemoryProgram, Benchmark]:
        """Return the program to evaluate, and the benchmark with all models that it needs.

        The program answers by the model of `answer_lm` where one is named. The benchmark has its
        judges and, where it is a conversation, a rival and a user that the prompt model plays.

        Args:
            target: What is evaluated, as `program` takes it.

        Raises:
            UserError: The program's task asks no model that `answer_lm` could stand for.
        """
        benchmark = self.with_judges(self.inputs.benchmark)
        program = self.program(target, benchmark)
        if self.config.models.answer.name:
            if not program.task.predictors():
                raise UserError(
                    f"{program.name} answers without a prompt of ours:"
                    " --answer-lm does not reach it"
                )
            program.task.set_lm(self.model("answer"))
        if benchmark.interaction is not None:
            rival = self._rival(benchmark.interaction.against, program, benchmark)
            adapter = self.adapter(self.config.method.adapter or "chat")
            benchmark = benchmark.with_simulated_user(self.model("prompt"), adapter, rival)
        return program, benchmark

    def _rival(self, name: str, program: MemoryProgram, benchmark: Benchmark) -> MemoryProgram:
        """Return the program that a simulated user compares with `program`.

        Args:
            name: The method or the saved program that the rival is made from.
            program: The program that is evaluated.
            benchmark: Has the simulated user.
        """
        # A method has its default settings as a rival. Only whether prompts show dates is taken
        # from the program, so that both show the same lines. A saved program keeps its settings.
        settings: dict[str, Any] = {}
        if not program_folder(name):
            settings[f"{TASK_PREFIX}dates"] = program.task.settings.dates
        rival_config = self.config.with_options(set=settings)
        rival_run = replace(self, inputs=replace(self.inputs, config=rival_config))
        return rival_run.program(name, benchmark, program.cache)

    def program(
        self, target: object, benchmark: Benchmark, cache: MemoryCache | None = None
    ) -> MemoryProgram:
        """Return the program of a method or an external system for a benchmark, or a saved one.

        Args:
            target: A method name, `module:Class`, or a saved program: its folder, or
                `models:/NAME/VERSION`. A program that the user made. Or an external system, by its
                name or itself (see `external`).
            benchmark: Whose task the program is for.
            cache: Memories to share; those of the run's folder, or of the larger run, if None.

        Raises:
            UserError: A saved program is for another task, or takes no settings.
        """
        if cache is None and self.parent is not None:
            cache = self.parent.cache
        if cache is None:
            cache = MemoryCache(self.folder.store.memories)

        systems_folder = self.folder.path / "systems"
        programs = RunPrograms(self.inputs, self.models, systems_folder, cache)
        return programs.find(target, benchmark)


def _make_judge(lm: MeteredLM, adapter: dspy.Adapter, judge_class: type[AnyJudge]) -> AnyJudge:
    """Return a judge of a class, which asks the judge model."""
    return judge_class(lm, adapter)
