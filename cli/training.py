"""Options that say how a model is trained, and what a process does that is not the first one of a training."""

from __future__ import annotations

import os
from typing import Any

import click

from ..runs.setting_pairs import parse_settings
from .config import FileOption
from .options import adds

_SETTINGS = (
    "steps=[10,5,5], tokens, horizons=[8,16,32], lora=16, answer_lm, ..., of its reward or trainer: learning_rate=2e-4"
)

training_options = adds(
    click.option("--train-set", cls=FileOption, file_key="training.settings", multiple=True, metavar="NAME=VALUE", help=_SETTINGS),
    click.option("--trainer", cls=FileOption, file_key="training.trainer", type=click.Choice(("local", "trl")), help="our own, or TRL's: weights in shards, vLLM"),
)
"""Adds `--train-set` and `--trainer`; `chosen_training` takes both."""


def chosen_training(train_set: tuple[str, ...], trainer: str | None) -> dict[str, Any]:
    """Return the settings that `--train-set` and `--trainer` name."""
    settings = parse_settings(train_set)
    return settings if trainer is None else {**settings, "trainer": trainer}


def follow_first_process(planned: bool, many: bool = False) -> None:
    """Do this process's part of what torchrun's first process trains, and end it; only that process returns.

    Args:
        planned: Whether the command prints a plan, which the first process does alone.
        many: Whether the command may train several models, one after the other.
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
    # At once: threads of torch's that wind down abort a process now and then, and torchrun then ends the first one.
    os._exit(0)
