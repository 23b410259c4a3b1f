"""Steps of the optimizer on the weights of a local model.

    batch of rows -> shard of this process -> parts of similar length
      each part:   forward pass -> loss -> backward pass, which adds to the gradients
      then:        gradients summed over processes -> scaled to max_grad_norm -> optimizer

The model stays in evaluation mode, without dropout. With dropout the ratio of new to old
probabilities would not start at 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...errors import UserError
from . import processes
from .batching import buckets, memory_ran_out
from .loss import BatchSize
from .model import LocalModel
from .rows import Row, TokenLogprobs, size_of_batch
from .settings import Training

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer


PartLoss = Callable[[Sequence[Row], BatchSize], "Tensor"]
"""Returns what some rows of a batch add to its loss; the size is that of the whole batch."""


class Weights(Protocol):
    """The weights that a training changes, whole in this process or in shards."""

    model: LocalModel
    settings: Training
    optimizer: Optimizer

    def token_logprobs(self, rows: Sequence[Row]) -> TokenLogprobs:
        """Score completions in one forward pass, for a loss."""
        ...

    def logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        """Score completions without gradients, one list for each row."""
        ...

    def reference_logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        """Score completions under the frozen reference, without gradients."""
        ...

    def compute_gradients(self, batch: Sequence[Row], loss: PartLoss) -> float:
        """Compute the gradients of a batch's loss, in every process; return the loss."""
        ...

    def clip_gradients(self, max_norm: float) -> float:
        """Scale the gradients to a norm of at most `max_norm`; return the norm before."""
        ...

    def save_checkpoint(self, path: Path, steps: int) -> None:
        """Write weights, optimizer and the number of steps."""
        ...

    def load_checkpoint(self, path: Path) -> int:
        """Read what `save_checkpoint` wrote; return the number of steps."""
        ...

    def save_model(self, folder: Path) -> None:
        """Write the model in the format of transformers."""
        ...


class Update(NamedTuple):
    """The outcome of one step of the optimizer."""

    loss: float
    """The batch's loss before the step."""
    is_skipped: bool
    """Whether the weights stayed as they are, because the gradient was not finite."""


def take_step(
    weights: Weights, batch: Sequence[Row], loss: PartLoss, learning_rate: float
) -> Update:
    """Take one step of the optimizer on a batch.

    Raises:
        UserError: Memory does not suffice for one row, or another process has ended.
    """
    import torch

    with weights.model.lock, torch.enable_grad():
        batch_loss = weights.compute_gradients(batch, loss)
        gradient_norm = weights.clip_gradients(weights.settings.longest_gradient)

        # A step along a gradient that is not finite would leave no finite weight.
        is_finite = math.isfinite(gradient_norm)
        if is_finite:
            for group in weights.optimizer.param_groups:
                group["lr"] = learning_rate
            weights.optimizer.step()
            weights.model.updated()
        weights.optimizer.zero_grad(set_to_none=True)
    return Update(batch_loss, is_skipped=not is_finite)


class LocalWeights:
    """The weights of a model, whole in this process, with AdamW.

    If a training has several processes, each has all weights and computes the gradients of a shard
    of the rows.

    Args:
        model: The model that is trained. Its trainable weights become float32.
        settings: The sizes of passes, and the settings of AdamW.
        temperature: Divides the logits of completions that are scored.

    Raises:
        UserError: `gradient_checkpointing` is on, and the model has no layers for it.
    """

    def __init__(self, model: LocalModel, settings: Training, temperature: float = 1.0) -> None:
        import torch

        self.model = model
        self.settings = settings
        self.temperature = temperature
        self.micro_batch = settings.micro_batch_size
        """Most rows of one pass; halved for good where memory runs out."""
        self.recomputed_layers = checkpointing_layers(model, settings)

        self.parameters = model.parameters()
        self.optimizer: Optimizer = torch.optim.AdamW(
            self.parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def token_logprobs(self, rows: Sequence[Row]) -> TokenLogprobs:
        """Score completions in one forward pass that gradients flow through."""
        prompts = [row.prompt for row in rows]
        completions = [row.completion for row in rows]
        values, mask = self.model.token_logprobs(prompts, completions, self.temperature)
        return TokenLogprobs(values, mask)

    def logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        return self._logprobs(rows, by_reference=False)

    def reference_logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        return self._logprobs(rows, by_reference=True)

    def _logprobs(self, rows: Sequence[Row], by_reference: bool) -> list[list[float]]:
        """Score a shard of the rows, and collect what the other processes score."""
        shard = processes.local_shard(rows)
        shard_logprobs = self.model.logprobs(
            [row.prompt for row in shard],
            [row.completion for row in shard],
            temperature=self.temperature,
            reference=by_reference,
            batch=self.settings.micro_batch_size,
        )
        return list(processes.gather_shards(shard_logprobs, len(rows)))

    def compute_gradients(self, batch: Sequence[Row], loss: PartLoss) -> float:
        """Compute the gradients of this process's shard, and add those of the other processes.

        Raises:
            UserError: Memory does not suffice for one row, or another process has ended.
        """
        import torch

        # By length, so that the shards of all processes are about equally long.
        longest_first = sorted(batch, key=lambda row: -row.size)
        shard = processes.local_shard(longest_first)
        shard_loss = self._compute_shard_gradients(shard, loss, size_of_batch(batch))
        if processes.count() == 1:
            return shard_loss

        # A weight that no row of the shard reaches has no gradient here, but maybe elsewhere.
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        batch_loss = torch.tensor([shard_loss])
        gradients = [parameter.grad for parameter in self.parameters]
        processes.all_reduce_sum([batch_loss, *gradients])
        return float(batch_loss)

    def _compute_shard_gradients(
        self, rows: Sequence[Row], loss: PartLoss, size: BatchSize
    ) -> float:
        """Compute the gradients of the rows, in parts that fit into memory; return their loss."""
        lengths = [row.size for row in rows]
        while True:
            # An attempt that ran out of memory has left the gradients of its first parts.
            self.optimizer.zero_grad(set_to_none=True)
            try:
                part_losses: list[float] = []
                for places in buckets(lengths, self.micro_batch):
                    part = [rows[place] for place in places]
                    part_losses.append(self._add_part_gradients(part, loss, size))
                return float(sum(part_losses))
            except Exception as error:
                if not memory_ran_out(error):
                    raise
            self._halve_micro_batch(rows)

    def _add_part_gradients(self, part: Sequence[Row], loss: PartLoss, size: BatchSize) -> float:
        """Run one forward and one backward pass; return what the part adds to the batch's loss."""
        with recompute(self.recomputed_layers):
            part_loss = loss(part, size)
        part_loss.backward()
        return float(part_loss.detach())

    def _halve_micro_batch(self, rows: Sequence[Row]) -> None:
        """Halve the most rows of a pass for good, because memory ran out.

        Args:
            rows: The rows of the batch, the longest first.

        Raises:
            UserError: A pass has one row already.
        """
        rows_of_pass = min(self.micro_batch, len(rows))
        if rows_of_pass == 1:
            self.optimizer.zero_grad(set_to_none=True)
            raise UserError(
                "memory ran out in training on one completion at a time; the longest of the batch "
                f"has {rows[0].size} tokens with its prompt. Train with gradient_checkpointing = "
                "true, an adapter (lora), dtype bfloat16, or shorter prompts or a smaller model"
            )
        self.micro_batch = rows_of_pass // 2

    def clip_gradients(self, max_norm: float) -> float:
        """Scale the gradients to a norm of at most `max_norm`; return the norm before."""
        import torch

        return float(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm))

    def save_checkpoint(self, path: Path, steps: int) -> None:
        """Write one file, from the first process: all have the same weights and optimizer."""
        import torch

        if processes.rank() == 0:
            state = {
                "weights": self.model.state(),
                "optimizer": self.optimizer.state_dict(),
                "steps": steps,
            }
            torch.save(state, path)

    def load_checkpoint(self, path: Path) -> int:
        """Read a checkpoint into weights and optimizer; return the steps that led to it."""
        import torch

        # weights_only: only tensors and plain values are read, and no code of the file is run.
        state = torch.load(path, map_location="cpu", weights_only=True)
        weights = state["weights"]
        optimizer_state = state["optimizer"]
        steps = int(state["steps"])

        self.model.load_state(weights)
        self.optimizer.load_state_dict(optimizer_state)
        return steps

    def save_model(self, folder: Path) -> None:
        if processes.rank() == 0:
            self.model.save(folder)


def checkpointing_layers(model: LocalModel, settings: Training) -> Sequence[Module]:
    """Return the layers to `recompute`: none, unless the settings say gradient_checkpointing.

    Raises:
        UserError: The model has no layers for it.
    """
    if not settings.gradient_checkpointing:
        return []
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [
        module for module in model.model.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
    if not layers:
        name = type(model.model).__name__
        raise UserError(f"gradient_checkpointing: {name} has no layers for it; leave it off")
    return layers


@contextmanager
def recompute(layers: Sequence[Any]) -> Iterator[None]:
    """Let forward passes in the block keep only the inputs of these layers, to save memory.

    Their backward passes, which may come after the block, compute the layers again. transformers
    has a switch for this, which works in training mode alone.
    """
    from torch.utils.checkpoint import checkpoint

    for layer in layers:
        layer.forward = functools.partial(
            checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
        )
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
