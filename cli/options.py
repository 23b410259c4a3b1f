"""Options that several commands share, and how they become a `RunConfig`."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from ..engines.endpoint import DEADLINE, RETRIES, TIMEOUT
from ..errors import UserError
from ..validation import MAX_SECONDS
from .config import CONFIG
from .printing import choose_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..runs.options import RunOptions
    from ..runs.setup import RunConfig


SECONDS = click.FloatRange(0, MAX_SECONDS, min_open=True)

LM = click.option("--lm", default="offline", help="`offline`, `gguf:NAME`, or any model name DSPy takes")
API_BASE = click.option("--api-base", help="address of an OpenAI-compatible server")
JSON = click.option("--json", is_flag=True, expose_value=False, callback=choose_json, help="print one JSON object")
ALLOW_CODE = click.option("--allow-code", is_flag=True, help="let a saved program import its module:Class method")
MIN_N = click.option("--min-n", type=click.IntRange(1), default=20, help="questions needed for a verdict")
OVERWRITE = click.option("--force", "overwrite", is_flag=True, help="overwrite a file that Mempiler did not write")
REPLAY = click.option("--replay", metavar="RUN", help="take every answer from a run's store; nothing is called")
STORE = click.option("--store", metavar="URL", help="path or postgresql://... [default: memories.sqlite with the runs]")
USER = click.option("--user", help="the user whose memory it is")
WHOSE = click.option("--user", required=True, help="the user whose memory it is")
TENANT = click.option("--tenant", default="default", help="keeps users of several customers apart")
ALL_TENANTS = click.option("--tenant", help="only this tenant [default: all]")
LM_SET = click.option(
    "--lm-set",
    multiple=True,
    metavar="NAME=VALUE",
    help="a setting of the LM's requests: temperature, top_p, seed, reasoning_effort, or a field of the body",
)


def adds(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decorator that adds options in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def _workers(ctx: click.Context, param: click.Parameter, value: Any) -> int | str:
    return click.IntRange(1).convert(value, param, ctx) if value.lstrip("-").isdecimal() else value


def _traces(ctx: click.Context, param: click.Parameter, value: Any) -> int | None:
    words: dict[str, int | None] = {"all": None, "none": 0}
    return words[value] if value in words else click.IntRange(0).convert(value, param, ctx)


WORKERS = click.option(
    "--workers",
    metavar="N|ADDRESS",
    default="1",
    callback=_workers,
    help="processes that share the work, or the address of a Ray cluster (extra: ray)",
)
_EMBEDDER_API_BASE = click.option("--embedder-api-base", help="address of an OpenAI-compatible embedding server")
_RERANKER = click.option(
    "--reranker",
    help="ranks what a search finds first again: none, tokens or fastembed:NAME [default: tokens, where the embedder "
    "runs here]",
)
reading_options = adds(
    click.option("--embedder", help="the embedder the program was made with; not needed for one that runs here"),
    _EMBEDDER_API_BASE,
    _RERANKER,
    ALLOW_CODE,
)
"""Adds the options by which a saved program is loaded that is asked nothing; `open_program` takes them."""
asking_options = adds(
    click.option("--lm", help="the model that is asked; not needed with the offline engine"),
    API_BASE,
    LM_SET,
    reading_options,
)
"""Adds the options by which a saved program is loaded and asked; `open_asked` takes them."""

_EMBEDDER = "`minilm`, `e5`, `onnx:DIR`, `fastembed:NAME`, `offline` (compares spelling), or an embedding model's name"
_ROLE_ADDRESS = "address of its server [default: --api-base, for openai/NAME and models of --lm's provider]"
_METRIC = "what scores, where the benchmark has several, e.g. judge; with jsonl also module:function, yours"
_LOST = "mark the run as broken above this share of failed questions, or of lost answers"
_ADAPTER = "auto, chat, json or compact [default: auto for named models, else chat, or the saved program's]"
_TRACES = "questions whose traces MLflow gets, wrong answers first"
_COUNT = click.IntRange(0)

answer_options = adds(
    click.option("--answer-lm", help="answers from the memory [default: the task LM, which writes it]"),
    click.option("--answer-api-base", help=_ROLE_ADDRESS),
)
setup_options = adds(
    click.option("--benchmark", required=True, metavar="NAME", help="see `mempiler list benchmarks`"),
    click.option("--data", type=click.Path(), help="the benchmark's file [default: the bundled sample]"),
    click.option("--metric", help=_METRIC),
    click.option("--categories", help="comma-separated categories, e.g. 2,4"),
    click.option("--benchmark-set", multiple=True, metavar="NAME=VALUE", help="an option of it, e.g. length=128k"),
    LM,
    API_BASE,
    LM_SET,
    click.option("--prompt-lm", help="writes proposals and reflections [default: the task LM]"),
    click.option("--prompt-api-base", help=_ROLE_ADDRESS),
    click.option("--judge-lm", help="judges answers, for benchmarks and metrics that need it"),
    click.option("--judge-api-base", help=_ROLE_ADDRESS),
    click.option("--embedder", default="offline", help=_EMBEDDER),
    _EMBEDDER_API_BASE,
    _RERANKER,
    click.option("--adapter", help=_ADAPTER),
    click.option("--train", type=_COUNT, help="training questions [default: all of the train split]"),
    click.option("--dev", type=_COUNT, help="dev questions"),
    click.option("--test", type=_COUNT, help="test questions"),
    click.option("--seed", type=int, default=0, help="seed of the split and the optimizer"),
    click.option("--max-failure-rate", type=click.FloatRange(0, 1), default=0.1, help=_LOST),
    click.option("--threads", type=click.IntRange(1), default=8, help="questions in flight"),
    click.option("--timeout", type=SECONDS, default=TIMEOUT, help="read timeout in seconds"),
    click.option("--retries", type=_COUNT, default=RETRIES, help="retries per failed call"),
    click.option("--lm-deadline", type=SECONDS, default=DEADLINE, help="seconds per call, including retries"),
    click.option("--max-usd", type=float, help="stop at this cost in US dollars"),
    click.option("--max-calls", type=_COUNT, help="stop after this many calls, including embedders'"),
    click.option("--max-tokens", type=_COUNT, help="stop after this many tokens"),
    click.option("--max-minutes", type=float, help="stop after this many minutes"),
    click.option("--traces", metavar="N|all|none", default="20", callback=_traces, help=_TRACES),
    click.option("--resume", metavar="RUN", help="continue a run; pays only for what is missing"),
    click.option("--plan", "planned", is_flag=True, help="print calls, tokens and cost, and spend nothing"),
    JSON,
    click.option("--set", multiple=True, metavar="NAME=VALUE", help="a setting of the method, e.g. k=20"),
    ALLOW_CODE,
    CONFIG,
)
"""Adds the options that make up a `RunConfig`."""


def take_run_options(values: dict[str, Any]) -> RunOptions:
    """Take the options that `mempiler.compile` and its like share out of a command's values."""
    from ..runs.options import RunOptions

    options: dict[str, Any] = {name: values.pop(name) for name in RunOptions.__annotations__ if name in values}
    for name in ("set", "lm_set", "benchmark_set"):
        options[name] = parse_settings(options.get(name, ()))
    for name in ("lm", "embedder"):
        # Only what a user chose: a run that is replayed brings models of its own.
        if name in options and not was_given(name):
            del options[name]
    return cast("RunOptions", options)


def make_setup(values: dict[str, Any]) -> RunConfig:
    """Take the options of a run out of a command's values, and return its setup."""
    from ..runs import options

    metric = values.pop("metric", None)
    return options.make_setup(take_run_options(values), options.Questions(metric=metric))


def was_given(name: str) -> bool:
    """Whether an option was given, on the command line or by the environment."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


READING = ("allow_code", "embedder", "embedder_api_base", "reranker")
"""What `reading_options` give."""


def open_asked(program: str, given: Mapping[str, Any], **how: Any) -> tuple[Any, str, Any]:
    """A saved program, the name of its language model, and that model, as the `asking_options` among `given` say.

    What `how` says of `timeout`, `retries` and `deadline` holds for an embedder behind an endpoint, too.
    """
    from ..engines.endpoint import Waits
    from ..engines.lm import language_model
    from ..runs.artifact import open_program

    opened = open_program(program, **{name: given[name] for name in READING})
    account = getattr(opened.program.method.embedder, "account", None)
    if account is not None:
        account.waits = Waits(**{name: how[name] for name in ("timeout", "retries", "deadline") if name in how})
    name, settings = opened.model(given["lm"]), parse_settings(given["lm_set"])
    return opened.program, name, language_model(name, api_base=given["api_base"], **settings, **how)


def parse_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are read as JSON where they are (and .5 as 0.5), else as text."""
    from ..records.json_input import decode_json

    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"{pair!r} is not NAME=VALUE")
        try:
            settings[name.replace("-", "_")] = decode_json(re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", value))
        except ValueError:
            settings[name.replace("-", "_")] = value
    return settings


def setting_options(model: type[BaseModel]) -> Callable[[Any], Any]:
    """Adds an option for each field of a model, which checks it: its default, and its description as help."""
    return adds(
        *(
            click.option(
                f"--{name.replace('_', '-')}",
                type=field.annotation,
                is_flag=field.annotation is bool,
                default=field.default,
                help=field.description,
            )
            for name, field in model.model_fields.items()
        )
    )


def open_store(url: str | None, make: bool = False, connect: bool = True) -> Any:
    """Open the store of `--store`; a file that is not there is refused unless it is to be made.

    Without `connect` a database that cannot be reached is no error here, but of each call until it can.
    """
    from ..memory.store.store import Store
    from ..runs.results_folder import create_folder, results_folder

    address = url or str(results_folder() / "memories.sqlite")
    if "://" not in address:
        if not make and not os.path.exists(address):  # noqa: PTH110 - pathlib raises for a name that is too long
            raise UserError(f"{address}: no memories here; give --store, or add some with `mempiler memories add`")
        create_folder(Path(address).resolve().parent)
    return Store(address, connect=connect)
