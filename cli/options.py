"""Options that several commands share, and what commands make of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import click
from click.core import ParameterSource

from ..errors import UserError
from ..runs.setting_pairs import parse_settings, with_underscores
from ..validation import MAX_SECONDS
from .config import CONFIG, FileOption
from .printing import choose_json

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..engines.metered_lm import MeteredLM
    from ..memory.store.store import Store
    from ..programs.program import MemoryProgram
    from ..runs.config import ConfigField
    from ..runs.inputs import RunInputs
    from ..runs.options import RunOptions

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
    """Return the option that sets a field of `RunConfig`."""
    assert field.option is not None
    description = field.info.description
    common: dict[str, Any] = {
        "cls": FileOption,
        "file_key": f"{field.section}.{field.key}",
        "check": field.check,
        "help": description,
        "hidden": field.option.rare,
        "required": field.is_required,
    }
    name = f"--{field.name.replace('_', '-')}"
    if field.is_mapping:
        return click.option(name, multiple=True, metavar="NAME=VALUE", **common)
    if bool in field.kinds:
        return click.option(name, is_flag=True, **common)

    if field.default is not None:
        common["default"] = str(field.default) if field.takes_words else field.default
    return click.option(name, type=_click_type(field), metavar=field.option.placeholder, **common)


def _click_type(field: ConfigField) -> click.ParamType | type | None:
    """Return how click reads the text of an option: as a number, with its range, or as it is."""
    if field.takes_words or not {int, float} & set(field.kinds):
        return None

    bounds: dict[str, Any] = {}
    for constraint in field.info.metadata:
        for name in ("gt", "ge", "le"):
            if hasattr(constraint, name):
                bounds[name] = getattr(constraint, name)
    if not bounds:
        return int if int in field.kinds else float

    range_type = click.IntRange if int in field.kinds else click.FloatRange
    minimum = bounds.get("ge", bounds.get("gt"))
    return range_type(minimum, bounds.get("le"), min_open="gt" in bounds)


def take_run_options(values: dict[str, Any]) -> RunOptions:
    """Take the options that `mempiler.compile` and its like share out of a command's values."""
    from ..runs.config import CONFIG_FIELDS
    from ..runs.options import RunOptions

    options: dict[str, Any] = {}
    for name in RunOptions.__annotations__:
        if name not in values:
            continue
        value = values.pop(name)
        is_mapping = name in CONFIG_FIELDS and CONFIG_FIELDS[name].is_mapping
        options[name] = parse_settings(value) if is_mapping else value

    for name in ("lm", "embedder"):
        # Only what a user chose: a run that is replayed brings models of its own.
        if name in options and not was_given(name):
            del options[name]
    return cast("RunOptions", options)


def make_inputs(values: dict[str, Any]) -> RunInputs:
    """Take the options of a run out of a command's values, and return what the run starts with."""
    from ..runs import options

    metric = values.pop("metric", None)
    return options.make_inputs(take_run_options(values), options.Questions(metric=metric))


def was_given(name: str) -> bool:
    """Return whether an option was set: on the command line, by a variable or in a file."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def setting_options(model: type[BaseModel]) -> Decorator:
    """Return a decorator that adds an option for each field of a model.

    The model checks the value. Its default and its description are those of the option.
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


READING = ("allow_code", "embedder", "embedder_api_base", "reranker")
"""What `reading_options` give."""
_WAITS = ("timeout", "retries", "deadline")
"""Settings of a model that hold for an embedder behind an endpoint, too."""


def open_program_and_model(
    program: str, chosen: Mapping[str, Any], **model_config: Any
) -> tuple[MemoryProgram, str, MeteredLM]:
    """Open a saved program, and the language model that it asks.

    Args:
        program: The folder of the program, or its address.
        chosen: The values of `asking_options`.
        **model_config: How the model is asked, as `language_model` takes it. `timeout`, `retries`
            and `deadline` hold for an embedder behind an endpoint, too.

    Returns:
        The program, the name of its language model, and that model.
    """
    from ..engines.lm import language_model
    from ..runs.artifact import open_program

    opened = open_program(program, **{name: chosen[name] for name in READING})
    _set_waits_of_embedder(opened.program, model_config)

    name = opened.model(chosen["lm"])
    settings = parse_settings(with_underscores(pair) for pair in chosen["lm_set"])
    model = language_model(name, api_base=chosen["api_base"], **settings, **model_config)
    return opened.program, name, model


def _set_waits_of_embedder(program: MemoryProgram, model_config: Mapping[str, Any]) -> None:
    """Let the embedder of a program wait for its endpoint as long as the language model does."""
    from ..engines.endpoint import Waits

    # Only an embedder behind an endpoint has an account of its requests.
    account = getattr(program.method.embedder, "account", None)
    if account is not None:
        waits = {name: model_config[name] for name in _WAITS if name in model_config}
        account.waits = Waits(**waits)


def open_store(url: str | None, make: bool = False, connect: bool = True) -> Store:
    """Open the store of `--store`.

    Args:
        url: The value of the option; None for the file beside the runs.
        make: Whether a file that is not there is created; otherwise it is refused.
        connect: Whether a database that cannot be reached is an error here. Without, it is an error
            of each call until it can be reached.
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
