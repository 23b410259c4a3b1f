"""Training that DSPy asks for: supervised fine-tuning of a copy, and the provider that offers it and reinforcement.

    loss = - sum of log p(token) over the completions' tokens / number of those tokens in the batch

Prompts are read, not learned. Every epoch goes through the examples in an order of its own, drawn from the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspy.clients.provider import Provider
from dspy.clients.utils_finetune import TrainDataFormat

from ...errors import DataError, UserError
from .batching import chunks
from .loading import with_lora
from .model import LocalModel
from .reinforce import LocalReinforceJob
from .settings import Finetuning
from .update import Row, Update

if TYPE_CHECKING:
    from torch import Tensor

Example = tuple[Sequence[Mapping[str, str]], str]
"""The messages of a prompt, and the completion to learn."""


def fit(model: LocalModel, examples: Sequence[Example], settings: Finetuning) -> list[float]:
    """Trains a model, in place, to complete prompts as the examples do.

    Returns:
        The loss of each step, in nats per token; examples longer than the model's context are left out.

    Raises:
        DataError: There is no example, or none that fits the context.
        UserError: Memory does not suffice for one example.
    """
    encoded = [Row(model.encode(messages), model.encode_completion(text)) for messages, text in examples]
    fitting = [row for row in encoded if row.prompt and row.completion and row.size <= model.context]
    if not fitting:
        kind = "no example to learn from" if not encoded else f"no example fits the {model.context} tokens of the model"
        raise DataError(f"fine-tuning has {kind}")
    count = settings.steps or settings.epochs * math.ceil(len(fitting) / settings.batch_size)
    update = Update(model, settings)
    losses: list[float] = []
    epoch = 0
    while len(losses) < count:
        order = list(fitting)
        random.Random(f"{settings.seed}-{epoch}").shuffle(order)
        epoch += 1
        for rows in chunks(order, settings.batch_size)[: count - len(losses)]:
            tokens = sum(len(row.completion) for row in rows)
            share = (1 + math.cos(math.pi * len(losses) / count)) / 2 if settings.cosine else 1.0
            losses.append(update.step(rows, partial(_loss, model, tokens), settings.learning_rate * share))
    return losses


def _loss(model: LocalModel, tokens: int, rows: Sequence[Row]) -> Tensor:
    found, _ = model.token_logprobs([row.prompt for row in rows], [row.completion for row in rows])
    return -found.sum() / tokens


class NamedJob(LocalReinforceJob):
    """Makes a job of the trainer that the settings name."""

    def __new__(cls, lm: Any, train_kwargs: dict[str, Any] | None = None) -> LocalReinforceJob:
        """Ours, or TRL's."""
        if (train_kwargs or {}).get("trainer") != "trl":
            return LocalReinforceJob(lm, train_kwargs)
        from .trl_job import TRLJob

        return TRLJob(lm, train_kwargs)


class LocalProvider(Provider):
    """Says that a model can be trained, and by what."""

    def __init__(self) -> None:
        super().__init__()
        self.finetunable = self.reinforceable = True
        self.ReinforceJob = NamedJob


def finetuned(
    model: LocalModel,
    rows: Sequence[Mapping[str, Any]],
    kind: TrainDataFormat | str | None,
    train_kwargs: Mapping[str, Any] | None,
) -> LocalModel:
    """A trained copy of a model: the last message of each chat, by the assistant, is learned.

    Args:
        model: Where training begins.
        rows: Of {"messages": [{"role", "content"}, ...]}.
        kind: CHAT or None.
        train_kwargs: See `settings.Finetuning`; with `output_dir` the copy is written there, and named by it.

    Raises:
        UserError: A setting is unknown, there is nothing to learn from, or data is no chat.
    """
    if kind not in (None, TrainDataFormat.CHAT, TrainDataFormat.CHAT.value):
        raise DataError(f"training data is {kind!r}; the local engine fine-tunes on chat")
    settings = Finetuning.parse(train_kwargs)
    if not rows:
        raise UserError("fine-tuning has no example to learn from: no answer passed; raise --train, or start better")
    tuned = model.copy()
    if settings.lora is not None:
        tuned.model = with_lora(tuned.model, {"r": settings.lora}, settings.seed)
    fit(tuned, [_example(row) for row in rows], settings)
    tuned.name = f"{model.name}+{tuned.fingerprint[:8]}"
    if settings.output_dir:
        tuned.name = str(tuned.save(Path(settings.output_dir)))
    return tuned


def _example(row: Mapping[str, Any]) -> Example:
    try:
        *asked, answer = row["messages"]
        return [{"role": m["role"], "content": m["content"]} for m in asked], str(answer["content"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"a row of training data is no chat: {str(row)[:80]!r}") from error
