"""Log-probabilities of given completions, in one forward pass.

    prompt | completion | padding
    log p(token t) = log softmax(logits[t - 1] / temperature)[token t]

Padding comes last, where a causal model cannot see it, so no mask is needed. Logits are as wide as the vocabulary (152
thousand for Qwen2.5): those of 8 completions of 512 tokens fill 2.5 GB, and a loss needs them four times. So they are
made of the hidden states a chunk at a time, and the backward pass makes them again. That is right where logits are the
head's output and nothing else: architectures that scale or cap them afterwards (Gemma 2, Cohere, Granite) are found by
a trial with one token, and make all of theirs.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
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

    Args:
        model: A transformers causal language model.
        prompts: Token ids, at least one each.
        completions: Token ids of the answers; may be empty.
        temperature: Divides the logits; 0 means 1, as in sampling.
        pad: Fills rows.
        half: Whether it computes in bfloat16.
        plain: Whether its logits are its head's output (`is_plain`), and may be made in chunks of `most`.
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
    head = _core(model).get_output_embeddings() if plain else None
    offered = {"use_cache": False, "logits_to_keep": width - min(map(len, prompts)) + 1}
    given = {name: value for name, value in offered.items() if name in _takes(type(_core(model)))}
    with computing(device, half):
        with _headless(head) if head is not None else nullcontext():
            out = model(input_ids=ids, **given).logits
        states, tokens = out[row, place - (width - out.shape[1])], ids[row, place + 1]
        if head is None:
            values = _pick(states, tokens, temperature)
        else:
            values = _in_chunks(head, states, tokens, temperature, most)
    return found.masked_scatter(there, values), there.float()


def positions(attention: Tensor) -> Tensor:
    """Positions of tokens that count only what is there, as without padding."""
    return (attention.cumsum(-1) - 1).clamp(min=0)


def forward(model: Any, ids: Tensor, attention: Tensor, places: Tensor, half: bool, **settings: Any) -> Any:
    """One pass for sampling, with the logits of the last position at least."""
    offered = {"position_ids": places, "logits_to_keep": 1}
    settings |= {name: value for name, value in offered.items() if name in _takes(type(_core(model)))}
    with computing(ids.device, half):
        return model(input_ids=ids, attention_mask=attention, **settings)


def computing(device: Any, half: bool) -> AbstractContextManager[Any]:
    """Computing in bfloat16, if wanted."""
    import torch

    return torch.autocast(device.type, dtype=torch.bfloat16) if half else nullcontext()


def is_plain(model: Any) -> bool:
    """Whether a model's logits are its head's output, unchanged: tried with one token."""
    import torch

    head, seen = _core(model).get_output_embeddings(), list[Any]()
    if not hasattr(head, "out_features"):
        return False
    # Not token 0, which often is padding, whose hidden state may be all zeros.
    ids = torch.ones(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    try:
        with torch.no_grad(), _headless(head, seen):
            logits = _core(model)(input_ids=ids).logits
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False  # what follows the head does not work on hidden states
    # The copy tells an architecture that changes logits in place.
    return len(seen) == 1 and logits is seen[0][0] and torch.equal(*seen[0])


def _core(model: Any) -> Any:
    """The transformers model inside a peft model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@cache
def _takes(kind: type) -> Collection[str]:
    return frozenset(inspect.signature(kind.forward).parameters)


@contextmanager
def _headless(head: Any, seen: list[tuple[Tensor, Tensor]] | None = None) -> Iterator[None]:
    """Inside, the head hands on the hidden states that it gets; `seen` collects them, each with a copy."""

    def hand_on(hidden: Tensor) -> Tensor:
        if seen is not None:
            seen.append((hidden, hidden.clone()))
        return hidden

    head.forward = hand_on
    try:
        yield
    finally:
        del head.forward


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
