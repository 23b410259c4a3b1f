"""Options that several commands share, and what commands make of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import click
from click.core import ParameterSource

from ..errors import UserError
from ..runs.setting_pairs import parse_settings, with_underscores
from ..validation import MAX_SECONDS
from .config import CONFIG, FileOption
from .printing import choose_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..engines.limits import BudgetGuard
    from ..engines.metered_lm import MeteredLM
    from ..engines.model_config import ModelConfig
    from ..memory.store.store import Store
    from ..programs.program import MemoryProgram
    from ..runs.config import ConfigField
    from ..runs.inputs import RunInputs
    from ..runs.options import RunOptions
    from .option_values import AskingOptions

Decorator = Callable[[Any], Any]
"""Adds options to a function that click makes a command of."""

SECONDS = click.FloatRange(0, MAX_SECONDS, min_open=True)

API_BASE = click.option("--api-base", help="address of an OpenAI-compatible server")
JSON = click.option(
    "--json", is_flag=True, expose_value=False, callback=choose_json, help="print one JSON object"
)
ALLOW_CODE = click.option(
    "--allow-code", is_flag=True, help="let a saved program import its module:Class method"
)
MIN_N = click.option(
    "--min-n", type=click.IntRange(1), default=20, help="questions needed for a verdict"
)
OVERWRITE = click.option(
    "--force", "overwrite", is_flag=True, help="overwrite a file that Mempiler did not write"
)
PLAN = click.option(
    "--plan", "planned", is_flag=True, help="print calls, tokens and cost, and spend nothing"
)
STORE = click.option(
    "--store",
    metavar="URL",
    help="path or postgresql://... [default: memories.sqlite with the runs]",
)
USER = click.option("--user", help="the user whose memory it is")
WHOSE = click.option("--user", required=True, help="the user whose memory it is")
TENANT = click.option("--tenant", default="default", help="keeps users of several customers apart")
ALL_TENANTS = click.option("--tenant", help="only this tenant [default: all]")


def adds(*options: Decorator) -> Decorator:
    """Return a decorator that adds options in this order."""

    def add(command: Any) -> Any:
        # click puts what is added last in the first place.
        for option in reversed(options):
            command = option(command)
        return command

    return add


LM_SET = click.option(
    "--lm-set",
    multiple=True,
    metavar="NAME=VALUE",
    help="a setting of the LM's requests: temperature, top_p, seed, reasoning_effort, or a field"
    " of the body",
)
reading_options = adds(
    click.option(
        "--embedder",
        help="the embedder the program was made with; not needed for one that runs here",
    ),
    click.option("--embedder-api-base", help="address of an OpenAI-compatible embedding server"),
    click.option(
        "--reranker",
        help="ranks what a search finds first again: none, tokens or fastembed:NAME"
        " [default: tokens, where the embedder runs here]",
    ),
    ALLOW_CODE,
)
"""Adds the options by which a saved program is loaded that is asked nothing.

`open_program` takes them.
"""
asking_options = adds(
    click.option("--lm", help="the model that is asked; not needed with the offline engine"),
    API_BASE,
    LM_SET,
    reading_options,
)
"""Adds the options of `open_program_and_model`, by which a saved program is loaded and asked."""


def run_options(without: Collection[str] = ()) -> Decorator:
    """Return a decorator that adds the options of a run, and `--config` for their file.

    There is an option for each field of `RunConfig`: the field has its type, its range, its default
    and its help.

    Args:
        without: Names of options that the command does not have, e.g. "answer_lm".
    """
    from ..runs.config import CONFIG_FIELDS

    options: list[Decorator] = []
    for name, field in CONFIG_FIELDS.items():
        if field.option is not None and name not in without:
            options.append(_option_of_field(field))
    return adds(*options, CONFIG)


def _option_of_field(field: ConfigField) -> Decorator:
    """Return click's decorator for the option that sets a field of `RunConfig`."""
    assert field.option is not None, "fields without an option are left out by the caller"
    name = f"--{field.name.replace('_', '-')}"
    attributes: dict[str, Any] = {
        "cls": FileOption,
        "file_key": f"{field.section}.{field.key}",
        "check": field.check,
        "help": field.info.description,
        "hidden": field.option.rare,
        "required": field.is_required,
    }

    if field.is_mapping:
        return click.option(name, multiple=True, metavar="NAME=VALUE", **attributes)
    if bool in field.kinds:
        return click.option(name, is_flag=True, **attributes)

    # Mappings are empty and flags are off by default. The help shows the defaults of all others.
    if field.takes_words and field.default is not None:
        # The option takes numbers and words such as "all". So click reads it as text, and its
        # default has to be text, too.
        attributes["default"] = str(field.default)
    elif field.default is not None:
        attributes["default"] = field.default
    attributes["type"] = _click_type(field)
    attributes["metavar"] = field.option.placeholder
    return click.option(name, **attributes)


def _click_type(field: ConfigField) -> click.ParamType | type | None:
    """Return how click reads the text of an option: as a number, with its range, or as it is."""
    is_number = int in field.kinds or float in field.kinds
    if not is_number or field.takes_words:
        return None

    bounds: dict[str, Any] = {}
    for constraint in field.info.metadata:
        # No field has an open upper bound (lt).
        for name in ("gt", "ge", "le"):
            if hasattr(constraint, name):
                bounds[name] = getattr(constraint, name)
    if not bounds:
        return int if int in field.kinds else float

    range_type = click.IntRange if int in field.kinds else click.FloatRange
    minimum = bounds.get("ge", bounds.get("gt"))
    return range_type(minimum, bounds.get("le"), min_open="gt" in bounds)


def parse_run_options(values: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run, as `mempiler.compile`, `evaluate` and `train` take them.

    Args:
        values: The values of a command's options by name. Those that are no `RunOptions`, such as
            the metric, are left out.
    """
    from ..runs.config import CONFIG_FIELDS
    from ..runs.options import RunOptions

    options: dict[str, Any] = {}
    for name in RunOptions.__annotations__:
        if name not in values:
            continue
        # With --replay, the models are those of the run that is replayed. A default of ours must
        # not look like a model that the user chose in their place.
        if name in ("lm", "embedder") and not was_given(name):
            continue

        value = values[name]
        is_mapping = name in CONFIG_FIELDS and CONFIG_FIELDS[name].is_mapping
        options[name] = parse_settings(value) if is_mapping else value
    return cast("RunOptions", options)


def make_inputs(values: Mapping[str, Any]) -> RunInputs:
    """Return what a run starts with: the options and the metric among a command's values."""
    from ..runs import options

    questions = options.Questions(metric=values.get("metric"))
    return options.make_inputs(parse_run_options(values), questions)


def was_given(name: str) -> bool:
    """Return whether an option was set: on the command line, by a variable or in a file."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def setting_options(model: type[BaseModel]) -> Decorator:
    """Return a decorator that adds an option for each field of a pydantic model.

    An option has the default and the description of its field. Ranges are checked when the model is
    made of the values.
    """
    options: list[Decorator] = []
    for name, field in model.model_fields.items():
        option = click.option(
            f"--{name.replace('_', '-')}",
            type=_type_without_none(field.annotation),
            is_flag=field.annotation is bool,
            default=field.default,
            help=field.description,
        )
        options.append(option)
    return adds(*options)


def _type_without_none(annotation: Any) -> Any:
    """Return the type of a field that may also be None, e.g. int for `int | None`."""
    types = [kind for kind in get_args(annotation) if kind is not type(None)]
    return types[0] if types else annotation


class OpenedProgram(NamedTuple):
    """A saved program that was opened, and the language model that it asks."""

    program: MemoryProgram
    lm_name: str
    """The name of the model, as `--lm` or the saved program gives it."""
    lm: MeteredLM


def open_program_and_model(
    program: str,
    options: AskingOptions,
    model_config: ModelConfig | None = None,
    guard: BudgetGuard | None = None,
) -> OpenedProgram:
    """Open a saved program, and the language model that it asks.

    Args:
        program: The folder of the program, or its address.
        options: The values of `asking_options`. Their address and settings of the model are added
            to those of `model_config`.
        model_config: How the model is asked. An embedder behind an endpoint gets its timeout,
            retries and deadline, too.
        guard: Refuses calls, e.g. to an endpoint that is down; None refuses none.
    """
    from ..engines.lm import language_model
    from ..engines.model_config import ModelConfig
    from ..runs.artifact import open_program

    opened = open_program(
        program,
        allow_code=options["allow_code"],
        embedder=options["embedder"],
        embedder_api_base=options["embedder_api_base"],
        reranker=options["reranker"],
    )
    config = model_config or ModelConfig()
    _let_embedder_wait_like_model(opened.program.method.embedder, config)

    lm_name = opened.model(options["lm"])
    request_settings = parse_settings(with_underscores(pair) for pair in options["lm_set"])
    config = replace(
        config,
        api_base=options["api_base"],
        settings={**config.settings, **request_settings},
    )
    lm = language_model(lm_name, config, guard=guard)
    return OpenedProgram(opened.program, lm_name, lm)


def _let_embedder_wait_like_model(embedder: object, model_config: ModelConfig) -> None:
    """Give an embedder behind an endpoint the timeout, retries and deadline of the model.

    Args:
        embedder: The embedder of a method, which may have none. One that runs in this process waits
            for nothing, so it stays as it is.
        model_config: How the language model is asked.
    """
    from ..engines.embedders import TextEmbedder
    from ..engines.endpoint import Waits

    if isinstance(embedder, TextEmbedder) and embedder.account is not None:
        embedder.account.waits = Waits(
            timeout=model_config.timeout,
            retries=model_config.retries,
            deadline=model_config.deadline,
        )


def open_store(url: str | None, make: bool = False, connect: bool = True) -> Store:
    """Open the store of `--store`.

    Args:
        url: The value of the option; None for the file beside the runs.
        make: Whether a file that is not there is created; otherwise it is refused.
        connect: Whether to connect to a database now, so that one that cannot be reached is an
            error here. Otherwise every call of the store fails until the database can be reached.
    """
    from ..memory.store.store import Store
    from ..runs.results_folder import create_folder, results_folder

    address = url or str(results_folder() / "memories.sqlite")
    if "://" not in address:
        is_there = os.path.exists(address)  # noqa: PTH110 - pathlib raises for a name too long
        if not make and not is_there:
            raise UserError(
                f"{address}: no memories here;"
                " give --store, or add some with `mempiler memories add`"
            )
        create_folder(Path(address).resolve().parent)
    return Store(address, connect=connect)
