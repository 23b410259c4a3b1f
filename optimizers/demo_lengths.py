"""How many demos fit into a prompt; all lengths are estimated tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dspy

from ..programs.program import MemoryProgram
from ..programs.state import signature_of
from ..records import estimate_tokens

ANSWER_TOKENS = 1024
"""Tokens of a model's window that are reserved for the answer."""
MAX_WINDOW_SHARE = 0.75
"""The share of a model's window that a prompt may fill: lengths are only estimates."""
FIELD_MARK_TOKENS = 12
"""Tokens of the heading that a prompt puts above each field."""


def tokens_of_fields(values: Mapping[str, Any]) -> int:
    """Return the tokens that these fields take in a prompt."""
    tokens = 0
    for value in values.values():
        tokens += estimate_tokens(str(value)) + FIELD_MARK_TOKENS
    return tokens


def tokens_of_demo(demo: dspy.Example) -> int:
    """Return the tokens that a demo takes in a prompt."""
    return tokens_of_fields(dict(demo.items()))


def prompt_tokens_of_window(window: int) -> int:
    """Return the tokens of a model's window that instructions, demos and a request may fill."""
    return int(window * MAX_WINDOW_SHARE) - ANSWER_TOKENS


def drop_demos_beyond_window(program: MemoryProgram, window: int) -> list[str]:
    """Remove the last demos of predictors whose prompts would not fit the window of a model.

    Args:
        program: The program; its predictors are changed.
        window: Tokens that the model reads and writes at most.

    Returns:
        A line for each predictor that lost demos.
    """
    notes: list[str] = []
    for name, predictor in program.all_predictors().items():
        # A predictor of `knn` holds more demos than it shows; it chooses some for each request.
        chooses_demos = getattr(predictor, "nearest", None) is not None
        lengths = [tokens_of_demo(demo) for demo in predictor.demos]
        if not lengths or chooses_demos:
            continue

        # The length of later requests is not known here. A demo is such a request with its answer,
        # so the longest demo serves as an estimate.
        instruction_tokens = estimate_tokens(signature_of(predictor).instructions)
        free_tokens = prompt_tokens_of_window(window) - instruction_tokens - max(lengths)

        fitting = 0
        total_tokens = 0
        for length in lengths:
            total_tokens += length
            if total_tokens > free_tokens:
                break
            fitting += 1

        if fitting < len(lengths):
            notes.append(
                f"{name}: {fitting} of {len(lengths)} demos fit the model's window "
                f"of {window:,} tokens"
            )
            predictor.demos = predictor.demos[:fitting]
    return notes
