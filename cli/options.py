"""Options that several commands share, and how they become a `Setup`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..engines.endpoint.deadline import DEADLINE, RETRIES, TIMEOUT
from ..errors import MOST_SECONDS, UserError
from .config import CONFIG

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from ..engines.guard import Guard
    from ..runs.artifact import Opened
    from ..runs.setup import Setup


class Finite(click.FloatRange):
    """A number in a range that is neither NaN nor infinite: click lets both pass, and a limit of NaN is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


USD = Finite(0)
SECONDS = Finite(0, MOST_SECONDS, min_open=True)

BENCHMARK = click.option("--on", "benchmark", required=True, metavar="BENCHMARK", help="see `mempiler list`")
DATA = click.option("--data", type=click.Path(), help="the benchmark's file [default: the bundled sample]")
LM = click.option(
    "--lm", default="offline", show_default=True, help="`offline`, `gguf:NAME`, or any model name DSPy takes"
)
API_BASE = click.option("--api-base", help="address of an OpenAI-compatible server")
JSON = click.option("--json", "as_json", is_flag=True, help="print one JSON object")
ALLOW_CODE = click.option("--allow-code", is_flag=True, help="let a saved program import its module:Class method")
MIN_N = click.option(
    "--min-n", type=click.IntRange(1), default=20, show_default=True, help="fewer questions than these tell nothing"
)
OVERWRITE = click.option("--force", "overwrite", is_flag=True, help="overwrite a file that Mempiler did not write")
PART = click.option(
    "--part",
    type=click.Choice(["all", "train", "dev", "test"]),
    default="all",
    show_default=True,
    help="all questions, or a part of the split that compile uses",
)
PLAN = click.option("--plan", "planned", is_flag=True, help="print what the run will take, and spend nothing")
OPTION = click.option(
    "--option", "pairs", multiple=True, metavar="NAME=VALUE", help="an option of the benchmark, e.g. length=128k"
)
REPLAY = click.option(
    "--replay", metavar="RUN", help="take every answer from a run's store, models too; nothing is called"
)
SET = click.option("--set", "config", multiple=True, metavar="NAME=VALUE", help="a setting of the method, e.g. k=20")


LM_SET = click.option(
    "--lm-set",
    "lm_settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="a setting of the LM's requests: temperature, top_p, seed, reasoning_effort, or a field of the body",
)


def _gone(now: str) -> Callable[..., None]:
    """What an option of before does: it says what the new one is."""

    def refuse(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None:
            raise UserError(f"{param.opts[0]} is now: {now}")

    return refuse


class _Workers(click.ParamType):
    """A number of processes, or the address of a Ray cluster."""

    name = "N|ADDRESS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return click.IntRange(1).convert(value, param, ctx) if str(value).lstrip("-").isdecimal() else value


class _Traces(click.ParamType):
    """A number of questions, `all` of them or `none`; None is all."""

    name = "N|all|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..runs.lineage import traces_in

        return value if value is None or isinstance(value, int) else traces_in(value)


WORKERS = click.option(
    "--workers",
    type=_Workers(),
    default=1,
    show_default=True,
    help="processes that share the work, or the address of a Ray cluster (extra: ray)",
)

STORE = click.option(
    "--store", metavar="URL", help="path or postgresql://... [default: memories.sqlite in the results folder]"
)
USER = click.option("--user", help="the user whose memory it is")
WHOSE = click.option("--user", required=True, help="the user whose memory it is")
TENANT = click.option("--tenant", default="default", show_default=True, help="keeps users of several customers apart")
ALL_TENANTS = click.option("--tenant", help="only this tenant [default: all]")


_EMBEDDER_API_BASE = "address of an OpenAI-compatible embedding server"
_READING = [
    click.option(
        "--embedder",
        help="the embedder the program was made with; needless for one of this process",
    ),
    click.option("--embedder-api-base", help=_EMBEDDER_API_BASE),
    ALLOW_CODE,
]
_ASKING = [
    click.option("--lm", help="the model that is asked; needless for the offline engine"),
    click.option("--api-base", help="address of an OpenAI-compatible server"),
    LM_SET,
    *_READING,
]

_EMBEDDER = (
    "`minilm` or `e5` (see `mempiler list embedders`), `onnx:DIR`, `offline` (compares spelling), or an embedding "
    "model's name"
)

_SILENCE = "seconds of silence after which a call to a model has failed"
_DEADLINE = "seconds for a call to a model, its retries and waits included"

_ADAPTER = (
    "auto, chat, json or compact "
    "[default: auto for named models, chat for offline and local ones, or the saved program's]"
)

_SETUP = [
    BENCHMARK,
    DATA,
    click.option("--metric", help="what scores, where the benchmark has several, e.g. judge"),
    click.option("--categories", help="comma-separated categories, e.g. 2,4"),
    OPTION,
    LM,
    API_BASE,
    LM_SET,
    click.option("--temperature", hidden=True, expose_value=False, callback=_gone("--lm-set temperature=VALUE")),
    click.option("--prompt-lm", help="writes proposals and reflections [default: the task LM]"),
    click.option("--prompt-api-base", help="address of its server"),
    click.option("--judge-lm", help="judges answers, for benchmarks and metrics that need it"),
    click.option("--judge-api-base", help="address of its server"),
    click.option("--embedder", default="offline", show_default=True, help=_EMBEDDER),
    click.option("--embedder-api-base", help=_EMBEDDER_API_BASE),
    click.option("--adapter", help=_ADAPTER),
    click.option("--train", type=click.IntRange(0), help="training questions [default: all of the train split]"),
    click.option("--dev", type=click.IntRange(0), help="dev questions"),
    click.option("--test", type=click.IntRange(0), help="test questions"),
    click.option("--seed", type=int, default=0, show_default=True, help="draws the split, and what an optimizer tries"),
    click.option(
        "--max-lost",
        type=Finite(0, 1),
        default=0.1,
        show_default=True,
        help="mark the run as broken above this share of failed questions, or of lost answers",
    ),
    click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="questions in flight"),
    click.option("--timeout", type=SECONDS, default=TIMEOUT, show_default=True, help=_SILENCE),
    click.option("--retries", type=click.IntRange(0), default=RETRIES, show_default=True, help="of a call that failed"),
    click.option("--lm-deadline", type=SECONDS, default=DEADLINE, show_default=True, help=_DEADLINE),
    click.option("--max-usd", type=USD, help="stop when so much money is spent"),
    click.option("--max-calls", type=click.IntRange(0), help="stop after so many calls of models, embedders' too"),
    click.option("--max-tokens", type=click.IntRange(0), help="stop after so many tokens"),
    click.option("--max-minutes", type=Finite(0), help="stop after so many minutes"),
    click.option(
        "--traces",
        type=_Traces(),
        default="20",
        show_default=True,
        help="questions whose traces MLflow gets, wrong answers first",
    ),
    click.option("--resume", metavar="RUN", help="go on with a run: pay only for what is missing"),
    PLAN,
    JSON,
    SET,
    ALLOW_CODE,
    CONFIG,
]


def setup_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that make up a `Setup`."""
    for option in reversed(_SETUP):
        command = option(command)
    return command


def make_setup(values: dict[str, Any]) -> Setup:
    """Takes the setup's options out of a command's keyword arguments."""
    from ..engines.guard import Limits
    from ..runs.setup import Setup, replayed_setup

    limits = Limits(**{name: values.pop(name) for name in ("max_usd", "max_calls", "max_tokens", "max_minutes")})
    names = [field.name for field in dataclasses.fields(Setup) if field.name not in ("options", "limits", "repeat")]
    named = {name: values.pop(name) for name in ("categories", "metric")}
    options = parse_settings(values.pop("pairs", ())) | {name: value for name, value in named.items() if value}
    values |= {name: parse_settings(values[name] or ()) for name in ("lm_settings", "config")}
    setup = Setup(options=options, limits=limits, **{name: values.pop(name) for name in names if name in values})
    return replayed_setup(setup, lambda name: name in ("lm", "embedder") and _said(name))


def _said(name: str) -> bool:
    """Whether an option was given, on the command line or by the environment."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def asking_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options by which a saved program is loaded and asked; `open_asked` takes them."""
    for option in reversed(_ASKING):
        command = option(command)
    return command


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options by which a saved program is loaded that is asked nothing; `open_saved` takes them."""
    for option in reversed(_READING):
        command = option(command)
    return command


def open_saved(program: str, embedder: str | None, embedder_api_base: str | None, allow_code: bool) -> Opened:
    """A saved program, by its folder or as models:/NAME@ALIAS."""
    from ..runs.artifact import chosen_embedder, open_program
    from ..runs.registry import program_folder

    folder = program_folder(program) or program
    return open_program(folder, allow_code, chosen_embedder(folder, embedder, embedder_api_base))


def open_asked(
    program: str,
    lm: str | None,
    api_base: str | None,
    lm_settings: tuple[str, ...] = (),
    guard: Guard | None = None,
    **reading: Any,
) -> tuple[Any, str, Any]:
    """A saved program as `open_saved` opens it; the name of its language model, and that model."""
    from ..engines.models import language_model

    opened = open_saved(program, **reading)
    name = opened.model(lm)
    settings = parse_settings(lm_settings)
    return opened.program, name, language_model(name, api_base=api_base, guard=guard, **settings)


def parse_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are read as JSON where they are (and .5 as 0.5), else as text.

    Raises:
        UserError: A pair has no "=".
    """
    from ..records.json_input import decode

    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"{pair!r} is not NAME=VALUE")
        try:
            settings[name.replace("-", "_")] = decode(re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", value))
        except ValueError:
            settings[name.replace("-", "_")] = value
    return settings


def setting_options(model: type[BaseModel]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds an option for each field of a model: its default, its range, and its description as help."""

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, field in reversed(model.model_fields.items()):
            kind = click.BOOL if field.annotation is bool else _kind(field)
            command = click.option(
                f"--{name.replace('_', '-')}",
                type=kind,
                is_flag=kind is click.BOOL,
                default=field.default,
                show_default=kind is not click.BOOL,
                help=field.description,
            )(command)
        return command

    return added


def _kind(field: FieldInfo) -> click.ParamType:
    """What an option of a number takes: the range of its field."""
    ends = {name: getattr(each, name) for each in field.metadata for name in ("ge", "gt", "le") if hasattr(each, name)}
    least = ends.get("gt", ends.get("ge"))
    range_of = click.IntRange if field.annotation is int else Finite
    return range_of(least, ends.get("le"), min_open="gt" in ends)


def open_store(url: str | None, make: bool = False) -> Any:
    """Opens the store of `--store`.

    Args:
        url: Its address; the default one if None.
        make: Whether a file that is not there is made.

    Raises:
        UserError: There is no such file.
        StoreError: It cannot be opened.
    """
    from ..memory.store import Store
    from ..runs.home import home, make_folder

    address = url or str(home() / "memories.sqlite")
    if "://" not in address:
        if not make and not Path(address).exists():
            raise UserError(f"{address}: no memories here; give --store, or add some with `mempiler memories add`")
        make_folder(Path(address).resolve().parent)
    return Store(address)
