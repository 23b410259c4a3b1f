"""Log-probabilities of given completions, in one forward pass.

    prompt | completion | padding
    log p(token t) = log softmax(logits[t - 1] / temperature)[token t]

Padding comes last, where a causal model cannot see it. Logits would fill gigabytes, so they are made of the hidden
states in chunks, and the backward pass makes them again; architectures that scale or cap them afterwards (Gemma 2,
Cohere, Granite) are found by a trial with one token, and make all of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 25
"""Logits that are there at a time: 128 MiB of float32."""


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

    The temperature divides the logits; 0 means 1, as in sampling. Of `plain` ones (`is_plain`) only `most`
    are there at a time.

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
    core, tokens = _core(model), ids[row, place + 1]
    with computing(device, half):
        if plain:
            states = core.base_model(input_ids=ids, use_cache=False).last_hidden_state
            values = _in_chunks(core.get_output_embeddings(), states[row, place], tokens, temperature, most)
        else:
            values = _pick(model(input_ids=ids, use_cache=False).logits[row, place], tokens, temperature)
    return found.masked_scatter(there, values), there.float()


def positions(attention: Tensor) -> Tensor:
    """Positions of tokens that count only what is there, as without padding."""
    return (attention.cumsum(-1) - 1).clamp(min=0)


def forward(model: Any, ids: Tensor, attention: Tensor, places: Tensor, half: bool, **settings: Any) -> Any:
    """One pass for sampling, with the logits of the last position."""
    with computing(ids.device, half):
        return model(input_ids=ids, attention_mask=attention, position_ids=places, logits_to_keep=1, **settings)


def computing(device: Any, half: bool) -> AbstractContextManager[Any]:
    """Computing in bfloat16, if wanted."""
    import torch

    return torch.autocast(device.type, dtype=torch.bfloat16) if half else nullcontext()


def is_plain(model: Any) -> bool:
    """Whether a model's logits are its head's output, unchanged: tried with one token."""
    import torch

    core = _core(model)
    head = core.get_output_embeddings()
    if not hasattr(head, "out_features") or core.base_model is core:
        return False
    # Not token 0, which often is padding, whose hidden state may be all zeros.
    ids = torch.ones(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    with torch.no_grad():
        return torch.equal(head(core.base_model(input_ids=ids).last_hidden_state), core(input_ids=ids).logits)


def _core(model: Any) -> Any:
    """The transformers model inside a peft model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _in_chunks(head: Any, hidden: Tensor, tokens: Tensor, temperature: float, most: int) -> Tensor:
    """Log-probability of one token for each hidden state; gradients flow to both the states and the head."""
    import torch
    from torch.utils.checkpoint import checkpoint

    def part(hidden: Tensor, tokens: Tensor) -> Tensor:
        return _pick(head(hidden), tokens, temperature)

    size = max(1, most // head.out_features)
    if len(tokens) <= size:
        return part(hidden, tokens)
    pairs = zip(hidden.split(size), tokens.split(size), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([part(*pair) for pair in pairs])
    settings: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([torch.as_tensor(checkpoint(part, *pair, **settings)) for pair in pairs])


def _pick(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Log-probability of one token for each row of logits."""
    logits = logits.float()
    if temperature > 0:
        logits = logits / temperature
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)
