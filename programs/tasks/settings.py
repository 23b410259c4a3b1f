"""The settings of a task; they stand beside those of the method under names like `task.abstain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import Field

from ...signatures.chinese import PromptLanguage
from ..settings import Settings

TASK_PREFIX = "task."
"""Stands before the name of a setting of the task, to tell it from those of the method."""


class TaskSettings(Settings):
    """What can be set of any task that has a prompt, by `--set task.NAME=VALUE`."""

    kind = "task"
    reasoning: bool = Field(
        default=False, description="whether the prompt asks for the reasons before the answer"
    )
    abstain: bool = Field(
        default=False,
        description="whether the prompt says what to answer where nothing bears on a question",
    )
    dates: bool = Field(
        default=True,
        description=(
            "whether the date stands beside `yesterday` and the like "
            "in all that is shown to a model"
        ),
    )
    reask: int = Field(
        default=0,
        ge=0,
        description=(
            "how often behaviour is asked for again where the answer names none of the options"
        ),
    )
    language: PromptLanguage = Field(
        default="English",
        description="of the prompt, English or Chinese; the tasks of PAL-Bench have a Chinese one",
    )

    @property
    def non_defaults(self) -> dict[str, Any]:
        """The settings to save: those that differ from their defaults, and always `dates`.

        Their names have the prefix that `split_config` expects, as in "task.dates". `dates` is
        always saved because it was off by default in the past: saved programs of that time do not
        name it, and a new program must not be taken for one of them.
        """
        values = self.model_dump(exclude_defaults=True)
        values["dates"] = self.dates
        return {f"{TASK_PREFIX}{name}": value for name, value in values.items()}


class SplitConfig(NamedTuple):
    """The settings of a program: those of its method, and those of its task."""

    method: dict[str, Any]
    """The settings of the method, by name."""
    task: TaskSettings


def split_config(config: Mapping[str, Any], task: str) -> SplitConfig:
    """Split the settings of a program into those of its method and those of its task.

    Args:
        config: All settings by name; names of the task's settings begin with "task.".
        task: The name of the task, for errors.

    Raises:
        UserError: A task has no such setting, or a value is out of its range.
    """
    method_values: dict[str, Any] = {}
    task_values: dict[str, Any] = {}
    for name, value in config.items():
        if name.startswith(TASK_PREFIX):
            task_values[name.removeprefix(TASK_PREFIX)] = value
        else:
            method_values[name] = value
    return SplitConfig(method_values, TaskSettings.from_values(task, task_values))
