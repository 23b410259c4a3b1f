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

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.judge import AnyJudge
from ..engines.call_context import Accounting, call_context
from ..engines.embedders import IN_PROCESS, NO_RERANKER, TextEmbedder
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..engines.embedders import embedder as make_embedder
from ..engines.endpoint import Waits
from ..engines.fair_semaphore import IN_FLIGHT
from ..engines.limits import BudgetGuard
from ..engines.lm import LoadedModels, language_model
from ..engines.meter import Meter
from ..engines.metered_lm import MeteredLM
from ..engines.model_config import ModelConfig
from ..engines.prices import needed_prices
from ..engines.usage import Role
from ..errors import EndpointError, MempilerError, UserError
from ..programs.adapter import adapter as make_adapter
from ..programs.auto_adapter import AutoAdapter
from ..programs.cache import MemoryCache
from ..programs.catalog import build, needs_embedder, preset, with_task
from ..programs.external.program import build_external_program
from ..programs.external.target import takes_embedder
from ..programs.program import MemoryProgram
from ..programs.single_flight import SingleFlight
from ..programs.tasks.settings import TASK_PREFIX, split_config
from .artifact import load, versions
from .artifact_embedder import choose_embedder
from .config import RunConfig
from .external import isolate_stores, name_in_tables, resolve_external
from .folder import RunFolder
from .inputs import RunInputs
from .manifest import read_manifest
from .program_address import program_folder
from .repeating import resume_key
from .replay import Replay, record_model, recording_embedder
from .role_models import check_models, default_adapter, role_models
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
        """Write down which schemas endpoints refused, so that a resumed run does not try again."""
        if not isinstance(adapter, AutoAdapter):
            return
        modes = adapter.output_modes()
        if not modes:
            return
        parameters = self.folder.read().get("parameters")
        if parameters:
            self.folder.update(parameters={**parameters, "schemas": modes})

    def adapter(self, name: str) -> dspy.Adapter:
        """Return the adapter of a name; all roles of the run share it.

        "auto" knows which schemas were refused before the run was resumed, or in the run that is
        replayed.
        """

        def make() -> dspy.Adapter:
            adapter = make_adapter(name)
            if isinstance(adapter, AutoAdapter):
                replayed = self.config.execution.replay
                folder = self.folder if replayed is None else RunFolder.open(replayed)
                parameters = folder.read().get("parameters") or {}
                adapter.add_output_modes(parameters.get("schemas") or {})
            return adapter

        return self.adapters.get_or_compute(name, make)

    def model(self, role: Role = "task") -> MeteredLM:
        """Return the language model of a role, with the limits and the store of the run.

        Raises:
            UserError: The role is the judge, and no model is named for it.
        """
        config = self.config
        # Without a model of its own, the task model writes proposals and reflections.
        source: Role = "task" if role == "prompt" and not config.models.prompt.name else role
        model = role_models(config)[source]
        if role == "judge" and not model.name:
            raise UserError(self._judge_advice())
        settings = config.models.task.settings if role == "task" else {}
        user_lm = self.user_model(source, model.name)
        if user_lm is not None:
            return self.meter_user_model(user_lm, role, **settings)
        return self.load_model(model.name or "", role, model.address, **settings)

    def user_model(self, role: Role, name: str | None) -> dspy.BaseLM | None:
        """Return the object that the user gave for a role, if the role still has its name.

        Parts of a larger run may have a model of another name, e.g. one that was trained before. A
        replay asks no model.
        """
        user_lm = self.inputs.user_models.get(role)
        if self.replay is not None or user_lm is None or user_lm.model != name:
            return None
        return user_lm

    def _judge_advice(self) -> str:
        """Say how to name a judge, or which metric of the benchmark needs none."""
        benchmark = self.config.data.benchmark
        advice = f"{benchmark} is scored by a judge; name its model with --judge-lm"
        judge_free_metrics = self.inputs.benchmark.judge_free_metrics
        if judge_free_metrics:
            metric = judge_free_metrics[0]
            advice += f", or take --benchmark-set metric={metric}, which needs none"
        return advice

    def meter_user_model(self, user_lm: dspy.BaseLM, role: Role, **settings: Any) -> MeteredLM:
        """Return a copy of a model that the user made, with the limits and the store of the run.

        Args:
            user_lm: The model, which is not changed.
            role: What it is used for.
            **settings: Of every request, in the place of the model's own.
        """
        config = self._model_config(user_lm.model, role)
        lm = language_model(
            user_lm,
            replace(config, settings=settings),
            meter=self.meter,
            role=role,
            guard=self.guard,
            answers=self.folder.store.answers,
        )
        record_model(self.folder, role, user_lm.model, lm)
        return lm

    def _model_config(self, name: str, role: Role) -> ModelConfig:
        """Return how the run asks a model, wherever it is."""
        config = self.config
        # Judges and proposals are the same in all repetitions.
        repeat = config.execution.repeat if role in ("task", "answer") else 0
        return ModelConfig(
            timeout=config.execution.timeout,
            retries=config.execution.retries,
            deadline=config.execution.lm_deadline,
            repeat=repeat,
            slots=config.execution.threads,
            prices=needed_prices(name, config.limits.max_usd),
        )

    def load_model(self, name: str, role: Role, api_base: str | None, **settings: Any) -> MeteredLM:
        """Return a language model by its name, with the limits and the store of the run.

        Args:
            name: As `language_model` takes it.
            role: What it is used for.
            api_base: Address of an OpenAI-compatible server; None takes the provider's own.
            **settings: Of every request, e.g. `temperature`.
        """
        model_config = self._model_config(name, role)
        model_config = replace(model_config, api_base=api_base, settings=settings)

        loaded_name = name
        if self.replay is not None:
            loaded_name = self.replay.model_name(role, name)
        if loaded_name == "local:tiny":
            from ..optimizers.demonstrations import tiny_folder

            loaded_name = f"local:{tiny_folder(self.config.data.seed)}"

        lm = language_model(
            loaded_name,
            model_config,
            meter=self.meter,
            role=role,
            guard=self.guard,
            answers=self.folder.store.answers,
            replay=None if self.replay is None else self.replay.answer,
            loaded=self.loaded,
        )
        if self.replay is not None:
            self.replay.restore_sizes(role, lm)
        record_model(self.folder, role, name, lm)
        return lm

    def with_judges(self, benchmark: Benchmark) -> Benchmark:
        """Return the benchmark with its judges bound to the judge model, if it asks any."""
        if not benchmark.scorer.required_judges:
            return benchmark
        lm = self.model("judge")
        adapter = self.adapter(self.config.method.adapter or "chat")

        def make_judge(judge_class: type[AnyJudge]) -> AnyJudge:
            return judge_class(lm, adapter)

        return benchmark.with_judges(make_judge)

    def load_target(self, target: Any) -> tuple[MemoryProgram, Benchmark]:
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
        """Return the program that a simulated user talks with beside `program`."""
        # A rival has its defaults, but the same kind of lines as the program; a saved one keeps
        # what it has.
        settings: dict[str, Any] = {}
        if not program_folder(name):
            settings[f"{TASK_PREFIX}dates"] = program.task.settings.dates
        rival_config = self.config.with_options(set=settings)
        rival_run = replace(self, inputs=replace(self.inputs, config=rival_config))
        return rival_run.program(name, benchmark, program.cache)

    def program(
        self, target: Any, benchmark: Benchmark, cache: MemoryCache | None = None
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

        if isinstance(target, MemoryProgram):
            return self._copy_program(target, benchmark, cache)
        folder = program_folder(target) if isinstance(target, str) else None
        if folder is not None:
            return self._load_program(target, folder, benchmark, cache)
        system = resolve_external(target) if isinstance(target, str) else target
        if system is not None:
            return self._external_program(target, system, benchmark, cache)
        return self._build_program(target, benchmark, cache)

    def _copy_program(
        self, program: MemoryProgram, benchmark: Benchmark, cache: MemoryCache
    ) -> MemoryProgram:
        """Return a copy of a program that the user made, with its memories in this run's cache."""
        if self.config.method.settings:
            raise UserError(
                f"{program.name}: a program keeps its settings;"
                " build it with others instead of `set`"
            )
        _check_task(program, program.name, benchmark)
        copied = program.deepcopy()
        copied.cache = cache
        return copied

    def _load_program(
        self, name: str, folder: Path, benchmark: Benchmark, cache: MemoryCache
    ) -> MemoryProgram:
        """Return a saved program, with its embedder, for the task of the benchmark."""
        method = self.config.method
        if method.settings:
            raise UserError(
                f"{name}: a saved program keeps its settings; compile a new one with --set instead"
            )

        if self.replay is not None:
            embedder_name = read_manifest(folder).embedder or OFFLINE_EMBEDDER
            embedder = self._make_embedder(embedder_name)
        else:
            embedder = choose_embedder(
                folder, method.embedder, method.embedder_api_base, method.reranker
            )
            if embedder is not None:
                embedder = self._connect_embedder(embedder)
        program = load(folder, method.allow_code, embedder)

        _check_task(program, name, benchmark)
        # A task that calls no model was not tuned: the writers were trained, for any reader.
        _, task_config = split_config(_default_task_settings(benchmark), benchmark.task)
        program = with_task(program, benchmark.task, task_config)
        program.cache = cache
        return program

    def _external_program(
        self, name: Any, system: Any, benchmark: Benchmark, cache: MemoryCache
    ) -> MemoryProgram:
        """Return a program around an external system, which is isolated if it was named."""
        settings = {**_default_task_settings(benchmark), **self.config.method.settings}
        is_named = isinstance(name, str)
        is_isolated = settings.pop("isolated", is_named)
        if is_isolated and is_named:
            system = isolate_stores(name, system)

        embedder = None
        if takes_embedder(system):
            embedder = self._make_embedder(self.config.method.embedder)
        return build_external_program(
            system,
            name_in_tables(name),
            benchmark.task,
            embedder,
            cache,
            default_adapter(self.inputs),
            self.folder.path / "systems",
            settings,
        )

    def _build_program(
        self, method: str, benchmark: Benchmark, cache: MemoryCache
    ) -> MemoryProgram:
        """Return a new program of a method, with the settings that suit the benchmark."""
        config = self.config
        embedder = self._make_embedder(config.method.embedder) if needs_embedder(method) else None
        settings = {
            **preset(method, benchmark.name),
            **_default_task_settings(benchmark),
            **config.method.settings,
        }
        adapter = default_adapter(self.inputs)
        return build(method, benchmark.task, embedder, cache, adapter, **settings)

    def _make_embedder(self, name: str) -> TextEmbedder:
        """Return an embedder by its name, or the one of the run that is replayed."""
        config = self.config
        if self.replay is None or name == OFFLINE_EMBEDDER:
            embedder = make_embedder(name, config.method.embedder_api_base, config.method.reranker)
            return self._connect_embedder(embedder)

        embedder = self.replay.embedder(name)
        if name in IN_PROCESS and config.method.reranker != NO_RERANKER:
            # It compares tokens, which no run keeps; those of its weights are the same.
            embedder.reranker = make_embedder(name, None, config.method.reranker).reranker
        return self._connect_embedder(embedder)

    def _connect_embedder(self, embedder: TextEmbedder) -> TextEmbedder:
        """Return an embedder that can be asked, is metered, and whose vectors the run keeps."""
        if self.replay is None:
            self._check_embedder(embedder)
        if embedder.account is not None:
            execution = self.config.execution
            embedder.account.waits = Waits(
                execution.timeout, execution.retries, execution.lm_deadline
            )
            embedder.account.open(self.meter, self.guard)
        return recording_embedder(embedder, self.folder)

    def _check_embedder(self, embedder: TextEmbedder) -> None:
        """Refuse an embedder that cannot be reached, unless the run is resumed."""
        try:
            embedder.check()
        except EndpointError:
            # What a resumed run still needs may be in its store.
            if self.config.execution.resume is None:
                raise


def _default_task_settings(benchmark: Benchmark) -> dict[str, Any]:
    """Return the settings of the task that the benchmark asks for: declining, if that is right."""
    return {f"{TASK_PREFIX}abstain": True} if benchmark.has_unanswerable else {}


def _check_task(program: MemoryProgram, name: str, benchmark: Benchmark) -> None:
    """Refuse a program that was made for another task, if its task asks a model."""
    if program.task.name != benchmark.task and program.task.predictors():
        raise UserError(
            f"{name}: is for {program.task.name}, but {benchmark.name} asks for {benchmark.task}"
        )
