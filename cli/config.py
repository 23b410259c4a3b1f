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

_OPTIONS_WITH_VARIABLE_EVERYWHERE = (
    "store",
    "lm",
    "api_base",
    "embedder",
    "embedder_api_base",
    "reranker",
)
"""Options that an environment variable can set in all commands.

Other options of subcommands, e.g. of `memories forget`, have no variable: one that was left in a
shell must not decide whose memory is changed.
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
        """Return the value of the option, and where it comes from.

        An option that can be repeated, such as `--set NAME=VALUE`, adds its settings to those of
        the file. click would let them replace those of the file.
        """
        value, source = super().consume_value(ctx, opts)
        overrides_file = source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
        if not self.multiple or not overrides_file:
            # If the file sets the option, click has taken the value from there.
            return value, source

        file_pairs: list[str] = (ctx.default_map or {}).get(str(self.name), [])
        # A user may type "top-p" for "top_p". In the file hyphens stay as they are, so that fields
        # of requests that have hyphens can be set there.
        typed_pairs = [with_underscores(pair) for pair in value]
        # Of two settings with one name the last one is taken: that of the user.
        return [*file_pairs, *typed_pairs], source

    def default_from_file(self, ctx: click.Context, value: Any) -> str | bool | list[str]:
        """Check a value of the file, and return it in the form that click takes as a default.

        Returns:
            A list of NAME=VALUE for an option that can be repeated, a bool for a flag, and for
            other options the text that a user would type.

        Raises:
            UserError: The value is of the wrong kind or out of range.
        """
        if self.multiple:
            # The values of settings are checked where the settings are used: each has its own kind.
            return self._pairs(value)

        self._refuse_wrong_kind(value)
        if isinstance(value, bool):
            # A flag has no text: on the command line it is there or not.
            return value

        text = str(value)
        try:
            # This is only for the error of a value out of range. Click converts the text again when
            # it takes the default.
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
        is_subcommand: Whether the command is one of another command, such as `memories forget`.
    """
    for option in _options(command):
        if _has_variable(option, command, is_subcommand):
            option.envvar = option.envvar or f"MEMPILER_{_name(option).upper()}"

    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            add_env_vars(subcommand, is_subcommand=True)


def _has_variable(option: click.Option, command: click.Command, is_subcommand: bool) -> bool:
    """Tell whether an environment variable can set an option of a command."""
    if _name(option) in _OPTIONS_WITH_VARIABLE_EVERYWHERE:
        return True
    if is_subcommand:
        return False
    # A flag that was left in a shell would change what a command does. Only a service, which is
    # often set up by variables alone, takes flags from there.
    return not option.is_flag or command.name == "serve"


def describe_hidden_options(command: click.Command) -> dict[str, str]:
    """Return the names and descriptions of the options that the help of a command leaves out."""
    descriptions: dict[str, str] = {}
    for option in _options(command):
        if option.hidden and option.help:
            name = _name(option).replace("_", "-")
            descriptions[name] = _describe_option(option, option.help)
    return descriptions


def _describe_option(option: click.Option, help_text: str) -> str:
    """Return the help of an option with its default, and its place in a file of `--config`."""
    description = help_text
    # The default of an option without one is an object of click's own, hence the test of its type.
    has_default = isinstance(option.default, str | int | float)
    if has_default and not option.is_flag:
        description += f" [default: {option.default}]"
    if isinstance(option, FileOption):
        description += f"; in a file: {option.file_key}"
    return description


def _load_config_file(ctx: click.Context, param: click.Parameter, path: str | None) -> None:
    """Read the file of `--config`, and make its values the defaults of the command's options.

    This is the callback of the option `--config`: click calls it before it reads other options.

    Args:
        ctx: click's context of the command; its `default_map` is set.
        param: The option `--config`, which click passes to every callback.
        path: The path of the file; None if there is no `--config` on the command line.

    Raises:
        UserError: The file cannot be read, has a key that is no option, or a value that does not
            fit its option.
    """
    if path is None:
        return

    # Imported here because it imports pydantic, which a command without a file does not need.
    from ..runs.config_file import ConfigFile

    options_by_key: dict[str, FileOption] = {}
    for option in ctx.command.params:
        if isinstance(option, FileOption):
            options_by_key[option.file_key] = option

    file = ConfigFile.read(Path(path))
    defaults: dict[str, Any] = {}
    for key, value in file.entries(options_by_key):
        # Where the key stands in the file, for messages.
        place = file.place(key)
        option = options_by_key.get(key)
        if option is None:
            advice = _advice(key, options_by_key)
            raise UserError(f"{place} is no setting of {ctx.command_path}; {advice}")
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
    """Return what a user can do about a key of a file that the command does not have.

    Args:
        key: The unknown key, e.g. "execution.thread".
        options: The options of the command by their keys.
    """
    # "training.trainer" in a file for `evaluate`: the section is that of another command.
    section = key.partition(".")[0]
    command_has_section = any(known_key.startswith(f"{section}.") for known_key in options)
    if section in _COMMANDS_BY_SECTION and not command_has_section:
        return f"the file is for mempiler {_COMMANDS_BY_SECTION[section]}"

    # "method.threads" for "execution.threads": the name stands in the wrong section. Or "lm" for
    # "models.task.name": the name is that of the option.
    name = key.rpartition(".")[2].replace("-", "_")
    for known_key, option in options.items():
        name_in_file = known_key.rpartition(".")[2]
        if name in (_name(option), name_in_file):
            return f"did you mean {known_key}?"

    # "execution.thread" for "execution.threads": the key is misspelt.
    similar_keys = difflib.get_close_matches(key, options, n=1)
    if similar_keys:
        return f"did you mean {similar_keys[0]}?"

    return "`mempiler show RUN --config` prints the file of a run"


CONFIG = click.option(
    "--config",
    "file",
    type=click.Path(),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    envvar="MEMPILER_CONFIG",
    callback=_load_config_file,
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
