"""What a run rests on (`Setup`), and the models, guard and store it runs with (`Runtime`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.catalog import benchmark as load_benchmark
from ..data.dataset import Split
from ..engines.embedders import IN_PROCESS
from ..engines.embedders import OFFLINE as OFFLINE_EMBEDDER
from ..engines.embedders import embedder as make_embedder
from ..engines.endpoint.deadline import DEADLINE, RETRIES, TIMEOUT
from ..engines.endpoint.engine import request_settings
from ..engines.endpoint.names import check_askable, check_known
from ..engines.guard import Guard, Limits
from ..engines.meter import Meter, MeteredLM, Role
from ..engines.models import GGUF, is_local, is_offline, language_model
from ..engines.prices import needed_prices
from ..errors import MOST_SECONDS, EndpointError, MempilerError, UserError, check_number
from ..memory.flight import Flight
from ..programs.adapter import adapter as make_adapter
from ..programs.auto_adapter import AutoAdapter
from ..programs.catalog import answering, build, needs_embedder, preset
from ..programs.external.resolve import program_of, takes_embedder
from ..programs.program import MemoryProgram
from ..programs.remember import MemoryCache
from .artifact import chosen_embedder, load
from .external import in_subprocess, name_in_tables, resolve_external
from .folder import RunFolder
from .manifest import read_manifest
from .registry import program_folder
from .replay import Replay, note_model, recorded
from .results import MAX_LOST
from .statistics import MIN_N
from .traces import default_traces
from .workers import Workers, check_workers

_FREE = "threads workers limits resume timeout retries lm_deadline traces"
_REPLAYED = ("lm", "prompt_lm", "judge_lm", "embedder", "adapter", "lm_settings")
"""Fields of a setup that a replay takes from the run."""
_NOT_DECISIVE = {*_FREE.split(), *(f"{role}api_base" for role in ("", "prompt_", "judge_", "embedder_"))}
"""Fields of a setup that a resumed run may change: they do not decide its result."""


@dataclass(frozen=True)
class Setup:
    """Data, models, sizes, limits and seed of a run."""

    benchmark: str
    data: str | None = None
    """The benchmark's file; None for the bundled sample."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the benchmark, e.g. {"categories": "2,4"}."""
    lm: str = "offline"
    api_base: str | None = None
    lm_settings: Mapping[str, Any] = field(default_factory=dict)
    """Of every request to the task LM, e.g. {"temperature": 0, "top_p": 0.9}."""
    prompt_lm: str | None = None
    """Writes proposals and reflections; None: the task LM."""
    prompt_api_base: str | None = None
    judge_lm: str | None = None
    """Judges answers, for benchmarks that need it."""
    judge_api_base: str | None = None
    embedder: str = "offline"
    embedder_api_base: str | None = None
    adapter: str | None = None
    """None: `default_adapter`, or what a saved program was compiled under."""
    train: int | None = None
    dev: int | None = None
    test: int | None = None
    seed: int = 0
    threads: int = 8
    workers: Workers = 1
    """Processes that ask questions, or the address of a Ray cluster."""
    timeout: float = TIMEOUT
    """Seconds without a byte from a model's server after which a call has failed."""
    retries: int = RETRIES
    """How often a call is repeated that could not reach its model."""
    lm_deadline: float = DEADLINE
    """Seconds for a call, its retries and waits included."""
    limits: Limits = field(default_factory=Limits)
    max_lost: float = MAX_LOST
    """The share of failed questions, or of lost predictor calls, above which a run is broken and never promoted."""
    min_n: int = MIN_N
    """With fewer questions than these no program is said to be better than another, and none is promoted."""
    repeat: int = 0
    """Which repetition of a run: from 1 on, a model that samples answers anew."""
    resume: str | None = None
    """A run to resume: its paid calls are not repeated."""
    replay: str | None = None
    """A run whose answers are given in the place of any call; its models stand for those of the setup."""
    traces: int | None = field(default_factory=default_traces)
    """Of how many questions MLflow gets traces, wrong answers first; None for all."""

    def __post_init__(self) -> None:
        """Refuses numbers that no run can go by, and what excludes each other.

        Raises:
            UserError: One is negative, infinite, NaN or too large; a run that replays another one is resumed, or has
                several processes; or several processes would each load a model.
        """
        request_settings(self.lm_settings)
        check_number("timeout", self.timeout, most=MOST_SECONDS)
        check_number("max_lost", self.max_lost, most=1)
        for name in ("retries", "train", "dev", "test", "traces"):
            check_number(name, getattr(self, name))
        check_number("threads", self.threads, least=1)
        check_number("min_n", self.min_n, least=1)
        check_workers(self.workers, self.lm, self.prompt_lm, self.judge_lm)
        if self.workers != 1 and self.replay:
            raise UserError("--workers does not go with --replay, which is one process's")
        if self.replay and self.resume:
            raise UserError("--replay does not go with --resume; start a run of its own for it")

    @cached_property
    def _benchmark(self) -> Benchmark:
        return load_benchmark(self.benchmark, self.data, **self.options)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_benchmark"}

    def load(self, compiling: bool = False) -> Benchmark:
        """The benchmark, which is read once.

        Raises:
            UserError: One is to be compiled on that is a simulated conversation: optimizers run a program on single
                examples.
        """
        benchmark = self._benchmark
        if compiling and benchmark.interaction is not None:
            raise UserError(f"{benchmark.name} is a simulated conversation: nothing compiles on it, evaluate on it")
        return benchmark

    def split(self, benchmark: Benchmark) -> Split:
        """Splits it by this setup."""
        return benchmark.split(self.train, self.dev, self.test, self.seed)

    def saved(self, folder: Path, allow_code: bool = False) -> MemoryProgram:
        """Loads a saved program, with the embedder of this setup.

        Raises:
            ProgramError: It does not fit this code, or may not be used.
        """
        embedder = chosen_embedder(folder, self.embedder, self.embedder_api_base)
        return load(folder, allow_code, embedder)

    def check_models(self) -> None:
        """Refuses a model that could not be asked, whatever its role: one that is asked last would be found out last.

        Raises:
            UserError: Nobody provides it, or its key is not set.
        """
        roles: dict[Role, tuple[str | None, str | None]] = {
            "task": (self.lm, self.api_base),
            "prompt": (self.prompt_lm, self.prompt_api_base),
            "judge": (self.judge_lm, self.judge_api_base),
        }
        for role, (name, api_base) in roles.items():
            if name:
                check_model(name, role, api_base)

    @property
    def default_adapter(self) -> str:
        """The adapter of a program that is not a saved one: "auto" for named models, which have an endpoint to ask."""
        return self.adapter or ("chat" if is_offline(self.lm) or is_local(self.lm) else "auto")

    @property
    def decisive(self) -> dict[str, Any]:
        """What decides the result of a run: one that is resumed has the same."""
        found = {key: value for key, value in asdict(self).items() if key not in _NOT_DECISIVE}
        if not self.repeat:
            del found["repeat"]  # as runs have it that were started before there were repetitions
        found["temperature"] = self.temperature
        if not set(self.lm_settings) - {"temperature"}:
            del found["lm_settings"]  # as runs have it that were started when it was the only one
        return {**found, "data": str(Path(self.data).absolute())} if self.data else found

    @property
    def temperature(self) -> float | None:
        """What the task LM samples at; None leaves it to the provider."""
        return self.lm_settings.get("temperature")

    @property
    def offline(self) -> bool:
        """Whether the task LM is the offline engine."""
        return is_offline(self.lm)


def replayed_setup(setup: Setup, given: Callable[[str], bool] = lambda name: False) -> Setup:
    """The setup with the models, their settings, embedder and adapter of the run that it replays, if it does.

    Args:
        setup: Names the run, or none.
        given: Whether a field was set on purpose, be it to its default.

    Raises:
        UserError: There is no such run, or the setup names other models than it had.
    """
    if setup.replay is None:
        return setup
    folder = RunFolder.open(setup.replay)
    ran = folder.read()["settings"]
    defaults = {**{field.name: field.default for field in fields(setup)}, "lm_settings": {}}
    if ran.get("temperature") is not None:
        ran.setdefault("lm_settings", {"temperature": ran["temperature"]})
    for name in _REPLAYED:
        mine, before = getattr(setup, name), ran.get(name, defaults[name])
        if (mine != defaults[name] or given(name)) and mine != before:
            option = "--lm-set" if name == "lm_settings" else f"--{name.replace('_', '-')}"
            raise UserError(f"--replay {setup.replay}: ran with {option} {before}, not {mine}; leave {option} out")
    return replace(setup, replay=str(folder.path), **{name: ran.get(name, defaults[name]) for name in _REPLAYED})


def check_model(name: str, role: Role, api_base: str | None) -> None:
    """Refuses a model that could not be asked.

    Raises:
        UserError: Nobody provides it, its key is not set, or its provider has no such model.
    """
    if not (is_offline(name) or is_local(name) or name.startswith(GGUF)):
        lm = language_model(name, Meter(), role, api_base, guard=None, answers=None)
        check_askable(lm)
        check_known(lm)


@dataclass(frozen=True)
class Runtime:
    """The models, meter, guard and folder of one run."""

    setup: Setup
    meter: Meter
    guard: Guard
    folder: RunFolder
    loaded: dict[str, Any] = field(default_factory=dict)
    """Local models by name: all roles of a run share one copy of the weights."""
    adapters: Flight = field(default_factory=Flight)
    """Adapters by name: all roles of a run share what they found out about endpoints."""
    replay: Replay | None = None
    """The run whose answers are given."""

    @classmethod
    def start(
        cls,
        setup: Setup,
        command: str,
        program: str,
        settings: Mapping[str, Any],
        meter: Meter | None = None,
        guard: Guard | None = None,
        part: RunFolder | None = None,
    ) -> Runtime:
        """Makes the run's folder, or opens the one that is resumed.

        Args:
            setup: What the run rests on.
            command: "compile" or "evaluate".
            program: The method or saved program.
            settings: Everything else that decides the result.
            meter: Counts the calls; a new one if None.
            guard: Holds the limits; one of its own if None.
            part: The folder of a part of a larger run, which checks and resumes its parts with itself.

        Raises:
            UserError: The run to resume is not there, or was started with other settings; a model's key is missing.
        """
        meter, guard = meter or Meter(), guard or Guard(setup.limits)
        if part is not None:
            return cls(setup, meter, guard, part)
        if setup.replay is None:
            setup.check_models()
        asked = {"command": command, "program": program, **setup.decisive, **settings}
        if setup.resume is not None:
            folder = RunFolder.resume(setup.resume, asked)
        else:
            folder = RunFolder.create(f"{command}-{program}-{setup.benchmark}", asked)
        replay = None if setup.replay is None else Replay(setup.replay, guard)
        return cls(setup, meter, guard, folder, replay=replay)

    def model(self, role: Role = "task") -> MeteredLM:
        """The language model of a role."""
        setup = self.setup
        names = {
            "task": (setup.lm, setup.api_base),
            "prompt": (setup.prompt_lm or setup.lm, setup.prompt_api_base if setup.prompt_lm else setup.api_base),
            "judge": (setup.judge_lm or "", setup.judge_api_base),
        }
        name, api_base = names[role]
        if role == "judge" and not name:
            raise UserError(f"{setup.benchmark} is scored by a judge; name its model with --judge-lm")
        return self.named(name, role, api_base, **(setup.lm_settings if role == "task" else {}))

    def named(self, name: str, role: Role, api_base: str | None, **settings: Any) -> MeteredLM:
        """A language model by its name, with the limits and the store of the run.

        Args:
            name: As `language_model` takes it.
            role: What its calls are counted as.
            api_base: Address of its server.
            **settings: Of every request to it.
        """
        setup, prices, asked = self.setup, needed_prices(name, self.setup.limits.max_usd), name
        if self.replay is not None:
            name = self.replay.model(role, name)
        if name == "local:tiny":
            from .tiny import resolve

            name = resolve(name, setup.seed)
        made = language_model(
            name,
            self.meter,
            role,
            api_base,
            guard=self.guard,
            answers=self.folder.store.answers,
            prices=prices,
            timeout=setup.timeout,
            retries=setup.retries,
            deadline=setup.lm_deadline,
            loaded=self.loaded,
            slots=setup.threads,
            repeat=setup.repeat if role == "task" else 0,
            replay=self.replay,
            **settings,
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
                made.endpoints.include((folder.read().get("parameters") or {}).get("schemas") or {})
            return made

        return self.adapters.once(name, make)

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
            if self.setup.replay or (self.guard.dead is None and not isinstance(error, EndpointError)):
                raise
            self.folder.update(status="stopped")
            raise type(error)(f"{error}; --resume {self.folder.resumed.name} goes on from here") from error
        finally:
            self._note_schemas(adapter)

    def _note_schemas(self, adapter: dspy.Adapter) -> None:
        """Writes down what "auto" came to, by model and outputs."""
        found = adapter.endpoints.found() if isinstance(adapter, AutoAdapter) else {}
        known = self.folder.read().get("parameters")
        if found and known:
            self.folder.update(parameters={**known, "schemas": found})

    def judged(self, benchmark: Benchmark) -> Benchmark:
        """The benchmark with its judges, where it asks any."""
        if not benchmark.scorer.asked:
            return benchmark
        lm, adapter = self.model("judge"), self.adapter(self.setup.adapter or "chat")
        return benchmark.bound(lambda judge: judge(lm, adapter))

    def company(self, benchmark: Benchmark, program: MemoryProgram, allow_code: bool = False) -> Benchmark:
        """The benchmark with its user, played by the prompt model, and its rival, where it is a conversation."""
        if benchmark.interaction is None:
            return benchmark
        rival = self.program(benchmark.interaction.against, benchmark, None, allow_code, program.cache)
        return benchmark.accompanied(self.model("prompt"), self.adapter(self.setup.adapter or "chat"), rival)

    def program(
        self,
        name: str | Any,
        benchmark: Benchmark,
        config: Mapping[str, Any] | None = None,
        allow_code: bool = False,
        cache: MemoryCache | None = None,
    ) -> MemoryProgram:
        """Builds a method's program for a benchmark, or loads a saved one.

        Args:
            name: A method name, `module:Class`, or a saved program: its folder, or `models:/NAME/VERSION`. Or what is
                scored beside these (`external`), by its name or itself.
            benchmark: Whose task the program is for.
            config: Constructor arguments of the method.
            allow_code: Whether a saved `module:Class` method may be imported.
            cache: Memories to share; those of the run's folder if None.

        Raises:
            UserError: A saved program is for another task, or takes no `config`.
        """
        setup, cache = self.setup, cache or MemoryCache(self.folder.store.nodes)
        folder = program_folder(name) if isinstance(name, str) else None
        if folder is not None:
            if config:
                raise UserError(f"{name}: a saved program keeps its settings; compile a new one with --set instead")
            program = self._saved(folder, allow_code)
            if program.task.name != benchmark.task and program.task.predictors():
                raise UserError(f"{name}: is for {program.task.name}, but {benchmark.name} asks for {benchmark.task}")
            # A task that calls no model was not tuned: the writers were trained, for any reader.
            program = answering(program, benchmark.task)
            program.cache = cache
            return program
        thing = resolve_external(name) if isinstance(name, str) else name
        if thing is not None:
            config = dict(config or {})
            if config.pop("isolated", isinstance(name, str)) and isinstance(name, str):
                thing = in_subprocess(name, thing)
            embedder = self._embedder(setup.embedder) if takes_embedder(thing) else None
            place = self.folder.path / "systems"
            adapter = setup.default_adapter
            return program_of(thing, name_in_tables(name), benchmark.task, embedder, cache, adapter, place, config)
        embedder = self._embedder(setup.embedder) if needs_embedder(name) else None
        settings = {**preset(name, benchmark.name, benchmark.unsaid), **dict(config or {})}
        return build(name, benchmark.task, embedder, cache, setup.default_adapter, **settings)

    def _embedder(self, name: str) -> Any:
        """The embedder of a name, counted, whose vectors the run keeps; that of the run that is replayed."""
        if self.replay is not None and name != OFFLINE_EMBEDDER:
            return recorded(self.replay.embedder(name), self.folder)
        return recorded(self._counted(make_embedder(name, self.setup.embedder_api_base)), self.folder)

    def _counted(self, embedder: Any) -> Any:
        """An embedder, whose endpoint is in the run's limits and tables if it has one."""
        account = getattr(embedder, "account", None)
        if account is not None:
            account.open(self.meter, self.guard)
        return embedder

    def _saved(self, folder: Path, allow_code: bool) -> MemoryProgram:
        """A saved program, its embedder counted, and its vectors kept by the run."""
        setup, made_with = self.setup, read_manifest(folder).embedder or OFFLINE_EMBEDDER
        if self.replay is not None:
            return load(folder, allow_code, self._embedder(made_with))
        chosen: Any = chosen_embedder(folder, setup.embedder, setup.embedder_api_base)
        if chosen is None and made_with in IN_PROCESS:
            chosen = make_embedder(made_with)
        return load(folder, allow_code, chosen and recorded(self._counted(chosen), self.folder))


def parameters(program: MemoryProgram, setup: Setup, benchmark: Benchmark) -> dict[str, Any]:
    """What MLflow logs of a run's settings."""
    source = benchmark.source
    return {
        "program": program.name,
        "task": program.task.name,
        "benchmark": benchmark.name,
        "data": source.path,
        "data_sha256": source.sha256,
        "sample": source.sample,
        "lm": setup.lm,
        "prompt_lm": setup.prompt_lm or setup.lm,
        "judge_lm": setup.judge_lm,
        "judge_hash": benchmark.scorer.judge_hash,
        **{f"lm.{name}": value for name, value in setup.lm_settings.items()},
        "embedder": program.method.embedder.name if program.method.embedder else None,
        "adapter": setup.adapter or program.adapter,
        "seed": setup.seed,
        "threads": setup.threads,
        **({"replay": Path(setup.replay).name} if setup.replay else {}),
        **{f"limit.{name}": value for name, value in asdict(setup.limits).items() if value is not None},
        **{f"method.{key}": value for key, value in program.method.config.items()},
    }
