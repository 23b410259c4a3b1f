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
from .role_models import check_models, check_role
from .run_models import RunModels
from .run_programs import RunPrograms
from .tracking.tracker import Tracker, open_tracker


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
    numbers_only: bool = False
    """Whether only the folder of the run gets the text of a question, answer or prompt.

    MLflow gets numbers and settings, and the caches that all runs share get nothing. Such a run
    cannot be resumed: its folder is removed at its end.
    """


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
        """Check the models, and make the run's folder, or open the one that is resumed.

        Args:
            inputs: Data, models and settings.
            command: "compile", "evaluate" or "train".
            program: The method or saved program.
            settings: Everything else that decides the result.
            meter: Counts the calls; a new one if None.
            parent: The larger run, e.g. `reproduce`, if this run is a part of one.

        Raises:
            UserError: The run to resume is not there, or was started with other settings; a model's
                key is missing.
        """
        meter = meter or Meter()
        if parent is not None:
            # The larger run has checked the models, made this folder, and set the limits. A part is
            # not resumed by itself, but with the larger run.
            return cls(inputs, meter, parent.guard, parent.folder, parent=parent)

        config = inputs.config
        # A replay asks no model.
        if config.execution.replay is None:
            # Without answers the task model may be asked nothing: `program` checks it if it is.
            answers = inputs.benchmark.scorer.needs_answer
            check_models(inputs, left_out=() if answers else ("task",))

        # A run can only be resumed if all of these are equal.
        decisive_settings = {
            "command": command,
            "program": program,
            **resume_key(inputs),
            **settings,
        }
        if config.execution.resume is not None:
            folder = RunFolder.resume(config.execution.resume, decisive_settings)
        else:
            title = f"{command}-{program}-{config.data.benchmark}"
            folder = RunFolder.create(title, decisive_settings)

        # More calls than usual may be in flight only if the user asks for more threads than that.
        in_flight = max(IN_FLIGHT, config.execution.threads)
        guard = BudgetGuard(config.limits, in_flight)
        replay = Replay(config.execution.replay, guard) if config.execution.replay else None
        return cls(inputs, meter, guard, folder, replay=replay)

    def record_python_objects(self, objects: Sequence[str]) -> None:
        """Write into `run.json` what was made in Python, beside what is there of earlier starts.

        It is no part of the settings, which must be equal when the run is resumed: the user may
        then name a model that was an object before.
        """
        # A part of a larger run cannot be repeated by itself, so nobody asks for its objects.
        if self.parent is None and objects:
            before = self.folder.read().get("python_objects", [])
            self.folder.update(python_objects=sorted({*before, *objects}))

    @property
    def is_numbers_only(self) -> bool:
        """Whether only the folder of the run gets the text of a question, answer or prompt."""
        return self.parent is not None and self.parent.numbers_only

    @contextmanager
    def tracked(self, command: str, name: str, parameters: dict[str, Any]) -> Iterator[Tracker]:
        """Open the MLflow run of this run for the block, and log its parameters.

        Args:
            command: The command, e.g. "evaluate".
            name: What is run, for the name of the MLflow run.
            parameters: The parameters; `run.json` gets them too.
        """
        # A larger run labels its parts, so that they are found together.
        tags = {} if self.parent is None else self.parent.tags
        # The end of the folder's name tells it from other runs of the same kind.
        mark = self.folder.path.name.rpartition("-")[2]
        title = f"{command}-{name}-{mark}"
        tracking = self.config.execution.tracking
        all_tags = {"command": command, **tags}
        with open_tracker(tracking, title, all_tags, self.is_numbers_only) as tracker:
            self.folder.update(run_id=tracker.run_id, parameters=parameters, versions=versions())
            tracker.log_params(parameters)
            yield tracker

    @contextmanager
    def context(self, program: MemoryProgram) -> Iterator[None]:
        """Set DSPy's model and adapter for the block.

        The model is the task model of the run. The adapter is the one that the user named, or else
        that of the program.

        Raises:
            EndpointError: The endpoint is unreachable; the message says how to resume.
            UserError: The endpoint refuses the key; the message says how to resume.
        """
        adapter = self.adapter(self.config.method.adapter or program.adapter)
        # Models of the run count their calls themselves. The accounting is for an embedder that the
        # user made: its requests are counted and limited by that of the context.
        accounting = Accounting(self.meter, self.guard)
        try:
            with (
                dspy.context(lm=self.model(), adapter=adapter, warn_on_type_mismatch=False),
                call_context(accounting=accounting),
            ):
                yield
        except MempilerError as error:
            # A replay asks no endpoint. It ends because a recorded answer is missing, and would end
            # there again if it were resumed. A run whose folder is removed is not resumed either.
            if self.config.execution.replay or self.is_numbers_only:
                raise
            # The guard has a fatal error if it stopped all calls, e.g. because a key is refused.
            endpoint_failed = self.guard.fatal_error is not None or isinstance(error, EndpointError)
            if not endpoint_failed:
                raise

            self.folder.update(status="stopped")
            advice = f"--resume {self.folder.resumable.name} goes on from here"
            # The class of the error stays: callers tell errors apart by it.
            raise type(error)(f"{error}; {advice}") from error
        finally:
            self._record_output_modes(adapter)

    def _record_output_modes(self, adapter: dspy.Adapter) -> None:
        """Write down in `run.json` whether endpoints were asked for answers by a schema.

        A resumed run reads there which of them refused a schema, and does not try it again.
        """
        if not isinstance(adapter, AutoAdapter):
            return
        modes = adapter.output_modes()
        if not modes:
            return
        parameters = self.folder.read().get("parameters")
        # `tracked` writes the parameters before anything is asked. Without them the run has failed
        # so early that there is nothing to remember.
        if parameters:
            self.folder.update(parameters={**parameters, "schemas": modes})

    def adapter(self, name: str) -> dspy.Adapter:
        """Return the adapter of a name; all roles of the run share it."""
        return self.adapters.get_or_compute(name, partial(self._make_adapter, name))

    def _make_adapter(self, name: str) -> dspy.Adapter:
        """Return a new adapter.

        The adapter "auto" tries whether an endpoint accepts a schema for its answers. What an
        earlier start of the run has found out is not tried again.
        """
        adapter = make_adapter(name)
        if not isinstance(adapter, AutoAdapter):
            return adapter

        # A replay must make the very requests of the other run, so it learns from that one.
        replayed = self.config.execution.replay
        folder = self.folder if replayed is None else RunFolder.open(replayed)
        parameters = folder.read().get("parameters") or {}
        output_modes = parameters.get("schemas") or {}
        adapter.add_output_modes(output_modes)
        return adapter

    @property
    def models(self) -> RunModels:
        """What makes the models of the run."""
        return RunModels(
            self.inputs,
            self.meter,
            self.guard,
            self.folder,
            self.loaded,
            self.replay,
            uses_shared_caches=not self.is_numbers_only,
        )

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

        If the user named an answer model, the program answers by that one. The benchmark gets its
        judges. If its questions are conversations, it also gets a simulated user, whom the prompt
        model plays, and a rival: a second program, with which the user compares the first.

        Args:
            target: What is evaluated, as `program` takes it.

        Raises:
            UserError: The user named an answer model, but the program answers without asking any,
                or the metric needs no answer.
        """
        benchmark = self.with_judges(self.inputs.benchmark)
        program = self.program(target, benchmark)
        if self.config.models.answer.name:
            if not benchmark.scorer.needs_answer:
                raise UserError(
                    f"the metric {benchmark.scorer.title!r} asks for no answer:"
                    " --answer-lm has nothing to do; leave it out"
                )
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
        """Return the rival: the program that a simulated user compares with `program`.

        Args:
            name: The method or the saved program that the rival is made from.
            program: The program that is evaluated.
            benchmark: Whose task the rival is for.
        """
        # The settings of the method (`--set`) are meant for the evaluated program. A method that is
        # the rival gets its defaults, and a saved program keeps its own settings.
        settings: dict[str, Any] = {}
        is_saved = program_folder(name) is not None
        if not is_saved:
            # With one exception: both shall show the same lines, either with dates or without.
            settings[f"{TASK_PREFIX}dates"] = program.task.settings.dates

        # `program` takes the settings of the method from the run, so it is asked of a changed copy.
        rival_config = self.config.with_options(set=settings)
        rival_run = replace(self, inputs=replace(self.inputs, config=rival_config))
        return rival_run.program(name, benchmark, program.cache)

    def program(
        self, target: object, benchmark: Benchmark, cache: MemoryCache | None = None
    ) -> MemoryProgram:
        """Return the program of a method or an external system for a benchmark, or a saved one.

        Args:
            target: The name of a method, the address of a saved program, the name of an external
                system, or a Python object that is a program or a system. `run_programs` lists them.
            benchmark: Whose task the program is for.
            cache: Memories to share. If None, those of the larger run, if it shares them, or else
                those in the run's folder.

        Raises:
            UserError: A saved program is for another task, or settings were given for it, which it
                does not take.
        """
        if cache is None and self.parent is not None:
            cache = self.parent.cache
        if cache is None:
            cache = MemoryCache(self.folder.store.memories)

        systems_folder = self.folder.path / "systems"
        programs = RunPrograms(self.inputs, self.models, systems_folder, cache)
        program = programs.find(target, benchmark)
        if not benchmark.scorer.needs_answer:
            # Refuse a program that answers by itself before anything is paid for.
            program.recalling_only()
            self._check_task_model(program)
        return program

    def _check_task_model(self, program: MemoryProgram) -> None:
        """Refuse a task model that could not be asked, if a program that does not answer asks it.

        Raises:
            UserError: Nobody provides it, its key is not set, or its provider has no such model.
            EndpointError: Its server cannot be reached, and the run is not a resumed one.
        """
        # A larger run has checked its models, and a replay asks none.
        if self.parent is not None or self.config.execution.replay is not None:
            return
        if program.all_predictors().keys() - program.answer_names():
            check_role(self.inputs, "task")


def _make_judge(lm: MeteredLM, adapter: dspy.Adapter, judge_class: type[AnyJudge]) -> AnyJudge:
    """Return a judge of a class, which asks the judge model."""
    return judge_class(lm, adapter)
