"""Everything that a run works with: its models, meter, guard, store and folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..engines.dspy_models import metered_copy
from ..engines.embedders import IN_PROCESS, NO_RERANKER
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..engines.embedders import embedder as make_embedder
from ..engines.endpoint import Waits
from ..engines.limits import BudgetGuard
from ..engines.meter import Meter, MeteredLM, Role
from ..engines.model_config import ModelConfig
from ..engines.models import language_model
from ..engines.prices import needed_prices
from ..errors import EndpointError, MempilerError, UserError
from ..programs.adapter import AutoAdapter
from ..programs.adapter import adapter as make_adapter
from ..programs.catalog import build, needs_embedder, preset, with_task
from ..programs.external.program import build_external_program, takes_embedder
from ..programs.program import MemoryProgram
from ..programs.remember import MemoryCache
from ..programs.tasks.task import TASK, split_config
from ..programs.threads import SingleFlight
from .artifact import chosen_embedder, load, versions
from .external import in_subprocess, name_in_tables, resolve_external
from .folder import RunFolder
from .manifest import read_manifest
from .registry import program_folder
from .replay import Replay, note_model, recording_embedder
from .setup import RunConfig
from .tracking import Tracker


@dataclass(frozen=True)
class Parent:
    """What a run shares with the larger run that it is a part of."""

    folder: RunFolder
    """The part's own, whose store is that of the whole."""
    guard: BudgetGuard
    tags: Mapping[str, str]
    """Labels of the MLflow run."""
    cache: MemoryCache | None = None
    """Memories of all parts."""


@dataclass(frozen=True)
class Runtime:
    """The models, meter, guard and folder of one run."""

    setup: RunConfig
    meter: Meter
    guard: BudgetGuard
    folder: RunFolder
    loaded: dict[str, Any] = field(default_factory=dict)
    """Local models by name: all roles of a run share one copy of the weights."""
    adapters: SingleFlight = field(default_factory=SingleFlight)
    """Adapters by name: all roles of a run share what they found out about endpoints."""
    replay: Replay | None = None
    """The run whose answers are given."""
    parent: Parent | None = None

    @classmethod
    def start(
        cls,
        setup: RunConfig,
        command: str,
        program: str,
        settings: Mapping[str, Any],
        meter: Meter | None = None,
        parent: Parent | None = None,
    ) -> Runtime:
        """Makes the run's folder, or opens the one that is resumed.

        Args:
            setup: What the run rests on.
            command: "compile", "evaluate" or "train".
            program: The method or saved program.
            settings: Everything else that decides the result.
            meter: Counts the calls; a new one if None.
            parent: The larger run that it is a part of, which checks and resumes its parts with itself.

        Raises:
            UserError: The run to resume is not there, or was started with other settings; a model's key is missing.
        """
        meter = meter or Meter()
        if parent is not None:
            return cls(setup, meter, parent.guard, parent.folder, parent=parent)
        if setup.replay is None:
            setup.check_models()
        asked = {"command": command, "program": program, **setup.resume_key, **settings}
        if setup.resume is not None:
            folder = RunFolder.resume(setup.resume, asked)
        else:
            folder = RunFolder.create(f"{command}-{program}-{setup.benchmark}", asked)
        guard = BudgetGuard(setup.limits)
        return cls(setup, meter, guard, folder, replay=Replay(setup.replay, guard) if setup.replay else None)

    @contextmanager
    def tracked(self, command: str, name: str, parameters: dict[str, Any]) -> Iterator[Tracker]:
        """An MLflow run, named after what is done and the folder; its parameters are in `run.json`, too."""
        tags = {} if self.parent is None else self.parent.tags
        # The end of the folder's name tells it from other runs of the same kind.
        mark = self.folder.path.name.rpartition("-")[2]
        with Tracker(f"{command}-{name}-{mark}", {"command": command, **tags}) as tracker:
            self.folder.update(run_id=tracker.run_id, parameters=parameters, versions=versions())
            tracker.params(parameters)
            yield tracker

    def model(self, role: Role = "task") -> MeteredLM:
        """The language model of a role."""
        setup, roles = self.setup, self.setup.roles
        own = setup.models.get(role)
        if role == "prompt" and not setup.prompt_lm:
            own = setup.models.get("task")
        if own is not None and self.replay is None:
            return self._metered(own, role)
        model = roles["task"] if role == "prompt" and not setup.prompt_lm else roles[role]
        if role == "judge" and not model.name:
            free = next(iter(setup.load().judge_free_metrics), None)
            other = f", or take --benchmark-set metric={free}, which needs none" if free else ""
            raise UserError(f"{setup.benchmark} is scored by a judge; name its model with --judge-lm{other}")
        return self.load_model(model.name or "", role, model.address, **(setup.lm_settings if role == "task" else {}))

    def _metered(self, own: dspy.BaseLM, role: Role) -> MeteredLM:
        """A copy of a model that the user made, with the limits and the store of the run."""
        setup = self.setup
        if role == "task" and setup.lm_settings:
            own = own.copy(**setup.lm_settings)
        lm = metered_copy(
            own,
            self.meter,
            self._model_config(own.model, role),
            role=role,
            guard=self.guard,
            answers=self.folder.store.answers,
        )
        note_model(self.folder, role, own.model, lm)
        return lm

    def _model_config(self, name: str, role: Role) -> ModelConfig:
        """Return how the run asks a model, wherever it is."""
        setup = self.setup
        return ModelConfig(
            timeout=setup.timeout,
            retries=setup.retries,
            deadline=setup.lm_deadline,
            repeat=setup.repeat if role in ("task", "answer") else 0,
            slots=setup.threads,
            prices=needed_prices(name, setup.limits.max_usd),
        )

    def load_model(self, name: str, role: Role, api_base: str | None, **settings: Any) -> MeteredLM:
        """A language model by its name, with the limits and the store of the run.

        Args:
            name: As `language_model` takes it.
            role: What it is used for.
            api_base: Address of its server, if it has one of its own.
            **settings: Of every request.
        """
        setup, asked = self.setup, name
        config = replace(self._model_config(name, role), api_base=api_base, settings=settings)
        if self.replay is not None:
            name = self.replay.model(role, name)
        if name == "local:tiny":
            from ..optimizers.demonstrations import tiny_folder

            name = f"local:{tiny_folder(setup.seed)}"
        made = language_model(
            name,
            config,
            meter=self.meter,
            role=role,
            guard=self.guard,
            answers=self.folder.store.answers,
            replay=self.replay and self.replay.answer,
            loaded=self.loaded,
        )
        if self.replay is not None:
            made = self.replay.fitted(role, made)
        note_model(self.folder, role, asked, made)
        return made

    def adapter(self, name: str) -> dspy.Adapter:
        """The run's adapter of a name; "auto" knows which schemas were refused before the run was resumed, or then."""

        def make() -> dspy.Adapter:
            made = make_adapter(name)
            if isinstance(made, AutoAdapter):
                folder = self.folder if self.setup.replay is None else RunFolder.open(self.setup.replay)
                made.add_output_modes((folder.read().get("parameters") or {}).get("schemas") or {})
            return made

        return self.adapters.get_or_compute(name, make)

    @contextmanager
    def context(self, program: MemoryProgram) -> Iterator[None]:
        """DSPy's settings for the run: task LM, and the adapter of the setup or the program.

        Raises:
            EndpointError: The endpoint is unreachable; the message says how to resume.
            UserError: It refuses the key; likewise.
        """
        adapter = self.adapter(self.setup.adapter or program.adapter)
        try:
            with dspy.context(lm=self.model(), adapter=adapter, warn_on_type_mismatch=False):
                yield
        except MempilerError as error:
            if self.setup.replay or (self.guard.fatal_error is None and not isinstance(error, EndpointError)):
                raise
            self.folder.update(status="stopped")
            raise type(error)(f"{error}; --resume {self.folder.resumed.name} goes on from here") from error
        finally:
            found = adapter.output_modes() if isinstance(adapter, AutoAdapter) else {}
            if found and (known := self.folder.read().get("parameters")):
                self.folder.update(parameters={**known, "schemas": found})

    def judged(self, benchmark: Benchmark) -> Benchmark:
        """The benchmark with its judges, where it asks any."""
        if not benchmark.scorer.required_judges:
            return benchmark
        lm, adapter = self.model("judge"), self.adapter(self.setup.adapter or "chat")
        return benchmark.with_judges(lambda judge: judge(lm, adapter))

    def load_target(self, thing: Any) -> tuple[MemoryProgram, Benchmark]:
        """The program of a thing, which answers by the model of `answer_lm` where one is named, and the benchmark.

        The benchmark has its judges and, where it is a conversation, its user, played by the prompt model, and a rival.

        Raises:
            UserError: The program's task asks no model that `answer_lm` could stand for.
        """
        benchmark = self.judged(self.setup.load())
        program = self.program(thing, benchmark)
        if self.setup.answer_lm:
            if not program.task.predictors():
                raise UserError(f"{program.name} answers without a prompt of ours: --answer-lm does not reach it")
            program.task.set_lm(self.model("answer"))
        if benchmark.interaction is not None:
            against = benchmark.interaction.against
            # A rival has its defaults, but the same kind of lines as the program; a saved one keeps what it has.
            config = {} if program_folder(against) else {f"{TASK}dates": program.task.settings.dates}
            plain = replace(self, setup=replace(self.setup, method_settings=config))
            rival = plain.program(against, benchmark, program.cache)
            adapter = self.adapter(self.setup.adapter or "chat")
            benchmark = benchmark.with_simulated_user(self.model("prompt"), adapter, rival)
        return program, benchmark

    def program(self, name: str | Any, benchmark: Benchmark, cache: MemoryCache | None = None) -> MemoryProgram:
        """Builds a method's program for a benchmark with the setup's `config`, or loads a saved one.

        Args:
            name: A method name, `module:Class`, or a saved program: its folder, or `models:/NAME/VERSION`. Or what is
                scored beside these (`external`), by its name or itself.
            benchmark: Whose task the program is for.
            cache: Memories to share; those of the run's folder, or of the larger run, if None.

        Raises:
            UserError: A saved program is for another task, or takes no `config`.
        """
        setup, config = self.setup, dict(self.setup.method_settings)
        unsaid = {f"{TASK}abstain": True} if benchmark.has_unanswerable else {}
        cache = cache or (self.parent and self.parent.cache) or MemoryCache(self.folder.store.nodes)
        if isinstance(name, MemoryProgram):
            return self._copied(name, benchmark, cache)
        folder = program_folder(name) if isinstance(name, str) else None
        if folder is not None:
            if config:
                raise UserError(f"{name}: a saved program keeps its settings; compile a new one with --set instead")
            program = self._saved(folder)
            if program.task.name != benchmark.task and program.task.predictors():
                raise UserError(f"{name}: is for {program.task.name}, but {benchmark.name} asks for {benchmark.task}")
            # A task that calls no model was not tuned: the writers were trained, for any reader.
            program = with_task(program, benchmark.task, split_config(unsaid, benchmark.task)[1])
            program.cache = cache
            return program
        thing = resolve_external(name) if isinstance(name, str) else name
        if thing is not None:
            if config.pop("isolated", isinstance(name, str)) and isinstance(name, str):
                thing = in_subprocess(name, thing)
            embedder = self._embedder(setup.embedder) if takes_embedder(thing) else None
            place = self.folder.path / "systems"
            adapter = setup.default_adapter
            settings = {**unsaid, **config}
            return build_external_program(
                thing, name_in_tables(name), benchmark.task, embedder, cache, adapter, place, settings
            )
        embedder = self._embedder(setup.embedder) if needs_embedder(name) else None
        settings = {**preset(name, benchmark.name), **unsaid, **config}
        return build(name, benchmark.task, embedder, cache, setup.default_adapter, **settings)

    def _copied(self, program: MemoryProgram, benchmark: Benchmark, cache: MemoryCache) -> MemoryProgram:
        """A copy of a program that the user made, which keeps its memories in this run's cache.

        Raises:
            UserError: It is for another task, or settings are given beside it.
        """
        if self.setup.method_settings:
            raise UserError(f"{program.name}: a program keeps its settings; build it with others instead of `set`")
        if program.task.name != benchmark.task and program.task.predictors():
            raise UserError(
                f"{program.name}: is for {program.task.name}, but {benchmark.name} asks for {benchmark.task}"
            )
        copied = program.deepcopy()
        copied.cache = cache
        return copied

    def _embedder(self, name: str) -> Any:
        if self.replay is None or name == OFFLINE_EMBEDDER:
            return self._kept(make_embedder(name, self.setup.embedder_api_base, self.setup.reranker))
        made = self.replay.embedder(name)
        if name in IN_PROCESS and self.setup.reranker != NO_RERANKER:
            # It compares tokens, which no run keeps; those of its weights are the same.
            made.reranker = make_embedder(name, None, self.setup.reranker).reranker
        return self._kept(made)

    def _kept(self, embedder: Any) -> Any:
        """An embedder that can be asked, whose calls are counted, and whose vectors the run keeps."""
        if self.replay is None:
            self._check_embedder(embedder)
        if embedder.account is not None:
            embedder.account.waits = Waits(self.setup.timeout, self.setup.retries, self.setup.lm_deadline)
            embedder.account.open(self.meter, self.guard)
        return recording_embedder(embedder, self.folder)

    def _check_embedder(self, embedder: Any) -> None:
        try:
            embedder.check()
        except EndpointError:
            # What a resumed run still needs may be in its store.
            if self.setup.resume is None:
                raise

    def _saved(self, folder: Path) -> MemoryProgram:
        setup = self.setup
        if self.replay is not None:
            return load(folder, setup.allow_code, self._embedder(read_manifest(folder).embedder or OFFLINE_EMBEDDER))
        chosen = chosen_embedder(folder, setup.embedder, setup.embedder_api_base, setup.reranker)
        return load(folder, setup.allow_code, chosen and self._kept(chosen))
