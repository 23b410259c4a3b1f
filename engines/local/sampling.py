"""Sample completions of prompts, token by token, as one batch.

Tokens are drawn by inverse transform sampling: with a uniform number u, the next token is the first
one whose cumulative probability exceeds u. Each row has a random generator of its own, seeded for
that row, and its step t uses the generator's t-th number. So a row gets the same tokens in every
batch, except that rounding in the logits can tip a draw on the border between two tokens.

Shapes in comments: R requests, B rows that are still in the batch, T tokens so far, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .precision import autocast

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


class SampleRequest(NamedTuple):
    """A prompt to complete."""

    prompt_ids: Sequence[int]
    temperature: float
    """At 0 the likeliest token is taken."""
    max_tokens: int
    """The most tokens to draw."""
    seed: int
    """Decides what is drawn above temperature 0; see `row_seed`."""


@dataclass(frozen=True)
class Sample:
    """A completion that was sampled from a local model."""

    prompt_ids: tuple[int, ...] = field(repr=False)
    completion_ids: tuple[int, ...] = field(repr=False)
    """The sampled tokens, including the end-of-sequence token if the model produced one."""
    logprobs: tuple[float, ...] = field(repr=False)
    """The natural log-probability of each of `completion_ids` at the temperature of the request.

    At temperature 0 it is the log-probability at temperature 1.
    """
    text: str
    """The completion without its end-of-sequence token."""
    finished: bool
    """True if the model ended the completion, False if it reached the limit of tokens."""


class Sampler(Protocol):
    """Samples completions, such as a `Batcher` in front of a local model, or a vLLM server."""

    def call(self, row: SampleRequest, /) -> Sample:
        """Return a completion of a prompt."""
        ...


@dataclass
class Completion:
    """The tokens that were drawn so far for one request."""

    max_tokens: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_complete: bool = False

    def append(self, token_id: int, logprob: float, end_ids: frozenset[int]) -> None:
        """Add a token. One of `end_ids`, or the last one allowed, makes the completion complete."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        self.is_complete = token_id in end_ids or len(self.token_ids) >= self.max_tokens


def row_seed(seed: int, prompt: Sequence[int], occurrence: int) -> int:
    """Return the seed of one row.

    Args:
        seed: The base seed.
        prompt: The token ids of the prompt.
        occurrence: Tells apart several draws for the same prompt.
    """
    prompt_text = " ".join(str(token_id) for token_id in prompt)
    digest = hashlib.sha256(f"{seed} {occurrence} {prompt_text}".encode()).digest()
    # torch takes seeds of 63 bits.
    return int.from_bytes(digest[:8], "big") >> 1


def draw_completions(
    model: PreTrainedModel,
    requests: Sequence[SampleRequest],
    end_ids: frozenset[int],
    pad_id: int,
    in_bfloat16: bool = False,
) -> list[Completion]:
    """Complete prompts as one batch.

    Args:
        model: A causal language model.
        requests: The prompts, at least one. None of them is empty.
        end_ids: Tokens that end a completion.
        pad_id: The token that fills shorter prompts; the attention mask hides it.
        in_bfloat16: Whether the model computes in bfloat16.
    """
    import torch

    device = next(model.parameters()).device
    completions = [
        Completion(request.max_tokens, is_complete=request.max_tokens <= 0) for request in requests
    ]
    max_steps = max(request.max_tokens for request in requests)

    # The rows of the batch: at first one for each request.
    batch = list(completions)
    temperatures = torch.tensor(
        [request.temperature for request in requests], dtype=torch.float32, device=device
    )  # (B,)
    uniforms = _uniform_numbers(requests).to(device)  # (B, max_steps)
    ids, attention_mask = _pad_in_front([request.prompt_ids for request in requests], pad_id)
    ids = ids.to(device)  # (B, T)
    attention_mask = attention_mask.to(device)  # (B, T)
    position_ids = _position_ids(attention_mask)  # (B, T)
    cache = None

    for step in range(max_steps):
        with autocast(device, in_bfloat16):
            output = model(
                input_ids=ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        cache = output.past_key_values
        logits = output.logits[:, -1].float()  # (B, V)

        # Draw the next token of every row; rows that are complete ignore theirs.
        next_ids, logprobs = _choose_tokens(logits, temperatures, uniforms[:, step])  # (B,), (B,)
        tokens = zip(batch, next_ids.tolist(), logprobs.tolist(), strict=True)
        for completion, token_id, logprob in tokens:
            if not completion.is_complete:
                completion.append(token_id, logprob, end_ids)

        open_rows = [row for row, completion in enumerate(batch) if not completion.is_complete]
        if not open_rows:
            break

        # Taking rows out copies the cache, so it waits until half of the batch is complete.
        if 2 * len(open_rows) <= len(batch):
            batch = [batch[row] for row in open_rows]
            selection = torch.tensor(open_rows, device=device)
            cache.batch_select_indices(selection)
            temperatures = temperatures[selection]
            uniforms = uniforms[selection]
            next_ids = next_ids[selection]
            attention_mask = attention_mask[selection]

        # The cache holds the tokens so far, so that the next pass reads the new ones only.
        ids = next_ids.unsqueeze(-1)  # (B, 1)
        attention_mask = torch.cat([attention_mask, torch.ones_like(ids)], dim=-1)  # (B, T + 1)
        position_ids = _position_ids(attention_mask)[:, -1:]  # (B, 1)

    return completions


def _pad_in_front(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Return prompts as one tensor and their attention mask, both (R, longest prompt).

    The padding stands in front, so that the last column holds the last token of every prompt.
    """
    import torch

    longest = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), longest), pad_id, dtype=torch.long)
    attention_mask = torch.zeros((len(prompts), longest), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        start = longest - len(prompt)
        ids[row, start:] = torch.tensor(prompt, dtype=torch.long)
        attention_mask[row, start:] = 1
    return ids, attention_mask


def _position_ids(attention_mask: Tensor) -> Tensor:
    """Return the position of each token (B, T), counted without the padding in front of it."""
    return (attention_mask.cumsum(-1) - 1).clamp(min=0)


def _uniform_numbers(requests: Sequence[SampleRequest]) -> Tensor:
    """Return a uniform number in [0, 1) for each request and step, (R, most tokens of a request).

    Requests with temperature 0 need none and get zeros.
    """
    import torch

    max_tokens = max(request.max_tokens for request in requests)
    numbers = torch.zeros(len(requests), max(1, max_tokens), dtype=torch.float64)
    for row, request in enumerate(requests):
        if request.temperature > 0 and request.max_tokens > 0:
            # On the CPU, so that every device draws the same tokens.
            generator = torch.Generator().manual_seed(request.seed)
            numbers[row, : request.max_tokens] = torch.rand(
                request.max_tokens, generator=generator, dtype=torch.float64
            )
    return numbers


def _choose_tokens(logits: Tensor, temperatures: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next token of each row and its log-probability, both (B,).

    Args:
        logits: Of the next token, (B, V).
        temperatures: (B,); a row with temperature 0 gets its likeliest token.
        uniforms: A number in [0, 1) for each row, (B,), in double precision.
    """
    import torch

    is_greedy = temperatures <= 0  # (B,)
    divisors = torch.where(is_greedy, torch.ones_like(temperatures), temperatures)  # (B,)
    logprobs = (logits / divisors.unsqueeze(-1)).log_softmax(-1)  # (B, V)

    # By rounding, the last cumulative sum is not exactly 1, so the numbers are scaled to it.
    cumulative = logprobs.double().exp().cumsum(-1)  # (B, V)
    thresholds = uniforms * cumulative[:, -1]  # (B,)

    # `right=True` finds the first token with a sum above the threshold. A token of probability 0
    # has the sum of the token before it, so it is never the first.
    sampled_ids = torch.searchsorted(cumulative, thresholds.unsqueeze(-1), right=True).squeeze(-1)
    sampled_ids = sampled_ids.clamp(max=logits.shape[-1] - 1)  # (B,)

    token_ids = torch.where(is_greedy, logits.argmax(-1), sampled_ids)  # (B,)
    return token_ids, logprobs.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
