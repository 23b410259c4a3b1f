"""Compute the log-probabilities of given completions in one forward pass.

    row               prompt | completion | padding
    log p(token t)  = log softmax(logits[t - 1] / temperature)[token t]

The logits of all tokens would fill gigabytes in training: tokens x vocabulary x 4 bytes, and again
for the gradient. So the model is asked for hidden states only, the output layer turns them into
logits chunk by chunk, and the backward pass computes each chunk again. That needs an architecture
whose logits are its output layer's, which `has_plain_logits` finds out. Gemma 2, Cohere and Granite
scale or cap their logits afterwards; they compute all of them at once.

The padding stands behind the tokens, where a causal model cannot see it.

Shapes in comments: R rows, T tokens of the longest row, C tokens of the longest completion,
N completion tokens of all rows, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .precision import autocast

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear
    from transformers import PreTrainedModel

MAX_LOGITS = 1 << 25
"""Logits that are held at a time: 128 MiB in float32."""


def token_logprobs(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    temperature: float,
    pad_id: int,
    in_bfloat16: bool = False,
    max_logits: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token of each completion, and a mask of these tokens.

    Gradients flow through the log-probabilities, unless torch's mode forbids it.

    Args:
        model: A causal language model, or a peft model over one.
        prompts: The token ids of each row's prompt.
        completions: The token ids of each row's completion.
        temperature: Divides the logits. 0 means 1, as for a `Sample`.
        pad_id: The token that fills shorter rows.
        in_bfloat16: Whether the model computes in bfloat16.
        max_logits: Logits to hold at a time, for a model that `has_plain_logits`. None computes all
            of them at once.

    Returns:
        Two tensors (R, C): log-probabilities, 0 where a row has no token, and a mask of 1 and 0.
    """
    import torch

    device = next(model.parameters()).device
    lengths = torch.tensor([len(completion) for completion in completions], device=device)  # (R,)
    longest_completion = max(len(completion) for completion in completions)
    logprobs = torch.zeros(len(completions), longest_completion, device=device)  # (R, C)
    if longest_completion == 0:
        return logprobs, logprobs
    mask = torch.arange(longest_completion, device=device) < lengths.unsqueeze(-1)  # (R, C)

    ids, is_target = _pad_behind(prompts, completions, pad_id)
    ids = ids.to(device)  # (R, T)
    # The row and the column of each completion token, row by row.
    rows, columns = is_target.to(device).nonzero(as_tuple=True)  # (N,), (N,)
    targets = ids[rows, columns]  # (N,)
    # The logits that predict a token stand one column before it.
    predictors = columns - 1  # (N,)

    with autocast(device, in_bfloat16):
        if max_logits is None:
            logits = model(input_ids=ids, use_cache=False).logits  # (R, T, V)
            values = _target_logprobs(logits[rows, predictors], targets, temperature)  # (N,)
        else:
            causal_lm = _without_adapter(model)
            output = causal_lm.base_model(input_ids=ids, use_cache=False)
            hidden = output.last_hidden_state[rows, predictors]  # (N, D)
            head = causal_lm.get_output_embeddings()
            values = _logprobs_in_chunks(head, hidden, targets, temperature, max_logits)  # (N,)

    return logprobs.masked_scatter(mask, values), mask.float()


def has_plain_logits(model: PreTrainedModel) -> bool:
    """Try on one token whether a model's logits are its output layer's, unchanged.

    Then they can be computed from the hidden states piece by piece, which saves memory. Some models
    scale or cap what the output layer returns.
    """
    import torch

    causal_lm = _without_adapter(model)
    head = causal_lm.get_output_embeddings()
    is_head_linear = hasattr(head, "out_features")
    has_separate_base = causal_lm.base_model is not causal_lm
    if not is_head_linear or not has_separate_base:
        # Hidden states and output layer cannot be computed apart from each other.
        return False

    # Not token 0: it often is the padding, whose hidden state may be all zeros.
    device = next(model.parameters()).device
    ids = torch.ones(1, 1, dtype=torch.long, device=device)
    with torch.no_grad():
        hidden = causal_lm.base_model(input_ids=ids).last_hidden_state  # (1, 1, D)
        return torch.equal(head(hidden), causal_lm(input_ids=ids).logits)


def _without_adapter(model: Any) -> Any:
    """Return the transformers model inside a peft model; its layers still apply the adapter."""
    if hasattr(model, "get_base_model"):
        return model.get_base_model()
    return model


def _pad_behind(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], pad_id: int
) -> tuple[Tensor, Tensor]:
    """Return the token ids of all rows and a mask of the completion tokens, both (R, T)."""
    import torch

    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad_id, dtype=torch.long)
    is_target = torch.zeros((len(rows), longest), dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row, dtype=torch.long)
        is_target[number, len(prompts[number]) : len(row)] = True
    return ids, is_target


def _logprobs_in_chunks(
    head: Linear, hidden: Tensor, targets: Tensor, temperature: float, max_logits: int
) -> Tensor:
    """Return the log-probability of each target (N,) from the hidden states before them (N, D).

    Gradients flow to the hidden states and to the weights of the head.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    vocabulary = head.out_features
    chunk_size = max(1, max_logits // vocabulary)
    if len(targets) <= chunk_size:
        return _head_logprobs(head, hidden, targets, temperature)

    chunks = zip(hidden.split(chunk_size), targets.split(chunk_size), strict=True)
    values: list[Tensor] = []
    for hidden_chunk, target_chunk in chunks:
        if torch.is_grad_enabled():
            # Keep the chunk's hidden states only; its logits are computed again for the gradient.
            chunk_values = checkpoint(
                _head_logprobs,
                head,
                hidden_chunk,
                target_chunk,
                temperature,
                use_reentrant=False,
                preserve_rng_state=False,
            )
        else:
            chunk_values = _head_logprobs(head, hidden_chunk, target_chunk, temperature)
        values.append(torch.as_tensor(chunk_values))
    return torch.cat(values)


def _head_logprobs(head: Linear, hidden: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the log-probability of each target (N,), from the hidden states before them (N, D)."""
    return _target_logprobs(head(hidden), targets, temperature)


def _target_logprobs(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the log-probability of each target (N,) under its row of logits (N, V)."""
    logits = logits.float()
    if temperature > 0:
        logits = logits / temperature
    target_logits = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # (N,)
    return target_logits - logits.logsumexp(-1)
