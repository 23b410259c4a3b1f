"""Where the values of options come from beside the command line: variables and a file.

    [execution]
    max_failure_rate = 0.2     --max-failure-rate 0.2       MEMPILER_MAX_FAILURE_RATE=0.2
    [method.settings]
    k = 20                     --set k=20

The command line is asked first, then a variable `MEMPILER_NAME`, then the file of `--config`.
Settings by name, such as those of `--set`, are added to those of the file, name by name.

The file has the form of a `RunConfig`; `mempiler show RUN --config` prints that of a run.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..errors import UserError
from ..runs.setting_pairs import with_underscores

_SUBCOMMAND_OPTIONS_WITH_VARIABLE = (
    "store",
    "lm",
    "api_base",
    "embedder",
    "embedder_api_base",
    "reranker",
)
"""Options that an environment variable can set in subcommands, too, e.g. in `memories forget`.

Other options of subcommands have no variable: one that was left in a shell must not decide whose
memory is changed.
"""


class FileOption(click.Option):
    """An option that a file can set.

    Args:
        file_key: Its place in the file, e.g. "execution.threads".
        check: Refuses a value of the wrong kind by a UserError. Without, the value is a text, or a
            table of settings.
    """

    def __init__(
        self,
        *names: Any,
        file_key: str,
        check: Callable[[Any], None] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*names, **attributes)
        self.file_key = file_key
        self._check = check

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return the value and where it is from.

        Settings by name are added to those of a file. Hyphens in their names become underscores,
        except in a file: some fields of requests have hyphens.
        """
        value, source = super().consume_value(ctx, opts)
        is_written_here = source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
        if self.multiple and is_written_here:
            file_pairs = (ctx.default_map or {}).get(str(self.name), [])
            # Of two settings with one name the last is taken.
            return [*file_pairs, *(with_underscores(pair) for pair in value)], source
        return value, source

    def default_from_file(self, ctx: click.Context, value: Any) -> Any:
        """Return a value of the file as click expects a default: as a user would type it.

        Raises:
            UserError: It is of the wrong kind or out of range.
        """
        if self.multiple:
            return self._pairs(value)

        self._refuse_wrong_kind(value)
        if isinstance(value, bool):
            # A flag has no text: on the command line it is there or not.
            return value

        text = str(value)
        try:
            # This only checks the range. Click converts the default itself when it is used.
            self.type_cast_value(ctx, text)
        except click.BadParameter as error:
            raise UserError(error.message) from error
        return text

    def _refuse_wrong_kind(self, value: Any) -> None:
        """Raise a UserError if a value of the file is of the wrong kind."""
        if self._check is not None:
            self._check(value)
        elif not isinstance(value, str):
            raise UserError(f"{value!r} is not a text")

    def _pairs(self, value: Any) -> list[str]:
        """Return settings as NAME=VALUE, from a table, or from a list that has this form."""
        if isinstance(value, Mapping):
            return [_pair(name, setting) for name, setting in value.items()]
        if isinstance(value, list) and all(isinstance(pair, str) and "=" in pair for pair in value):
            return value
        raise UserError(f"{value!r} is neither a table nor a list of NAME=VALUE")


def _pair(name: str, setting: Any) -> str:
    """Return a setting of a file as NAME=VALUE.

    Raises:
        UserError: It is or holds a date or a time, which TOML has and settings do not.
    """
    try:
        return f"{name}={json.dumps(setting)}"
    except TypeError as error:
        raise UserError(
            f"{name} = {setting}: a date or time is no setting; put it in quotation marks"
        ) from error


def add_env_vars(command: click.Command, is_subcommand: bool = False) -> None:
    """Let environment variables set options of a command, e.g. `MEMPILER_THREADS` for --threads.

    Args:
        command: The command. Its subcommands are treated, too.
        is_subcommand: Whether it is one of another command, such as `memories forget`. Then only
            the options of `_SUBCOMMAND_OPTIONS_WITH_VARIABLE` have a variable.
    """
    for option in _options(command):
        name = _name(option)
        # Flags have a variable in `serve` alone. Elsewhere one that was left in a shell would
        # change what a command does.
        is_settable_flag = option.is_flag and command.name == "serve"
        is_settable = not is_subcommand and (not option.is_flag or is_settable_flag)
        if is_settable or name in _SUBCOMMAND_OPTIONS_WITH_VARIABLE:
            option.envvar = option.envvar or f"MEMPILER_{name.upper()}"

    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            add_env_vars(subcommand, is_subcommand=True)


def hidden_settings(command: click.Command) -> dict[str, str]:
    """Return what the help of a command leaves out: help and place in a file, by option."""
    settings: dict[str, str] = {}
    for option in _options(command):
        if not option.hidden or not option.help:
            continue
        text = option.help
        # An option without a default has a mark of click's.
        if isinstance(option.default, str | int | float) and not option.is_flag:
            text = f"{text} [default: {option.default}]"
        if isinstance(option, FileOption):
            text = f"{text}; in a file: {option.file_key}"
        settings[_name(option).replace("_", "-")] = text
    return settings


def _read(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Make the values of a file the defaults of a command."""
    if path is None:
        return

    # It brings pydantic, which a command without a file does not need.
    from ..runs.config_file import ConfigFile

    options: dict[str, FileOption] = {}
    for option in ctx.command.params:
        if isinstance(option, FileOption):
            options[option.file_key] = option

    file = ConfigFile.read(Path(path))
    defaults: dict[str, Any] = {}
    for key, value in file.entries(options):
        place = file.place(key)
        option = options.get(key)
        if option is None:
            raise UserError(f"{place} is no setting of {ctx.command_path}; {_advice(key, options)}")
        try:
            defaults[str(option.name)] = option.default_from_file(ctx, value)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
    ctx.default_map = defaults


_COMMANDS_BY_SECTION = {
    "evaluation": "evaluate",
    "optimizer": "compile",
    "training": "train",
}
"""The sections of a file that only one command has."""


def _advice(key: str, options: Mapping[str, FileOption]) -> str:
    """Say where in a file a misplaced or misspelt setting stands, or which command it is for."""
    section = key.partition(".")[0]
    is_known_section = any(known.startswith(f"{section}.") for known in options)
    if section in _COMMANDS_BY_SECTION and not is_known_section:
        return f"the file is for mempiler {_COMMANDS_BY_SECTION[section]}"

    name = key.rpartition(".")[2].replace("-", "_")
    for known, option in options.items():
        if name in (_name(option), known.rpartition(".")[2]):
            return f"did you mean {known}?"
    similar = difflib.get_close_matches(key, options, n=1)
    if similar:
        return f"did you mean {similar[0]}?"
    return "`mempiler show RUN --config` prints the file of a run"


CONFIG = click.option(
    "--config",
    "file",
    type=click.Path(),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    envvar="MEMPILER_CONFIG",
    callback=_read,
    help="TOML, as `mempiler show RUN --config` prints it;"
    " `mempiler list settings` shows what is not shown here",
)


def _options(command: click.Command) -> list[click.Option]:
    """Return the options of a command that a variable may set."""
    options: list[click.Option] = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_eager:
            options.append(parameter)
    return options


def _name(option: click.Option) -> str:
    """Return the longest name of an option as a variable in Python has it, e.g. "lm_set"."""
    return max(option.opts, key=len).lstrip("-").replace("-", "_")
