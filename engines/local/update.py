"""Gradient steps on a local model, in parts of rows of similar length; halved for good where memory runs out.

Of several processes each computes a share of the rows, and all take the step of the summed gradients. The model stays
in evaluation mode, without dropout: otherwise the ratio of new to old probabilities would not start at 1. So layers
that are computed again are wrapped here for one pass; transformers' own switch needs the training mode. A step whose
gradient is not finite is left out and counted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from . import processes
from .batching import buckets, chunks, memory_ran_out
from .model import LocalModel
from .settings import Training

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Row:
    """A completion to train on; what follows the tokens is of one that was sampled."""

    prompt: Sequence[int]
    completion: Sequence[int]
    advantage: float = 0.0
    old: Sequence[float] = ()
    """Log-probabilities under the weights that sampled it."""
    reference: Sequence[float] = ()
    """Under the frozen reference, where that counts."""

    @property
    def size(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt) + len(self.completion)


class Update:
    """AdamW over the trainable weights of a model, in all processes of its training.

    Raises:
        UserError: The model has no layers that can be computed again.
    """

    def __init__(self, model: LocalModel, settings: Training) -> None:
        import torch

        self.model, self.settings, self.micro_batch = model, settings, settings.micro_batch_size
        self.skipped = 0
        """Steps left out because their gradient was not finite."""
        self._again = layers(model.model) if settings.gradient_checkpointing else []
        self._parameters = model.parameters()
        self.optimizer = torch.optim.AdamW(
            self._parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def step(
        self, rows: Sequence[Row], loss: Callable[[Sequence[Row]], Tensor], learning_rate: float | None = None
    ) -> float:
        """One step on a batch; gradients are accumulated part by part.

        `loss` is what some rows add to that of the batch; called again for rows whose part ran out of memory.

        Returns:
            The loss before the step.

        Raises:
            UserError: Memory does not suffice for one row.
        """
        import torch

        with self.model.lock, torch.enable_grad():
            found = self._accumulated(rows, loss)
            if not math.isfinite(self._clipped()):
                self.skipped += 1
            else:
                for group in self.optimizer.param_groups:
                    group["lr"] = self.settings.learning_rate if learning_rate is None else learning_rate
                self.optimizer.step()
                self.model.updated()
            self.optimizer.zero_grad(set_to_none=True)
        return found

    def _clipped(self) -> float:
        import torch

        return float(torch.nn.utils.clip_grad_norm_(self._parameters, self.settings.longest_gradient))

    def _accumulated(self, rows: Sequence[Row], loss: Callable[[Sequence[Row]], Tensor]) -> float:
        """The loss of a batch, with its gradient in the weights."""
        import torch

        share = self._of(processes.local_shard(sorted(rows, key=lambda row: -row.size)), loss)
        if processes.count() == 1:
            return share
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        found = torch.tensor([share])
        processes.all_reduce_sum([found, *(parameter.grad for parameter in self._parameters)])
        return float(found)

    def _of(self, rows: Sequence[Row], loss: Callable[[Sequence[Row]], Tensor]) -> float:
        """What this process's rows add to the loss and to the gradient."""
        while True:
            # A backward pass that broke off has left parts of a gradient.
            self.optimizer.zero_grad(set_to_none=True)
            try:
                parts = buckets([row.size for row in rows], self.micro_batch)
                return float(sum(self._part([rows[n] for n in part], loss) for part in parts))
            except Exception as error:
                if not memory_ran_out(error):
                    raise
            size = min(self.micro_batch, len(rows))
            if size == 1:
                self.optimizer.zero_grad(set_to_none=True)
                raise UserError(
                    "memory ran out in training on one completion at a time; the longest of the batch has "
                    f"{rows[0].size} tokens with its prompt. Train with gradient_checkpointing = true, an adapter "
                    "(lora), dtype bfloat16, or shorter prompts or a smaller model"
                )
            self.micro_batch = size // 2

    def _part(self, rows: Sequence[Row], loss: Callable[[Sequence[Row]], Tensor]) -> float:
        with checkpointed(self._again):
            found = loss(rows)
        found.backward()
        return float(found.detach())


class Sharded(Update):
    """Steps of the optimizer that accelerate prepared, on weights in shards; `job` is a `trl_job.TRLJob`."""

    def __init__(self, job: Any) -> None:
        super().__init__(job.model, job.settings)
        self.job = job

    def _accumulated(self, rows: Sequence[Row], loss: Callable[[Sequence[Row]], Tensor]) -> float:
        import torch

        accelerator, found = self.job.accelerator, torch.zeros(1)
        order = self.job.filled(sorted(rows, key=lambda row: -row.size))
        parts = chunks(processes.local_shard(order), self.micro_batch)
        accelerator.gradient_accumulation_steps, accelerator.step = len(parts), 0
        # Gradients are averaged over processes, and by accelerate, but not by DeepSpeed, over passes.
        scale = processes.count() * (1 if self.job.trl.is_deepspeed_enabled else len(parts))
        try:
            for part in parts:
                with accelerator.accumulate(self.job.wrapped):
                    with checkpointed(self._again):
                        share = loss(part)
                    accelerator.backward(share * scale)
                    found += share.detach().cpu()
        except Exception as error:
            if not memory_ran_out(error):
                raise
            # The other processes wait in the middle of a pass.
            smaller = f"; train with micro_batch_size = {self.micro_batch // 2}" if self.micro_batch > 1 else ""
            raise UserError(f"memory ran out in training on {self.micro_batch} sharded completions{smaller}") from error
        processes.all_reduce_sum([found])
        return float(found)

    def _clipped(self) -> float:
        norm = self.job.accelerator.clip_grad_norm_(self.job.wrapped.parameters(), self.settings.longest_gradient)
        return float(norm) if norm is not None else 0.0


def layers(model: Any) -> list[Any]:
    """The layers of a model that can be computed again.

    Raises:
        UserError: It has none.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    found = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not found:
        raise UserError(f"gradient_checkpointing: {type(model).__name__} has no layers for it; leave it off")
    return found


@contextmanager
def checkpointed(layers: Sequence[Any]) -> Iterator[None]:
    """Forward passes inside keep only the inputs of these layers; their backward passes may come after it."""
    from torch.utils.checkpoint import checkpoint

    for layer in layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
