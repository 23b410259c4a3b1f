"""Sampling token by token, for a batch of prompts of different lengths.

Each token is drawn by inverse transform: row r, step t uses the t-th uniform number of a generator seeded for that row
alone, so what a row gets does not depend on its neighbours in the batch (up to rounding in the logits, which can tip a
draw that falls on the border between two tokens).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .scoring import forward, positions

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """One completion of a local model."""

    prompt_ids: tuple[int, ...] = field(repr=False)
    completion_ids: tuple[int, ...] = field(repr=False)
    """What was sampled, the end-of-sequence token included where the model set one."""
    logprobs: tuple[float, ...] = field(repr=False)
    """Of each of `completion_ids` under the distribution it was drawn from, the temperature included; at temperature 0
    under the distribution at temperature 1. Natural logarithms."""
    text: str
    """The completion without its end-of-sequence token."""
    finished: bool
    """Whether the model ended it, rather than the limit of tokens."""


def row_seed(seed: int, prompt: Sequence[int], occurrence: int) -> int:
    """The seed of one row: from a base seed, the prompt, and which of several draws for that prompt it is."""
    told = f"{seed} {occurrence} {' '.join(map(str, prompt))}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big") >> 1


def draw(
    model: Any,
    prompts: Sequence[Sequence[int]],
    heats: Sequence[float],
    limits: Sequence[int],
    seeds: Sequence[int],
    ends: frozenset[int],
    pad: int,
    half: bool = False,
) -> list[tuple[list[int], list[float]]]:
    """Completes prompts, given as token ids, as one batch; rows are filled up with `pad`, and end with one of `ends`.

    Returns:
        Of each prompt the tokens that were drawn, and their log-probabilities.
    """
    import torch

    device, front = next(model.parameters()).device, max(map(len, prompts))
    drawn: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    uniforms = _uniforms(heats, limits, seeds).to(device)
    warmth = torch.tensor(heats, device=device, dtype=torch.float32)
    live = list(range(len(prompts)))
    rows = [[pad] * (front - len(p)) + list(p) for p in prompts]
    known = [[0] * (front - len(p)) + [1] * len(p) for p in prompts]
    ids, attention = torch.tensor(rows, device=device), torch.tensor(known, device=device)
    places, cache = positions(attention), None
    open_rows = {row for row in live if limits[row] > 0}
    for step in range(max(limits)):
        out = forward(model, ids, attention, places, half, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        index = torch.tensor(live, device=device)
        tokens, values = _choose(out.logits[:, -1].float(), warmth[index], uniforms[index, step])
        for row, token, value in zip(live, tokens.tolist(), values.tolist(), strict=True):
            if row in open_rows:
                drawn[row][0].append(token)
                drawn[row][1].append(value)
                if token in ends or step + 1 >= limits[row]:
                    open_rows.discard(row)
        if not open_rows:
            break
        if 2 * len(open_rows) <= len(live):
            keep = torch.tensor([n for n, row in enumerate(live) if row in open_rows], device=device)
            live = [row for row in live if row in open_rows]
            cache.batch_select_indices(keep)
            tokens, attention = tokens[keep], attention[keep]
        ids = tokens.unsqueeze(-1)
        attention = torch.cat([attention, torch.ones_like(ids)], dim=-1)
        places = positions(attention)[:, -1:]
    return drawn


def _uniforms(heats: Sequence[float], limits: Sequence[int], seeds: Sequence[int]) -> Tensor:
    # Made on the CPU, so that every device draws alike.
    import torch

    found = torch.zeros(len(seeds), max(1, *limits), dtype=torch.float64)
    for row, (heat, limit, seed) in enumerate(zip(heats, limits, seeds, strict=True)):
        if heat > 0 and limit > 0:
            generator = torch.Generator().manual_seed(seed)
            found[row, :limit] = torch.rand(limit, generator=generator, dtype=torch.float64)
    return found


def _choose(logits: Tensor, heats: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """The next token of each row, and its log-probability under what it was drawn from."""
    import torch

    cold = heats <= 0
    logprobs = (logits / torch.where(cold, torch.ones_like(heats), heats).unsqueeze(-1)).log_softmax(-1)
    sums = logprobs.double().exp().cumsum(-1)
    # `right`: the first token whose sum is above the number, so that none of probability 0 is drawn.
    drawn = torch.searchsorted(sums, (uniforms * sums[:, -1]).unsqueeze(-1), right=True).squeeze(-1)
    tokens = torch.where(cold, logits.argmax(-1), drawn.clamp(max=logits.shape[-1] - 1))
    return tokens, logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
