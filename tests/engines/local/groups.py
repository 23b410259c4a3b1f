"""Samples of local models, and groups of completions with rewards, for tests of trainings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from mempiler.engines.call_context import call_context
from mempiler.engines.local.sampling import SampleRequest, row_seed
from mempiler.programs.threads import gather

PROMPT = "w1 w2"
"""Two words of the vocabulary in `conftest.py`."""
MESSAGES = [{"role": "user", "content": PROMPT}]


# Samples.


@contextmanager
def record_samples() -> Iterator[list[Any]]:
    """Yield a list of the samples that local models draw for the calls in the block."""
    samples: list[Any] = []

    def record(call: Any, answers: Any, samples_of_call: Sequence[Any]) -> None:
        samples.extend(samples_of_call)

    with call_context(on_call=record):
        yield samples


def draw(
    model: Any,
    prompts: Sequence[Sequence[int]],
    temperature: float = 0.0,
    max_tokens: int = 512,
    seed: int = 0,
) -> list[Any]:
    """Return a sample for each prompt, given as token ids; each row gets a seed of its own."""
    requests: list[SampleRequest] = []
    for number, prompt in enumerate(prompts):
        row_seed_of_prompt = row_seed(seed, prompt, number)
        requests.append(SampleRequest(prompt, temperature, max_tokens, row_seed_of_prompt))
    return model.sample(requests)


# Groups: several completions of one prompt with their rewards, which a step of a training compares.


def sampled_group(lm: Any, count: int, reward: Callable[[Any], float]) -> dict[str, Any]:
    """Return a group of completions that a model gave to `PROMPT`, with their rewards."""
    calls = [
        partial(lm.copy(rollout_id=number, temperature=1.0), PROMPT) for number in range(count)
    ]
    with record_samples() as samples:
        gather(calls)
    return {"group": [{**vars(sample), "reward": reward(sample)} for sample in samples]}


def text_group(model: Any, *texts: str, rewards: Sequence[float], **extra: Any) -> dict[str, Any]:
    """Return a group of texts, as if a model had given them to `PROMPT`, with their rewards.

    Args:
        model: Encodes the texts, and gives their log-probabilities.
        *texts: The texts.
        rewards: One for each text.
        **extra: Further fields of the group.
    """
    prompt_ids = model.encode(MESSAGES)
    completions = [model.encode_completion(text) for text in texts]
    logprobs = model.logprobs([prompt_ids] * len(texts), completions)

    members: list[dict[str, Any]] = []
    for completion_ids, values, reward in zip(completions, logprobs, rewards, strict=True):
        member = {
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "logprobs": values,
            "reward": reward,
        }
        members.append(member)
    return {"group": members, **extra}


# Cases that the released code of Memory-R2 was run on.


class PolicyRow(NamedTuple):
    """What the loss of a policy averages: a turn, or a trajectory with all its turns."""

    old_logprobs: list[float]
    new_logprobs: list[float]
    advantage: float


def policy_rows(case_input: dict[str, Any]) -> tuple[list[PolicyRow], dict[str, Any]]:
    """Return the rows of a released case, and the settings of our loss that it stands for.

    Args:
        case_input: The input of a case: for each trajectory the old and the new log-probability and
            the advantage of each token, and the turn to which it belongs.
    """
    averages_turns = case_input["aggregation"] == "turn" or case_input["clip_mode"] == "turn"
    trajectories = zip(
        case_input["old_logprobs"],
        case_input["logprobs"],
        case_input["advantages"],
        case_input["turn_of_token"],
        strict=True,
    )

    rows: list[PolicyRow] = []
    for old_logprobs, new_logprobs, advantages, turns in trajectories:
        for places in _places_of_rows(turns, averages_turns):
            row = PolicyRow(
                [old_logprobs[place] for place in places],
                [new_logprobs[place] for place in places],
                advantages[places[0]],  # all tokens of a row have the same advantage
            )
            rows.append(row)

    settings = {
        "dual_clip": case_input["dual_clip"],
        "log_ratio_clip": case_input["log_ratio_clip"],
        "clip_low": case_input["clip"],
        "clip_high": case_input["clip"],
        "ratio": case_input["clip_mode"],
        "loss_type": "dapo" if case_input["aggregation"] == "token" else "grpo",
    }
    return rows, settings


def _places_of_rows(turns: list[int], averages_turns: bool) -> list[list[int]]:
    """Return the places of the tokens of each turn, or of all turns together.

    Args:
        turns: The turn of each token; -100 for a token that is not trained.
        averages_turns: Whether each turn is a row.
    """
    trained_places = [place for place, turn in enumerate(turns) if turn != -100]
    if not averages_turns:
        return [trained_places]

    places_by_turn: dict[int, list[int]] = {}
    for place in trained_places:
        places_by_turn.setdefault(turns[place], []).append(place)
    return list(places_by_turn.values())


# Failures.


def run_out_of_memory_above(model: Any, max_rows: int, in_training_only: bool = False) -> list[int]:
    """Have passes with more rows fail as they do when the memory of a GPU runs out.

    Args:
        model: A local model.
        max_rows: The most rows of a pass that succeeds.
        in_training_only: Whether passes without gradients are left alone, and not counted.

    Returns:
        A list to which the number of rows of every pass is added.
    """
    import torch

    row_counts: list[int] = []

    def count_rows(embedding_layer: Any, inputs: tuple[Any, ...]) -> None:
        if in_training_only and not torch.is_grad_enabled():
            return
        ids = inputs[0]  # (rows, tokens)
        row_counts.append(len(ids))
        if len(ids) > max_rows:
            raise torch.OutOfMemoryError("CUDA out of memory")

    # Every pass begins with the layer that turns token ids into vectors.
    model.model.get_input_embeddings().register_forward_pre_hook(count_rows)
    return row_counts
