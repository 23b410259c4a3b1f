"""Supervised fine-tuning of a local model, and the provider that offers training to DSPy.

    loss = - sum of log pi(o_t) over the tokens of all completions of a batch / their number

Prompts are read, not learned. The order of the examples in each epoch follows from the seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspy.clients.provider import Provider
from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import DataError, UserError
from .loading import with_lora
from .loss import BatchSize
from .model import LocalModel
from .rows import Row, shuffled_batches
from .settings import Finetuning
from .trainer import LocalReinforceJob
from .update import LocalWeights, take_step

if TYPE_CHECKING:
    from torch import Tensor

Example = tuple[Sequence[Mapping[str, str]], str]
"""The messages of a prompt, and the completion to learn."""


class LocalProvider(Provider):
    """Tells DSPy that a local model can be fine-tuned and reinforced, and by which job."""

    def __init__(self) -> None:
        super().__init__()
        self.finetunable = True
        self.reinforceable = True
        self.ReinforceJob = LocalReinforceJob


def finetuned(
    model: LocalModel,
    rows: Sequence[Mapping[str, Any]],
    kind: TrainDataFormat | str | None,
    train_kwargs: Mapping[str, Any] | None,
) -> LocalModel:
    """Return a copy of a model that has learned the last message of every chat.

    Args:
        model: The model that training starts from; it does not change.
        rows: Chats, each {"messages": [{"role", "content"}, ...]}.
        kind: The format of the rows: CHAT or None.
        train_kwargs: The settings; see `settings.Finetuning`. With `output_dir` the copy is written
            there, and has this path as its name.

    Raises:
        UserError: A setting is unknown or does not fit, or there is no row.
        DataError: A row is not a chat, or none fits the context of the model.
    """
    if kind not in (None, TrainDataFormat.CHAT, TrainDataFormat.CHAT.value):
        raise DataError(f"training data is {kind!r}; the local engine fine-tunes on chat")
    settings = Finetuning.parse(train_kwargs)
    if not rows:
        raise UserError(
            "fine-tuning has no example to learn from: no answer passed; "
            "raise --train, or start better"
        )

    student = model.copy()
    if settings.lora is not None:
        student.model = with_lora(student.model, {"r": settings.lora}, settings.seed)
    fit(student, [_read_example(row) for row in rows], settings)

    student.name = f"{model.name}+{student.fingerprint[:8]}"
    if settings.output_dir:
        student.name = str(student.save(Path(settings.output_dir)))
    return student


def fit(model: LocalModel, examples: Sequence[Example], settings: Finetuning) -> list[float]:
    """Train a model, in place, to complete prompts as the examples do.

    Examples that are longer than the context of the model are left out.

    Args:
        model: The model.
        examples: Prompts with the completions to learn.
        settings: `settings.steps` batches are learned, or if None `settings.epochs` times all
            examples.

    Returns:
        The loss of each step before it, in nats per token.

    Raises:
        DataError: There is no example, or none that fits the context.
        UserError: Memory does not suffice for one example.
    """
    rows = _encode_examples(model, examples)
    weights = LocalWeights(model, settings)
    loss = partial(completion_loss, weights)
    step_count = settings.steps or settings.epochs * math.ceil(len(rows) / settings.batch_size)

    losses: list[float] = []
    batches = _batches_of_all_epochs(rows, settings)
    for step in range(step_count):
        learning_rate = settings.learning_rate
        if settings.cosine:
            learning_rate *= cosine_share(step, step_count)
        update = take_step(weights, next(batches), loss, learning_rate)
        losses.append(update.loss)
    return losses


def _batches_of_all_epochs(rows: Sequence[Row], settings: Finetuning) -> Iterator[Sequence[Row]]:
    """Yield batches without end: epoch after epoch, all rows in another order each time."""
    for epoch in itertools.count():
        yield from shuffled_batches(rows, settings.batch_size, f"{settings.seed}-{epoch}")


def completion_loss(weights: LocalWeights, rows: Sequence[Row], size: BatchSize) -> Tensor:
    """Return what some rows add to the loss of their batch, which has that size."""
    logprobs, _ = weights.token_logprobs(rows)  # (B, T), 0 in the padding
    return -logprobs.sum() / size.tokens


def cosine_share(step: int, step_count: int) -> float:
    """Return the share of the learning rate at a step: it falls from 1 to 0 along a cosine."""
    return (1 + math.cos(math.pi * step / step_count)) / 2


def _encode_examples(model: LocalModel, examples: Sequence[Example]) -> list[Row]:
    """Return the examples that fit the context as token ids; raise a DataError if none does."""
    if not examples:
        raise DataError("fine-tuning has no example to learn from")
    rows: list[Row] = []
    for messages, answer in examples:
        row = Row(model.encode(messages), model.encode_completion(answer))
        if row.prompt and row.completion and row.size <= model.context:
            rows.append(row)
    if not rows:
        raise DataError(f"fine-tuning: no example fits the {model.context} tokens of the model")
    return rows


def _read_example(row: Mapping[str, Any]) -> Example:
    """Return a chat as an example: its last message is the completion, the others are the prompt.

    Raises:
        DataError: The row is not a chat.
    """
    try:
        *prompt, answer = row["messages"]
        messages = [{"role": message["role"], "content": message["content"]} for message in prompt]
        return messages, str(answer["content"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"a row of training data is no chat: {str(row)[:80]!r}") from error
