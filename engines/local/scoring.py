"""Log-probabilities of given completions, in one forward pass.

    prompt | completion | padding
    log p(token t) = log softmax(logits[t - 1] / temperature)[token t]

Padding comes last, where a causal model cannot see it, so no mask is needed. Logits are made for the completions alone,
a chunk at a time where the model's head allows it (`head`).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from .head import CHUNK, chosen_logprobs, core, headless, is_plain, output_head, pick

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["computing", "forward", "is_plain", "positions", "token_logprobs"]


def token_logprobs(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    temperature: float,
    pad: int,
    half: bool = False,
    plain: bool = False,
    most: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each token of each completion; gradients flow where torch's mode lets them.

    Args:
        model: A transformers causal language model.
        prompts: Token ids, at least one each.
        completions: Token ids of the answers; may be empty.
        temperature: Divides the logits; 0 means 1, as in sampling.
        pad: Fills rows.
        half: Whether it computes in bfloat16.
        plain: Whether its logits are its head's output (`head.is_plain`), and may be made in chunks.
        most: Logits of a chunk.

    Returns:
        Log-probabilities, 0 where there is no token, and the mask of those there are; both (rows, longest completion).
    """
    import torch

    device = next(model.parameters()).device
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    width, back = max(map(len, rows)), max(map(len, completions))
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=device)
    there = torch.tensor([[n < len(c) for n in range(back)] for c in completions], device=device).view(len(rows), back)
    found = torch.zeros(len(rows), back, device=device)
    if not any(map(len, completions)):
        return found, found
    # Every token is predicted one place before its own.
    places = [
        (row, len(prompt) + n - 1)
        for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        for n in range(len(completion))
    ]
    row, place = torch.tensor(places, device=device).unbind(-1)
    head = output_head(model) if plain else None
    with computing(device, half), headless(head) if head is not None else nullcontext():
        out = _forward(model, ids, width - min(map(len, prompts)) + 1)
    with computing(device, half):
        states = out[row, place - (width - out.shape[1])]
        tokens = ids[row, place + 1]
        if head is None:
            values = pick(states, tokens, temperature)
        else:
            values = chosen_logprobs(head, states, tokens, temperature, most)
    return found.masked_scatter(there, values), there.float()


def positions(attention: Tensor) -> Tensor:
    """Positions of tokens that count only what is there, as without padding."""
    return (attention.cumsum(-1) - 1).clamp(min=0)


def forward(model: Any, ids: Tensor, attention: Tensor, places: Tensor, half: bool, **settings: Any) -> Any:
    """One pass for sampling, with the logits of the last position at least."""
    takes = _takes(type(core(model)))
    if "position_ids" in takes:
        settings["position_ids"] = places
    if "logits_to_keep" in takes:
        settings["logits_to_keep"] = 1
    with computing(ids.device, half):
        return model(input_ids=ids, attention_mask=attention, **settings)


@cache
def _takes(kind: type) -> Collection[str]:
    """What a class of models takes in its forward pass."""
    return frozenset(inspect.signature(kind.forward).parameters)


def computing(device: Any, half: bool) -> AbstractContextManager[Any]:
    """Computing in bfloat16, if wanted."""
    import torch

    return torch.autocast(device.type, dtype=torch.bfloat16) if half else nullcontext()


def _forward(model: Any, ids: Tensor, keep: int) -> Tensor:
    """What the model gives for the last `keep` positions at least: logits, or hidden states without its head."""
    takes = _takes(type(core(model)))
    offered = {"use_cache": False, "logits_to_keep": keep}
    return model(input_ids=ids, **{name: value for name, value in offered.items() if name in takes}).logits
