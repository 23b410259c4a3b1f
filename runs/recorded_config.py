"""The file that repeats a run, made from the record of the run.

`mempiler show RUN --config` prints it; `--config FILE` takes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from pydantic_core import to_jsonable_python

from ..errors import UserError
from ..optimizers.logo_grpo.training_config import TrainingConfig
from .config import CONFIG_FIELDS, UNAVAILABLE_OPTIONS, RunConfig
from .config_file import config_values, toml_text
from .external import ANSWER_FILE_ENDINGS
from .folder import RunFolder
from .repeating import BENCHMARK_OPTIONS, FREE_ON_RESUME, RECORDED_NAMES

_ADDRESSES_ARE_LEFT_OUT = """\
# A run keeps no address of a server. Give --api-base and the like again, or add api_base here.
"""
_FOLDER_IS_LEFT_OUT = """\
# A run keeps no folder of a file of answers. Give the file's path, or run this in its folder.
"""
_LIMIT_PREFIX = "limit."
"""What names of limits begin with among the parameters of a run."""
_GROUPS_OF_TRAINING = ("settings", "curriculum", "reward", "train_kwargs")
"""Groups of a training's settings, whose names stand side by side in `--train-set`."""
_SET_BY_OTHERS = ("objective", "seed")
"""Settings of a training that `--optimizer` and `--seed` set."""


def recorded_toml(folder: RunFolder) -> str:
    """Return the text of the `--config` file that repeats a run.

    Comments at its beginning say which command takes the file, and what it leaves out.

    Raises:
        UserError: The run was not started by `compile`, `evaluate` or `train`, or it rests on
            objects that were made in Python.
    """
    record = folder.read()
    _check_repeatable(folder.path.name, record)
    settings = record["settings"]
    command = settings["command"]
    program = str(settings["program"])

    config = _recorded_config(settings, record.get("parameters") or {})
    entries = config_values(config)
    comments = [f"# {shlex.join(['mempiler', command, program])} --config FILE\n"]
    if program.endswith(ANSWER_FILE_ENDINGS):
        # The program is a file of recorded answers, of which `run.json` has only the name.
        comments.append(_FOLDER_IS_LEFT_OUT)
    for key in _keys_without_option(command):
        # The command would refuse a file with this entry.
        if key in entries:
            del entries[key]
            comments.append(f"# {key} is left out: mempiler {command} has no option for it.\n")
    comments.append(_ADDRESSES_ARE_LEFT_OUT)

    entries_of_command = _ENTRIES_BY_COMMAND[command]
    entries.update(entries_of_command(settings))
    return f"{''.join(comments)}\n{toml_text(entries)}"


def _check_repeatable(name: str, record: Mapping[str, Any]) -> None:
    """Refuse a run that no `--config` file can repeat.

    Args:
        name: The name of the run, for the error.
        record: The content of its `run.json`.

    Raises:
        UserError: It was not started by a command that takes such files, or it is a part of a
            larger run, or it rests on objects that were made in Python.
    """
    settings = record["settings"]
    if settings.get("command") not in _ENTRIES_BY_COMMAND or "part_of" in settings:
        raise UserError(
            f"{name}: only a whole compile, evaluate or train has a file that repeats it"
        )
    python_objects = record.get("python_objects")
    if python_objects:
        raise UserError(
            f"{name}: rests on objects that were made in Python ({', '.join(python_objects)});"
            " repeat it there"
        )


def _keys_without_option(command: str) -> list[str]:
    """Return keys of a `--config` file, e.g. "execution.min_n", that a command does not take."""
    fields_of_others = [CONFIG_FIELDS[name] for name in UNAVAILABLE_OPTIONS[command]]
    return [f"{field.section}.{field.key}" for field in fields_of_others]


def _recorded_config(settings: Mapping[str, Any], parameters: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a run: what decided its result, and its limits.

    Args:
        settings: The settings in `run.json`. The options of the benchmark stand in "options".
        parameters: The parameters there, with limits such as "limit.max_calls".
    """
    # Everything that decided the result, except for the settings of the benchmark.
    options: dict[str, Any] = {}
    for name in CONFIG_FIELDS:
        if name in FREE_ON_RESUME or name in BENCHMARK_OPTIONS:
            continue
        recorded_name = RECORDED_NAMES.get(name, name)
        if recorded_name in settings:
            options[name] = settings[recorded_name]
    if settings["command"] == "train":
        # The "answer_lm" of a training is not the option `--answer-lm`. It is a setting of the
        # training, namely the model that answers questions for rewards.
        options.pop("answer_lm", None)

    # The settings of the benchmark are recorded together. The metric and the categories are
    # separated again, because each has an option of its own.
    benchmark_settings = dict(settings.get("options", {}))
    for name in ("metric", "categories"):
        # `--categories` is a text. A list of categories therefore stays a setting of the benchmark.
        if isinstance(benchmark_settings.get(name), str):
            options[name] = benchmark_settings.pop(name)
    options["benchmark_set"] = benchmark_settings

    # The limits did not decide the result, so they are recorded among the parameters.
    for name, limit in parameters.items():
        if name.startswith(_LIMIT_PREFIX):
            options[name.removeprefix(_LIMIT_PREFIX)] = limit
    return RunConfig.from_options(**options)


def _evaluation_entries(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the `--config` file for an evaluation, beside its configuration."""
    return {"evaluation.split": settings["part"]}


def _compile_entries(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the `--config` file for the optimizer of a compile.

    Args:
        recorded: What `run.json` has of the compile.
    """
    entries = {
        "optimizer.name": recorded["optimizer"],
        "optimizer.stage": recorded["stage"],
        "optimizer.settings": recorded["settings"],
    }
    if recorded.get("max_prompt_growth") is not None:
        entries["optimizer.max_prompt_growth"] = recorded["max_prompt_growth"]
    return entries


def _training_entries(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the `--config` file for the optimizer of a training.

    The defaults of a training depend on the model that it trains. Settings that are equal to them
    are left out.

    Args:
        recorded: What `run.json` has of the training.
    """
    # What the option `--optimizer` of a training sets is recorded as its objective.
    optimizer = recorded["objective"]
    trained_model = recorded["lm"]
    return {
        "training.optimizer": optimizer,
        "training.settings": changed_training_settings(recorded, trained_model),
    }


def changed_training_settings(recorded: Mapping[str, Any], lm: str) -> dict[str, Any]:
    """Return the settings of a recorded training that are not the defaults of its model.

    They stand side by side, as `--train-set` takes them.

    Args:
        recorded: The settings, as `run.json` has them.
        lm: The name of the model that is trained.
    """
    defaults = training_settings(to_jsonable_python(TrainingConfig.for_model(lm)))
    changed: dict[str, Any] = {}
    for name, value in training_settings(recorded).items():
        if name not in defaults or value != defaults[name]:
            changed[name] = value
    return changed


def training_settings(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recorded training as one flat dict, as `--train-set` takes them.

    In the record, settings are nested in groups. For example, {"lora": 8, "settings": {"reward":
    {"questions": 4}}} becomes {"lora": 8, "questions": 4}.
    """
    # The record also has settings of the run, which are not the training's.
    training: dict[str, Any] = {}
    for field in fields(TrainingConfig):
        if field.name in recorded:
            training[field.name] = recorded[field.name]

    flat: dict[str, Any] = {}
    _add_settings(flat, training)
    return flat


def _add_settings(flat: dict[str, Any], group: Mapping[str, Any]) -> None:
    """Add the settings of a group, and of the groups in it, to `flat`."""
    for name, value in group.items():
        if name in _GROUPS_OF_TRAINING:
            _add_settings(flat, value)
        elif name not in _SET_BY_OTHERS:
            flat[name] = value


_ENTRIES_BY_COMMAND: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "compile": _compile_entries,
    "evaluate": _evaluation_entries,
    "train": _training_entries,
}
"""For each command, the function that returns what its file has beside the configuration.

The function is called with the settings in `run.json`, and returns entries by key.
"""
