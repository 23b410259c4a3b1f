"""Supervised fine-tuning: the likelihood of completions given their prompts.

    loss = - sum of log p(token) over the completions' tokens / number of those tokens in the batch

Prompts are read, not learned. The learning rate falls along a cosine to 0, if wanted. Every epoch goes through the
examples in an order of its own, drawn from the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...errors import DataError
from .model import LocalModel
from .parts import chunks
from .update import Update

if TYPE_CHECKING:
    from torch import Tensor

Example = tuple[Sequence[Mapping[str, str]], str]
"""The messages of a prompt, and the completion to learn."""
_Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Fit:
    """What a training was like."""

    losses: tuple[float, ...]
    """Of each step, in nats per token."""
    left_out: int = 0
    """Examples longer than the model's context."""


def fit(
    model: LocalModel,
    examples: Sequence[Example],
    epochs: int = 3,
    steps: int | None = None,
    learning_rate: float = 1e-5,
    batch: int = 8,
    seed: int = 0,
    cosine: bool = True,
    micro_batch: int = 8,
    max_grad_norm: float = 1.0,
    weight_decay: float = 0.0,
    checkpointing: bool = False,
) -> Fit:
    """Trains a model, in place, to complete prompts as the examples do.

    Args:
        model: What learns; its version grows with every step.
        examples: Prompts with their completions.
        epochs: Passes over the examples.
        steps: Steps of the optimizer; replaces `epochs` if given.
        learning_rate: Of AdamW, at its highest.
        batch: Examples per step.
        seed: Decides the order.
        cosine: Whether the learning rate falls to 0 along a cosine.
        micro_batch: Examples per forward pass.
        max_grad_norm: Gradients are scaled down to it.
        weight_decay: As in AdamW.
        checkpointing: Whether layers are computed again in the backward pass, to save memory.

    Returns:
        The losses.

    Raises:
        DataError: There is no example, or none that fits the context.
        UserError: Memory does not suffice for one example.
    """
    encoded = [(model.encode(messages), model.encode_completion(text)) for messages, text in examples]
    pairs = [pair for pair in encoded if pair[0] and pair[1] and len(pair[0]) + len(pair[1]) <= model.context]
    if not pairs:
        kind = "no example to learn from" if not encoded else f"no example fits the {model.context} tokens of the model"
        raise DataError(f"fine-tuning has {kind}")
    count = steps if steps is not None else epochs * math.ceil(len(pairs) / batch)
    update = Update(model, learning_rate, max_grad_norm, weight_decay, micro_batch, checkpointing)
    losses: list[float] = []
    epoch = 0
    while len(losses) < count:
        order = list(pairs)
        random.Random(f"{seed}-{epoch}").shuffle(order)
        epoch += 1
        for rows in chunks(order, batch)[: count - len(losses)]:
            tokens = sum(len(completion) for _, completion in rows)
            share = (1 + math.cos(math.pi * len(losses) / count)) / 2 if cosine else 1.0
            lengths = [len(prompt) + len(completion) for prompt, completion in rows]
            losses.append(update.step(rows, lengths, partial(_loss, model, tokens), learning_rate * share))
    return Fit(tuple(losses), len(encoded) - len(pairs))


def _loss(model: LocalModel, tokens: int, rows: Sequence[_Pair]) -> Tensor:
    found, _ = model.token_logprobs([prompt for prompt, _ in rows], [completion for _, completion in rows])
    return -found.sum() / tokens
