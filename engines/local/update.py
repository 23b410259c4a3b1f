"""Gradient steps on a local model: accumulation, clipping, and a state to resume from.

A batch is computed in parts of rows of similar length. Where memory runs out, the whole batch is done again in parts of
half as many rows, which add up to the same gradient; later batches keep that size.

The model stays in evaluation mode, without dropout: otherwise the ratio of new to old probabilities would not start at
1. A step whose gradient is not finite is left out and counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import UserError
from .checkpointing import checkpointed, layers
from .parts import buckets, memory_ran_out, release

if TYPE_CHECKING:
    from torch import Tensor

    from .model import LocalModel

Row = TypeVar("Row")


class Update:
    """AdamW over the trainable weights of a model.

    Args:
        model: What learns.
        learning_rate: Unless a step says otherwise.
        max_grad_norm: Gradients are scaled down to it.
        weight_decay: As in AdamW.
        micro_batch: Most rows of a forward pass.
        checkpointing: Whether layers are computed again in the backward pass, to save memory.

    Raises:
        UserError: The model has no layers that can be computed again.
    """

    def __init__(
        self,
        model: LocalModel,
        learning_rate: float,
        max_grad_norm: float = 1.0,
        weight_decay: float = 0.0,
        micro_batch: int = 8,
        checkpointing: bool = False,
    ) -> None:
        import torch

        self.model, self.learning_rate, self.max_grad_norm = model, learning_rate, max_grad_norm
        self.micro_batch, self.checkpointing = micro_batch, checkpointing
        if checkpointing:
            layers(model.model)
        self.skipped = 0
        """Steps left out because their gradient was not finite."""
        self._parameters = model.parameters()
        self._optimizer = torch.optim.AdamW(self._parameters, lr=learning_rate, weight_decay=weight_decay)

    def step(
        self,
        rows: Sequence[Row],
        lengths: Sequence[int],
        loss: Callable[[Sequence[Row]], Tensor],
        learning_rate: float | None = None,
    ) -> float:
        """One step on a batch; gradients are accumulated part by part.

        Args:
            rows: The batch.
            lengths: Tokens of every row.
            loss: What some rows add to the loss of the batch. Called again for rows whose part ran out of memory.
            learning_rate: Of this step.

        Returns:
            The loss before the step.

        Raises:
            UserError: Memory does not suffice for one row.
        """
        import torch

        with self.model.lock, torch.enable_grad():
            found = self._accumulated(rows, lengths, loss)
            norm = torch.nn.utils.clip_grad_norm_(self._parameters, self.max_grad_norm)
            if not math.isfinite(float(norm)):
                self.skipped += 1
            else:
                for group in self._optimizer.param_groups:
                    group["lr"] = self.learning_rate if learning_rate is None else learning_rate
                self._optimizer.step()
                self.model.updated()
            self._optimizer.zero_grad(set_to_none=True)
        return found

    def _accumulated(
        self, rows: Sequence[Row], lengths: Sequence[int], loss: Callable[[Sequence[Row]], Tensor]
    ) -> float:
        """The loss of a batch, with its gradient in the weights."""
        while True:
            # A backward pass that broke off has left parts of a gradient.
            self._optimizer.zero_grad(set_to_none=True)
            try:
                return sum(self._part([rows[row] for row in part], loss) for part in buckets(lengths, self.micro_batch))
            except Exception as error:
                if not memory_ran_out(error):
                    raise
            size = min(self.micro_batch, len(rows))
            if size == 1:
                self._optimizer.zero_grad(set_to_none=True)
                raise UserError(self._too_long(max(lengths)))
            self.micro_batch = size // 2
            release()

    def _part(self, rows: Sequence[Row], loss: Callable[[Sequence[Row]], Tensor]) -> float:
        saving: AbstractContextManager[None] = checkpointed(self.model.model) if self.checkpointing else nullcontext()
        with saving:
            found = loss(rows)
        found.backward()
        return float(found.detach())

    def _too_long(self, longest: int) -> str:
        named = ["an adapter (lora)", "dtype bfloat16", "shorter prompts or a smaller model"]
        fixes = named if self.checkpointing else ["gradient_checkpointing = true", *named]
        told = f"memory ran out in training on one completion at a time; the longest of the batch has {longest} tokens"
        return f"{told} with its prompt. Train with {', '.join(fixes[:-1])}, or {fixes[-1]}"

    def state(self) -> dict[str, Any]:
        """The optimizer's moments and counters."""
        return self._optimizer.state_dict()

    def load_state(self, state: dict[str, Any]) -> None:
        """Puts back what `state` gave."""
        self._optimizer.load_state_dict(state)
