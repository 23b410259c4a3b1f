"""Log-probabilities from hidden states: the logits of a few positions at a time, instead of all of them at once.

    hidden states (rows, tokens, width) ── what is scored, in chunks ──> head ── log-softmax ──> one number each

Logits are as wide as the vocabulary (152 thousand for Qwen2.5): those of 8 completions of 512 tokens fill 2.5 GB, and a
loss needs them four times. Only the chunk that is worked on has logits here; the backward pass makes them again.

That is right where logits are the head's output and nothing else. Architectures that scale or cap them afterwards
(Gemma 2, Cohere, Granite) are found by a trial with one token, not by name; their logits are made as they make them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 25
"""Logits that are there at a time: 128 MiB of float32."""


def core(model: Any) -> Any:
    """The transformers model inside a peft model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def output_head(model: Any) -> Any:
    """The module that makes logits of hidden states, with its adapter where it has one; None where there is none."""
    return core(model).get_output_embeddings()


@contextmanager
def headless(head: Any, seen: list[tuple[Tensor, Tensor]] | None = None) -> Iterator[None]:
    """Inside, the head hands on the hidden states that it gets; `seen` collects them, each with a copy."""
    own = head.__dict__.get("forward")

    def hand_on(hidden: Tensor) -> Tensor:
        if seen is not None:
            seen.append((hidden, hidden.clone()))
        return hidden

    head.forward = hand_on
    try:
        yield
    finally:
        if own is None:
            del head.forward
        else:
            head.forward = own


def is_plain(model: Any) -> bool:
    """Whether a model's logits are its head's output, unchanged: tried with one token."""
    import torch

    head, seen = output_head(model), []
    if not hasattr(head, "out_features"):
        return False
    # Not token 0, which often is padding, whose hidden state may be all zeros.
    ids = torch.ones(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    try:
        with torch.no_grad(), headless(head, seen):
            logits = core(model)(input_ids=ids).logits
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return False  # what follows the head does not work on hidden states
    # The copy tells an architecture that changes logits in place.
    return len(seen) == 1 and logits is seen[0][0] and torch.equal(*seen[0])


def chosen_logprobs(head: Any, hidden: Tensor, tokens: Tensor, temperature: float, most: int = CHUNK) -> Tensor:
    """Log-probability of one token for each hidden state; gradients flow to both the states and the head.

    Args:
        head: A linear map to logits.
        hidden: (positions, width).
        tokens: (positions,).
        temperature: Divides the logits; 0 means 1.
        most: Logits that may be there at a time; there is always room for one position.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    def part(hidden: Tensor, tokens: Tensor) -> Tensor:
        return pick(head(hidden), tokens, temperature)

    size = max(1, most // head.out_features)
    if len(tokens) <= size:
        return part(hidden, tokens)
    pairs = zip(hidden.split(size), tokens.split(size), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([part(*pair) for pair in pairs])
    settings: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([torch.as_tensor(checkpoint(part, *pair, **settings)) for pair in pairs])


def pick(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Log-probability of one token for each row of logits."""
    logits = logits.float()
    if temperature > 0:
        logits = logits / temperature
    return logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)
