"""Supervised fine-tuning: the likelihood of completions given their prompts.

    loss = - sum of log p(token) over the completions' tokens / number of those tokens in the batch

Prompts are read, not learned. Every epoch goes through the examples in an order of its own, drawn from the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...errors import DataError
from .model import LocalModel
from .parts import chunks
from .settings import Finetuning
from .update import Update

if TYPE_CHECKING:
    from torch import Tensor

Example = tuple[Sequence[Mapping[str, str]], str]
"""The messages of a prompt, and the completion to learn."""
_Pair = tuple[list[int], list[int]]


def fit(model: LocalModel, examples: Sequence[Example], settings: Finetuning) -> list[float]:
    """Trains a model, in place, to complete prompts as the examples do.

    Args:
        model: What learns; its version grows with every step.
        examples: Prompts with their completions.
        settings: Epochs or steps, learning rate, batches, seed.

    Returns:
        The loss of each step, in nats per token; examples longer than the model's context are left out.

    Raises:
        DataError: There is no example, or none that fits the context.
        UserError: Memory does not suffice for one example.
    """
    encoded = [(model.encode(messages), model.encode_completion(text)) for messages, text in examples]
    pairs = [pair for pair in encoded if pair[0] and pair[1] and len(pair[0]) + len(pair[1]) <= model.context]
    if not pairs:
        kind = "no example to learn from" if not encoded else f"no example fits the {model.context} tokens of the model"
        raise DataError(f"fine-tuning has {kind}")
    count = settings.steps or settings.epochs * math.ceil(len(pairs) / settings.batch_size)
    update = Update(model, settings)
    losses: list[float] = []
    epoch = 0
    while len(losses) < count:
        order = list(pairs)
        random.Random(f"{settings.seed}-{epoch}").shuffle(order)
        epoch += 1
        for rows in chunks(order, settings.batch_size)[: count - len(losses)]:
            tokens = sum(len(completion) for _, completion in rows)
            share = (1 + math.cos(math.pi * len(losses) / count)) / 2 if settings.cosine else 1.0
            lengths = [len(prompt) + len(completion) for prompt, completion in rows]
            rate = settings.learning_rate * share
            losses.append(update.step(rows, lengths, partial(_loss, model, tokens), rate))
    return losses


def _loss(model: LocalModel, tokens: int, rows: Sequence[_Pair]) -> Tensor:
    found, _ = model.token_logprobs([prompt for prompt, _ in rows], [completion for _, completion in rows])
    return -found.sum() / tokens
