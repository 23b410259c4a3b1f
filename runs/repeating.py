"""What it takes to continue a run or to do it again.

`resume_key` names what must be equal for a run to be resumed. `with_replayed_models` takes models
and settings over from the run that is replayed. `command_line` is the command that repeats a run.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from .config import CONFIG_FIELDS, RunConfig
from .folder import RunFolder
from .inputs import RunInputs
from .setting_pairs import parse_settings

FREE_ON_RESUME = {
    # Which code may run is the user's decision of the day.
    "allow_code",
    # How fast, and how patiently.
    "threads",
    "workers",
    "timeout",
    "retries",
    "lm_deadline",
    # Where a model is, not which.
    "api_base",
    "prompt_api_base",
    "judge_api_base",
    "answer_api_base",
    "embedder_api_base",
    # How far this time.
    "max_usd",
    "max_calls",
    "max_tokens",
    "max_minutes",
    "resume",
    # Where and how much of the result is shown.
    "tracking",
    "traces",
}
"""Options that a resumed run may change: they do not decide its result."""

RECORDED_NAMES = {
    "set": "method_settings",
    "lm_set": "lm_settings",
}
"""What `run.json` calls options, where it has another name for them."""

BENCHMARK_OPTIONS = ("metric", "categories", "benchmark_set")
"""Options that `run.json` has together, as `options` of the benchmark."""

_TAKEN_BY_REPLAY = (
    "lm",
    "prompt_lm",
    "judge_lm",
    "answer_lm",
    "embedder",
    "reranker",
    "adapter",
    "lm_set",
)
"""Options that a replay takes from the run that it replays."""

_FILE_OPTIONS = ("data", "replay")
"""Options whose values are shown without the folder: commands are shown to others."""


def resume_key(inputs: RunInputs) -> dict[str, Any]:
    """Return everything that decides the result of a run, by its name in `run.json`.

    A run can only be resumed with the same values: answers that were paid for would otherwise be
    mixed with those of another question, model or setting. How many threads work, for instance, is
    no part of it (`FREE_ON_RESUME`).
    """
    config = inputs.config
    decisive: dict[str, Any] = {}
    for name, value in config.options().items():
        if name in FREE_ON_RESUME or name in BENCHMARK_OPTIONS:
            continue
        decisive[RECORDED_NAMES.get(name, name)] = value
    # The options of the benchmark, which are left out above, are recorded together.
    decisive["options"] = config.data.benchmark_settings

    # A run may name the default budget when it is resumed.
    decisive["support_tokens"] = inputs.support_tokens

    if config.data.file:
        decisive["data"] = str(Path(config.data.file).absolute())
    if inputs.user_benchmark is not None:
        decisive["questions"] = inputs.user_benchmark.source.sha256
    return decisive


def python_objects(inputs: RunInputs, program: object) -> list[str]:
    """Return what of a run is an object of the caller's, which no file of settings can hold.

    Returns:
        Some of "program", "questions" and "models".
    """
    objects: list[str] = []
    if not isinstance(program, str):
        objects.append("program")
    if inputs.user_benchmark is not None:
        objects.append("questions")
    if inputs.user_models:
        objects.append("models")
    return objects


def _never_set(name: str) -> bool:
    """Return False: no option was set on purpose."""
    return False


def with_replayed_models(
    inputs: RunInputs, was_set: Callable[[str], bool] = _never_set
) -> RunInputs:
    """Give the inputs of a replay the models and the settings of the run that is replayed.

    A replay gives the recorded answers of another run once more, so it must use that run's models.
    The user need not name them, and may not name others.

    Args:
        inputs: The inputs. They are returned as they are if `replay` names no run.
        was_set: Returns whether the user has set an option, also where it was set to its default.

    Raises:
        UserError: There is no such run, or the inputs name other models than it had.
    """
    config = inputs.config
    run = config.execution.replay
    if run is None:
        return inputs
    folder = RunFolder.open(run)
    recorded = folder.read()["settings"]

    options = config.options()
    replayed_options: dict[str, Any] = {}
    for name in _TAKEN_BY_REPLAY:
        value = options[name]
        default = CONFIG_FIELDS[name].default
        recorded_name = RECORDED_NAMES.get(name, name)
        recorded_value = recorded.get(recorded_name, default)

        is_chosen_by_user = value != default or was_set(name)
        if is_chosen_by_user and value != recorded_value:
            option = _option(name)
            raise UserError(
                f"--replay {run}: ran with {option} {recorded_value}, not {value};"
                f" leave {option} out"
            )
        replayed_options[name] = recorded_value

    # The path names this run for good; "last", for example, would soon name another one.
    replayed_options["replay"] = str(folder.path)
    return replace(inputs, config=config.with_options(**replayed_options))


def command_line(
    inputs: RunInputs, command: str, program: str, command_options: Mapping[str, Any]
) -> str:
    """Return the command that does a run again.

    The line is shown to others. So files are named without their folders, and addresses are left
    out.

    Args:
        inputs: What the run was started with.
        command: "compile", "evaluate" or "train".
        program: What is run.
        command_options: The options of the command itself, e.g. {"split": "test"}.
    """
    if inputs.user_benchmark is not None:
        return f"mempiler.{command} in Python, with examples"

    config = inputs.config
    # With a colon it is a URL, `module:Class` or the like, otherwise a method or a path.
    shown_program = program if ":" in program else Path(program).name
    words = ["mempiler", command, shown_program, "--benchmark", config.data.benchmark]
    options = {**_options_to_repeat(config), **config.limits.as_dict(), **command_options}
    for name, value in options.items():
        words.extend(_option_words(name, value))
    return shlex.join(words)


def _options_to_repeat(config: RunConfig) -> dict[str, Any]:
    """Return the options that a command line needs to lead to the same result.

    Options at their defaults are left out, and so are those that do not change the result.
    """
    options: dict[str, Any] = {}

    # Most settings of the benchmark are given by `--benchmark-set`. Two have their own options.
    benchmark_settings = dict(config.data.benchmark_settings)
    for name in ("metric", "categories"):
        if name in benchmark_settings:
            options[name] = benchmark_settings.pop(name)
    options["benchmark_set"] = benchmark_settings

    left_out = {
        # These do not change the result, e.g. `threads`.
        *FREE_ON_RESUME,
        # The caller writes `--benchmark` itself, before all other options.
        "benchmark",
        # These were added above.
        *BENCHMARK_OPTIONS,
        # `mempiler reproduce` counts its repetitions with this. There is no option that sets it.
        "repeat",
    }
    for name, value in config.changed_options().items():
        if name not in left_out:
            options[name] = value
    return options


def _option_words(name: str, value: Any) -> list[str]:
    """Return an option with its value as words of a command line; none if it is not set."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        values = [f"{key}={_setting_text(entry)}" for key, entry in value.items()]
    elif name in _FILE_OPTIONS:
        values = [Path(value).name]
    else:
        values = [str(value)]

    words: list[str] = []
    for text in values:
        words.extend([_option(name), text])
    return words


def _setting_text(value: Any) -> str:
    """Return the value of a setting as a text that `parse_settings` reads as this value."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=str)
    # A text such as "20" would be read as a number.
    is_plain = parse_settings([f"name={value}"])["name"] == value
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _option(name: str) -> str:
    """Return an option as the command line writes it."""
    return f"--{name.replace('_', '-')}"
