"""Sampling token by token, and log-probabilities of given completions in one forward pass.

Each token is drawn by inverse transform: row r, step t uses the t-th uniform number of a generator seeded for that row
alone, so what a row gets does not depend on its neighbours in the batch (up to rounding in the logits, which can tip a
draw that falls on the border between two tokens).

    prompt | completion | padding
    log p(token t) = log softmax(logits[t - 1] / temperature)[token t]

Logits to be learned from would fill gigabytes, so they are made of the hidden states in chunks, and the backward pass
makes them again; architectures that scale or cap them afterwards (Gemma 2, Cohere, Granite) are found by a trial with
one token, and make all of theirs. Padding comes last there, where a causal model cannot see it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


CHUNK = 1 << 25
"""Logits that are there at a time: 128 MiB of float32."""


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


SampleRequest = tuple[Sequence[int], float, int, int]
"""A call to sample: token ids of the prompt, temperature (0: the likeliest token), most new tokens, `row_seed`."""


def row_seed(seed: int, prompt: Sequence[int], occurrence: int) -> int:
    """The seed of one row: from a base seed, the prompt, and which of several draws for that prompt it is."""
    told = f"{seed} {occurrence} {' '.join(map(str, prompt))}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big") >> 1


def draw(
    model: Any, asked: Sequence[SampleRequest], ends: frozenset[int], pad: int, half: bool = False
) -> list[tuple[list[int], list[float]]]:
    """Completes prompts as one batch; rows are filled up with `pad`, and end with one of `ends`.

    Returns:
        Of each prompt the tokens that were drawn, and their log-probabilities.
    """
    import torch

    prompts, heats, limits, _ = zip(*asked, strict=True)
    device, front = next(model.parameters()).device, max(map(len, prompts))
    drawn: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    uniforms = _uniforms(asked).to(device)
    warmth = torch.tensor(heats, device=device, dtype=torch.float32)
    live = list(range(len(prompts)))
    rows = [[pad] * (front - len(p)) + list(p) for p in prompts]
    known = [[0] * (front - len(p)) + [1] * len(p) for p in prompts]
    ids, attention = torch.tensor(rows, device=device), torch.tensor(known, device=device)
    places, cache = _positions(attention), None
    open_rows = {row for row in live if limits[row] > 0}
    for step in range(max(limits)):
        with computing(device, half):
            more = {"attention_mask": attention, "position_ids": places, "past_key_values": cache}
            out = model(input_ids=ids, **more, use_cache=True, logits_to_keep=1)
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
        places = _positions(attention)[:, -1:]
    return drawn


def _uniforms(asked: Sequence[SampleRequest]) -> Tensor:
    # Made on the CPU, so that every device draws alike.
    import torch

    longest = max(limit for _, _, limit, _ in asked)
    found = torch.zeros(len(asked), max(1, longest), dtype=torch.float64)
    for row, (_, heat, limit, seed) in enumerate(asked):
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


def _positions(attention: Tensor) -> Tensor:
    """Positions of tokens that count only what is there, as without padding."""
    return (attention.cumsum(-1) - 1).clamp(min=0)


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
