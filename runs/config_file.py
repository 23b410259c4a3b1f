"""Configurations as TOML files: reading them, and writing the one that does a run again.

    [data]
    benchmark = "locomo"
    test = 40

    [models.task]
    name = "openai/gpt-4.1-mini"

    [models.task.settings]
    temperature = 0

The tables are the groups of `RunConfig`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError, UserError
from ..records.text_file import read_bounded
from .config import CONFIG_FIELDS, ConfigField, RunConfig
from .setting_pairs import parse_settings

_MAX_LENGTH = 1_000_000
"""Most characters of a file."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""Names that stand in TOML without quotation marks."""
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
"""A line that begins a table."""


@dataclass(frozen=True)
class ConfigFile:
    """The content of a file, and where in it a value stands."""

    name: str
    """What messages call the file."""
    text: str
    tables: Mapping[str, Any]
    """What Python's reader of TOML makes of the text."""

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """Read a file.

        Raises:
            DataError: It cannot be read, is too long, or is not TOML.
        """
        text = read_bounded(path, _MAX_LENGTH, fix="a file of options has a line for each")
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> ConfigFile:
        """Return the content of a text.

        Raises:
            DataError: It is not TOML.
        """
        try:
            return cls(name, text, tomllib.loads(text))
        except (ValueError, RecursionError) as error:
            # A number of very many digits is a plain ValueError.
            raise DataError(f"{name}: cannot be read as TOML: {error}") from error

    def entries(self, known_keys: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Yield the values with their keys, e.g. ("execution.threads", 8).

        Args:
            known_keys: Keys of values. A table below one of them is a value itself.
        """
        yield from _flatten(self.tables, known_keys, "")

    def place(self, key: str) -> str:
        """Return file, line and key for a message, e.g. "run.toml: line 2: execution.threads"."""
        line = self._line(key)
        return f"{self.name}: {key}" if line is None else f"{self.name}: line {line}: {key}"

    def _line(self, key: str) -> int | None:
        """Return the number of the line that sets a key; None if it is not found.

        A key such as "execution.threads" is found as `threads = 8` below `[execution]`, or as the
        table `[execution.threads]`. It is not found in an inline table, for instance.
        """
        section, _, name = key.rpartition(".")
        entry = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*[.=]""")
        current_table = ""
        for number, line in enumerate(self.text.splitlines(), start=1):
            header = _HEADER.match(line)
            if header is not None:
                current_table = header.group(1)
                if current_table == key:
                    return number
            elif current_table == section and entry.match(line):
                return number
        return None


def parse_config(text: str, name: str = "config") -> RunConfig:
    """Return the configuration that a TOML text holds.

    Args:
        text: The text.
        name: What messages call the text, e.g. the path of its file.

    Raises:
        UserError: A setting is unknown, of the wrong kind or out of range.
        DataError: The text is not TOML.
    """
    file = ConfigFile.parse(text, name)
    fields = {f"{field.section}.{field.key}": field for field in CONFIG_FIELDS.values()}
    options: dict[str, Any] = {}
    # `entries` yields keys that are not among the known ones, too, and they are refused here.
    for key, value in file.entries(known_keys=fields):
        field = fields.get(key)
        if field is None:
            raise UserError(f"{file.place(key)} is no setting of a run")
        try:
            options[field.name] = _checked_value(field, value)
        except UserError as error:
            raise UserError(f"{file.place(key)}: {error}") from error
    return RunConfig.from_options(**options)


def _checked_value(field: ConfigField, value: Any) -> Any:
    """Return the value of a field. Settings may be a list of NAME=VALUE."""
    if field.is_mapping and isinstance(value, list):
        return parse_settings(value)
    field.check(value)
    return value


def _flatten(
    table: Mapping[str, Any], known_keys: Collection[str], prefix: str
) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables with dotted keys, e.g. ("execution.threads", 8).

    Args:
        table: The table.
        known_keys: Dotted keys of settings. A setting may itself be a table, which stays whole.
        prefix: What the keys begin with, e.g. "execution."; "" for the outermost table.
    """
    for name, value in table.items():
        key = f"{prefix}{name}"
        is_setting = key in known_keys
        holds_settings = any(known_key.startswith(f"{key}.") for known_key in known_keys)
        if isinstance(value, Mapping) and holds_settings and not is_setting:
            yield from _flatten(value, known_keys, f"{key}.")
        else:
            # An unknown table stays whole, too: the caller refuses it by its key.
            yield key, value


def config_toml(config: RunConfig) -> str:
    """Return a configuration as TOML: the settings that differ from the default, and the benchmark.

    The benchmark has no default, so it is always there.
    """
    return toml_text(config_values(config))


def config_values(config: RunConfig) -> dict[str, Any]:
    """Return the values that `config_toml` writes, by dotted keys, e.g. "execution.threads"."""
    values: dict[str, Any] = {}
    for name, value in config.changed_options().items():
        # None stands for the traces of all questions. TOML cannot write None, but the setting takes
        # "all" as well.
        means_all_traces = name == "traces" and value is None
        field = CONFIG_FIELDS[name]
        values[f"{field.section}.{field.key}"] = "all" if means_all_traces else value
    return values


def toml_text(values: Mapping[str, Any]) -> str:
    """Return values as TOML.

    Args:
        values: Values by dotted keys: the name of a table, and the name of the value in it, e.g.
            {"execution.threads": 8}. None is left out, since TOML has no null.
    """
    tables: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if value is None:
            continue
        table_name, _, name = key.rpartition(".")
        # Made even if it stays empty: so it stands before the tables of its settings.
        table = tables.setdefault(table_name, {})

        if not isinstance(value, Mapping):
            table[name] = value
        elif not _has_none(value):
            # Settings get a table of their own, e.g. [method.settings].
            tables[key] = dict(value)
        else:
            # A setting that is None cannot stand in a table. In a list of texts it can, and such a
            # list is read like `--set NAME=VALUE`: settings = ["k=null"].
            table[name] = [f"{setting}={json.dumps(entry)}" for setting, entry in value.items()]

    blocks: list[str] = []
    for table_name, entries in tables.items():
        if entries:
            lines = [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in entries.items()]
            blocks.append("\n".join([f"[{table_name}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def _has_none(value: Any) -> bool:
    """Return whether a value is None or holds None at any depth."""
    if isinstance(value, Mapping):
        return any(_has_none(entry) for entry in value.values())
    if isinstance(value, list | tuple):
        return any(_has_none(entry) for entry in value)
    return value is None


def _toml_key(name: str) -> str:
    """Return a name as TOML writes it before an equals sign."""
    return name if _BARE_KEY.fullmatch(name) else _toml_string(name)


def _toml_value(value: Any) -> str:
    """Return a value as TOML writes it behind an equals sign."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, Mapping):
        entries = [f"{_toml_key(name)} = {_toml_value(entry)}" for name, entry in value.items()]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(entry) for entry in value)}]"
    raise UserError(f"{value!r:.60} cannot be written to a file of settings")


def _toml_string(text: str) -> str:
    """Return a text in quotation marks. TOML escapes what JSON does, and the sign DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
