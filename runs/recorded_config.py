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
from ..optimizers.catalog import OPTIMIZERS
from ..optimizers.logo_grpo.training_config import TrainingConfig
from .config import CONFIG_FIELDS, RunConfig
from .config_file import config_values, toml_text
from .folder import RunFolder
from .repeating import BENCHMARK_OPTIONS, FREE_ON_RESUME, RECORDED_NAMES

_ADDRESSES_ARE_LEFT_OUT = """\
# A run keeps no address of a server. Give --api-base and the like again, or add api_base here.
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
    if "questions" in settings:
        raise UserError(f"{name}: rests on examples that were made in Python")

    config = _recorded_config(settings, record.get("parameters") or {})
    values = {**config_values(config), **_COMMAND_VALUES[command](settings)}
    words = shlex.join(["mempiler", command, str(settings["program"])])
    return f"# {words} --config FILE\n{_ADDRESSES_ARE_LEFT_OUT}\n{toml_text(values)}"


def _recorded_config(settings: Mapping[str, Any], parameters: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a run: what decided its result, and its limits.

    Args:
        settings: The settings in `run.json`.
        parameters: The parameters there.
    """
    options: dict[str, Any] = {}
    for name in CONFIG_FIELDS:
        recorded_name = RECORDED_NAMES.get(name, name)
        is_single = name not in FREE_ON_RESUME and name not in BENCHMARK_OPTIONS
        if is_single and recorded_name in settings:
            options[name] = settings[recorded_name]
    if settings["command"] == "train":
        # There it is the model that gives rewards, a setting of the training.
        options.pop("answer_lm", None)

    benchmark_settings = dict(settings.get("options", {}))
    for name in ("metric", "categories"):
        options[name] = benchmark_settings.pop(name, None)
    options["benchmark_set"] = benchmark_settings

    for name, limit in parameters.items():
        if name.startswith(_LIMIT_PREFIX):
            options[name.removeprefix(_LIMIT_PREFIX)] = limit
    return RunConfig.from_options(**options)


def _evaluation_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file says of an evaluation, beside its configuration."""
    return {"evaluation.split": settings["part"]}


def _compile_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file says of the optimizer of a compile.

    Raises:
        UserError: The optimizer is a function of the caller's.
    """
    optimizer = settings["optimizer"]
    if optimizer not in OPTIMIZERS:
        raise UserError(f"optimizer {optimizer!r} was made in Python")
    return {
        "optimizer.name": optimizer,
        "optimizer.stage": settings["stage"],
        "optimizer.settings": settings["settings"],
    }


def _training_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file says of a training: its objective, and what is not the default."""
    return {
        "training.optimizer": settings["objective"],
        "training.settings": changed_training_settings(settings, settings["lm"]),
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
    """Return the settings of a recorded training side by side, as `--train-set` takes them."""
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
