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
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...errors import UserError
from . import processes
from .batching import buckets, chunks, memory_ran_out
from .loss import BatchSize
from .model import LocalModel
from .settings import Training

if TYPE_CHECKING:
    from torch import Tensor, device
    from torch.nn import Module
    from torch.optim import Optimizer


@dataclass(frozen=True)
class Row:
    """A prompt with the completion to train on; the later fields are for sampled completions."""

    prompt: Sequence[int]
    completion: Sequence[int]
    advantage: float = 0.0
    old_logprobs: Sequence[float] = ()
    """Of each token of the completion, under the weights that the ratio starts from."""
    reference_logprobs: Sequence[float] = ()
    """Of each token of the completion, under the frozen reference; empty without a KL term."""

    @property
    def size(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt) + len(self.completion)


class TokenLogprobs(NamedTuple):
    """Log-probabilities of the completions of B rows, padded to the longest one, T tokens."""

    values: Tensor
    """(B, T), 0 in the padding; gradients flow through it."""
    mask: Tensor
    """(B, T), 1 where a token is, 0 in the padding."""


PartLoss = Callable[[Sequence[Row], BatchSize], "Tensor"]
"""Computes the loss of some rows of a batch of that size: the parts add up to the batch's loss."""


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


def shuffled_batches(rows: Sequence[Row], batch_size: int, seed: str) -> list[Sequence[Row]]:
    """Split rows into batches, in an order that depends on the seed alone."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    return chunks(order, batch_size)


class LocalWeights:
    """Weights that are whole in this process, with AdamW.

    Each process of a training has all weights, and computes the gradients of a shard of the rows.

    Args:
        model: The model that is trained. Its trainable weights become float32.
        settings: The sizes of passes, and the settings of AdamW.
        temperature: The one at which completions are scored.

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
        prompts = [row.prompt for row in rows]
        completions = [row.completion for row in rows]
        values, mask = self.model.token_logprobs(prompts, completions, self.temperature)
        return TokenLogprobs(values, mask)

    def logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        return self._logprobs(rows, by_reference=False)

    def reference_logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        return self._logprobs(rows, by_reference=True)

    def _logprobs(self, rows: Sequence[Row], by_reference: bool) -> list[list[float]]:
        shard = processes.local_shard(rows)
        shard_logprobs = self.model.logprobs(
            [row.prompt for row in shard],
            [row.completion for row in shard],
            self.temperature,
            by_reference,
            self.settings.micro_batch_size,
        )
        return list(processes.gather_shards(shard_logprobs, len(rows)))

    def compute_gradients(self, batch: Sequence[Row], loss: PartLoss) -> float:
        import torch

        # By length, so that the shards of all processes are about equally long.
        longest_first = sorted(batch, key=lambda row: -row.size)
        shard = processes.local_shard(longest_first)
        shard_loss = self._compute_shard_gradients(shard, loss, batch_size(batch))
        if processes.count() == 1:
            return shard_loss

        # A shard without rows has no gradients, but its process takes part in the sums.
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
        while True:
            # A backward pass that broke off has left a part of the gradients.
            self.optimizer.zero_grad(set_to_none=True)
            try:
                part_losses: list[float] = []
                for places in buckets([row.size for row in rows], self.micro_batch):
                    part = [rows[place] for place in places]
                    part_losses.append(self._add_part_gradients(part, loss, size))
                return float(sum(part_losses))
            except Exception as error:
                if not memory_ran_out(error):
                    raise
            self._halve_micro_batch(rows)

    def _add_part_gradients(self, part: Sequence[Row], loss: PartLoss, size: BatchSize) -> float:
        with recompute(self.recomputed_layers):
            part_loss = loss(part, size)
        part_loss.backward()
        return float(part_loss.detach())

    def _halve_micro_batch(self, rows: Sequence[Row]) -> None:
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
        import torch

        return float(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm))

    def save_checkpoint(self, path: Path, steps: int) -> None:
        import torch

        # All processes have the same weights: one of them writes.
        if processes.rank() == 0:
            state = {
                "weights": self.model.state(),
                "optimizer": self.optimizer.state_dict(),
                "steps": steps,
            }
            torch.save(state, path)

    def load_checkpoint(self, path: Path) -> int:
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


def batch_size(batch: Sequence[Row]) -> BatchSize:
    """Count the rows of a batch, and the tokens of their completions."""
    tokens = sum(len(row.completion) for row in batch)
    return BatchSize(rows=len(batch), tokens=tokens)


def pad_rows(rows: Sequence[Sequence[float]], device: device | str) -> Tensor:
    """Return B rows of numbers as one tensor (B, T), with zeros behind the shorter ones."""
    import torch

    width = max(len(row) for row in rows)
    padded = [[*row, *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.float32, device=device)


def token_mask(rows: Sequence[Sequence[float]], device: device | str) -> Tensor:
    """Return the mask of what `pad_rows` returns: (B, T), 1 where a number is, 0 in the padding."""
    import torch

    lengths = torch.tensor([[len(row)] for row in rows], device=device)  # (B, 1)
    places = torch.arange(int(lengths.max()), device=device)  # (T,)
    return (places < lengths).float()


def checkpointing_layers(model: LocalModel, settings: Training) -> list[Module]:
    """Return the layers that the backward pass computes again; none without gradient_checkpointing.

    Raises:
        UserError: The model has no layers for it.
    """
    if not settings.gradient_checkpointing:
        return []
    from transformers.modeling_layers import GradientCheckpointingLayer

    modules: list[Module] = list(model.model.modules())
    layers = [module for module in modules if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        name = type(model.model).__name__
        raise UserError(f"gradient_checkpointing: {name} has no layers for it; leave it off")
    return layers


@contextmanager
def recompute(layers: Sequence[Any]) -> Iterator[None]:
    """Let forward passes in the block keep only the inputs of these layers.

    The backward pass, which may come after the block, computes the layers again. transformers' own
    switch for this works in training mode alone.
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
