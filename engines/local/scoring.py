"""Log-probabilities of given completions, in one forward pass.

    prompt (left-padded) | completion (right-padded)
    log p(token t) = log softmax(logits[t - 1] / temperature)[token t]

Padding in front leaves all completions at the same place, so that logits are computed for them alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def token_logprobs(
    model: Any, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], temperature: float, pad: int
) -> tuple[Tensor, Tensor]:
    """Log-probability of each token of each completion; gradients flow where torch's mode lets them.

    Args:
        model: A transformers causal language model.
        prompts: Token ids, at least one each.
        completions: Token ids of the answers; may be empty.
        temperature: Divides the logits; 0 means 1, as in sampling.
        pad: Fills rows.

    Returns:
        Log-probabilities, 0 where there is no token, and the mask of those there are; both (rows, longest completion).
    """
    import torch

    device = next(model.parameters()).device
    front, back = max(map(len, prompts)), max(map(len, completions))
    rows = [
        [pad] * (front - len(p)) + [*p, *c] + [pad] * (back - len(c)) for p, c in zip(prompts, completions, strict=True)
    ]
    known = [
        [0] * (front - len(p)) + [1] * (len(p) + len(c)) + [0] * (back - len(c))
        for p, c in zip(prompts, completions, strict=True)
    ]
    ids, attention = torch.tensor(rows, device=device), torch.tensor(known, device=device)
    mask = attention[:, front:].float()
    if back == 0:
        return mask, mask
    logits = forward(model, ids, attention, positions(attention), keep=back + 1).logits[:, -back - 1 : -1].float()
    if temperature > 0:
        logits = logits / temperature
    chosen = logits.gather(-1, ids[:, front:].unsqueeze(-1)).squeeze(-1)
    return (chosen - logits.logsumexp(-1)) * mask, mask


def positions(attention: Tensor) -> Tensor:
    """Positions of tokens that count only what is there, as without padding."""
    return (attention.cumsum(-1) - 1).clamp(min=0)


def forward(model: Any, ids: Tensor, attention: Tensor, places: Tensor, keep: int, **settings: Any) -> Any:
    """One pass, in bfloat16 on a GPU; logits of the last `keep` positions at least."""
    takes = inspect.signature(_core(model).forward).parameters
    if "position_ids" in takes:
        settings["position_ids"] = places
    if "logits_to_keep" in takes:
        settings["logits_to_keep"] = keep
    with half(ids.device):
        return model(input_ids=ids, attention_mask=attention, **settings)


def half(device: Any) -> AbstractContextManager[Any]:
    """Computing in bfloat16 on a GPU."""
    import torch

    return nullcontext() if device.type == "cpu" else torch.autocast(device.type, dtype=torch.bfloat16)


def _core(model: Any) -> Any:
    """The transformers model inside a peft model, whose signature names its arguments."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
