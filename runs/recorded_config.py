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
    """Return the file that repeats a run, with a comment that says how.

    Raises:
        UserError: The run was not started by `compile`, `evaluate` or `train`, or it rests on
            objects that were made in Python.
    """
    record = folder.read()
    settings = record["settings"]
    command = settings.get("command")
    name = folder.path.name
    if command not in _COMMAND_VALUES or "part_of" in settings:
        raise UserError(
            f"{name}: only a whole compile, evaluate or train has a file that repeats it"
        )
    python_objects = record.get("python_objects")
    if python_objects:
        raise UserError(
            f"{name}: rests on objects that were made in Python ({', '.join(python_objects)});"
            " repeat it there"
        )

    config = _recorded_config(settings, record.get("parameters") or {})
    values = config_values(config)
    program = str(settings["program"])
    comments = [f"# {shlex.join(['mempiler', command, program])} --config FILE\n"]
    if program.endswith(ANSWER_FILE_ENDINGS):
        comments.append(_FOLDER_IS_LEFT_OUT)
    for place in _unavailable_places(command):
        if place in values:
            del values[place]
            comments.append(f"# {place} is left out: mempiler {command} has no option for it.\n")
    comments.append(_ADDRESSES_ARE_LEFT_OUT)

    values.update(_COMMAND_VALUES[command](settings))
    return f"{''.join(comments)}\n{toml_text(values)}"


def _unavailable_places(command: str) -> list[str]:
    """Return the places in a file, e.g. "execution.min_n", that a command has no option for."""
    fields_of_others = [CONFIG_FIELDS[name] for name in UNAVAILABLE_OPTIONS[command]]
    return [f"{field.section}.{field.key}" for field in fields_of_others]


def _recorded_config(settings: Mapping[str, Any], parameters: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a run: what decided its result, and its limits.

    Args:
        settings: The settings in `run.json`. The options of the benchmark stand in "options".
        parameters: The parameters there, with limits such as "limit.max_calls".
    """
    options: dict[str, Any] = {}
    for name in CONFIG_FIELDS:
        if name in FREE_ON_RESUME or name in BENCHMARK_OPTIONS:
            continue
        recorded_name = RECORDED_NAMES.get(name, name)
        if recorded_name in settings:
            options[name] = settings[recorded_name]
    if settings["command"] == "train":
        # There it is the model that gives rewards, a setting of the training.
        options.pop("answer_lm", None)

    # The command line has options of their own for the metric and the categories.
    benchmark_settings = dict(settings.get("options", {}))
    for name in ("metric", "categories"):
        # A list of categories can only be a setting of the benchmark.
        if isinstance(benchmark_settings.get(name), str):
            options[name] = benchmark_settings.pop(name)
    options["benchmark_set"] = benchmark_settings

    for name, limit in parameters.items():
        if name.startswith(_LIMIT_PREFIX):
            options[name.removeprefix(_LIMIT_PREFIX)] = limit
    return RunConfig.from_options(**options)


def _evaluation_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the `--config` file for an evaluation, beside its configuration."""
    return {"evaluation.split": settings["part"]}


def _compile_values(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the `--config` file for the optimizer of a compile.

    Args:
        recorded: What `run.json` has of the compile.
    """
    return {
        "optimizer.name": recorded["optimizer"],
        "optimizer.stage": recorded["stage"],
        "optimizer.settings": recorded["settings"],
    }


def _training_values(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of the `--config` file for a training.

    These are its objective, and the settings that are not the model's defaults.

    Args:
        recorded: What `run.json` has of the training.
    """
    return {
        "training.optimizer": recorded["objective"],
        "training.settings": changed_training_settings(recorded, recorded["lm"]),
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
    """Return the settings of a recorded training without groups, as `--train-set` takes them.

    For example, {"lora": 8, "settings": {"reward": {"questions": 4}}} becomes {"lora": 8,
    "questions": 4}.
    """
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


_COMMAND_VALUES: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "compile": _compile_values,
    "evaluate": _evaluation_values,
    "train": _training_values,
}
"""What the file of each command says beside the configuration."""
