"""The configuration of a run: its data, models, method, limits and execution.

    config = RunConfig(
        data=DataConfig(benchmark="locomo", file="locomo10.json", train=40),
        models=ModelsConfig(task=TaskModelConfig(name="openai/gpt-4.1-mini")),
        method=MethodConfig(settings={"k": 20}),
        limits=Limits(max_usd=2),
    )

The same by the names that options of the command line and arguments of `mempiler.evaluate` have:

    config = RunConfig.from_options(
        benchmark="locomo", data="locomo10.json", train=40, lm="openai/gpt-4.1-mini", set={"k": 20},
        max_usd=2,
    )

A configuration is plain data: it can be written to a file and read from one (`config_file`). What a
caller in Python made himself, e.g. a `dspy.LM`, stands beside it in `inputs.RunInputs`.

The description of a field is the help of its option, so this file says what each setting does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from ..engines.endpoint import DEADLINE, RETRIES, TIMEOUT
from ..engines.spending_limits import Limits
from ..errors import UnknownNameError, UserError
from ..validation import MAX_SECONDS
from .statistics import MIN_N

MAX_FAILURE_RATE = 0.1
"""The share of failed questions, or of lost calls, above which a run is broken by default."""
TRACED_QUESTIONS = 20
"""Questions whose traces MLflow gets by default."""

_MAX_QUOTED = 60
"""Characters of a wrong value that a message quotes."""
_ROLE_ADDRESS = (
    "address of its server [default: --api-base, for openai/NAME and models of --lm's provider]"
)


@dataclass(frozen=True)
class Option:
    """How the command line and Python functions take a field."""

    name: str
    """The argument in Python, e.g. "lm_set"; the option is then `--lm-set`."""
    rare: bool = False
    """Whether `mempiler list settings` shows the option in the place of `--help`."""
    placeholder: str | None = None
    """What help shows in the place of the value, e.g. "RUN"."""


def _number_of_traces(value: Any) -> Any:
    """Turn "all" into None and "none" into 0, as `--traces` takes them; leave numbers alone.

    Raises:
        UserError: It is another text.
    """
    if value == "all":
        return None
    if value == "none":
        return 0
    number = _number_in_text(value)
    if isinstance(number, str):
        raise UserError(f"traces = {_quoted(number)}: give a number, all or none")
    return number


def _number_in_text(value: Any) -> Any:
    """Turn a text of digits into a number: options of the command line are texts."""
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    return value


Workers = int | str
"""A number of processes, or the address of a Ray cluster."""
Tracking = Literal["mlflow", "off"]
"""Where runs are recorded beside their folders: in MLflow, or nowhere."""
Count = Annotated[int, Field(ge=0)]
OptionalCount = Annotated[int | None, Field(ge=0)]
Margin = Annotated[float | None, Field(gt=0, le=1)]
AtLeastOne = Annotated[int, Field(ge=1)]
OptionalAtLeastOne = Annotated[int | None, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
Settings = dict[str, Any]
"""Settings by name, which the option takes as NAME=VALUE."""


class Section(BaseModel):
    """A group of settings.

    Raises:
        UserError: A value is of the wrong kind or out of range. The message is one line and names
            the option, the value and what is expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            raise _section_error(cls, error) from error


class DataConfig(Section):
    """The questions of a run."""

    benchmark: Annotated[str, Option("benchmark", placeholder="NAME")] = Field(
        description="see `mempiler list benchmarks`"
    )
    file: Annotated[str | None, Option("data", placeholder="PATH")] = Field(
        default=None, description="the benchmark's file [default: the bundled sample]"
    )
    metric: Annotated[str | None, Option("metric")] = Field(
        default=None,
        description="what scores, where the benchmark has several, e.g. judge or support;"
        " with jsonl also module:function, yours",
    )
    support_tokens: Annotated[OptionalAtLeastOne, Option("support_tokens", rare=True)] = Field(
        default=None,
        description="tokens of what is recalled that --metric support looks at [default: 300]",
    )
    categories: Annotated[str | None, Option("categories", rare=True)] = Field(
        default=None, description="comma-separated categories, e.g. 2,4"
    )
    settings: Annotated[Settings, Option("benchmark_set", rare=True)] = Field(
        default={}, description="a setting of the benchmark, e.g. length=128k"
    )
    train: Annotated[OptionalCount, Option("train", rare=True)] = Field(
        default=None, description="training questions [default: all of the train split]"
    )
    dev: Annotated[OptionalCount, Option("dev")] = Field(default=None, description="dev questions")
    test: Annotated[OptionalCount, Option("test")] = Field(
        default=None, description="test questions"
    )
    seed: Annotated[int, Option("seed", rare=True)] = Field(
        default=0, description="seed of the split, the optimizer and the training"
    )

    @model_validator(mode="after")
    def _refuse_settings_given_twice(self) -> Self:
        for name in ("metric", "categories"):
            if getattr(self, name) is not None and name in self.settings:
                raise UserError(
                    f"--{name} and --benchmark-set {name}=... set the same thing; give one of them"
                )
        return self

    @property
    def benchmark_settings(self) -> Settings:
        """All settings of the benchmark, with its metric and categories among them."""
        settings = dict(self.settings)
        if self.metric is not None:
            settings["metric"] = self.metric
        if self.categories is not None:
            settings["categories"] = self.categories
        return settings


class TaskModelConfig(Section):
    """The model that runs the program."""

    name: Annotated[str, Option("lm")] = Field(
        default="offline", description="`offline`, `gguf:NAME`, or any model name DSPy takes"
    )
    api_base: Annotated[str | None, Option("api_base")] = Field(
        default=None, description="address of an OpenAI-compatible server"
    )
    settings: Annotated[Settings, Option("lm_set")] = Field(
        default={},
        description="a setting of the LM's requests: temperature, top_p, seed, reasoning_effort,"
        " or a field of the body",
    )


class PromptModelConfig(Section):
    """The model that writes proposals and reflections."""

    name: Annotated[str | None, Option("prompt_lm")] = Field(
        default=None, description="writes proposals and reflections [default: the task LM]"
    )
    api_base: Annotated[str | None, Option("prompt_api_base", rare=True)] = Field(
        default=None, description=_ROLE_ADDRESS
    )


class JudgeModelConfig(Section):
    """The model that judges answers."""

    name: Annotated[str | None, Option("judge_lm")] = Field(
        default=None, description="judges answers, for benchmarks and metrics that need it"
    )
    api_base: Annotated[str | None, Option("judge_api_base", rare=True)] = Field(
        default=None, description=_ROLE_ADDRESS
    )


class AnswerModelConfig(Section):
    """The model that answers from a memory which the task LM writes, in an evaluation."""

    name: Annotated[str | None, Option("answer_lm")] = Field(
        default=None,
        description="answers from the memory [default: the task LM, which writes it]",
    )
    api_base: Annotated[str | None, Option("answer_api_base", rare=True)] = Field(
        default=None, description=_ROLE_ADDRESS
    )


class ModelsConfig(Section):
    """The language models of a run, by role."""

    task: TaskModelConfig = TaskModelConfig()
    prompt: PromptModelConfig = PromptModelConfig()
    judge: JudgeModelConfig = JudgeModelConfig()
    answer: AnswerModelConfig = AnswerModelConfig()


class MethodConfig(Section):
    """How the memory is built and searched. A saved program keeps its own settings."""

    settings: Annotated[Settings, Option("set")] = Field(
        default={}, description="a setting of the method, e.g. k=20"
    )
    embedder: Annotated[str, Option("embedder")] = Field(
        default="offline",
        description="`minilm`, `e5`, `onnx:DIR`, `fastembed:NAME`, `offline` (compares spelling),"
        " or an embedding model's name",
    )
    embedder_api_base: Annotated[str | None, Option("embedder_api_base", rare=True)] = Field(
        default=None, description="address of an OpenAI-compatible embedding server"
    )
    reranker: Annotated[str | None, Option("reranker", rare=True)] = Field(
        default=None,
        description="ranks what a search finds first again: none, tokens or fastembed:NAME"
        " [default: tokens, where the embedder runs here]",
    )
    adapter: Annotated[str | None, Option("adapter", rare=True)] = Field(
        default=None,
        description="auto, chat, json or compact"
        " [default: auto for named models, else chat, or the saved program's]",
    )
    allow_code: Annotated[bool, Option("allow_code", rare=True)] = Field(
        default=False, description="let a saved program import its module:Class method"
    )


class ExecutionConfig(Section):
    """How the work is done, when its result counts, and which other run it continues or repeats."""

    threads: Annotated[AtLeastOne, Option("threads", rare=True)] = Field(
        default=8, description="questions in flight"
    )
    workers: Annotated[
        Workers,
        BeforeValidator(_number_in_text),
        Option("workers", rare=True, placeholder="N|ADDRESS"),
    ] = Field(
        default=1,
        description="processes that share the work, or the address of a Ray cluster (extra: ray)",
    )
    timeout: Annotated[Seconds, Option("timeout", rare=True)] = Field(
        default=TIMEOUT, description="read timeout in seconds"
    )
    retries: Annotated[Count, Option("retries", rare=True)] = Field(
        default=RETRIES, description="retries per failed call"
    )
    lm_deadline: Annotated[Seconds, Option("lm_deadline", rare=True)] = Field(
        default=DEADLINE, description="seconds per call, including retries"
    )
    max_failure_rate: Annotated[float, Field(ge=0, le=1), Option("max_failure_rate", rare=True)] = (
        Field(
            default=MAX_FAILURE_RATE,
            description="mark the run as broken above this share of failed questions,"
            " or of lost answers",
        )
    )
    min_n: Annotated[AtLeastOne, Option("min_n")] = Field(
        default=MIN_N, description="questions needed for a verdict"
    )
    margin: Annotated[Margin, Option("margin", rare=True)] = Field(
        default=None,
        description="also keep a cheaper program that is not worse by more than this,"
        " e.g. 0.02 points of the score",
    )
    tracking: Annotated[Tracking, Option("tracking", rare=True, placeholder="mlflow|off")] = Field(
        default="mlflow",
        description="whether runs are recorded in MLflow, too, or in their folders alone",
    )
    traces: Annotated[
        OptionalCount,
        BeforeValidator(_number_of_traces),
        Option("traces", rare=True, placeholder="N|all|none"),
    ] = Field(
        default=TRACED_QUESTIONS,
        description="questions whose traces MLflow gets, wrong answers first",
    )
    resume: Annotated[str | None, Option("resume", placeholder="RUN")] = Field(
        default=None, description="continue a run; pays only for what is missing"
    )
    replay: Annotated[str | None, Option("replay", rare=True, placeholder="RUN")] = Field(
        default=None, description="take every answer from a run's store; nothing is called"
    )
    repeat: Count = Field(
        default=0,
        description="which repetition it is: from 1 on, a model that samples answers anew",
    )

    @model_validator(mode="after")
    def _refuse_replay_with_resume(self) -> Self:
        if self.replay and self.resume:
            raise UserError("--replay does not go with --resume; start a run of its own for it")
        return self


class RunConfig(Section):
    """Everything that a run rests on, beside what is run."""

    data: DataConfig
    models: ModelsConfig = ModelsConfig()
    method: MethodConfig = MethodConfig()
    limits: Limits = Limits()
    execution: ExecutionConfig = ExecutionConfig()

    @classmethod
    def from_options(cls, **options: Any) -> RunConfig:
        """Return the configuration that options make up; those left out have their defaults.

        Args:
            **options: By the names of `CONFIG_FIELDS`, e.g. `lm="offline", max_usd=2`.

        Raises:
            UserError: An option is unknown, of the wrong kind or out of range.
        """
        values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for name, value in options.items():
            field = CONFIG_FIELDS.get(name)
            if field is None:
                raise UnknownNameError("option", name, CONFIG_FIELDS)
            values[field.section][field.key] = value

        return cls(
            data=DataConfig(**values["data"]),
            models=ModelsConfig(
                task=TaskModelConfig(**values["models.task"]),
                prompt=PromptModelConfig(**values["models.prompt"]),
                judge=JudgeModelConfig(**values["models.judge"]),
                answer=AnswerModelConfig(**values["models.answer"]),
            ),
            method=MethodConfig(**values["method"]),
            limits=Limits(**values["limits"]),
            execution=ExecutionConfig(**values["execution"]),
        )

    def options(self) -> dict[str, Any]:
        """Return all values by the names of `CONFIG_FIELDS`."""
        values: dict[str, Any] = {}
        for name, field in CONFIG_FIELDS.items():
            section: Any = self
            for part in field.section.split("."):
                section = getattr(section, part)
            values[name] = getattr(section, field.key)
        return values

    def changed_options(self) -> dict[str, Any]:
        """Return the benchmark, and the values that are not the defaults, by name."""
        changed: dict[str, Any] = {}
        for name, value in self.options().items():
            field = CONFIG_FIELDS[name]
            if field.is_required or value != field.default:
                changed[name] = value
        return changed

    def with_options(self, **options: Any) -> RunConfig:
        """Return the configuration with other values, by the names of `CONFIG_FIELDS`."""
        return RunConfig.from_options(**{**self.options(), **options})


SECTIONS: dict[str, type[Section] | type[Limits]] = {
    "data": DataConfig,
    "models.task": TaskModelConfig,
    "models.prompt": PromptModelConfig,
    "models.judge": JudgeModelConfig,
    "models.answer": AnswerModelConfig,
    "method": MethodConfig,
    "limits": Limits,
    "execution": ExecutionConfig,
}
"""The groups of settings, by their names in a file."""


UNAVAILABLE_OPTIONS: dict[str, tuple[str, ...]] = {
    "compile": ("answer_lm", "answer_api_base"),
    "evaluate": ("margin",),
    "check": ("workers", "margin", "replay"),
    "choose": ("margin", "workers", "replay"),
    "train": (
        "answer_lm",
        "answer_api_base",
        "workers",
        "min_n",
        "margin",
        "replay",
        "support_tokens",
    ),
    "improve": (
        "benchmark",
        "benchmark_set",
        "categories",
        "support_tokens",
        "answer_lm",
        "answer_api_base",
        "set",
        "dev",
        "test",
        "workers",
        "resume",
        "replay",
        "traces",
    ),
}
"""Options of a run that a command does not have, by the name of the command."""


@dataclass(frozen=True)
class ConfigField:
    """One setting of a `RunConfig`: where it stands, what it holds, and the option that sets it."""

    section: str
    """Its group, as `SECTIONS` has it, e.g. "models.task"."""
    key: str
    """Its name in that group."""
    option: Option | None
    """None where the command line cannot set it."""
    info: FieldInfo
    """Its type, its range, its default and its description."""

    @property
    def name(self) -> str:
        """What options and arguments call it, e.g. "lm" for `name` of "models.task"."""
        return self.key if self.option is None else self.option.name

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.info.is_required()

    @property
    def default(self) -> Any:
        """Its default; None where it is required."""
        return None if self.is_required else self.info.default

    @property
    def kinds(self) -> tuple[type, ...]:
        """The types of its values, e.g. `(int, NoneType)`."""
        annotation: Any = self.info.annotation
        return get_args(annotation) or (annotation,)

    @property
    def takes_words(self) -> bool:
        """Whether its option takes words beside numbers, e.g. "all"."""
        return any(isinstance(part, BeforeValidator) for part in self.info.metadata)

    @property
    def is_mapping(self) -> bool:
        """Whether it holds settings by name, which an option takes as NAME=VALUE."""
        return self.info.annotation == Settings

    def check(self, value: Any) -> None:
        """Check a value for this setting.

        Raises:
            UserError: The value is of the wrong type or out of range. The message names the option,
                the value and what is expected.
        """
        if self.section == "limits":
            # `Limits` is no pydantic model: it checks its values when an object is created.
            Limits(**{self.key: value})
            return

        # The field's type with its constraints, such as `ge=0`. With it, pydantic can check a
        # single value without the other settings of the section.
        constrained_type: Any = Annotated[self.info.annotation, self.info]
        config = ConfigDict(strict=True, allow_inf_nan=False)
        adapter = TypeAdapter[Any](constrained_type, config=config)
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            raise _value_error(self.name, value, error) from error


def _fields_of_section(section: str, model: type[Section]) -> Iterator[ConfigField]:
    """Yield the fields of a group that is a pydantic model."""
    for key, info in model.model_fields.items():
        yield ConfigField(section, key, _option_of(info), info)


def _option_of(info: FieldInfo) -> Option | None:
    """Return the `Option` in the annotation of a field; None if no option sets the field."""
    for part in info.metadata:
        if isinstance(part, Option):
            return part
    return None


def _fields_of_limits() -> Iterator[ConfigField]:
    """Yield the fields of `Limits`, which is a dataclass."""
    kinds = get_type_hints(Limits)
    for field in dataclasses.fields(Limits):
        info = FieldInfo(
            annotation=kinds[field.name],
            default=None,
            description=field.metadata["description"],
        )
        yield ConfigField("limits", field.name, Option(field.name), info)


def _all_fields() -> Iterator[ConfigField]:
    """Yield all settings of a `RunConfig`, in the order of their groups."""
    for section, model in SECTIONS.items():
        if issubclass(model, Section):
            yield from _fields_of_section(section, model)
        else:
            yield from _fields_of_limits()


CONFIG_FIELDS: dict[str, ConfigField] = {field.name: field for field in _all_fields()}
"""All settings of a `RunConfig`, by the names that options and arguments have."""


def _section_error(model: type[Section], error: ValidationError) -> UserError:
    """Return an error of one line about the first problem that pydantic found in a section.

    Args:
        model: The section whose values were wrong.
        error: All that pydantic found.
    """
    problem = error.errors()[0]
    location = problem["loc"]
    if not location:
        # No field is wrong, but the whole section: it is a text or a list, for instance.
        return UserError(f"{_quoted(problem['input'])}: expected settings by name")

    key = str(location[0])
    if problem["type"] == "extra_forbidden":
        return UnknownNameError("setting", key, model.model_fields)

    # Users know a field by its option, e.g. `lm` for `name` of "models.task".
    option = _option_of(model.model_fields[key])
    name = key if option is None else option.name
    if problem["type"] == "missing":
        return UserError(f"{name} is missing")
    return _value_error(name, problem["input"], error)


def _value_error(name: str, value: Any, error: ValidationError) -> UserError:
    """Return what is wrong with a value as one line, with its name and what is expected."""
    reasons: list[str] = []
    for problem in error.errors():
        reason = problem["msg"].removeprefix("Input should be ")
        if reason not in reasons:
            reasons.append(reason)
    return UserError(f"{name} = {_quoted(value)}: input should be {' or '.join(reasons)}")


def _quoted(value: Any) -> str:
    """Return a value as Python writes it, shortened."""
    try:
        text = repr(value)
    except ValueError:
        # Python writes no number of thousands of digits.
        text = "a very large number"
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
