"""Options that say how a model is trained, and the work of the other processes of a training."""

from __future__ import annotations

import os
from typing import Any

import click

from ..runs.setting_pairs import parse_settings
from .config import FileOption
from .options import adds

_SETTINGS_HELP = (
    "steps=[10,5,5], tokens, horizons=[8,16,32], lora=16, answer_lm, ..., "
    "of its reward or trainer: learning_rate=2e-4"
)

training_options = adds(
    click.option(
        "--train-set",
        cls=FileOption,
        file_key="training.settings",
        multiple=True,
        metavar="NAME=VALUE",
        help=_SETTINGS_HELP,
    ),
    click.option(
        "--trainer",
        cls=FileOption,
        file_key="training.trainer",
        type=click.Choice(("local", "trl")),
        help="our own, or TRL's: weights in shards, vLLM",
    ),
)
"""Adds `--train-set` and `--trainer`; `chosen_training` takes both."""


def chosen_training(train_set: tuple[str, ...], trainer: str | None) -> dict[str, Any]:
    """Return the settings that `--train-set` and `--trainer` name."""
    settings = parse_settings(train_set)
    if trainer is not None:
        settings["trainer"] = trainer
    return settings


def follow_first_process(planned: bool, many: bool = False) -> None:
    """Return in the first process of `torchrun`; in any other one do its part, and end it.

    The first process reads the options, asks models and leads the training. The others wait here
    for its commands until it has finished, and never return.

    Args:
        planned: Whether the command prints a plan. The first process does that alone, so the others
            have nothing to do.
        many: Whether the command may train several models, one after the other. Then the others
            wait for a further training until the first process dismisses them.
    """
    from ..engines.local import processes

    if processes.rank() == 0:
        return

    if not planned:
        from ..engines.local.engine import follow_all, run_follower

        if many:
            follow_all()
        else:
            run_follower()
    # A usual exit ends torch's threads, which now and then aborts the process. torchrun would take
    # that for a failure, and end the first process, too.
    os._exit(0)
