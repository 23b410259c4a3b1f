"""Rows: prompts with the completions that a model is trained on, their batches, and their tensors.

In tensors B rows are padded to T tokens, the length of the longest completion.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .batching import chunks
from .loss import BatchSize

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True)
class Row:
    """A prompt and the completion to train on; the later fields are for sampled completions."""

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
    """Log-probabilities of the completions of B rows."""

    values: Tensor
    """(B, T), 0 in the padding; gradients flow through it."""
    mask: Tensor
    """(B, T), 1 where a token is, 0 in the padding."""


def shuffled_batches(rows: Sequence[Row], batch_size: int, seed: str) -> list[Sequence[Row]]:
    """Split rows into batches, in an order that depends on the seed alone."""
    order = list(rows)
    random.Random(seed).shuffle(order)
    return chunks(order, batch_size)


def size_of_batch(batch: Sequence[Row]) -> BatchSize:
    """Count the rows of a batch, and the tokens of their completions."""
    return BatchSize(rows=len(batch), tokens=completion_tokens(batch))


def completion_tokens(rows: Sequence[Row]) -> int:
    """Count the tokens of the rows' completions."""
    return sum(len(row.completion) for row in rows)


def pad_rows(rows: Sequence[Sequence[float]], device: device | str) -> Tensor:
    """Return B rows of numbers as one tensor (B, T), with zeros behind the shorter ones."""
    import torch

    width = max(len(row) for row in rows)
    padded = [[*row, *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.float32, device=device)


def token_mask(rows: Sequence[Sequence[float]], device: device | str) -> Tensor:
    """Return the mask of the tensor of `pad_rows`: (B, T), 1 for a number, 0 for padding."""
    import torch

    lengths = torch.tensor([[len(row)] for row in rows], device=device)  # (B, 1)
    places = torch.arange(int(lengths.max()), device=device)  # (T,)
    return (places < lengths).float()
