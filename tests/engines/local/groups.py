"""What models sample, and groups of completions with rewards, for tests of local models."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mempiler.engines.call_context import call_context
from mempiler.engines.local.sampling import SampleRequest, row_seed
from mempiler.programs.threads import gather

PROMPT = "w1 w2"
ASKED = [{"role": "user", "content": PROMPT}]


@contextmanager
def samples_heard() -> Iterator[list[Any]]:
    """The raw completions of the block's calls."""
    found: list[Any] = []
    with call_context(on_call=lambda asked, answers, samples: found.extend(samples)):
        yield found


def sample(
    model: Any, prompts: Any, temperature: float = 0.0, tokens: int = 512, seed: int = 0
) -> Any:
    """Completes prompts, each with a seed of its own that follows from one."""
    return model.sample(
        [
            SampleRequest(prompt, temperature, tokens, row_seed(seed, prompt, number))
            for number, prompt in enumerate(prompts)
        ]
    )


def sampled_group(lm: Any, count: int, reward: Callable[[Any], float]) -> dict[str, Any]:
    """What a model says to the prompt, each time with a rollout id of its own."""
    with samples_heard() as samples:
        gather([lambda n=n: lm.copy(rollout_id=n, temperature=1.0)(PROMPT) for n in range(count)])
    return {"group": [{**vars(each), "reward": reward(each)} for each in samples]}


def text_group(model: Any, *texts: str, rewards: Sequence[float], **extra: Any) -> dict[str, Any]:
    """Texts as if the model had sampled them."""
    prompt, answers = model.encode(ASKED), [model.encode_completion(text) for text in texts]
    values = model.logprobs([prompt] * len(texts), answers)
    names = ("prompt_ids", "completion_ids", "logprobs", "reward")
    rows = zip([prompt] * len(texts), answers, values, rewards, strict=True)
    return {"group": [dict(zip(names, row, strict=True)) for row in rows], **extra}


def policy_rows(given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Log-probabilities, old and new, and the advantage of each row of a released vector; settings of its loss."""
    # A row of ours is what is averaged: a turn, or for the other two a trajectory with all its turns.
    per_turn = given["aggregation"] == "turn" or given["clip_mode"] == "turn"
    names = ("old_logprobs", "logprobs", "advantages", "turn_of_token")
    rows = [
        ([old[n] for n in at], [new[n] for n in at], gains[at[0]])
        for old, new, gains, turns in zip(*(given[name] for name in names), strict=True)
        for at in _parts(turns, per_turn)
    ]
    same = {name: given[name] for name in ("dual_clip", "log_ratio_clip")}
    clips = {"clip_low": given["clip"], "clip_high": given["clip"], "ratio": given["clip_mode"]}
    return rows, {
        **same,
        **clips,
        "loss_type": "dapo" if given["aggregation"] == "token" else "grpo",
    }


def _parts(turns: list[int], per_turn: bool) -> list[list[int]]:
    """Places of the tokens of each turn, or of all turns; -100 marks a token that is not trained."""
    own = [n for n, turn in enumerate(turns) if turn != -100]
    return (
        [[n for n in own if turns[n] == turn] for turn in dict.fromkeys(turns[n] for n in own)]
        if per_turn
        else [own]
    )
