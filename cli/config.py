"""Reads options from `--config FILE.toml` and from the variables `MEMPILER_NAME`.

    seed = 3                  --seed 3                 MEMPILER_SEED=3
    max-failure-rate = 0.2            --max-failure-rate 0.2           MEMPILER_MAX_FAILURE_RATE=0.2
    [set]
    k = 20                    --set k=20

The command line is asked first, then a variable, then the file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..errors import DataError, UserError

_LONGEST = 1_000_000
"""Most characters of a file of options."""

SELDOM = """
adapter allow_code categories embedder_api_base force judge_api_base lm_deadline max_calls max_failure_rate
max_minutes max_tokens min_n benchmark_set prompt_api_base replay reranker retries seed threads timeout traces
train workers answer_api_base answer_lm
"""
"""Options that the help of a command with a `--config` leaves to `mempiler list settings`."""

MODELS = ("store", "lm", "api_base", "embedder", "embedder_api_base", "reranker")
"""Options of verbs that have a variable; one left in a shell must not say whose memory is changed or forgotten."""


def add_env_vars(command: click.Command, verb: bool = False) -> None:
    """Gives the options of a command variables; its help shows those that are often used.

    Flags have one in `serve` alone: elsewhere one left in a shell would change what a command does.
    """
    long = any(param.name == "file" for param in command.params)
    for option in _options(command):
        name = _name(option)
        if name in MODELS or not (verb or (option.is_flag and command.name != "serve")):
            option.envvar = option.envvar or f"MEMPILER_{name.upper()}"
        option.hidden = option.hidden or (long and name in SELDOM.split())
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        add_env_vars(each, verb=True)


def settings(command: click.Command) -> dict[str, str]:
    """What the help of a command leaves out, by the names in a file."""
    add_env_vars(command)
    hidden = [option for option in _options(command) if option.hidden and option.help]
    return {_name(option).replace("_", "-"): _told(option) for option in hidden}


def _read(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Makes what a file says the defaults of a command."""
    if path is None:
        return

    # Its package imports pydantic, which a command without a file does not need.
    from ..records.text_file import read_bounded

    text = read_bounded(Path(path), _LONGEST, "a file of options has a line for each")
    try:
        said = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # A number of very many digits is a plain ValueError.
        raise DataError(f"{path}: cannot be read as TOML: {error}") from error
    known = {_name(option): option for option in _options(ctx.command)}
    found: dict[str, Any] = {}
    for key, value in said.items():
        where, option = f"{path}: line {_line(text, key)}: {key}", known.get(key.replace("-", "_"))
        if option is None:
            raise UserError(f"{where} is no option of {ctx.command_path}; `mempiler list settings` shows all")
        pairs = isinstance(value, Mapping) and option.multiple
        given = [f"{name}={json.dumps(each)}" for name, each in value.items()] if pairs else value
        given = [given] if option.multiple and isinstance(given, str) else given
        try:
            option.type_cast_value(ctx, given)
        except (click.BadParameter, TypeError) as error:
            problem = error.message if isinstance(error, click.BadParameter) else f"{value!r} is of another kind"
            raise UserError(f"{where}: {problem}") from error
        found[str(option.name)] = given
    ctx.default_map = found


CONFIG = click.option(
    "--config",
    "file",
    type=click.Path(),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    envvar="MEMPILER_CONFIG",
    callback=_read,
    help="TOML: any option by its name; `mempiler list settings` shows those that are not shown here",
)


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.is_eager]


def _told(option: click.Option) -> str:
    # An option without a default has a mark of click's.
    known = isinstance(option.default, str | int | float) and not option.is_flag and not option.multiple
    return f"{option.help}{f' [default: {option.default}]' if known else ''}"


def _name(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-").replace("-", "_")


def _line(text: str, key: str) -> int:
    """The line of a key of the top, 0 if it is written in a way of its own."""
    begins = re.compile(rf"""\s*\[?\s*["']?{re.escape(key)}["']?\s*[]=.]""")
    return next((n for n, line in enumerate(text.splitlines(), 1) if begins.match(line)), 0)
