"""The setup of a run: data, models, sizes, limits and seed, checked before anything is paid for."""

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
from ..engines.dspy_models import is_plain, metered_copy
from ..engines.endpoint import DEADLINE, RETRIES, TIMEOUT
from ..engines.limits import Limits
from ..engines.meter import Meter, MeteredLM, Role
from ..engines.models import (
    GGUF,
    check_askable,
    check_known,
    is_local,
    is_offline,
    language_model,
    provider_of,
    request_settings,
    runs_here,
)
from ..errors import EndpointError, MissingDependencyError, UserError
from ..programs.program import MemoryProgram
from ..validation import MAX_SECONDS, check_number
from .folder import RunFolder
from .mlflow_log import TRACES
from .results import MAX_LOST
from .statistics import MIN_N

Workers = int | str
"""A number of processes, or the address of a Ray cluster."""
_REPLAYED = ("lm", "prompt_lm", "judge_lm", "answer_lm", "embedder", "reranker", "adapter", "lm_settings")
"""Fields of a setup that a replay takes from the run."""
_FREE_ON_RESUME = {
    *("allow_code", "threads", "workers", "limits", "resume", "timeout", "retries", "lm_deadline", "traces"),
    *("questions", "models"),
    *(f"{role}api_base" for role in ("", "prompt_", "judge_", "answer_", "embedder_")),
}
"""Fields of a setup that a resumed run may change: they do not decide its result."""

_COMPATIBLE = "openai"
"""The provider that names of models on any OpenAI-compatible server begin with."""
_OPTIONS = {"method_settings": "set", "lm_settings": "lm-set", "max_failure_rate": "max-failure-rate"}
"""What the command line calls fields of a setup, where it has another name for them."""


@dataclass(frozen=True)
class RoleModel:
    """The model of a role of a run, and where it is asked."""

    name: str | None
    """None where the role has no model of its own."""
    address: str | None = None
    """None takes the provider's own."""
    own_option: str = ""
    """The option that names another address, where this one is that of `--api-base` for want of its own."""


@dataclass(frozen=True)
class RunConfig:
    """Data, models, sizes, limits and seed of a run."""

    benchmark: str
    data: str | None = None
    """The benchmark's file; None for the bundled sample."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the benchmark, e.g. {"categories": "2,4"}."""
    method_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the method, e.g. {"k": 20}; a saved program keeps its own."""
    allow_code: bool = False
    """Whether a saved program may import its `module:Class` method."""
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
    answer_lm: str | None = None
    """Answers from the memory, in an evaluation; None: the task LM, which writes it."""
    answer_api_base: str | None = None
    embedder: str = "offline"
    embedder_api_base: str | None = None
    reranker: str | None = None
    """None: by tokens, where the embedder runs here."""
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
    max_failure_rate: float = MAX_LOST
    """The share of failed questions, or of lost predictor calls, above which a run is broken and never promoted."""
    min_n: int = MIN_N
    """With fewer questions than these no program is said to be better than another, and none is promoted."""
    repeat: int = 0
    """Which repetition of a run: from 1 on, a model that samples answers anew."""
    resume: str | None = None
    """A run to resume: its paid calls are not repeated."""
    replay: str | None = None
    """A run whose answers are given in the place of any call; its models stand for those of the setup."""
    traces: int | None = TRACES
    """Of how many questions MLflow gets traces, wrong answers first; None for all."""
    questions: Benchmark | None = field(default=None, repr=False, compare=False)
    """The user's own questions, given from Python; `benchmark` is then their name."""
    models: Mapping[Role, dspy.BaseLM] = field(default_factory=dict[Role, dspy.BaseLM], repr=False, compare=False)
    """Language models that the user made, by role; `lm`, `prompt_lm` and so on then hold their names."""

    def __post_init__(self) -> None:
        request_settings(self.lm_settings)
        check_number("timeout", self.timeout, maximum=MAX_SECONDS)
        check_number("max_failure_rate", self.max_failure_rate, maximum=1)
        for name in ("retries", "train", "dev", "test", "traces"):
            check_number(name, getattr(self, name))
        check_number("threads", self.threads, minimum=1)
        check_number("min_n", self.min_n, minimum=1)
        if self.workers != 1:
            self._check_workers()
        if self.replay and self.resume:
            raise UserError("--replay does not go with --resume; start a run of its own for it")

    def _check_workers(self) -> None:
        given = self.workers
        if not (isinstance(given, int) and given > 1) and ":" not in str(given) and given != "auto":
            told = "give a number of processes, or HOST:PORT (or auto) of a Ray cluster"
            raise UserError(f"workers = {given!r}: {told}")
        if importlib.util.find_spec("ray") is None:
            raise MissingDependencyError("ray", "ray")
        for name in (self.lm, self.prompt_lm, self.judge_lm, self.answer_lm):
            if name and (is_local(name) or name.startswith(GGUF)):
                raise UserError(f"--workers: each would load {name} for itself; serve it, and name its --api-base")
        if self.replay:
            raise UserError("--workers does not go with --replay, which is one process's")

    @cached_property
    def _benchmark(self) -> Benchmark:
        if self.questions is not None:
            return self.questions
        return load_benchmark(self.benchmark, self.data, **self.options)

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
        """Split it by this setup."""
        return benchmark.split(self.train, self.dev, self.test, self.seed, min_dev=self.min_n)

    def check_models(self) -> None:
        """Refuse a model that could not be asked, whatever its role, before anything is paid for.

        Raises:
            UserError: Nobody provides it, its key is not set, or its provider has no such model.
            EndpointError: Its server cannot be reached. A resumed run goes on: its store may hold all that it needs.
        """
        for role, own in self.models.items():
            self._check(metered_copy(own, Meter(), role=role))
        for role, model in self.roles.items():
            if role not in self.models:
                self.check_model(role, model)

    def check_model(self, role: Role, model: RoleModel) -> None:
        """Refuse the model of one role; errors as of `check_models`."""
        if not model.name or runs_here(model.name):
            return
        try:
            self._check(language_model(model.name, api_base=model.address, role=role))
        except (UserError, EndpointError) as error:
            if not model.own_option:
                raise
            reason = f"{error} (asked at --api-base; {model.own_option} names another address)"
            raise (EndpointError(reason) if isinstance(error, EndpointError) else UserError(reason)) from error

    def _check(self, lm: MeteredLM) -> None:
        check_askable(lm)
        try:
            check_known(lm)
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
        """Return a model beside the task LM with its address: its own, else that of the run where it can be meant.

        `--api-base` is the address of an OpenAI-compatible server, or of the provider of the task LM. A model of any
        other provider is asked at its provider's: the key of one must not be sent to another.

        Args:
            name: The model; None where the role has none of its own.
            own_address: What `own_option` says, if anything.
            own_option: The option that names the address of this role.
        """
        if own_address is not None or name is None or self.api_base is None or runs_here(name):
            return RoleModel(name, own_address)
        providers = (_COMPATIBLE, provider_of(self.lm))
        if provider_of(name) in providers or runs_here(self.lm):
            return RoleModel(name, self.api_base, own_option)
        return RoleModel(name)

    @property
    def default_adapter(self) -> str:
        """The adapter of a program that is not a saved one: "auto" for named models, which have an endpoint to ask."""
        own = self.models.get("task")
        if self.adapter is None and own is not None and not is_plain(own):
            return "chat"
        return self.adapter or ("chat" if is_offline(self.lm) or is_local(self.lm) else "auto")

    @property
    def resume_key(self) -> dict[str, Any]:
        """What decides the result of a run: one that is resumed has the same."""
        decisive = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _FREE_ON_RESUME}
        if self.data:
            decisive["data"] = str(Path(self.data).absolute())
        if self.questions is not None:
            decisive["questions"] = self.questions.source.sha256
        return decisive

    def command_line(self, command: str, program: str, chosen: Mapping[str, Any]) -> str:
        """The command that does a run again: files by their names, without addresses; `chosen` are its own options."""
        if self.questions is not None:
            return f"mempiler.{command} in Python, with examples"
        plain = RunConfig(self.benchmark)
        changed = {name: value for name, value in self.resume_key.items() if value != getattr(plain, name)}
        words = ["mempiler", command, program if ":" in program else Path(program).name, "--benchmark", self.benchmark]
        own = changed.pop("options", {})  # `metric` and `categories` are options of the command line
        named = {name: own[name] for name in own if name in ("metric", "categories")}
        rest = {"benchmark-set": {name: own[name] for name in own if name not in named}}
        for name, value in {**named, **rest, **changed, **asdict(self.limits), **chosen}.items():
            given = [f"{key}={each}" for key, each in value.items()] if isinstance(value, Mapping) else [value]
            for each in given if value is not None else ():
                words += [f"--{_OPTIONS.get(name, name)}".replace("_", "-")]
                words += [Path(each).name if name in ("data", "replay") else str(each)]
        return shlex.join(words)


def replayed_setup(setup: RunConfig, given: Callable[[str], bool] = lambda name: False) -> RunConfig:
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
    for name in _REPLAYED:
        mine, before = getattr(setup, name), ran.get(name, defaults[name])
        if (mine != defaults[name] or given(name)) and mine != before:
            option = "--lm-set" if name == "lm_settings" else f"--{name.replace('_', '-')}"
            raise UserError(f"--replay {setup.replay}: ran with {option} {before}, not {mine}; leave {option} out")
    return replace(setup, replay=str(folder.path), **{name: ran.get(name, defaults[name]) for name in _REPLAYED})


def parameters(program: MemoryProgram, setup: RunConfig, benchmark: Benchmark) -> dict[str, Any]:
    """What MLflow logs of a run's settings."""
    source = benchmark.source
    return {
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
        **({"answer_lm": setup.answer_lm} if setup.answer_lm else {}),
        "judge_hash": benchmark.scorer.judge_hash,
        **{f"lm.{name}": value for name, value in setup.lm_settings.items()},
        "embedder": program.method.embedder.name if program.method.embedder else None,
        **({"reranker": setup.reranker} if setup.reranker else {}),
        "adapter": setup.adapter or program.adapter,
        "seed": setup.seed,
        "threads": setup.threads,
        **({"replay": Path(setup.replay).name} if setup.replay else {}),
        **{f"limit.{name}": value for name, value in asdict(setup.limits).items() if value is not None},
        **{f"method.{key}": value for key, value in program.config.items()},
    }


def data_of(benchmark: Benchmark, split: Split) -> dict[str, Any]:
    """What a manifest says of the data: the file by its name and digest, the metric, the split and its sizes."""
    source = benchmark.source
    where = {"name": benchmark.name, "file": source.name, "sha256": source.sha256, "sample": source.sample}
    read = {"files": list(source.files)} if source.files else {}
    sizes = {"train": len(split.train), "dev": len(split.dev), "test": len(split.test)}
    return {**where, **read, "metric": benchmark.scorer.title, "split_sha256": split.digest, "sizes": sizes}
