"""What a run rests on: `RunConfig`, its data, models, method, limits and execution.

    setup = RunConfig(
        "locomo",
        data="locomo10.json",
        method_settings={"k": 20},
        lm="openai/gpt-4.1-mini",
        train=40,
        limits=Limits(max_usd=2),
    )
    run_evaluate("turn-rag", setup)

Most fields decide the result: a run that is resumed must have the same ones (`resume_key`). The
others say only how the work is done, e.g. in how many threads, and may differ (`_FREE_ON_RESUME`).
Everything is checked before anything is paid for: numbers and combinations when a `RunConfig` is
made, models by `check_models`.
"""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dspy

from ..data.benchmark import Benchmark
from ..data.catalog import benchmark as load_benchmark
from ..data.dataset import Split
from ..engines.endpoint import DEADLINE, RETRIES, TIMEOUT
from ..engines.limits import Limits
from ..engines.lm import language_model
from ..engines.metered_lm import MeteredLM
from ..engines.model_checks import check_endpoint, check_key
from ..engines.model_names import GGUF, is_local, is_offline, provider_of, runs_here
from ..engines.request_settings import request_settings
from ..engines.usage import Role
from ..engines.user_lm import is_plain
from ..errors import EndpointError, MissingDependencyError, UserError
from ..programs.program import MemoryProgram
from ..validation import MAX_SECONDS, check_number
from .folder import RunFolder
from .results import MAX_LOST
from .statistics import MIN_N
from .tracking.traces import DEFAULT_MAX_TRACES

Workers = int | str
"""A number of processes, or the address of a Ray cluster."""

_FREE_ON_RESUME = {
    # Which code may run is the user's decision of the day.
    "allow_code",
    # How fast, and how patiently.
    "threads",
    "workers",
    "timeout",
    "retries",
    "lm_deadline",
    # Where a model is, not which.
    "api_base",
    "prompt_api_base",
    "judge_api_base",
    "answer_api_base",
    "embedder_api_base",
    # How far this time.
    "limits",
    "resume",
    # What is shown of the result.
    "traces",
    # Objects, which `resume_key` names by their contents.
    "questions",
    "models",
}
"""Fields that a resumed run may change: they do not decide its result."""

_TAKEN_BY_REPLAY = (
    "lm",
    "prompt_lm",
    "judge_lm",
    "answer_lm",
    "embedder",
    "reranker",
    "adapter",
    "lm_settings",
)
"""Fields that a replay takes from the run that it replays."""

_COMPATIBLE = "openai"
"""The provider that names of models on any OpenAI-compatible server begin with."""

_OPTION_NAMES = {
    "method_settings": "set",
    "lm_settings": "lm-set",
}
"""What the command line calls fields, where it has another name for them."""


@dataclass(frozen=True)
class RoleModel:
    """The model of a role of a run, and where it is asked."""

    name: str | None
    """None where the role has no model of its own."""
    address: str | None = None
    """Address of its server; None takes the provider's own."""
    own_option: str = ""
    """The option that would name an address of its own, where `address` is that of `--api-base`."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that a run rests on, beside what is run."""

    # Data.
    benchmark: str
    data: str | None = None
    """The benchmark's file; None for the bundled sample."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the benchmark, e.g. {"categories": "2,4"}."""

    # Method.
    method_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the method, e.g. {"k": 20}; a saved program keeps its own."""
    allow_code: bool = False
    """Whether a saved program may import its `module:Class` method."""

    # Models.
    lm: str = "offline"
    """The task LM: runs the program."""
    api_base: str | None = None
    """Address of an OpenAI-compatible server; None takes the provider's own."""
    lm_settings: Mapping[str, Any] = field(default_factory=dict)
    """Of every request to the task LM, e.g. {"temperature": 0, "top_p": 0.9}."""
    prompt_lm: str | None = None
    """Writes proposals and reflections; None: the task LM."""
    prompt_api_base: str | None = None
    judge_lm: str | None = None
    """Judges answers, for benchmarks that need it."""
    judge_api_base: str | None = None
    answer_lm: str | None = None
    """Answers from the memory, in an evaluation; None: the task LM, which writes the memory."""
    answer_api_base: str | None = None
    embedder: str = "offline"
    embedder_api_base: str | None = None
    reranker: str | None = None
    """None: by tokens, where the embedder runs here."""
    adapter: str | None = None
    """None: `default_adapter`, or what a saved program was compiled under."""

    # Questions, as `Benchmark.split` takes them.
    train: int | None = None
    dev: int | None = None
    test: int | None = None
    seed: int = 0
    """Of the split, the optimizer and the training."""

    # Execution.
    threads: int = 8
    """Questions in flight."""
    workers: Workers = 1
    """Processes that ask questions, or the address of a Ray cluster."""
    timeout: float = TIMEOUT
    """Seconds without a byte from a model's server after which a call has failed."""
    retries: int = RETRIES
    """How often a call is repeated that could not reach its model."""
    lm_deadline: float = DEADLINE
    """Seconds for a call, its retries and waits included."""

    # Limits, and what a result must have to count.
    limits: Limits = field(default_factory=Limits)
    max_failure_rate: float = MAX_LOST
    """The share of failed questions, or of lost predictor calls, above which a run is broken.

    A broken run is never promoted.
    """
    min_n: int = MIN_N
    """With fewer questions no program is said to be better than another, and none is promoted."""

    # Other runs.
    repeat: int = 0
    """Which repetition of a run: from 1 on, a model that samples answers anew."""
    resume: str | None = None
    """A run to resume: its paid calls are not repeated."""
    replay: str | None = None
    """A run whose answers are given in the place of any call; its models stand for those here."""

    # What is shown.
    traces: int | None = DEFAULT_MAX_TRACES
    """Of how many questions MLflow gets traces, wrong answers first; None for all."""

    # Objects that a caller in Python made.
    questions: Benchmark | None = field(default=None, repr=False, compare=False)
    """The user's own questions; `benchmark` is then their name."""
    models: Mapping[Role, dspy.BaseLM] = field(
        default_factory=dict[Role, dspy.BaseLM], repr=False, compare=False
    )
    """The user's own models by role; `lm`, `prompt_lm` and so on then hold their names."""

    def __post_init__(self) -> None:
        request_settings(self.lm_settings)
        self._check_numbers()
        self._check_workers()
        if self.replay and self.resume:
            raise UserError("--replay does not go with --resume; start a run of its own for it")

    def _check_numbers(self) -> None:
        """Refuse numbers that are out of range."""
        check_number("timeout", self.timeout, maximum=MAX_SECONDS)
        check_number("max_failure_rate", self.max_failure_rate, maximum=1)
        for name in ("retries", "train", "dev", "test", "traces"):
            check_number(name, getattr(self, name))
        check_number("threads", self.threads, minimum=1)
        check_number("min_n", self.min_n, minimum=1)

    def _check_workers(self) -> None:
        """Refuse workers that could not be started, or could not share what the run needs."""
        workers = self.workers
        if workers == 1:
            return
        is_number = isinstance(workers, int) and workers > 1
        is_cluster = workers == "auto" or ":" in str(workers)
        if not is_number and not is_cluster:
            advice = "give a number of processes, or HOST:PORT (or auto) of a Ray cluster"
            raise UserError(f"workers = {workers!r}: {advice}")
        if importlib.util.find_spec("ray") is None:
            raise MissingDependencyError("ray", "ray")

        for name in (self.lm, self.prompt_lm, self.judge_lm, self.answer_lm):
            if name and (is_local(name) or name.startswith(GGUF)):
                raise UserError(
                    f"--workers: each would load {name} for itself;"
                    " serve it, and name its --api-base"
                )
        if self.replay:
            raise UserError("--workers does not go with --replay, which is one process's")

    @cached_property
    def _benchmark(self) -> Benchmark:
        """The benchmark, which is read once."""
        if self.questions is not None:
            return self.questions
        return load_benchmark(self.benchmark, self.data, **self.options)

    def load(self, compiling: bool = False) -> Benchmark:
        """Return the benchmark.

        Args:
            compiling: Whether a program is to be compiled on it.

        Raises:
            UserError: A program is to be compiled on a simulated conversation: optimizers run a
                program on single examples.
        """
        benchmark = self._benchmark
        if compiling and benchmark.interaction is not None:
            raise UserError(
                f"{benchmark.name} is a simulated conversation:"
                " nothing compiles on it, evaluate on it"
            )
        return benchmark

    def split(self, benchmark: Benchmark) -> Split:
        """Return the benchmark's questions, cut as this setup asks."""
        return benchmark.split(self.train, self.dev, self.test, self.seed, min_dev=self.min_n)

    def check_models(self) -> None:
        """Refuse a model that could not be asked, whatever its role.

        Raises:
            UserError: Nobody provides it, its key is not set, or its provider has no such model.
            EndpointError: Its server cannot be reached. A resumed run goes on: its store may hold
                all that it needs.
        """
        for role, lm in self.models.items():
            self._check_lm(language_model(lm, role=role))
        for role, model in self.roles.items():
            if role not in self.models:
                self.check_model(role, model)

    def check_model(self, role: Role, model: RoleModel) -> None:
        """Refuse the model of one role, if it could not be asked, as `check_models` does."""
        if not model.name or runs_here(model.name):
            return
        try:
            lm = language_model(model.name, api_base=model.address, role=role)
            self._check_lm(lm)
        except (UserError, EndpointError) as error:
            if not model.own_option:
                raise
            advice = f"asked at --api-base; {model.own_option} names another address"
            kind = EndpointError if isinstance(error, EndpointError) else UserError
            raise kind(f"{error} ({advice})") from error

    def _check_lm(self, lm: MeteredLM) -> None:
        """Refuse a model without a key or an endpoint, or one that its endpoint does not have."""
        check_key(lm)
        try:
            check_endpoint(lm)
        except EndpointError:
            # The store of a resumed run may hold all that it still needs.
            if self.resume is None:
                raise

    @property
    def roles(self) -> dict[Role, RoleModel]:
        """The model of each role."""
        return {
            "task": RoleModel(self.lm, self.api_base),
            "prompt": self.role_model(self.prompt_lm, self.prompt_api_base, "--prompt-api-base"),
            "judge": self.role_model(self.judge_lm, self.judge_api_base, "--judge-api-base"),
            "answer": self.role_model(self.answer_lm, self.answer_api_base, "--answer-api-base"),
        }

    def role_model(self, name: str | None, own_address: str | None, own_option: str) -> RoleModel:
        """Return a model beside the task LM with its address.

        `--api-base` is the address of an OpenAI-compatible server, or of the provider of the task
        LM. A model of any other provider is asked at its provider's: the key of one must not be
        sent to another.

        Args:
            name: The model; None where the role has none of its own.
            own_address: The address that `own_option` names, if any.
            own_option: The option that names the address of this role.
        """
        if name is None or runs_here(name):
            return RoleModel(name, own_address)
        if own_address is not None or self.api_base is None:
            return RoleModel(name, own_address)

        shares_provider = provider_of(name) in (_COMPATIBLE, provider_of(self.lm))
        if shares_provider or runs_here(self.lm):
            return RoleModel(name, self.api_base, own_option)
        return RoleModel(name)

    @property
    def default_adapter(self) -> str:
        """The adapter of a program that is not a saved one.

        It is "auto" for models by name, which have an endpoint that can be asked what it can do.
        """
        if self.adapter:
            return self.adapter
        user_lm = self.models.get("task")
        if self.adapter is None and user_lm is not None and not is_plain(user_lm):
            return "chat"
        if is_offline(self.lm) or is_local(self.lm):
            return "chat"
        return "auto"

    @property
    def resume_key(self) -> dict[str, Any]:
        """What decides the result of a run: one that is resumed has the same."""
        decisive: dict[str, Any] = {}
        for each_field in fields(self):
            if each_field.name not in _FREE_ON_RESUME:
                decisive[each_field.name] = getattr(self, each_field.name)

        if self.data:
            decisive["data"] = str(Path(self.data).absolute())
        if self.questions is not None:
            decisive["questions"] = self.questions.source.sha256
        return decisive

    def command_line(self, command: str, program: str, chosen: Mapping[str, Any]) -> str:
        """Return the command that does a run again.

        Files stand there by their names, and addresses are left out: the line is shown to others.

        Args:
            command: "compile", "evaluate" or "train".
            program: What is run.
            chosen: The options of the command itself, e.g. {"split": "test"}.
        """
        if self.questions is not None:
            return f"mempiler.{command} in Python, with examples"

        shown_program = program if ":" in program else Path(program).name
        words = ["mempiler", command, shown_program, "--benchmark", self.benchmark]
        options = {**self._changed_options(), **asdict(self.limits), **chosen}
        for name, value in options.items():
            words.extend(_option_words(name, value))
        return shlex.join(words)

    def _changed_options(self) -> dict[str, Any]:
        """Return the options of the command line that decide the result and are no defaults."""
        defaults = RunConfig(self.benchmark)
        changed: dict[str, Any] = {}
        for name, value in self.resume_key.items():
            if value != getattr(defaults, name):
                changed[name] = value

        # `metric` and `categories` are options of the command line; the other options of a
        # benchmark are not.
        named: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, value in changed.pop("options", {}).items():
            if name in ("metric", "categories"):
                named[name] = value
            else:
                others[name] = value
        return {**named, "benchmark-set": others, **changed}


def _option_words(name: str, value: Any) -> list[str]:
    """Return an option with its value as words of a command line; none if it is not set."""
    if value is None:
        return []
    option = f"--{_OPTION_NAMES.get(name, name)}".replace("_", "-")
    values = [value]
    if isinstance(value, Mapping):
        values = [f"{key}={entry}" for key, entry in value.items()]

    words: list[str] = []
    for single_value in values:
        is_file = name in ("data", "replay")
        text = Path(single_value).name if is_file else str(single_value)
        words.extend([option, text])
    return words


def _never_set(name: str) -> bool:
    """Return False: no field was set on purpose."""
    return False


def replayed_setup(setup: RunConfig, was_set: Callable[[str], bool] = _never_set) -> RunConfig:
    """Return the setup with the models and settings of the run that it replays, if it replays one.

    Args:
        setup: Names the run, or none.
        was_set: Returns whether a field was set on purpose, be it to its default.

    Raises:
        UserError: There is no such run, or the setup names other models than it had.
    """
    if setup.replay is None:
        return setup
    folder = RunFolder.open(setup.replay)
    recorded = folder.read()["settings"]
    defaults = {each_field.name: each_field.default for each_field in fields(setup)}
    # Its default is made by a factory.
    defaults["lm_settings"] = {}

    taken_over: dict[str, Any] = {}
    for name in _TAKEN_BY_REPLAY:
        chosen = getattr(setup, name)
        before = recorded.get(name, defaults[name])
        is_chosen = chosen != defaults[name] or was_set(name)
        if is_chosen and chosen != before:
            option = "--lm-set" if name == "lm_settings" else f"--{name.replace('_', '-')}"
            raise UserError(
                f"--replay {setup.replay}: ran with {option} {before}, not {chosen};"
                f" leave {option} out"
            )
        taken_over[name] = before
    return replace(setup, replay=str(folder.path), **taken_over)


def parameters(program: MemoryProgram, setup: RunConfig, benchmark: Benchmark) -> dict[str, Any]:
    """Return what MLflow logs of a run's settings."""
    source = benchmark.source
    embedder = program.method.embedder
    logged: dict[str, Any] = {
        "program": program.name,
        "task": program.task.name,
        "benchmark": benchmark.name,
        "data": source.path,
        "data_sha256": source.sha256,
        "sample": source.sample,
        "metric": benchmark.scorer.title,
        "lm": setup.lm,
        "prompt_lm": setup.prompt_lm or setup.lm,
        "judge_lm": setup.judge_lm,
    }
    if setup.answer_lm:
        logged["answer_lm"] = setup.answer_lm
    logged["judge_hash"] = benchmark.scorer.judge_hash
    for name, value in setup.lm_settings.items():
        logged[f"lm.{name}"] = value
    logged["embedder"] = embedder.name if embedder else None
    if setup.reranker:
        logged["reranker"] = setup.reranker
    logged["adapter"] = setup.adapter or program.adapter
    logged["seed"] = setup.seed
    logged["threads"] = setup.threads
    if setup.replay:
        logged["replay"] = Path(setup.replay).name
    for name, value in asdict(setup.limits).items():
        if value is not None:
            logged[f"limit.{name}"] = value
    for name, value in program.config.items():
        logged[f"method.{name}"] = value
    return logged


def data_of(benchmark: Benchmark, split: Split) -> dict[str, Any]:
    """Return what a manifest says of the data: its file, metric, split and sizes."""
    source = benchmark.source
    description: dict[str, Any] = {
        "name": benchmark.name,
        "file": source.name,
        "sha256": source.sha256,
        "sample": source.sample,
    }
    if source.files:
        description["files"] = list(source.files)
    description["metric"] = benchmark.scorer.title
    description["split_sha256"] = split.digest
    description["sizes"] = {
        "train": len(split.train),
        "dev": len(split.dev),
        "test": len(split.test),
    }
    return description
